package oncepipe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
	"pgregory.net/rapid"
)

const (
	completed = oncepipe.StateCompleted
	waiting   = oncepipe.StateWaiting
	failed    = oncepipe.StateFailed
	unknown   = oncepipe.StateUnknown
)

// ended is how a call ended, be it by a panic or Goexit.
type ended[B any] struct {
	v        B
	err      error
	panicked any
	goexit   bool
}

// outcomeOf calls fn in a goroutine that it may end.
func outcomeOf[B any](fn func() (B, error)) (e ended[B]) {
	var wg sync.WaitGroup
	wg.Go(func() {
		e.goexit = true
		defer func() {
			if e.panicked = recover(); e.panicked != nil {
				e.goexit = false
			}
		}()
		e.v, e.err = fn()
		e.goexit = false
	})
	wg.Wait()
	return e
}

// silent is an error that panics when it is asked what it says.
type silent struct{}

func (*silent) Error() string { panic("no words") }

type exit int

const (
	byReturn exit = iota
	byPanic
	byGoexit
)

// Every way out of the function leaves the record in the state that says so,
// and nothing renews the claim afterwards.
func TestR36_EveryExitLeavesItsState(t *testing.T) {
	type handler = func(context.Context, int) (int, error)
	fails := func(err error) handler { return func(context.Context, int) (int, error) { return 0, err } }
	panics := func(context.Context, int) (int, error) { panic("ouch") }
	exits := func(context.Context, int) (int, error) { runtime.Goexit(); return 0, nil }
	for _, c := range []struct {
		name    string
		fn      handler
		state   oncepipe.State
		attempt int
		out     exit
		// under AtMostOnce
		state2 oncepipe.State
		out2   exit
	}{
		{"value", func(context.Context, int) (int, error) { return 7, nil }, completed, 1, byReturn, completed, byReturn},
		{"zero value", fails(nil), completed, 1, byReturn, completed, byReturn},
		{"error", fails(errBroken), waiting, 1, byReturn, unknown, byReturn},
		{"permanent", fails(oncepipe.Permanent(errBroken)), failed, 1, byReturn, unknown, byReturn},
		{"backoff's permanent", fails(backoff.Permanent(errBroken)), failed, 1, byReturn, unknown, byReturn},
		{"wrapped permanent", fails(fmt.Errorf("so: %w", oncepipe.Permanent(errBroken))), failed, 1, byReturn, unknown, byReturn},
		{"no key", fails(oncepipe.ErrNoKey), failed, 1, byReturn, unknown, byReturn},
		{"retry after", fails(oncepipe.RetryAfter(time.Minute, errBroken)), waiting, 1, byReturn, unknown, byReturn},
		{"wrapped retry after", fails(fmt.Errorf("so: %w", oncepipe.RetryAfter(1, errBroken))), waiting, 1, byReturn, unknown, byReturn},
		{"snooze", fails(oncepipe.Snooze(time.Minute)), waiting, 0, byReturn, waiting, byReturn},
		{"wrapped snooze", fails(fmt.Errorf("so: %w", oncepipe.Snooze(0))), waiting, 0, byReturn, waiting, byReturn},
		{"unknown", fails(oncepipe.Unknown(errBroken)), waiting, 1, byReturn, unknown, byReturn},
		{"not applied", fails(oncepipe.NotApplied(errBroken)), waiting, 1, byReturn, waiting, byReturn},
		{"panic", panics, failed, 1, byPanic, unknown, byReturn},
		{"goexit", exits, failed, 1, byGoexit, unknown, byGoexit},
		{"error that panics", fails(&silent{}), failed, 1, byPanic, unknown, byPanic},
		{"no function", nil, failed, 1, byPanic, unknown, byReturn},
	} {
		for _, amo := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", c.name, amo), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newFaulty()
					call := oncepipe.OnceWith(a, "step", oncepipe.OnceConfig[int, int]{AtMostOnce: amo}, c.fn)
					e := outcomeOf(func() (int, error) { return call(keyed(t), 0) })
					state, attempt, out := c.state, c.attempt, c.out
					if amo {
						state, out = c.state2, c.out2
					}
					a.wantState(t, "step", state, attempt)
					if (out == byPanic) != (e.panicked != nil) || (out == byGoexit) != e.goexit {
						t.Errorf("ended like this: %+v", e)
					}
					if out == byReturn && (state == completed) != (e.err == nil) {
						t.Errorf("%v with error %v", state, e.err)
					}
					if out == byReturn && state == unknown && (!errors.Is(e.err, oncepipe.ErrUnknownOutcome) || !oncepipe.IsPermanent(e.err)) {
						t.Errorf("unknown, and the error is %v", e.err)
					}
					time.Sleep(time.Hour)
					if n := a.called("extend"); n > 0 {
						t.Errorf("renewed %d times after the end", n)
					}
				})
			})
		}
	}
}

