package oncetest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// payment is a message with all that a key function can go wrong with.
type payment struct {
	Tenant, Ref string
	Number      int
	Tags        map[string]string
	Lines       []string
	Note        *string
	Attempt     int // of the delivery, like Received
	Received    time.Time
}

func paymentMessage(id, delivery int) payment {
	note := "thanks"
	return payment{
		Tenant: "t" + strconv.Itoa(id%3), Ref: "r" + strconv.Itoa(id), Number: id,
		Tags:  map[string]string{"a": "1", "b": "2", "c": "3"},
		Lines: []string{"z", "y"}, Note: &note,
		Attempt: delivery + 1, Received: time.Now(),
	}
}

func payments(key func(payment) string) KeyFunc[payment] {
	f := numbered(key)
	f.Fields = []string{"tenant", "ref"}
	f.Build = func(v []string) payment { return payment{Tenant: v[0], Ref: v[1]} }
	return f
}

// numbered has no texts in the identity.
func numbered(key func(payment) string) KeyFunc[payment] {
	return KeyFunc[payment]{Key: key, Message: paymentMessage}
}

// paymentKey is the function that the bad ones are spoilt from.
func paymentKey(p payment) string { return oncepipe.Key(p.Tenant, p.Ref) }

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// blamed returns the rules that an error of the kit names.
func blamed(err error) []string {
	if err == nil {
		return nil
	}
	var rules []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if rule, _, ok := strings.Cut(line, ":"); ok && line[0] != '\t' {
			rules = append(rules, rule)
		}
	}
	return rules
}

// sharedBuffer is locked, so that the race detector has nothing to say, and yet
// one for all callers.
type sharedBuffer struct {
	mu   sync.Mutex
	text string
}

func (b *sharedBuffer) key(p payment) string {
	b.mu.Lock()
	b.text = paymentKey(p)
	b.mu.Unlock()
	runtime.Gosched()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text
}

func firstTag(p payment) string {
	for name := range p.Tags {
		return oncepipe.Key(p.Tenant, p.Ref, name)
	}
	return paymentKey(p)
}

// badKey is a function, and exactly those rules that have to blame it.
type badKey struct {
	name string
	key  func(payment) string
	want []string
}

func checkBad(t *testing.T, config func(func(payment) string) KeyFunc[payment], bad []badKey) {
	for _, b := range bad {
		t.Run("bad/"+b.name, func(t *testing.T) {
			err := CheckKeys(config(b.key))
			if got := blamed(err); !slices.Equal(got, b.want) {
				t.Errorf("blamed for %q, want %q\n%v", got, b.want, err)
			}
		})
	}
}

// What isn't always the same is seen by more than one rule.
func TestKeysUnsteady(t *testing.T) {
	unsteady := []string{"repeat", "fresh copy", "concurrent", "clock"}
	var calls atomic.Int64
	checkBad(t, payments, []badKey{
		{"panics", func(p payment) string { return paymentKey(p) + p.Lines[2] }, []string{"panic"}},
		{"panics for one message", func(p payment) string {
			if p.Number == 17 {
				panic("unlucky")
			}
			return paymentKey(p)
		}, []string{"panic"}},
		{"panics for a value", func(p payment) string { return paymentKey(p) + p.Ref[:1] }, []string{"panic"}},
		{"ends its goroutine", func(payment) string { runtime.Goexit(); return "" }, []string{"panic"}},
		{"no key", func(p payment) string { return strings.TrimPrefix(paymentKey(p), "t1/r4") }, []string{"empty"}},
		{"sorts the message", func(p payment) string { slices.Sort(p.Lines); return paymentKey(p) }, []string{"read only"}},
		{"random", func(payment) string { return rand.Text() }, unsteady},
		{"counter", func(p payment) string { return fmt.Sprint(paymentKey(p), calls.Add(1)) }, unsteady},
		{"map order", firstTag, unsteady},
		{"pointer", func(p payment) string { return fmt.Sprint(paymentKey(p), p.Note) }, []string{"fresh copy", "concurrent"}},
		{"shared buffer", new(sharedBuffer).key, []string{"concurrent"}},
		{"nanoseconds", func(p payment) string { return fmt.Sprint(paymentKey(p), time.Now().UnixNano()) }, []string{"clock"}},
		{"day", func(p payment) string { return paymentKey(p) + time.Now().Format(time.DateOnly) }, []string{"clock"}},
	})
}

