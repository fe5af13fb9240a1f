package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

// AtMostOnce: what a dead owner left is not run again. Resolve is asked, and
// without it the item is a dead letter.
func TestR30_R48_AtMostOnceAfterADeath(t *testing.T) {
	for _, c := range []struct {
		name     string
		resolve  func(context.Context, brokerMsg) (string, bool, error)
		runs     int
		outcome  oncepipe.Outcome
		state    oncepipe.State
		passedOn string
	}{
		{"no resolver", nil, 0, dead, oncepipe.StateUnknown, ""},
		{"happened", func(context.Context, brokerMsg) (string, bool, error) { return "found", true, nil }, 0, done, oncepipe.StateCompleted, "found"},
		{"did not happen", func(context.Context, brokerMsg) (string, bool, error) { return "", false, nil }, 1, done, oncepipe.StateCompleted, "made"},
		{"resolver gives up", func(context.Context, brokerMsg) (string, bool, error) {
			return "", false, oncepipe.Permanent(errBroken)
		}, 0, dead, oncepipe.StateUnknown, ""},
		{"resolver exits", func(context.Context, brokerMsg) (string, bool, error) { runtime.Goexit(); return "", false, nil }, 0, dead, oncepipe.StateUnknown, ""},
		{"resolver panics", func(context.Context, brokerMsg) (string, bool, error) { panic("ouch") }, 0, dead, oncepipe.StateUnknown, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				a.abandon(t, "rig/step", "k")
				r := newRig(t)
				h := r.handler(succeed)
				cfg := oncepipe.OnceConfig[brokerMsg, string]{AtMostOnce: true}
				asked := 0
				if c.resolve != nil {
					cfg.Resolve = func(ctx context.Context, m brokerMsg) (string, bool, error) {
						if info, _ := oncepipe.InfoFrom(ctx); info.Key != "k" || m.Key != "k" {
							t.Errorf("resolver got %+v, %+v", info, m)
						}
						if asked++; asked == 1 {
							return "", false, errLine // its service is away at first
						}
						return c.resolve(ctx, m)
					}
				}
				out := oncepipe.Stage(r.in, "work", oncepipe.OnceWith(a, "step", cfg, func(ctx context.Context, m brokerMsg) (string, error) {
					return "made", h(ctx, m)
				}), oncepipe.Retry(brokerRetry(time.Second)))
				oncepipe.Sink(out, "see", func(_ context.Context, s string) error {
					if s != c.passedOn {
						t.Errorf("got %q", s)
					}
					return nil
				})
				r.run("k")
				r.wantRuns("k", c.runs)
				r.wantOutcomes("k", c.outcome)
				if rec := a.recordOf(t, oncepipe.RecordID{Namespace: "rig/step", Key: "k"}); rec.State != c.state {
					t.Errorf("record %+v", rec)
				}
				if c.resolve == nil && r.letter(0).Reason != oncepipe.ReasonUnknown {
					t.Errorf("dead letter %+v", r.letter(0))
				}
			})
		})
	}
}