// Results that can't be encoded do not fail a done effect, however they can't.
func TestR10_EncodeFails(t *testing.T) {
	for name, encode := range map[string]func(int) ([]byte, error){
		"error":  func(int) ([]byte, error) { return nil, errBroken },
		"panic":  func(int) ([]byte, error) { panic("ouch") },
		"goexit": func(int) ([]byte, error) { runtime.Goexit(); return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				runs := 0
				call := oncepipe.OnceWith(a, "step", oncepipe.OnceConfig[int, int]{Encode: encode},
					func(context.Context, int) (int, error) { runs++; return 7, nil })
				e := outcomeOf(func() (int, error) { return call(keyed(t), 0) })
				if name != "goexit" && (e.v != 7 || e.err != nil) {
					t.Errorf("got %+v", e)
				}
				a.wantState(t, "step", oncepipe.StateCompleted, 1)
				v, err := call(keyed(t), 0)
				if v != 0 || !errors.Is(err, oncepipe.ErrNoResult) || !oncepipe.IsPermanent(err) || runs != 1 {
					t.Errorf("again: %v, %v after %d runs", v, err, runs)
				}
			})
		})
	}
}

func replay[B any](t *testing.T, cfg oncepipe.OnceConfig[int, B], v B) (B, error) {
	t.Helper()
	a := newFaulty()
	runs := 0
	call := oncepipe.OnceWith(a, "step", cfg, func(context.Context, int) (B, error) { runs++; return v, nil })
	if _, err := call(keyed(t), 0); err != nil {
		t.Error(err)
	}
	got, err := call(keyed(t), 0)
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
	return got, err
}

// The second call gets the first one's result, and an empty one is a result.
func TestR19_ResultIsReplayed(t *testing.T) {
	type receipt struct{ ID string }
	if v, err := replay(t, oncepipe.OnceConfig[int, receipt]{}, receipt{"r"}); v.ID != "r" || err != nil {
		t.Errorf("struct: %v, %v", v, err)
	}
	if v, err := replay(t, oncepipe.OnceConfig[int, *receipt]{}, nil); v != nil || err != nil {
		t.Errorf("nil: %v, %v", v, err)
	}
	if v, err := replay(t, oncepipe.OnceConfig[int, string]{}, ""); v != "" || err != nil {
		t.Errorf(`"": %v, %v`, v, err)
	}
	if v, err := replay(t, oncepipe.OnceConfig[int, int]{}, 0); v != 0 || err != nil {
		t.Errorf("0: %v, %v", v, err)
	}
	if v, err := replay(t, oncepipe.OnceConfig[int, any]{}, nil); v != nil || err != nil {
		t.Errorf("any(nil): %v, %v", v, err)
	}
	if _, err := replay(t, oncepipe.OnceConfig[int, struct{}]{}, struct{}{}); err != nil {
		t.Errorf("struct{}: %v", err)
	}
	raw := oncepipe.OnceConfig[int, []byte]{
		Encode: func(b []byte) ([]byte, error) { return b, nil },
		Decode: func(b []byte) ([]byte, error) { return b, nil },
	}
	if v, err := replay(t, raw, nil); len(v) != 0 || err != nil {
		t.Errorf("own codec, nil: %v, %v", v, err)
	}
}