func TestKeysMessages(t *testing.T) {
	checkBad(t, payments, []badKey{
		{"attempt", func(p payment) string { return oncepipe.Key(paymentKey(p), strconv.Itoa(p.Attempt)) }, []string{"metadata"}},
		{"received", func(p payment) string { return paymentKey(p) + p.Received.String() }, []string{"metadata"}},
		{"day of arrival", func(p payment) string { return paymentKey(p) + p.Received.Format(time.DateOnly) }, []string{"metadata"}},
		{"constant", func(payment) string { return "payment" }, slices.Concat([]string{"distinct"}, valueRules)},
		{"tenant only", func(p payment) string { return p.Tenant }, slices.Concat([]string{"distinct"}, valueRules)},
	})
	checkBad(t, numbered, []badKey{
		{"float64", func(p payment) string { return fmt.Sprint(float64(p.Number)) }, []string{"big numbers"}},
		{"int32", func(p payment) string { return fmt.Sprint(int32(p.Number)) }, []string{"big numbers"}},
		{"byte", func(p payment) string { return fmt.Sprint(uint8(p.Number) / 4) }, []string{"distinct", "big numbers"}},
	})
}

func TestKeysValues(t *testing.T) {
	escape := func(replacer *strings.Replacer) func(payment) string {
		return func(p payment) string { return replacer.Replace(p.Tenant) + "|" + replacer.Replace(p.Ref) }
	}
	checkBad(t, payments, []badKey{
		{"ref only", func(p payment) string { return p.Ref }, valueRules},
		{"joined", func(p payment) string { return p.Tenant + "|" + p.Ref }, []string{"delimiter"}},
		{"joined and hashed", func(p payment) string { return hashOf(p.Tenant + "/" + p.Ref) }, []string{"delimiter"}},
		{"joined by hand", func(p payment) string { return p.Tenant + " <-> " + p.Ref }, []string{"delimiter"}},
		{"joined with names", func(p payment) string { return "t=" + p.Tenant + "&ref=" + p.Ref }, []string{"delimiter"}},
		{"joined the other way round", func(p payment) string { return hashOf(p.Ref + "\x1f" + p.Tenant) }, []string{"delimiter"}},
		{"joined with nothing", func(p payment) string { return "p:" + p.Tenant + p.Ref }, []string{"delimiter", "empty part"}},
		{"printed", func(p payment) string { return fmt.Sprint([]string{p.Tenant, p.Ref}) }, []string{"delimiter"}},
		{"delimiter replaced", escape(strings.NewReplacer("|", "_")), []string{"delimiter"}},
		{"delimiter escaped, its escape not", escape(strings.NewReplacer("|", `\|`)), []string{"delimiter"}},
		{"percent not escaped", escape(strings.NewReplacer("|", "%7C")), []string{"delimiter"}},
		{"delimiter doubled", escape(strings.NewReplacer("|", "||")), []string{"delimiter"}},
		{"empty parts left out", func(p payment) string {
			return oncepipe.Key(slices.DeleteFunc([]string{p.Tenant, p.Ref}, func(s string) bool { return s == "" })...)
		}, []string{"empty part"}},
		{"cut", func(p payment) string { return oncepipe.Key(p.Tenant[:min(255, len(p.Tenant))], p.Ref) }, []string{"truncated"}},
		{"cut in front", func(p payment) string { return oncepipe.Key(p.Tenant, p.Ref[max(0, len(p.Ref)-255):]) }, []string{"truncated"}},
		{"upper case", func(p payment) string { return oncepipe.Key(p.Tenant, strings.ToUpper(p.Ref)) }, []string{"case"}},
		{"lower case", func(p payment) string { return strings.ToLower(paymentKey(p)) }, []string{"case"}},
		{"trimmed", func(p payment) string { return oncepipe.Key(p.Tenant, strings.TrimSpace(p.Ref)) }, []string{"spaces"}},
		{"ASCII", func(p payment) string {
			return oncepipe.Key(p.Tenant, strings.Map(func(r rune) rune { return min(r, 0x7f) }, p.Ref))
		}, []string{"unicode"}},
		{"text as float64", func(p payment) string {
			if n, err := strconv.ParseFloat(p.Ref, 64); err == nil {
				return oncepipe.Key(p.Tenant, fmt.Sprint(n))
			}
			return paymentKey(p)
		}, []string{"big numbers"}},
	})
}

