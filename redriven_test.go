package oncepipe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"pgregory.net/rapid"
)

// redrives is a process whose pipeline has nothing but redriven records, and a
// stage "charge".
type redrives struct {
	p    *oncepipe.Pipeline
	kill context.CancelFunc
	end  chan error
	log  *brokerLog
}

func startRedrives(t testing.TB, st oncepipe.Store, handle func(context.Context, string) error, cfg oncepipe.Config, opts ...oncepipe.Option) *redrives {
	return startRedrivesWith(t, st, oncepipe.RedrivenConfig[string]{}, handle, cfg, opts...)
}

func startRedrivesWith(t testing.TB, st oncepipe.Store, src oncepipe.RedrivenConfig[string], handle func(context.Context, string) error, cfg oncepipe.Config, opts ...oncepipe.Option) *redrives {
	d := &redrives{end: make(chan error, 1), log: &brokerLog{}}
	cfg.Logger = slog.New(slog.NewTextHandler(d.log, nil))
	d.p = oncepipe.New("shop", cfg)
	oncepipe.Sink(oncepipe.From(d.p, "redriven", oncepipe.Redriven(st, oncepipe.Key("shop", "charge"), src)), "charge", handle, opts...)
	ctx, cancel := context.WithCancel(context.Background())
	d.kill = cancel
	go func() { d.end <- d.p.Run(ctx) }()
	return d
}

// stop ends the process and checks that nothing is left open.
func (d *redrives) stop(t interface{ Errorf(string, ...any) }) oncepipe.Stats {
	return d.stopBut(t, func(error) bool { return false })
}

// stopBut is stop of a process some of whose errors are expected.
func (d *redrives) stopBut(t interface{ Errorf(string, ...any) }, expected func(error) bool) oncepipe.Stats {
	d.kill()
	errs := []error{<-d.end}
	if joined, ok := errs[0].(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		if err != nil && !expected(err) {
			t.Errorf("Run: %v", err)
		}
	}
	st := d.p.Stats()
	if !st.Conserved() {
		t.Errorf("not conserved: %+v", st)
	}
	return st
}

// tally counts runs by value.
type tally struct {
	mu   sync.Mutex
	runs map[string]int
}

func (c *tally) add(v string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	c.runs[v]++
	return c.runs[v]
}

func (c *tally) of(v string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[v]
}

func (s *faultyStore) redriveAll(t *testing.T) {
	t.Helper()
	if _, _, err := oncepipe.RedriveAll(context.Background(), s.mem, ""); err != nil {
		t.Fatal(err)
	}
}

func (s *faultyStore) noNotes(t *testing.T) {
	t.Helper()
	for _, r := range s.list(t, waiting) {
		if strings.HasPrefix(r.Namespace, "%redriven/") {
			t.Errorf("a note is left: %+v", r)
		}
	}
}

// A dead letter is kept, listed, redriven, and runs once.
func TestR46_R84_RedrivenLetterRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		r := newRig(t, func(cfg *oncepipe.Config) { cfg.DeadLetters = oncepipe.DeadLettersIn(s, nil) })
		again := oncepipe.From(r.p, "redriven", oncepipe.Redriven(s, oncepipe.Key("rig", "work"), oncepipe.RedrivenConfig[brokerMsg]{}))
		in := oncepipe.Merge(r.dedup(), again)
		oncepipe.Sink(in, "work", oncepipe.OnceDo(s, "work", r.handler(func(_ context.Context, m brokerMsg, run int) error {
			if m.Body != "body" {
				t.Errorf("the redriven value is %+v", m)
			}
			if run == 1 {
				return oncepipe.Permanent(errBroken)
			}
			return nil
		})))
		r.start()
		r.b.sendMsg(brokerMsg{Key: "k", Body: "body"})
		time.Sleep(time.Minute) // nothing runs unless somebody says so
		r.wantRuns("k", 1)
		r.wantOutcomes("k", dead)
		if n, _, err := oncepipe.RedriveAll(t.Context(), s, ""); n != 1 || err != nil {
			t.Fatalf("redriven %d, %v", n, err)
		}
		time.Sleep(time.Minute)
		r.wantRuns("k", 2)
		s.recordIn(t, "rig/work", "k", completed)
		s.noNotes(t)
		r.b.sendMsg(brokerMsg{Key: "k", Body: "body"})
		synctest.Wait()
		r.wantRuns("k", 2)
		r.wantOutcomes("k", dead, done)
		r.cancel()
		st := r.finish()
		if st.Admitted != 3 || st.Done != 2 || st.Dead != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// What is settled without anybody touching the record ends as the settlement says.
func TestRedrivenSettlesPlainStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		var runs tally
		s.fail(t, shop, "good", `"good"`)
		s.fail(t, shop, "bad", `"bad"`)
		s.fail(t, shop, "other", `{`)
		s.leave(t, shop, "parked", oncepipe.ReleaseRequest{To: oncepipe.ToWaiting, Payload: []byte("x")}) // not redriven
		s.fail(t, "shop/refund", "elsewhere", `"elsewhere"`)
		d := startRedrives(t, s, func(_ context.Context, v string) error {
			runs.add(v)
			if v == "bad" {
				return oncepipe.Permanent(errBroken)
			}
			return nil
		}, oncepipe.Config{DeadLetters: func(context.Context, oncepipe.DeadLetter) error { return nil }})
		time.Sleep(time.Minute)
		s.redriveAll(t)
		time.Sleep(time.Minute)
		s.recordIn(t, shop, "good", completed)
		if r := s.recordIn(t, shop, "bad", failed); r.Reason != "redriven: broken" || string(r.Payload) != `"bad"` {
			t.Errorf("%+v", r)
		}
		if r := s.recordIn(t, shop, "other", failed); !strings.Contains(r.Reason, "can't be decoded") || string(r.Payload) != `{` {
			t.Errorf("%+v", r)
		}
		s.recordIn(t, shop, "parked", waiting)
		s.recordIn(t, "shop/refund", "elsewhere", waiting)
		s.noNotes(t)
		if runs.of("good") != 1 || runs.of("bad") != 1 || runs.of("elsewhere")+runs.of("x") != 0 {
			t.Errorf("runs %v", runs.runs)
		}
		if st := d.stop(t); st.Done != 1 || st.Dead != 1 || st.Admitted != 2 {
			t.Errorf("stats %+v", st)
		}
	})
}

// A record whose key is kept as a hash needs a function that knows the key.
func TestRedrivenLongKey(t *testing.T) {
	long := strings.Repeat("k", 300)
	for name, c := range map[string]struct {
		key   func(string) string
		state oncepipe.State
		says  string
	}{
		"none":   {nil, failed, "no Key"},
		"right":  {func(v string) string { return v }, completed, ""},
		"wrong":  {func(v string) string { return v + "!" }, failed, "another key"},
		"panics": {func(string) string { panic("oops") }, failed, "oops"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				s.fail(t, shop, long, `"`+long+`"`)
				s.redriveAll(t)
				d := startRedrivesWith(t, s, oncepipe.RedrivenConfig[string]{Key: c.key}, oncepipe.OnceDo(s, "charge", func(ctx context.Context, _ string) error {
					if info, _ := oncepipe.InfoFrom(ctx); info.Key != long {
						t.Errorf("key %q", info.Key)
					}
					return nil
				}), oncepipe.Config{})
				time.Sleep(time.Minute)
				if r := s.recordIn(t, shop, long, c.state); !strings.Contains(r.Reason, c.says) {
					t.Errorf("%+v", r)
				}
				s.noNotes(t)
				d.stop(t)
			})
		})
	}
}

// A returned record is delivered again, not before its delay, and meanwhile not
// a second time.
func TestRedrivenReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		var at []time.Duration
		began := time.Now()
		s.fail(t, shop, "k", `"v"`)
		s.redriveAll(t)
		d := startRedrives(t, s, func(context.Context, string) error { // nobody takes dead letters: 30 s
			at = append(at, time.Since(began))
			if len(at) < 3 {
				return oncepipe.Permanent(errBroken)
			}
			time.Sleep(10 * time.Minute) // delivered and not settled for long
			return nil
		}, oncepipe.Config{})
		time.Sleep(20 * time.Minute)
		s.recordIn(t, shop, "k", completed)
		s.noNotes(t)
		if st := d.stop(t); st.Returned != 2 || st.Done != 1 {
			t.Errorf("stats %+v", st)
		}
		if len(at) != 3 || at[1]-at[0] < 30*time.Second || at[1]-at[0] > 36*time.Second {
			t.Errorf("ran at %v", at)
		}
	})
}