// A result that is not to be had is never a zero value.
func TestR19_ResultThatDoesNotDecode(t *testing.T) {
	for name, decode := range map[string]func([]byte) (string, error){
		"error":  func([]byte) (string, error) { return "half", errBroken },
		"marked": func([]byte) (string, error) { return "half", oncepipe.RetryAfter(1, errBroken) },
		"panic":  func([]byte) (string, error) { panic("ouch") },
	} {
		v, err := replay(t, oncepipe.OnceConfig[int, string]{Decode: decode}, "all")
		if v != "" || !errors.Is(err, oncepipe.ErrNoResult) || !oncepipe.IsPermanent(err) {
			t.Errorf("%s: got %q, %v", name, v, err)
		}
	}
	if _, err := replay(t, oncepipe.OnceConfig[int, json.RawMessage]{}, json.RawMessage("no json")); !errors.Is(err, oncepipe.ErrNoResult) {
		t.Errorf("not encoded: %v", err)
	}
}

// Only a result that was had counts as replayed.
func TestR19_ReplaysAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.complete(t, "rig/step", "bad", nil)
		a.complete(t, "rig/step", "good", []byte("1"))
		r := newRig(t)
		oncepipe.Discard(oncepipe.Stage(r.in, "work", oncepipe.Once(a, "step", func(context.Context, brokerMsg) (int, error) {
			t.Error("ran")
			return 0, nil
		})))
		st := r.run("good", "bad")
		r.wantOutcomes("good", done)
		r.wantOutcomes("bad", dead)
		if st.Stages[0].Replayed != 1 {
			t.Errorf("replayed %d, want 1", st.Stages[0].Replayed)
		}
	})
}

// A store that is away: no ack, no run, no drop; then once.
func TestR01_R07_R08_R85_StoreIsAway(t *testing.T) {
	for _, op := range []string{"claim", "complete", "release"} {
		for _, lostReply := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", op, lostReply), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newFaulty()
					back := time.Now().Add(20 * time.Second)
					if a.before = failFor(op, 20*time.Second); lostReply {
						a.before, a.after = nil, a.before
					}
					r := newRig(t)
					successes := 0
					oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
						if op == "claim" && time.Now().Before(back) {
							t.Error("ran while the store was away")
						}
						if op == "release" && run == 1 {
							return errBroken
						}
						successes++
						return nil
					})), oncepipe.Retry(brokerRetry(time.Second)))
					r.b.send("k")
					r.b.end()
					r.start()
					time.Sleep(19 * time.Second)
					if got := r.b.outcomes("k"); len(got) > 0 && op != "release" {
						t.Errorf("settled as %v while the store was away", got)
					}
					r.finish()
					r.wantOutcomes("k", done)
					if successes != 1 || len(r.letters) > 0 {
						t.Errorf("%d successes, dead letters %+v", successes, r.letters)
					}
				})
			})
		}
	}
}

// Without a retry policy the outage reaches the source.
func TestR08_OutageReachesTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failCalls("claim", 3)
		r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = nil })
		r.b.redeliver = true
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(succeed)))
		r.run("k")
		r.wantOutcomes("k", returned, done)
		if err := r.b.got["k"][0].Err; !errors.Is(err, errLine) {
			t.Errorf("returned because of %v", err)
		}
		r.wantRuns("k", 1)
	})
}

// Three classes of errors, three states, three outcomes.
func TestR50_ThreeClassesOfErrors(t *testing.T) {
	for _, c := range []struct {
		said  error
		amo   bool
		state oncepipe.State
		again int // runs after another delivery
	}{
		{errBroken, false, oncepipe.StateWaiting, 2},
		{oncepipe.Permanent(errBroken), false, oncepipe.StateFailed, 2},
		{oncepipe.Unknown(errBroken), true, oncepipe.StateUnknown, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			r := newRig(t)
			cfg := oncepipe.OnceConfig[brokerMsg, struct{}]{AtMostOnce: c.amo}
			oncepipe.Sink(r.in, "work", oncepipe.DoWith(a, "step", cfg, r.handler(func(context.Context, brokerMsg, int) error { return c.said })))
			r.run("k", "k")
			r.wantRuns("k", c.again)
			r.wantOutcomes("k", dead, dead)
			if rec := a.recordOf(t, oncepipe.RecordID{Namespace: "rig/step", Key: "k"}); rec.State != c.state {
				t.Errorf("%v: record %+v", c.said, rec)
			}
			if l := r.letter(0); !errors.Is(l.Err, errBroken) {
				t.Errorf("dead letter %+v", l)
			}
		})
	}
}