func TestKeysPairs(t *testing.T) {
	pair := [][2]payment{{{Tenant: "T", Ref: "1"}, {Tenant: "t", Ref: "1"}}}
	for _, test := range []struct {
		name string
		f    KeyFunc[payment]
		want []string
	}{
		{"bad/same", KeyFunc[payment]{Key: paymentKey, Same: pair}, []string{"same"}},
		{"good/differ", KeyFunc[payment]{Key: paymentKey, Differ: pair}, nil},
		{"bad/differ", KeyFunc[payment]{Key: func(p payment) string { return p.Ref }, Differ: pair}, []string{"differ"}},
		{"good/same", KeyFunc[payment]{Key: func(p payment) string { return p.Ref }, Same: pair}, nil},
		{"bad/empty", KeyFunc[payment]{Key: func(payment) string { return "" }, Same: pair}, []string{"empty"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := CheckKeys(test.f); !slices.Equal(blamed(err), test.want) {
				t.Errorf("blamed for %q, want %q\n%v", blamed(err), test.want, err)
			}
		})
	}
}

// Only another process sees what is chosen when a process starts.
func TestKeysTwoProcesses(t *testing.T) {
	seed := maphash.MakeSeed()
	for name, key := range map[string]func(payment) string{
		"seed":    func(p payment) string { return strconv.FormatUint(maphash.String(seed, paymentKey(p)), 16) },
		"process": func(p payment) string { return fmt.Sprint(paymentKey(p), os.Getpid()) },
	} {
		t.Run("bad/"+name, func(t *testing.T) {
			f := payments(key)
			c, err := f.checks()
			if err != nil {
				t.Fatal(err)
			}
			err = c.otherProcess(t).err()
			if got := blamed(err); !slices.Equal(got, []string{twoProcesses}) {
				t.Errorf("blamed for %q, want %q\n%v", got, twoProcesses, err)
			}
			if err := CheckKeys(f); err != nil {
				t.Errorf("in one process: %v", err)
			}
		})
	}
}

func TestKeysGood(t *testing.T) {
	type identity struct {
		Tenant string `json:"t"`
		Ref    string `json:"r"`
	}
	for name, f := range map[string]KeyFunc[payment]{
		"Key":      payments(paymentKey),
		"prefixed": payments(func(p payment) string { return "payments:" + paymentKey(p) }),
		"number":   numbered(func(p payment) string { return strconv.Itoa(p.Number) }),
		"ContentKey": payments(func(p payment) string {
			key, err := oncepipe.ContentKey(identity{p.Tenant, p.Ref})
			if err != nil {
				return ""
			}
			return key
		}),
		"StorageKey": payments(func(p payment) string { return oncepipe.StorageKey(paymentKey(p)) }),
		"JSON": payments(func(p payment) string {
			doc, err := json.Marshal(identity{p.Tenant, p.Ref})
			if err != nil {
				return ""
			}
			return hashOf(string(doc))
		}),
		"quoted": payments(func(p payment) string { return fmt.Sprintf("%q", []string{p.Tenant, p.Ref}) }),
		"lengths": payments(func(p payment) string {
			return hashOf(fmt.Sprintf("%d:%s%d:%s", len(p.Tenant), p.Tenant, len(p.Ref), p.Ref))
		}),
		"query": payments(func(p payment) string { return url.Values{"t": {p.Tenant}, "r": {p.Ref}}.Encode() }),
		"refuses": payments(func(p payment) string {
			if strings.ContainsAny(p.Tenant+p.Ref, "|\x00") || p.Tenant == "" || len(p.Ref) > 100 {
				return ""
			}
			return p.Tenant + "|" + p.Ref
		}),
	} {
		t.Run("good/"+name, func(t *testing.T) { Keys(t, f) })
	}
	t.Run("good/folded", func(t *testing.T) {
		f := payments(func(p payment) string { return strings.ToLower(strings.Join(strings.Fields(paymentKey(p)), " ")) })
		f.Without = []string{"case", "spaces"}
		Keys(t, f)
	})
	t.Run("good/chance in the message", func(t *testing.T) {
		Keys(t, KeyFunc[payment]{Key: paymentKey, Message: func(id, _ int) payment {
			return payment{Ref: strconv.Itoa(id), Lines: []string{rand.Text()}}
		}})
	})
}