// What a killed process had is delivered by another one, wherever the kill came:
// this one's store stops answering at the moment of its death.
func TestRedrivenByADeadProcess(t *testing.T) {
	for _, at := range []string{"claim of the note", "release of the note", "before the claim", "in the handler", "before complete", "after complete", "forget"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				var effects, begun tally
				s.fail(t, shop, "k", `"v"`)
				s.redriveAll(t)
				gone := make(chan struct{}) // the process is dead
				die := func() error { close(gone); return errLine }
				line := s.beside()
				line.before = func(_ context.Context, op string, n int) error {
					select {
					case <-gone:
						return errLine
					default:
					}
					switch {
					case at == "release of the note" && op == "release", at == "before the claim" && op == "claim" && n == 2,
						at == "before complete" && op == "complete", at == "forget" && op == "forget":
						return die()
					}
					return nil
				}
				line.after = func(_ context.Context, op string, n int) error {
					if at == "claim of the note" && op == "claim" || at == "after complete" && op == "complete" {
						return die()
					}
					return nil
				}
				first := startRedrives(t, line, oncepipe.OnceDo(line, "charge", func(ctx context.Context, v string) error {
					begun.add(v)
					if at == "in the handler" {
						_ = die()
						<-ctx.Done()
						return ctx.Err()
					}
					effects.add(v)
					return nil
				}), oncepipe.Config{DrainTimeout: -1})
				time.Sleep(time.Second)
				select {
				case <-gone:
				default:
					t.Fatal("it did not die there")
				}
				second := startRedrives(t, s, oncepipe.OnceDo(s, "charge", func(_ context.Context, v string) error {
					effects.add(v)
					return nil
				}), oncepipe.Config{}, oncepipe.Retry(brokerRetry(time.Second)))
				first.kill()
				time.Sleep(10 * time.Minute)
				s.recordIn(t, shop, "k", completed)
				s.noNotes(t)
				want := 1
				if at == "before complete" {
					want = 2 // the gap that Once can't close
				}
				if effects.of("v") != want {
					t.Errorf("%d effects, want %d", effects.of("v"), want)
				}
				second.stop(t)
				<-first.end
			})
		})
	}
}

// Several processes look for the same records: with Once behind them, each acts
// once, and mostly one process alone has it.
func TestRedrivenBySeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		var effects tally
		var all []*redrives
		for range 3 {
			all = append(all, startRedrives(t, s, oncepipe.OnceDo(s, "charge", func(_ context.Context, v string) error {
				time.Sleep(time.Second)
				effects.add(v)
				return nil
			}), oncepipe.Config{}, oncepipe.Workers(4)))
		}
		for i := range 300 {
			s.fail(t, shop, fmt.Sprintf("%03d", i), fmt.Sprintf(`"v%d"`, i))
		}
		s.redriveAll(t)
		time.Sleep(10 * time.Minute)
		admitted := int64(0)
		for _, d := range all {
			admitted += d.stop(t).Admitted
		}
		for i := range 300 {
			if n := effects.of(fmt.Sprint("v", i)); n != 1 {
				t.Errorf("v%d: %d effects", i, n)
			}
		}
		s.noNotes(t)
		if left := len(s.list(t, waiting)) + len(s.list(t, failed)); left > 0 || admitted != 300 {
			t.Errorf("%d records left, %d deliveries", left, admitted)
		}
	})
}