// A step of a pipeline is not a step of the same spelling outside.
func TestR70_StepIDIsInjective(t *testing.T) {
	bare, err := oncepipe.StepID(keyed(t), "a/x")
	if err != nil {
		t.Fatal(err)
	}
	p := oncepipe.New("a", oncepipe.Config{})
	in := oncepipe.KeyBy(oncepipe.FromSeq(p, "src", slices.Values([]string{"k"})), func(s string) string { return s })
	oncepipe.Sink(in, "s", func(ctx context.Context, _ string) error {
		id, err := oncepipe.StepID(ctx, "x")
		if err != nil || id == bare {
			t.Errorf("%v and %v, %v", id, bare, err)
		}
		return nil
	})
	if err := p.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// Another payload is told from one that is in flight, done or failed.
func TestR80_Mismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		cfg := oncepipe.OnceConfig[string, struct{}]{Fingerprint: func(s string) string { return s }}
		other := oncepipe.DoWith(a, "step", cfg, func(context.Context, string) error { t.Error("ran"); return nil })
		mismatch := func(when string) {
			if err := other(keyed(t), "other"); !errors.Is(err, oncepipe.ErrMismatch) || !oncepipe.IsPermanent(err) {
				t.Errorf("%s: got %v", when, err)
			}
		}
		for _, said := range []error{errBroken, oncepipe.Permanent(errBroken), nil} {
			err := oncepipe.DoWith(a, "step", cfg, func(context.Context, string) error { mismatch("in flight"); return said })(keyed(t), "one")
			if err != said {
				t.Errorf("got %v, want %v", err, said)
			}
			mismatch("afterwards")
		}
	})
}

// The token is the same for every attempt, delivery and process, and that of no
// other step or key.
func TestTokenIsThatOfTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := map[string]map[string]int{}
		for range 2 { // two processes
			a := newFaulty()
			r := newRig(t)
			note := func(step string) func(context.Context, brokerMsg) error {
				runs := 0
				return oncepipe.OnceDo(a, step, func(ctx context.Context, m brokerMsg) error {
					info, _ := oncepipe.InfoFrom(ctx)
					id := step + "/" + m.Key
					if tokens[id] == nil {
						tokens[id] = map[string]int{}
					}
					tokens[id][info.Token()]++
					if runs++; runs == 1 {
						return errBroken
					}
					return nil
				})
			}
			one, two := note("one"), note("two")
			oncepipe.Sink(r.in, "work", func(ctx context.Context, m brokerMsg) error {
				return errors.Join(one(ctx, m), two(ctx, m))
			}, oncepipe.Retry(brokerRetry(time.Second)))
			r.run("k", "l")
		}
		seen := map[string]string{}
		for id, list := range tokens {
			if len(list) != 1 {
				t.Errorf("%s has tokens %v", id, list)
			}
			for token := range list {
				if seen[token] != "" {
					t.Errorf("%s and %s have one token", id, seen[token])
				}
				seen[token] = id
			}
		}
		if len(seen) != 4 {
			t.Errorf("tokens %v", seen)
		}
	})
}

