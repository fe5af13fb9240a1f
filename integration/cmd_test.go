package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/redisstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// command is the built command before a store.
type command struct {
	t     *testing.T
	bin   string
	flags []string
}

// run wants an exit code and returns the objects that -json prints.
func (c command) run(want int, args ...string) []map[string]any {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(c.bin, slices.Concat(c.flags, []string{"-json"}, args)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		c.t.Fatalf("%v: exit %d, want %d: %s%s", args, got, want, &stdout, &stderr)
	}
	var objects []map[string]any
	for dec := json.NewDecoder(&stdout); dec.More(); {
		var o map[string]any
		if err := dec.Decode(&o); err != nil {
			c.t.Fatalf("%v: %v: %s", args, err, &stdout)
		}
		objects = append(objects, o)
	}
	return objects
}

// The command works on every kind of store: what a pipeline gives up is listed,
// redriven by the command, and run once by another pipeline.
func TestCommandOnEveryStore(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "oncepipe")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = filepath.Join("..", "cmd", "oncepipe")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			p := b.place(t)
			scheme := map[string]string{"sqlite": "sqlite:", "mysql": "mysql:"}[p.driver]
			dsn := scheme + p.dsn
			if p.driver == "sqlite" {
				file := newFile(t)
				p.dsn, dsn = "file:"+file+"?_pragma=busy_timeout(10000)", scheme+file
			}
			c := command{t, bin, []string{"-dsn", dsn}}
			c.run(0, "migrate")
			st, err := sqlstore.Open(t.Context(), p.open(t, 0), sqlstore.Config{Dialect: b.dialect})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
			testCommand(t, c, st)
		})
	}
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		dsn, prefix := servertest.RedisPrefix(t)
		client := redisClient(t, dsn)
		t.Cleanup(func() { emptyRedis(t, client, prefix) })
		c := command{t, bin, []string{"-dsn", dsn, "-prefix", prefix}}
		c.run(0, "migrate")
		st, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		testCommand(t, c, st)
	})
}

func testCommand(t *testing.T, c command, st oncepipe.Store) {
	orders := []string{"order-1", "order-2", "order-3"}
	var mu sync.Mutex
	effects := map[string]int{}
	priced, all := false, make(chan struct{})
	charge := func(_ context.Context, id string) error {
		mu.Lock()
		defer mu.Unlock()
		if id != "order-3" && !priced {
			return oncepipe.Permanent(errors.New("no price"))
		}
		if effects[id]++; len(effects) == len(orders) {
			close(all)
		}
		return nil
	}
	p := oncepipe.New("shop", oncepipe.Config{DeadLetters: oncepipe.DeadLettersIn(st, nil)})
	in := oncepipe.KeyBy(oncepipe.FromSeq(p, "orders", slices.Values(orders)), func(id string) string { return id })
	oncepipe.Sink(in, "charge", oncepipe.OnceDo(st, "charge", charge))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	letters := c.run(0, "dead")
	if len(letters) != 2 || letters[1]["key"] != "order-2" || letters[1]["namespace"] != "shop/charge" || letters[1]["state"] != "failed" ||
		letters[1]["payload"] != `"order-2"` || !strings.Contains(letters[1]["reason"].(string), "no price") {
		t.Fatalf("letters %v", letters)
	}
	if got := c.run(0, "redrive", "all"); got[0]["redriven"] != 2.0 || got[0]["left"] != 0.0 {
		t.Errorf("redriven %v", got)
	}
	if got := c.run(0, "dead"); len(got) > 0 {
		t.Errorf("letters %v", got)
	}
	priced = true
	runRedriven(t, st, charge, all)
	for _, id := range orders {
		if got := c.run(0, "show", id, "-namespace", "shop/charge"); got[0]["state"] != "completed" || effects[id] != 1 {
			t.Errorf("%s: %v, %d effects", id, got, effects[id])
		}
	}

	live := oncepipe.RecordID{Namespace: "shop/charge", Key: "live"}
	lost := oncepipe.RecordID{Namespace: "shop/charge", Key: "lost"}
	claim := oncepipe.NewClaimID()
	_, err1 := st.Claim(t.Context(), []oncepipe.ClaimRequest{
		{RecordID: live, Claim: oncepipe.NewClaimID(), Lease: time.Hour}, {RecordID: lost, Claim: claim, Lease: time.Hour},
	})
	_, err2 := st.Release(t.Context(), []oncepipe.ReleaseRequest{{RecordID: lost, Claim: claim, To: oncepipe.ToUnknown}})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if got := c.run(0, "stats"); got[0]["claimed"] != 1.0 || got[0]["completed"] != 3.0 || got[0]["unknown"] != 1.0 || got[0]["failed"] != 0.0 || got[0]["waiting"] != 0.0 {
		t.Errorf("stats %v", got)
	}
	c.run(4, "forget", "live", "-namespace", "shop/charge")
	c.run(0, "forget", "live", "-namespace", "shop/charge", "-force")
	c.run(3, "show", "live", "-namespace", "shop/charge")
	c.run(0, "resolve", "lost", "done")
	if got := c.run(0, "show", "lost", "-namespace", "shop/charge"); got[0]["state"] != "completed" {
		t.Errorf("resolved %v", got)
	}
	if got := c.run(0, "prune"); got[0]["pruned"] != 0.0 {
		t.Errorf("pruned %v", got)
	}
}

// runRedriven is the service after a restart: it runs what was redriven until all
// is closed.
func runRedriven(t *testing.T, st oncepipe.Store, charge func(context.Context, string) error, all <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		select {
		case <-all:
		case <-ctx.Done():
		}
		cancel()
	}()
	p := oncepipe.New("shop", oncepipe.Config{DeadLetters: oncepipe.DeadLettersIn(st, nil)})
	src := oncepipe.Redriven(st, oncepipe.Key("shop", "charge"), oncepipe.RedrivenConfig[string]{Interval: 10 * time.Millisecond})
	oncepipe.Sink(oncepipe.From(p, "redriven", src), "charge", oncepipe.OnceDo(st, "charge", charge))
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
}