// A source whose store is away says so and goes on when it is back; a settlement
// that failed is repeated.
func TestRedrivenStoreAway(t *testing.T) {
	for _, op := range []string{"list", "lookup", "claim", "release", "complete", "forget"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				var runs tally
				s.fail(t, shop, "k", `"v"`)
				s.fail(t, shop, "undecodable", `{`)
				s.redriveAll(t)
				s.before = failFor(op, 4*time.Second)
				d := startRedrives(t, s, func(_ context.Context, v string) error { runs.add(v); return nil }, oncepipe.Config{})
				time.Sleep(20 * time.Minute)
				s.recordIn(t, shop, "k", completed)
				s.recordIn(t, shop, "undecodable", failed)
				s.noNotes(t)
				if runs.of("v") != 1 {
					t.Errorf("%d runs", runs.of("v"))
				}
				if log := d.log.String(); !strings.Contains(log, errLine.Error()) {
					t.Errorf("nobody was told: %s", log)
				}
				d.stop(t)
			})
		})
	}
}

// Receive ends with its context, and with nothing else.
func TestRedrivenReceiveEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := oncepipe.Redriven(newFaulty(), shop, oncepipe.RedrivenConfig[string]{Interval: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour+time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := src.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != 24*time.Hour+time.Minute {
			t.Errorf("ended after %v", took)
		}
	})
}

// Whatever fails, and however often people redrive: no key is lost, and with Once
// each acts once.
func TestI6_RedrivesActOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		keys := rapid.IntRange(1, 12).Draw(rt, "keys")
		processes := rapid.IntRange(1, 3).Draw(rt, "processes")
		badLine := rapid.Bool().Draw(rt, "bad line")
		synctest.Test(t, func(t *testing.T) {
			rnd := &lockedRand{r: rand.New(rand.NewPCG(seed, 1))}
			s := newFaulty()
			var effects tally
			healed := time.Now().Add(time.Hour)
			fault := func(_ context.Context, op string, _ int) error {
				if badLine && op != "complete" && time.Now().Before(healed) && rnd.intN(8) == 0 {
					return errLine
				}
				return nil
			}
			var all []*redrives
			for range processes {
				line := s.beside()
				line.before, line.after = fault, fault
				handle := oncepipe.OnceDo(line, "charge", func(_ context.Context, v string) error {
					time.Sleep(time.Duration(rnd.intN(5000)) * time.Millisecond)
					if time.Now().Before(healed) {
						switch rnd.intN(6) {
						case 0:
							return oncepipe.Permanent(errBroken)
						case 1, 2:
							return errBroken
						case 3:
							panic("ouch")
						}
					}
					effects.add(v)
					return nil
				})
				retry := brokerRetry(time.Second)
				retry.MaxAttempts = 3
				all = append(all, startRedrives(t, line, handle, oncepipe.Config{DeadLetters: oncepipe.DeadLettersIn(line, nil)},
					oncepipe.Workers(3), oncepipe.Retry(retry)))
			}
			for i := range keys {
				key := fmt.Sprint("k", i)
				payload, _ := json.Marshal(key)
				s.fail(t, shop, key, string(payload))
			}
			for range 12 {
				for _, r := range s.list(t, unknown) { // a person looks at what was left behind a dead line
					res := oncepipe.Resolution{RecordID: r.RecordID, Fence: r.Fence, To: failed}
					if effects.of(r.Key) > 0 {
						res.To = completed
					}
					if _, err := s.mem.Resolve(t.Context(), []oncepipe.Resolution{res}); err != nil {
						t.Error(err)
					}
				}
				s.redriveAll(t)
				time.Sleep(10 * time.Minute)
			}
			// A settlement that the line refused 12 times is given up. The record stays,
			// and is delivered again.
			refused := func(err error) bool {
				return badLine && errors.Is(err, errLine) && strings.Contains(err.Error(), ": settling as ")
			}
			for _, d := range all {
				d.stopBut(rt, refused)
			}
			for i := range keys {
				key := fmt.Sprint("k", i)
				if n := effects.of(key); n != 1 {
					rt.Errorf("%s: %d effects; record %+v", key, n, s.recordOf(t, oncepipe.RecordID{Namespace: shop, Key: key}))
				}
				s.recordIn(t, shop, key, completed)
			}
			s.noNotes(t)
		})
	})
}

type lockedRand struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (l *lockedRand) intN(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}