// A redelivered item walks through the steps that are done and goes on at the
// first that is not; RetryAfter and Snooze pass through to the stage.
func TestStepsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		first := oncepipe.OnceDo(a, "first", r.handler(succeed))
		var at []time.Duration
		var attempts []int
		began := time.Now()
		second := oncepipe.OnceDo(a, "second", func(ctx context.Context, m brokerMsg) error {
			info, _ := oncepipe.InfoFrom(ctx)
			at, attempts = append(at, time.Since(began)), append(attempts, info.Attempt)
			switch len(at) {
			case 1:
				return oncepipe.RetryAfter(time.Minute, errBroken)
			case 2:
				return oncepipe.Snooze(time.Hour)
			case 3:
				return errBroken
			}
			return nil
		})
		oncepipe.Sink(r.in, "work", func(ctx context.Context, m brokerMsg) error {
			if err := first(ctx, m); err != nil {
				return err
			}
			return second(ctx, m)
		}, oncepipe.Retry(brokerRetry(time.Second)))
		r.run("k")
		r.wantRuns("k", 1)
		r.wantOutcomes("k", done)
		want := []time.Duration{0, time.Minute, time.Hour + time.Minute, time.Hour + time.Minute + time.Second}
		if !slices.Equal(at, want) || !slices.Equal(attempts, []int{1, 2, 2, 3}) {
			t.Errorf("ran at %v as attempts %v", at, attempts)
		}
		rec := a.recordOf(t, oncepipe.RecordID{Namespace: "rig/second", Key: "k"})
		if rec.State != oncepipe.StateCompleted || rec.Attempt != 3 {
			t.Errorf("record %+v", rec)
		}
	})
}

// No claim of ours is held after Run, however the handlers end at a hard stop,
// and a shutdown is no attempt.
func TestI8_NoClaimIsHeldAfterRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		end     func(ctx context.Context) error
		amo     bool
		state   oncepipe.State
		attempt int
	}{
		{"error", func(ctx context.Context) error { return ctx.Err() }, false, oncepipe.StateWaiting, 0},
		{"permanent", func(ctx context.Context) error { return oncepipe.Permanent(ctx.Err()) }, false, oncepipe.StateWaiting, 0},
		{"snooze", func(ctx context.Context) error { return oncepipe.Snooze(0) }, false, oncepipe.StateWaiting, 0},
		{"success", func(ctx context.Context) error { return nil }, false, oncepipe.StateCompleted, 1},
		{"panic", func(ctx context.Context) error { panic("ouch") }, false, oncepipe.StateFailed, 1},
		{"goexit", func(ctx context.Context) error { runtime.Goexit(); return nil }, false, oncepipe.StateFailed, 1},
		{"at most once, open", func(ctx context.Context) error { return ctx.Err() }, true, oncepipe.StateUnknown, 1},
		{"at most once, not applied", func(ctx context.Context) error { return oncepipe.NotApplied(ctx.Err()) }, true, oncepipe.StateWaiting, 0},
		{"at most once, goexit", func(ctx context.Context) error { runtime.Goexit(); return nil }, true, oncepipe.StateUnknown, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout = time.Minute })
				cfg := oncepipe.OnceConfig[brokerMsg, struct{}]{AtMostOnce: c.amo}
				oncepipe.Sink(r.in, "work", oncepipe.DoWith(a, "step", cfg, r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
					<-ctx.Done()
					if context.Cause(ctx) != oncepipe.ErrDrainTimeout {
						t.Errorf("cause %v", context.Cause(ctx))
					}
					return c.end(ctx)
				})), oncepipe.Workers(3))
				r.b.send("k", "l", "m")
				r.start()
				time.Sleep(time.Minute)
				r.cancel()
				r.finish()
				extends := a.called("extend")
				for _, key := range []string{"k", "l", "m"} {
					rec := a.recordOf(t, oncepipe.RecordID{Namespace: "rig/step", Key: key})
					if rec.State != c.state || rec.Attempt != c.attempt {
						t.Errorf("record %+v", rec)
					}
				}
				time.Sleep(time.Hour)
				if a.called("extend") != extends {
					t.Error("renewed after Run")
				}
			})
		})
	}
}

func TestOnceWithoutAKey(t *testing.T) {
	call := oncepipe.Once(newFaulty(), "step", func(context.Context, int) (int, error) { t.Error("ran"); return 0, nil })
	for _, ctx := range []context.Context{t.Context(), oncepipe.WithKey(t.Context(), "")} {
		if _, err := call(ctx, 0); !errors.Is(err, oncepipe.ErrNoKey) || !oncepipe.IsPermanent(err) {
			t.Errorf("got %v", err)
		}
	}
}