// What a user's test prints, run in a process of its own since it fails.
func TestKeysSubtests(t *testing.T) {
	const env = "ONCETEST_KEYS_SUBTESTS"
	if os.Getenv(env) != "" {
		joined := payments(func(p payment) string { return p.Tenant + "|" + p.Ref })
		joined.Without = []string{"unicode"}
		t.Run("joined", func(t *testing.T) { Keys(t, joined) })
		t.Run("time", func(t *testing.T) { Keys(t, payments(func(payment) string { return time.Now().String() })) })
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestKeysSubtests$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output()
	if err == nil {
		t.Error("the test passed")
	}
	for _, want := range []string{
		"FAIL: TestKeysSubtests/joined/delimiter", "delimiter: two messages have one key",
		"PASS: TestKeysSubtests/joined/two_processes",
		"SKIP: TestKeysSubtests/joined/same", "KeyFunc has no Same",
		"SKIP: TestKeysSubtests/joined/unicode", "left out by Without",
		"FAIL: TestKeysSubtests/time/clock",
		"SKIP: TestKeysSubtests/time/distinct", "nothing to compare",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q isn't in what it printed:\n%s", want, out)
		}
	}
	if n := strings.Count(string(out), "        --- FAIL: "); n != 2 {
		t.Errorf("%d rules failed, want 2:\n%s", n, out)
	}
}

// The fake clock ends after 262 years, and with it the process.
func TestKeysManyMessages(t *testing.T) {
	f := numbered(func(p payment) string { return strconv.Itoa(p.Number) })
	for id := range 1000 {
		f.IDs = append(f.IDs, id)
	}
	if err := CheckKeys(f); err != nil {
		t.Error(err)
	}
}

// Few messages are asked for more often, or half of the time this one is missed.
func TestKeysOneMessage(t *testing.T) {
	f := KeyFunc[payment]{Key: firstTag, Fields: []string{"ref"}, Build: func(v []string) payment {
		return payment{Ref: v[0], Tags: map[string]string{"a": "1", "b": "2"}}
	}}
	for range 4 {
		if err := CheckKeys(f); !slices.Contains(blamed(err), "repeat") {
			t.Errorf("the order of a map isn't seen: %v", err)
		}
	}
}

func TestKeysTwiceInOneTest(t *testing.T) {
	Keys(t, payments(paymentKey))
	Keys(t, numbered(func(p payment) string { return strconv.Itoa(p.Number) }))
}

func TestKeysConfig(t *testing.T) {
	whole := payments(paymentKey)
	for want, spoil := range map[string]func(f *KeyFunc[payment]){
		"without Key":      func(f *KeyFunc[payment]) { f.Key = nil },
		"without messages": func(f *KeyFunc[payment]) { *f = KeyFunc[payment]{Key: f.Key} },
		"both of Fields":   func(f *KeyFunc[payment]) { f.Fields = nil },
		`names "cases"`:    func(f *KeyFunc[payment]) { f.Without = []string{"cases"} },
		"differ are equal": func(f *KeyFunc[payment]) { f.Message = func(_, n int) payment { return payment{Attempt: n} } },
		"panic: no number 17": func(f *KeyFunc[payment]) {
			f.Message = func(id, n int) payment {
				if id == 17 {
					panic("no number 17")
				}
				return paymentMessage(id, n)
			}
		},
	} {
		f := whole
		spoil(&f)
		if err := CheckKeys(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// A rule that has nothing to check says so.
func TestKeysSaysWhatItSkips(t *testing.T) {
	f := numbered(paymentKey)
	f.Message = func(id, _ int) payment { return payment{Ref: strconv.Itoa(id)} }
	f.IDs = []int{1, 2, 3}
	f.Without = []string{"clock"}
	c, err := f.checks()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	want := slices.Concat([]string{"clock", "metadata"}, valueRules, pairRules)
	for rule, why := range c.absent {
		if !slices.Contains(want, rule) || why == "" {
			t.Errorf("%s is skipped: %q", rule, why)
		}
	}
	if len(c.absent) != len(want) {
		t.Errorf("%d rules are skipped, want %q", len(c.absent), want)
	}
}

func TestKeysShowsTheMessageBefore(t *testing.T) {
	err := CheckKeys(payments(func(p payment) string { slices.Sort(p.Lines); return paymentKey(p) }))
	if err == nil || !strings.Contains(err.Error(), "[z y]") || !strings.Contains(err.Error(), "[y z]") {
		t.Errorf("the error doesn't show what was changed:\n%v", err)
	}
}

func TestKeysFailureIsShort(t *testing.T) {
	f := payments(func(p payment) string { return p.Tenant + "|" + p.Ref + strings.Repeat("\n", 5000) })
	err := CheckKeys(f)
	if err == nil || len(err.Error()) > 1000 || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("the error is not short:\n%v", err)
	}
}