// AtMostOnce: after an error that leaves it open, Resolve decides, at once.
func TestR48_AtMostOnceAfterAnError(t *testing.T) {
	wrapped := fmt.Errorf("so: %w", oncepipe.RetryAfter(time.Hour, errBroken))
	for _, c := range []struct {
		name    string
		said    error // nil: a panic
		resolve func(n int) (string, bool)
		runs    int
		outcome oncepipe.Outcome
		reason  oncepipe.Reason
		state   oncepipe.State
	}{
		{"open", errBroken, nil, 1, dead, oncepipe.ReasonUnknown, unknown},
		{"open, with a mark inside", wrapped, nil, 1, dead, oncepipe.ReasonUnknown, unknown},
		{"panic", nil, nil, 1, dead, oncepipe.ReasonUnknown, unknown},
		{"happened", errBroken, func(int) (string, bool) { return "found", true }, 1, done, "", completed},
		{"panic, happened", nil, func(int) (string, bool) { return "found", true }, 1, done, "", completed},
		{"panic, did not happen", nil, func(int) (string, bool) { return "", false }, 1, dead, oncepipe.ReasonPanic, failed},
		{"did not happen", errBroken, func(n int) (string, bool) { return "found", n > 2 }, 3, done, "", completed},
		{"did not happen, permanent", oncepipe.Permanent(errBroken), func(int) (string, bool) { return "", false }, 1, dead, oncepipe.ReasonPermanent, failed},
		{"not applied", oncepipe.NotApplied(errBroken), func(int) (string, bool) { panic("asked") }, 4, dead, oncepipe.ReasonExhausted, waiting},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				r := newRig(t)
				h := r.handler(func(context.Context, brokerMsg, int) error {
					if c.said == nil {
						panic("ouch")
					}
					return c.said
				})
				cfg := oncepipe.OnceConfig[brokerMsg, string]{AtMostOnce: true}
				asked := 0
				if c.resolve != nil {
					cfg.Resolve = func(context.Context, brokerMsg) (string, bool, error) {
						asked++
						v, yes := c.resolve(asked)
						return v, yes, nil
					}
				}
				policy := brokerRetry(time.Second)
				policy.MaxAttempts = 4
				oncepipe.Discard(oncepipe.Stage(r.in, "work", oncepipe.OnceWith(a, "step", cfg, func(ctx context.Context, m brokerMsg) (string, error) {
					return "", h(ctx, m)
				}), oncepipe.Retry(policy)))
				r.run("k")
				r.wantRuns("k", c.runs)
				r.wantOutcomes("k", c.outcome)
				if c.reason != "" && r.letter(0).Reason != c.reason {
					t.Errorf("dead letter %+v", r.letter(0))
				}
				if rec := a.recordOf(t, oncepipe.RecordID{Namespace: "rig/step", Key: "k"}); rec.State != c.state {
					t.Errorf("record %+v", rec)
				}
			})
		})
	}
}

// A time-out leaves it open whether the effect happened. A Resolve that does not
// mind that the attempt's time is over is heard; one that does is asked again.
func TestR48_AtMostOnceAfterATimeout(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			r := newRig(t)
			asked := 0
			cfg := oncepipe.OnceConfig[brokerMsg, struct{}]{AtMostOnce: true}
			cfg.Resolve = func(ctx context.Context, _ brokerMsg) (struct{}, bool, error) {
				if asked++; !deaf && ctx.Err() != nil {
					return struct{}{}, false, ctx.Err()
				}
				return struct{}{}, true, nil
			}
			oncepipe.Sink(r.in, "work", oncepipe.DoWith(a, "step", cfg, r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
				<-ctx.Done()
				return ctx.Err()
			})), oncepipe.Timeout(time.Second), oncepipe.Retry(brokerRetry(time.Second)))
			r.run("k")
			r.wantRuns("k", 1)
			r.wantOutcomes("k", done)
			if deaf != (asked == 1) {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

// Somebody else settles the record while Resolve is at it: what they said holds.
func TestR48_ResolvedBySomebodyElse(t *testing.T) {
	for _, happened := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			a.abandon(t, "step", "k")
			time.Sleep(oncepipe.DefaultLease)
			cfg := oncepipe.OnceConfig[int, string]{AtMostOnce: true}
			cfg.Resolve = func(ctx context.Context, _ int) (string, bool, error) {
				_, err := a.mem.Resolve(ctx, []oncepipe.Resolution{{
					RecordID: oncepipe.RecordID{Namespace: "step", Key: "k"}, Fence: 1, To: oncepipe.StateCompleted,
					Result: []byte(`"theirs"`), HasResult: true,
				}})
				return "mine", happened, err
			}
			v, err := oncepipe.OnceWith(a, "step", cfg, func(context.Context, int) (string, error) {
				t.Error("ran")
				return "", nil
			})(keyed(t), 0)
			if v != "theirs" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
	}
}

// The record could not be made unknown: a resolution that the store did not take
// is not a success.
func TestI1_ResolutionThatWasNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failCalls("release", 3)
		cfg := oncepipe.OnceConfig[int, string]{AtMostOnce: true}
		cfg.Resolve = func(context.Context, int) (string, bool, error) { return "found", true, nil }
		runs := 0
		call := oncepipe.OnceWith(a, "step", cfg, func(context.Context, int) (string, error) { runs++; return "", errBroken })
		if _, err := call(keyed(t), 0); !errors.Is(err, oncepipe.ErrBusy) {
			t.Errorf("got %v while the record is still claimed", err)
		}
		time.Sleep(oncepipe.DefaultLease)
		if v, err := call(keyed(t), 0); v != "found" || err != nil || runs != 1 {
			t.Errorf("got %q, %v after %d runs", v, err, runs)
		}
		a.wantState(t, "step", oncepipe.StateCompleted, 1)
	})
}