// However copies, pipelines, failures and faults of the store come together:
// while no process dies, a key succeeds once, never runs twice at a time, and
// leaves no claim behind.
func TestI6_OneSuccessPerKeyAndStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type delivery struct{ pipeline, key, at int }
		pipelines := rapid.IntRange(1, 3).Draw(rt, "pipelines")
		workers := rapid.IntRange(1, 4).Draw(rt, "workers")
		dedup := rapid.Bool().Draw(rt, "dedup")
		faults := rapid.SampledFrom([]float64{0, 0.05, 0.2}).Draw(rt, "faults")
		behaviour := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 8), 0, 5), 4, 4).Draw(rt, "behaviour")
		deliveries := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) delivery {
			return delivery{rapid.IntRange(0, pipelines-1).Draw(rt, "pipeline"), rapid.IntRange(0, 3).Draw(rt, "key"), rapid.IntRange(0, 100).Draw(rt, "at")}
		}), 1, 20).Draw(rt, "deliveries")
		seed := rapid.Uint64().Draw(rt, "seed")

		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 1))
			note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
			runs, active, successes := [4]int{}, [4]int{}, [4]int{}
			handler := func(ctx context.Context, m brokerMsg) (string, error) {
				k := int(m.Key[0] - '0')
				mu.Lock()
				run := runs[k]
				runs[k]++
				if active[k]++; active[k] > 1 {
					note("key %d runs twice at once", k)
				}
				pause := time.Duration(random.Int64N(int64(90 * time.Second)))
				mu.Unlock()
				defer func() {
					mu.Lock()
					active[k]--
					mu.Unlock()
				}()
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return "", ctx.Err()
				}
				how := 0
				if run < len(behaviour[k]) {
					how = behaviour[k][run]
				}
				switch how {
				case 1:
					return "", errBroken
				case 2:
					panic("ouch")
				case 3:
					runtime.Goexit()
				case 4:
					return "", oncepipe.Snooze(pause)
				case 5:
					return "", oncepipe.RetryAfter(pause, errBroken)
				case 6:
					return "", oncepipe.Permanent(errBroken)
				case 7:
					return "", oncepipe.Unknown(errBroken)
				}
				mu.Lock()
				successes[k]++
				mu.Unlock()
				return m.Key, nil
			}
			shared := memstore.New(memstore.Config{})
			rigs := make([]*brokerRig, pipelines)
			for i := range rigs {
				st := lineTo(shared)
				st.before = func(context.Context, string, int) error {
					mu.Lock()
					defer mu.Unlock()
					if random.Float64() < faults {
						return errLine
					}
					return nil
				}
				st.after = st.before
				r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = nil })
				r.b.redeliver = true
				in := r.in
				if dedup {
					in = r.dedup()
				}
				out := oncepipe.Stage(in, "work", oncepipe.Once(st, "step", handler), oncepipe.Namespace("shared"),
					oncepipe.Workers(workers), oncepipe.Retry(brokerRetry(time.Second)))
				oncepipe.Sink(out, "see", func(ctx context.Context, got string) error {
					if info, _ := oncepipe.InfoFrom(ctx); got != info.Key {
						mu.Lock()
						note("key %s got the result %q", info.Key, got)
						mu.Unlock()
					}
					return nil
				})
				rigs[i] = r
				r.start()
			}
			slices.SortFunc(deliveries, func(a, b delivery) int { return a.at - b.at })
			used := map[int]bool{}
			now := 0
			for _, d := range deliveries {
				time.Sleep(time.Duration(d.at-now) * time.Second)
				now = d.at
				used[d.key] = true
				rigs[d.pipeline].b.send(fmt.Sprint(d.key))
			}
			for _, r := range rigs {
				r.b.end()
			}
			for _, r := range rigs {
				r.finish()
			}
			for k := range 4 {
				want := 0
				if used[k] {
					want = 1
					recs, err := shared.Lookup(t.Context(), []oncepipe.RecordID{{Namespace: "shared/step", Key: fmt.Sprint(k)}})
					if err != nil || recs[0].State != oncepipe.StateCompleted || string(recs[0].Result) != fmt.Sprintf("%q", fmt.Sprint(k)) {
						note("record %+v, %v", recs, err)
					}
				}
				if successes[k] != want {
					note("key %d succeeded %d times, want %d", k, successes[k], want)
				}
			}
		})
		if len(wrong) > 0 {
			rt.Fatalf("%q", wrong)
		}
	})
}
