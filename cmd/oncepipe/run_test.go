package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// desk is a person with the command before a SQLite file, which is at the same
// time open to the test.
type desk struct {
	t   *testing.T
	dsn string
	st  oncepipe.Store
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, dsn: "sqlite:" + filepath.Join(t.TempDir(), "with space?#.db")}
	d.good("the tables are there\n", "migrate")
	st, closer, err := open(t.Context(), d.dsn, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	})
	d.st = st
	return d
}

func (d *desk) run(args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = run(context.Background(), append([]string{"-dsn", d.dsn}, args...), func(string) string { return "" }, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// spans are what time does to an output.
var spans = regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?s\b|(_seconds":)[-0-9.e]+`)

func scrub(s string) string { return spans.ReplaceAllString(s, "${4}T") }

// good wants an exit code 0 and this output.
func (d *desk) good(want string, args ...string) {
	d.t.Helper()
	code, out, errOut := d.run(args...)
	if code != exitGood || errOut != "" {
		d.t.Errorf("%v: exit %d: %s", args, code, errOut)
	}
	if got := scrub(out); got != want {
		d.t.Errorf("%v printed\n%s\nwant\n%s", args, got, want)
	}
}

// bad wants an exit code, nothing on the output, and an error that says this.
func (d *desk) bad(want int, says string, args ...string) {
	d.t.Helper()
	code, out, errOut := d.run(args...)
	if code != want || out != "" || !strings.Contains(errOut, says) || !strings.HasPrefix(errOut, "oncepipe: ") {
		d.t.Errorf("%v: exit %d, output %q, errors %q; want exit %d and %q", args, code, out, errOut, want, says)
	}
}

func (d *desk) claim(ns, key string, lease time.Duration) (oncepipe.RecordID, oncepipe.ClaimID) {
	d.t.Helper()
	id, claim := oncepipe.RecordID{Namespace: ns, Key: key}, oncepipe.NewClaimID()
	answers, err := d.st.Claim(d.t.Context(), []oncepipe.ClaimRequest{{RecordID: id, Claim: claim, Lease: lease, Owner: "host/7", Fingerprint: "fp"}})
	if err != nil || answers[0].Status != oncepipe.ClaimAcquired {
		d.t.Fatal(answers, err)
	}
	return id, claim
}

func (d *desk) release(ns, key string, rel oncepipe.ReleaseRequest) {
	d.t.Helper()
	rel.RecordID, rel.Claim = d.claim(ns, key, time.Hour)
	if held, err := d.st.Release(d.t.Context(), []oncepipe.ReleaseRequest{rel}); err != nil || !held[0] {
		d.t.Fatal(held, err)
	}
}

func (d *desk) fail(ns, key, payload string) {
	d.t.Helper()
	d.release(ns, key, oncepipe.ReleaseRequest{To: oncepipe.ToFailed, Reason: "permanent: no price", Payload: []byte(payload)})
}

// failMany fails key-000 to key-(n-1), in ns0 and ns1 by turns.
func (d *desk) failMany(n int) {
	d.t.Helper()
	claims := make([]oncepipe.ClaimRequest, n)
	releases := make([]oncepipe.ReleaseRequest, n)
	for i := range n {
		id := oncepipe.RecordID{Namespace: fmt.Sprint("ns", i%2), Key: fmt.Sprintf("key-%03d", i)}
		claims[i] = oncepipe.ClaimRequest{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: time.Hour}
		releases[i] = oncepipe.ReleaseRequest{RecordID: id, Claim: claims[i].Claim, To: oncepipe.ToFailed, Payload: []byte("v")}
	}
	_, err1 := d.st.Claim(d.t.Context(), claims)
	_, err2 := d.st.Release(d.t.Context(), releases)
	if err := errors.Join(err1, err2); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) complete(ns, key, result string) {
	d.t.Helper()
	id, claim := d.claim(ns, key, time.Hour)
	if held, err := d.st.Complete(d.t.Context(), []oncepipe.Completion{{RecordID: id, Claim: claim, Result: []byte(result), HasResult: result != ""}}); err != nil || !held[0] {
		d.t.Fatal(held, err)
	}
}

func (d *desk) state(ns, key string, want oncepipe.State) oncepipe.Record {
	d.t.Helper()
	recs, err := d.st.Lookup(d.t.Context(), []oncepipe.RecordID{idOf(ns, key)})
	if err != nil {
		d.t.Fatal(err)
	}
	if recs[0].State != want {
		d.t.Errorf("%s of %s is %v, want %v", key, ns, recs[0].State, want)
	}
	return recs[0]
}

func TestShow(t *testing.T) {
	d := newDesk(t)
	d.fail("shop/charge", "order-1", `{"id":1}`)
	d.fail("shop/refund", "order-1", "bell \a")
	d.complete("shop/charge", "order-2", `"receipt"`)
	d.claim("shop/charge", "order-3", time.Hour)
	d.claim("shop/charge", "order-4", time.Millisecond)
	d.release("shop/charge", "order-5", oncepipe.ReleaseRequest{To: oncepipe.ToWaiting, Delay: time.Hour})
	d.release("shop/charge", "order-6", oncepipe.ReleaseRequest{To: oncepipe.ToUnknown, Payload: []byte("\xff")})
	first := `namespace    shop/charge
key          order-1
state        failed
attempts     1
takeovers    0
fence        1
owner        host/7
fingerprint  fp
kept for     T
reason       permanent: no price
payload      {"id":1}
`
	d.good(first, "show", "order-1", "-namespace", "shop/charge")
	second := strings.ReplaceAll(strings.ReplaceAll(first, "shop/charge", "shop/refund"), `{"id":1}`, `"bell \a"`)
	d.good(first+"\n"+second, "show", "order-1")
	for key, want := range map[string]string{
		"order-2": "kept for     T\nresult       \"receipt\"\n",
		"order-3": "lease        T\n",
		"order-5": "due in       T\nkept for     T\n",
		"order-6": "payload      \"\\xff\"\n",
	} {
		code, out, _ := d.run("-namespace", "shop/charge", "show", key)
		if out = scrub(out); code != exitGood || !strings.HasSuffix(out, want) {
			t.Errorf("%s: exit %d\n%s\nwant at its end\n%s", key, code, out, want)
		}
	}
	wantOver(d, "order-4")

	d.good(`{"namespace":"shop/charge","key":"order-1","state":"failed","fence":1,"attempt":1,"takeovers":0,"owner":"host/7","fingerprint":"fp","retention_seconds":T,"reason":"permanent: no price","payload":"{\"id\":1}"}
`, "-json", "-namespace", "shop/charge", "show", "order-1")
	d.good(`{"namespace":"shop/charge","key":"order-2","state":"completed","fence":1,"attempt":1,"takeovers":0,"owner":"host/7","fingerprint":"fp","retention_seconds":T,"result":"\"receipt\""}
`, "-json", "-namespace", "shop/charge", "show", "order-2")
	d.good(`{"namespace":"shop/charge","key":"order-3","state":"claimed","fence":1,"attempt":1,"takeovers":0,"owner":"host/7","fingerprint":"fp","lease_seconds":T}
`, "-json", "-namespace", "shop/charge", "show", "order-3")
	d.good(`{"namespace":"shop/charge","key":"order-5","state":"waiting","fence":1,"attempt":1,"takeovers":0,"owner":"host/7","fingerprint":"fp","wait_seconds":T,"retention_seconds":T}
`, "-json", "show", "order-5")
	d.good(`{"namespace":"shop/charge","key":"order-6","state":"unknown","fence":1,"attempt":1,"takeovers":0,"owner":"host/7","fingerprint":"fp","payload_base64":"/w=="}
`, "-json", "show", "order-6")

	d.bad(exitNotFound, "with -namespace", "show", "order-2") // completed
	d.bad(exitNotFound, "no record", "show", "order-9", "-namespace", "shop/charge")
}

// wantOver waits until the record's lease is over.
func wantOver(d *desk, key string) {
	d.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, out, _ := d.run("-namespace", "shop/charge", "show", key)
		if strings.HasSuffix(out, "lease        over\n") {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("the lease of %s is not over: %s", key, out)
		}
	}
}

func TestForget(t *testing.T) {
	d := newDesk(t)
	d.fail("shop/charge", "order-1", "v")
	d.good("forgotten: order-1 of shop/charge\n", "forget", "order-1")
	d.state("shop/charge", "order-1", oncepipe.StateAbsent)
	d.bad(exitNotFound, "order-1", "forget", "order-1")
	d.fail("a", "twice", "v")
	d.fail("b", "twice", "v")
	d.bad(exitError, "choose one with -namespace: a, b", "forget", "twice")
	d.good(`{"namespace":"a","key":"twice","forgotten":true}`+"\n", "-json", "forget", "-namespace", "a", "twice")
	d.state("b", "twice", oncepipe.StateFailed)

	d.claim("shop/charge", "live", time.Hour)
	d.bad(exitLive, "claimed by host/7 for", "forget", "live", "-namespace", "shop/charge")
	d.state("shop/charge", "live", oncepipe.StateClaimed)
	d.good("forgotten: live of shop/charge\n", "forget", "live", "-namespace", "shop/charge", "-force")
	d.state("shop/charge", "live", oncepipe.StateAbsent)
	d.claim("shop/charge", "left", time.Millisecond)
	wantOver(d, "left")
	d.good("forgotten: left of shop/charge\n", "forget", "left", "-namespace", "shop/charge")
}

func TestResolve(t *testing.T) {
	d := newDesk(t)
	unknown := oncepipe.ReleaseRequest{To: oncepipe.ToUnknown, Payload: []byte("v")}
	for _, key := range []string{"done", "retry", "failed"} {
		d.release("ns", key, unknown)
	}
	d.good("completed: done of ns\n", "resolve", "done", "done", "-result", `"receipt"`)
	if r := d.state("ns", "done", oncepipe.StateCompleted); string(r.Result) != `"receipt"` || !r.HasResult {
		t.Errorf("%+v", r)
	}
	d.good(`{"namespace":"ns","key":"retry","state":"waiting"}`+"\n", "-json", "resolve", "retry", "retry")
	if r := d.state("ns", "retry", oncepipe.StateWaiting); r.Attempt != 0 || string(r.Payload) != "v" {
		t.Errorf("%+v: Redriven would not find it", r)
	}
	d.good("failed: failed of ns\n", "resolve", "failed", "failed")
	d.state("ns", "failed", oncepipe.StateFailed)
	d.good("completed: failed of ns\n", "resolve", "failed", "done")
	if r := d.state("ns", "failed", oncepipe.StateCompleted); r.HasResult {
		t.Errorf("%+v", r)
	}
	d.fail("ns", "empty", "")
	d.good("waiting: empty of ns\n", "resolve", "empty", "retry")

	d.bad(exitError, "neither failed nor unknown", "-namespace", "ns", "resolve", "done", "failed")
	d.claim("ns", "live", time.Hour)
	d.bad(exitLive, "claimed by", "-namespace", "ns", "resolve", "live", "done")
	d.claim("shop/charge", "left", time.Millisecond)
	wantOver(d, "left")
	d.bad(exitError, "lease of left is over", "-namespace", "shop/charge", "resolve", "left", "done")
	d.bad(exitNotFound, "nobody", "resolve", "nobody", "done")
	d.bad(exitUsage, "not one of", "resolve", "done", "finished")
	d.bad(exitUsage, "-result", "resolve", "done", "retry", "-result", "x")
}

// A retention that is not the store's default goes with the record.
func TestRetention(t *testing.T) {
	d := newDesk(t)
	d.fail("ns", "k", "v")
	d.good("completed: k of ns\n", "resolve", "k", "done", "-retention", "1000h")
	if r := d.state("ns", "k", oncepipe.StateCompleted); r.Retention < 999*time.Hour {
		t.Errorf("kept for %v", r.Retention)
	}
	d.bad(exitUsage, "not positive", "resolve", "k", "done", "-retention", "0s")
}

func TestDead(t *testing.T) {
	d := newDesk(t)
	d.good("", "dead")
	d.good("", "dead", "-json")
	d.fail("shop/charge", "order-1", `{"id":1}`)
	d.fail("shop/charge", strings.Repeat("k", 300), "v")
	d.fail("shop/refund", "order-2", strings.Repeat("0123456789", 7))
	d.release("shop/refund", "order-3", oncepipe.ReleaseRequest{To: oncepipe.ToUnknown, Reason: "two\nlines"})
	d.complete("shop/refund", "order-4", "")
	hash := oncepipe.StorageKey(strings.Repeat("k", 300))
	pad := strings.Repeat(" ", len(hash)-len("order-1"))
	head := "STATE    NAMESPACE    KEY" + strings.Repeat(" ", len(hash)-3) + "  ATTEMPTS  REASON               PAYLOAD\n"
	one := "failed   shop/charge  order-1" + pad + "  1         permanent: no price  {\"id\":1}\n"
	d.good(head+one+
		"failed   shop/charge  "+hash+"  1         permanent: no price  v\n"+
		"failed   shop/refund  order-2"+pad+"  1         permanent: no price  012345678901234567890123456789012345678901234567890123456789…\n"+
		"unknown  shop/refund  order-3"+pad+"  1         \"two\\nlines\"         \n", "dead")
	d.good(`STATE   NAMESPACE    KEY      ATTEMPTS  REASON               PAYLOAD
failed  shop/charge  order-1  1         permanent: no price  {"id":1}
`, "dead", "-limit", "1", "-namespace", "shop/charge")
	d.good(`{"namespace":"shop/refund","key":"order-2","state":"failed","fence":1,"attempt":1,"takeovers":0,"owner":"host/7","fingerprint":"fp","retention_seconds":T,"reason":"permanent: no price","payload":"0123456789012345678901234567890123456789012345678901234567890123456789"}
{"namespace":"shop/refund","key":"order-3","state":"unknown","fence":1,"attempt":1,"takeovers":0,"owner":"host/7","fingerprint":"fp","reason":"two\nlines"}
`, "dead", "-json", "-namespace", "shop/refund")

	// What dead prints of a long key can be used, and so can the key itself.
	d.good("1 redriven\n", "redrive", hash)
	d.state("shop/charge", hash, oncepipe.StateWaiting)
	d.good("forgotten: "+hash+" of shop/charge\n", "forget", hash, "-namespace", "shop/charge")
	d.fail("shop/charge", strings.Repeat("k", 300), "v")
	d.good("1 redriven\n", "redrive", strings.Repeat("k", 300))
}

func TestRedrive(t *testing.T) {
	d := newDesk(t)
	d.failMany(250)
	d.fail("ns0", "empty", "")
	d.release("ns0", "unknown", oncepipe.ReleaseRequest{To: oncepipe.ToUnknown, Payload: []byte("v")})
	d.good("1 redriven\n", "redrive", "key-000")
	d.bad(exitError, "is waiting", "redrive", "key-000")
	d.bad(exitError, "no payload", "redrive", "empty")
	d.bad(exitError, "resolve it", "redrive", "unknown")
	d.good("124 redriven, 1 left for want of a payload\n", "redrive", "all", "-namespace", "ns0")
	d.good(`{"redriven":125,"left":1}`+"\n", "redrive", "all", "-json")
	d.good("0 redriven, 1 left for want of a payload\n", "redrive", "all")
	d.state("ns0", "unknown", oncepipe.StateUnknown)
	d.good("claimed           0\nwaiting         250\ncompleted         0\nfailed            1\nunknown           1\n", "stats")
	d.good(`{"claimed":0,"completed":0,"failed":1,"unknown":1,"waiting":250}`+"\n", "stats", "-json")
	d.claim("ns0", "live", time.Hour)
	d.bad(exitLive, "claimed by", "redrive", "live", "-namespace", "ns0")
	d.bad(exitNotFound, "nobody", "redrive", "nobody")
}

// A note of Redriven is no second record of the key.
func TestNotesAreNotFound(t *testing.T) {
	d := newDesk(t)
	d.fail("ns", "k", `"v"`)
	d.good("1 redriven\n", "redrive", "k")
	src := oncepipe.Redriven(d.st, "ns", oncepipe.RedrivenConfig[string]{})
	if got, err := src.Receive(t.Context()); err != nil || got.Value != "v" || got.Key != "k" {
		t.Fatal(got, err)
	}
	d.state("%redriven/ns", "k", oncepipe.StateWaiting)
	d.good("forgotten: k of ns\n", "forget", "k")
}

func TestPrune(t *testing.T) {
	d := newDesk(t)
	d.good("0 pruned\n", "prune")
	st, closer, err := open(t.Context(), d.dsn, "", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	brief := &desk{t: t, dsn: d.dsn, st: st}
	brief.complete("ns", "0", "")
	brief.complete("ns", "1", "")
	brief.complete("ns", "2", "")
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	d.complete("ns", "stays", "")
	deadline := time.Now().Add(10 * time.Second)
	for !over(d, "0", "1", "2") {
		if time.Now().After(deadline) {
			t.Fatal("no retention is over")
		}
	}
	d.good("1 pruned\n", "prune", "-limit", "1")
	d.good(`{"pruned":2}`+"\n", "prune", "-json")
	d.state("ns", "stays", oncepipe.StateCompleted)
}

func over(d *desk, keys ...string) bool {
	for _, key := range keys {
		if d.state("ns", key, oncepipe.StateCompleted).Retention > 0 {
			return false
		}
	}
	return true
}

func TestMigrateAndSchema(t *testing.T) {
	d := &desk{t: t, dsn: "sqlite:" + filepath.Join(t.TempDir(), "new.db")}
	d.bad(exitError, "", "stats") // a file that isn't there is not made
	code, out, _ := d.run("schema")
	if code != exitGood || !strings.Contains(out, "CREATE TABLE IF NOT EXISTS oncepipe_") || !strings.HasSuffix(out, ";\n") {
		t.Errorf("exit %d: %s", code, out)
	}
	if _, err := os.Stat(strings.TrimPrefix(d.dsn, "sqlite:")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
	d.good("the tables are there\n", "migrate", "-prefix", "mine_")
	d.bad(exitError, "oncepipe migrate", "stats")
	d.good(`{"migrated":true}`+"\n", "migrate", "-json")
	d.good("claimed           0\nwaiting           0\ncompleted         0\nfailed            0\nunknown           0\n", "stats", "-prefix", "mine_")
	for _, dsn := range []string{"postgres://127.0.0.1/x", "mysql:root@tcp(127.0.0.1:1)/x"} {
		d.dsn = dsn
		code, out, errOut := d.run("schema", "-json")
		var got map[string]string
		if err := json.Unmarshal([]byte(out), &got); code != exitGood || err != nil || !strings.Contains(got["schema"], "CREATE TABLE") {
			t.Errorf("%s: exit %d, %s%s", dsn, code, out, errOut)
		}
	}
}

func TestUsage(t *testing.T) {
	d := newDesk(t)
	code, out, errOut := d.run("-h")
	if code != exitGood || out != usage || errOut != "" {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	for says, args := range map[string][]string{
		"no command":                         {},
		"no command \"shout\"":               {"shout", "k"},
		"show has 1 arguments: show KEY":     {"show"},
		"stats has 0 arguments":              {"stats", "all"},
		"flag provided but not defined":      {"-colour", "dead"},
		"-force has no meaning for show":     {"show", "k", "-force"},
		"-namespace has no meaning for":      {"stats", "-namespace", "ns"},
		"-limit -1 is negative":              {"dead", "-limit=-1"},
		"invalid value \"many\"":             {"dead", "-limit", "many"},
		"-result has a meaning with":         {"resolve", "k", "failed", "-result", "1"},
		"-retention has no meaning for dead": {"dead", "-retention", "1h"},
	} {
		d.bad(exitUsage, says, args...)
	}
	for _, dsn := range []string{"", "sqlite:", "oracle://scott:tiger@db"} {
		d.dsn = dsn
		d.bad(exitUsage, "DSN", "stats")
		if _, _, errOut := d.run("stats"); strings.Contains(errOut, "tiger") {
			t.Errorf("a password is shown: %s", errOut)
		}
	}
}

// A key may begin with a dash, and the DSN may come from the environment.
func TestArguments(t *testing.T) {
	d := newDesk(t)
	d.fail("ns", "-force", "v")
	var out bytes.Buffer
	env := func(name string) string { return map[string]string{"ONCEPIPE_DSN": d.dsn}[name] }
	if code := run(t.Context(), []string{"redrive", "-json", "--", "-force"}, env, &out, io.Discard); code != exitGood || out.String() != `{"redriven":1,"left":0}`+"\n" {
		t.Errorf("exit %d: %s", code, out.String())
	}
}

// A database that can't be had is an error, not an empty store.
func TestDatabaseAway(t *testing.T) {
	for _, dsn := range []string{
		"sqlite:" + filepath.Join(t.TempDir(), "no", "such", "folder.db"),
		"postgres://nobody@127.0.0.1:1/none?connect_timeout=1", "mysql:nobody@tcp(127.0.0.1:1)/none", "redis://127.0.0.1:1/0", "redis://%zz",
	} {
		d := &desk{t: t, dsn: dsn}
		d.bad(exitError, "", "dead")
		d.bad(exitError, "", "migrate")
	}
	d := &desk{t: t, dsn: "redis://127.0.0.1:1/0"}
	d.bad(exitError, "no schema", "schema")
}

// brokenPipe is an output that can't be written to.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOutputThatFails(t *testing.T) {
	d := newDesk(t)
	d.fail("ns", "k", "v")
	for _, args := range [][]string{{"dead"}, {"dead", "-json"}, {"show", "k"}, {"show", "k", "-json"}, {"stats"}, {"prune"}, {"-h"}, {"schema"}} {
		code := run(t.Context(), append([]string{"-dsn", d.dsn}, args...), os.Getenv, brokenPipe{}, io.Discard)
		if code != exitError {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}
