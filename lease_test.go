package oncepipe_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// faultyStore is a store behind a bad line. The hooks get the name of the method
// and the how many-th call of it this is, from 1.
type faultyStore struct {
	oncepipe.Store                // through the line
	mem            oncepipe.Store // behind it

	before func(ctx context.Context, op string, n int) error // an error: the request did not arrive
	after  func(ctx context.Context, op string, n int) error // an error: the reply did not arrive

	mu     sync.Mutex
	calls  map[string]int
	claims []oncepipe.ClaimRequest
}

var errLine = errors.New("line is down")

func newFaulty() *faultyStore { return lineTo(memstore.New(memstore.Config{})) }

func lineTo(st oncepipe.Store) *faultyStore {
	s := &faultyStore{mem: st, calls: map[string]int{}}
	s.Store = oncetest.StepStore(st, s.through)
	return s
}

// beside is another line to the same store.
func (s *faultyStore) beside() *faultyStore { return lineTo(s.mem) }

func (s *faultyStore) called(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *faultyStore) through(ctx context.Context, op string, do func() error) error {
	s.mu.Lock()
	s.calls[op]++
	n := s.calls[op]
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(ctx, op, n); err != nil {
			return err
		}
	}
	err := do()
	if err == nil && s.after != nil {
		err = s.after(ctx, op, n)
	}
	return err
}

func (s *faultyStore) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	s.mu.Lock()
	s.claims = append(s.claims, reqs...)
	s.mu.Unlock()
	return s.Store.Claim(ctx, reqs)
}

// record is that of key k and the step, or of what it says.
func (s *faultyStore) record(t *testing.T, step string) oncepipe.Record {
	t.Helper()
	return s.recordOf(t, oncepipe.RecordID{Namespace: step, Key: "k"})
}

func (s *faultyStore) recordOf(t *testing.T, id oncepipe.RecordID) oncepipe.Record {
	t.Helper()
	recs, err := s.mem.Lookup(context.Background(), []oncepipe.RecordID{id})
	if err != nil {
		t.Fatal(err)
	}
	return recs[0]
}

func (s *faultyStore) wantState(t *testing.T, step string, state oncepipe.State, attempt int) {
	t.Helper()
	if r := s.record(t, step); r.State != state || r.Attempt != attempt {
		t.Errorf("record is %v with %d attempts, want %v with %d: %+v", r.State, r.Attempt, state, attempt, r)
	}
}

// failFor lets calls of op fail until d is over.
func failFor(op string, d time.Duration) func(context.Context, string, int) error {
	end := time.Now().Add(d)
	return func(_ context.Context, o string, _ int) error {
		if o == op && time.Now().Before(end) {
			return errLine
		}
		return nil
	}
}

// failCalls lets the first n calls of op fail.
func failCalls(op string, n int) func(context.Context, string, int) error {
	return func(_ context.Context, o string, i int) error {
		if o == op && i <= n {
			return errLine
		}
		return nil
	}
}

func keyed(t *testing.T) context.Context { return oncepipe.WithKey(t.Context(), "k") }

const never = 1000 * time.Hour

// A late Complete with the claim of an owner that was taken for dead changes
// nothing, whether the new owner is done or still at it, and the old one is told.
func TestI3_LateCompleteChangesNothing(t *testing.T) {
	for _, still := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			b := a.beside()
			a.before = failFor("extend", never)
			go func() {
				time.Sleep(time.Minute)
				v, err := oncepipe.Once(b, "step", func(context.Context, int) (string, error) {
					if still {
						time.Sleep(time.Hour)
					}
					return "new", nil
				})(keyed(t), 0)
				if v != "new" || err != nil {
					t.Errorf("new owner got %q, %v", v, err)
				}
			}()
			_, err := oncepipe.Once(a, "step", func(context.Context, int) (string, error) {
				time.Sleep(2 * time.Minute) // deaf to its context
				return "old", nil
			})(keyed(t), 0)
			if !errors.Is(err, oncepipe.ErrLeaseLost) {
				t.Errorf("old owner got %v, want ErrLeaseLost", err)
			}
			want := oncepipe.StateCompleted
			if still {
				want = oncepipe.StateClaimed
			}
			if r := a.record(t, "step"); r.State != want || r.Fence != 2 {
				t.Errorf("after the late Complete: %+v", r)
			}
			time.Sleep(2 * time.Hour)
			if r := a.record(t, "step"); string(r.Result) != `"new"` {
				t.Errorf("at the end: %+v", r)
			}
		})
	}
}

// An error of the old owner does not touch the new owner's claim either, and is
// not believed to be the last word on the key.
func TestI3_LateReleaseChangesNothing(t *testing.T) {
	for _, said := range []error{errBroken, oncepipe.Permanent(errBroken), oncepipe.RetryAfter(1, errBroken)} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			_, err := oncepipe.Once(a, "step", func(context.Context, int) (int, error) {
				// Somebody forces it, and another begins; the heartbeat has not noticed.
				if _, err := a.Forget(t.Context(), []oncepipe.RecordID{{Namespace: "step", Key: "k"}}, true); err != nil {
					t.Error(err)
				}
				if _, err := a.mem.Claim(t.Context(), []oncepipe.ClaimRequest{{
					RecordID: oncepipe.RecordID{Namespace: "step", Key: "k"}, Claim: oncepipe.NewClaimID(), Lease: time.Minute,
				}}); err != nil {
					t.Error(err)
				}
				return 0, said
			})(keyed(t), 0)
			if !errors.Is(err, oncepipe.ErrLeaseLost) || !errors.Is(err, errBroken) {
				t.Errorf("got %v, want ErrLeaseLost and what the handler said", err)
			}
			a.wantState(t, "step", oncepipe.StateClaimed, 1)
		})
	}
}

// A handler that takes longer than its lease keeps it, and another does not get
// in. The first renewal comes at a third of the lease at the latest.
func TestR31_R33_RenewedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		b := a.beside()
		began := time.Now()
		first := time.Duration(0)
		a.before = func(_ context.Context, op string, n int) error {
			if op == "extend" && n == 1 {
				first = time.Since(began)
			}
			return nil
		}
		// Some replies are lost.
		a.after = func(_ context.Context, op string, n int) error {
			if op == "extend" && n%3 != 0 {
				return errLine
			}
			return nil
		}
		ended := make(chan error, 1)
		go func() {
			_, err := oncepipe.Once(a, "step", func(ctx context.Context, _ int) (int, error) {
				time.Sleep(10 * time.Minute)
				return 1, ctx.Err()
			})(keyed(t), 0)
			ended <- err
		}()
		for range 19 {
			time.Sleep(30 * time.Second)
			err := oncepipe.OnceDo(b, "step", func(context.Context, int) error { t.Error("ran beside"); return nil })(keyed(t), 0)
			if !errors.Is(err, oncepipe.ErrBusy) {
				t.Errorf("got %v, want ErrBusy", err)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if first > oncepipe.DefaultLease/3 {
			t.Errorf("first renewal after %v", first)
		}
		a.wantState(t, "step", oncepipe.StateCompleted, 1)
	})
}

// A renewal that fails is no lost lease yet.
func TestR35_ShortOutageDoesNotEndTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failFor("extend", 25*time.Second)
		_, err := oncepipe.Once(a, "step", func(ctx context.Context, _ int) (int, error) {
			time.Sleep(5 * time.Minute)
			return 0, ctx.Err()
		})(keyed(t), 0)
		if err != nil {
			t.Error(err)
		}
		a.wantState(t, "step", oncepipe.StateCompleted, 1)
	})
}

// A renewal that hangs is given up early enough for another one.
func TestR35_RenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = func(ctx context.Context, op string, n int) error {
			if op == "extend" && n%2 == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		err := oncepipe.OnceDo(a, "step", func(ctx context.Context, _ int) error {
			time.Sleep(5 * time.Minute)
			return ctx.Err()
		})(keyed(t), 0)
		if err != nil {
			t.Error(err)
		}
	})
}

// A longer one ends the handler's context before the store would let another in,
// counted from when the last good request was sent.
func TestR35_WatchdogEndsTheHandlerInTime(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			down := time.Now().Add(95 * time.Second)
			a.before = func(ctx context.Context, op string, _ int) error {
				if op != "extend" || time.Now().Before(down) {
					return nil
				}
				if hang {
					<-ctx.Done()
				}
				return errLine
			}
			// Replies are slow.
			a.after = func(_ context.Context, op string, _ int) error { time.Sleep(4 * time.Second); return nil }
			_, err := oncepipe.Once(a, "step", func(ctx context.Context, _ int) (int, error) {
				<-ctx.Done()
				if cause := context.Cause(ctx); cause != oncepipe.ErrLeaseLost {
					t.Errorf("cause is %v", cause)
				}
				if time.Now().Before(down) {
					t.Error("ended before the outage")
				}
				r := a.record(t, "step")
				if r.State != oncepipe.StateClaimed || r.Lease <= time.Second || r.Lease > 10*time.Second {
					t.Errorf("at the end of the context: %+v", r)
				}
				return 0, ctx.Err()
			})(keyed(t), 0)
			if !errors.Is(err, oncepipe.ErrLeaseLost) {
				t.Errorf("got %v, want ErrLeaseLost", err)
			}
			a.wantState(t, "step", oncepipe.StateWaiting, 1) // given back, since it could be
		})
	}
}

// A store that says that the claim is gone ends the handler at once. If the
// handler succeeds nevertheless, that is told.
func TestR35_NotHeldEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		began := time.Now()
		_, err := oncepipe.Once(a, "step", func(ctx context.Context, _ int) (int, error) {
			if _, err := a.Forget(ctx, []oncepipe.RecordID{{Namespace: "step", Key: "k"}}, true); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != oncepipe.ErrLeaseLost || time.Since(began) > oncepipe.DefaultLease/3 {
				t.Errorf("cause is %v after %v", cause, time.Since(began))
			}
			return 1, nil
		})(keyed(t), 0)
		if !errors.Is(err, oncepipe.ErrLeaseLost) {
			t.Errorf("got %v, want ErrLeaseLost", err)
		}
		a.wantState(t, "step", oncepipe.StateAbsent, 0)
	})
}

// The item of a lost lease goes back to its source, and is no dead letter.
func TestR35_LostLeaseReturnsTheItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failFor("extend", 40*time.Second)
		r := newRig(t)
		r.b.redeliver = true
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(func(ctx context.Context, _ brokerMsg, run int) error {
			if run == 1 {
				<-ctx.Done()
				return oncepipe.Permanent(ctx.Err())
			}
			return nil
		})))
		r.run("k")
		r.wantRuns("k", 2)
		r.wantOutcomes("k", returned, done)
		if len(r.letters) > 0 {
			t.Errorf("dead letters %+v", r.letters)
		}
	})
}

// The claim is given back at once when the context ends, not by the end of the
// lease.
func TestR38_ReleasedOnAContextThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		ctx, cancel := context.WithCancel(keyed(t))
		began := time.Now()
		_, err := oncepipe.Once(a, "step", func(ctx context.Context, _ int) (int, error) {
			cancel()
			<-ctx.Done()
			return 0, ctx.Err()
		})(ctx, 0)
		if !errors.Is(err, context.Canceled) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		a.wantState(t, "step", oncepipe.StateWaiting, 1)
	})
}

// Cancelled while the claim was on its way: nothing has begun, and nothing is
// left behind that another would have to wait for or take for a crash.
func TestR38_CancelledWhileClaiming(t *testing.T) {
	for name, lost := range map[string]error{"reply lost": errLine, "reply arrives": nil} {
		for _, amo := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newFaulty()
					ctx, cancel := context.WithCancel(keyed(t))
					a.after = func(_ context.Context, op string, _ int) error {
						if op == "claim" {
							cancel()
							return lost
						}
						return nil
					}
					cfg := oncepipe.OnceConfig[int, int]{AtMostOnce: amo}
					_, err := oncepipe.OnceWith(a, "step", cfg, func(context.Context, int) (int, error) {
						t.Error("ran")
						return 0, nil
					})(ctx, 0)
					if err == nil || errors.Is(err, oncepipe.ErrUnknownOutcome) || oncepipe.IsPermanent(err) {
						t.Errorf("got %v", err)
					}
					a.wantState(t, "step", oncepipe.StateWaiting, 0)
				})
			})
		}
	}
}

func TestR38_CancelledBeforeClaiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		ctx, cancel := context.WithCancel(keyed(t))
		cancel()
		_, err := oncepipe.Once(a, "step", func(context.Context, int) (int, error) { t.Error("ran"); return 0, nil })(ctx, 0)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		a.wantState(t, "step", oncepipe.StateAbsent, 0)
	})
}

// An answer that comes when the lease may be over begins nothing.
func TestR35_AnswerLaterThanTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.after = func(_ context.Context, op string, n int) error {
			if op == "claim" && n == 1 {
				time.Sleep(29 * time.Second) // deaf to its context
			}
			return nil
		}
		var runs atomic.Int32
		call := oncepipe.Once(a, "step", func(ctx context.Context, _ int) (int32, error) {
			return runs.Add(1), ctx.Err()
		})
		if _, err := call(keyed(t), 0); !errors.Is(err, oncepipe.ErrLeaseLost) || runs.Load() != 0 {
			t.Errorf("got %v and %d runs, want ErrLeaseLost and none", err, runs.Load())
		}
		a.wantState(t, "step", oncepipe.StateWaiting, 0)
		if v, err := call(keyed(t), 0); v != 1 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
	})
}

// A store that does not answer holds nobody for ever, in no call.
func TestR85_HangingStore(t *testing.T) {
	for _, op := range []string{"claim", "complete", "release", "resolve"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				a.before = func(ctx context.Context, o string, n int) error {
					if o == op && n == 1 {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
				began := time.Now()
				runs := 0
				cfg := oncepipe.OnceConfig[int, int]{
					AtMostOnce: op == "resolve",
					Resolve:    func(context.Context, int) (int, bool, error) { return 1, true, nil },
				}
				v, err := oncepipe.OnceWith(a, "step", cfg, func(context.Context, int) (int, error) {
					if runs++; op == "release" || op == "resolve" {
						return 1, errBroken
					}
					return 1, nil
				})(keyed(t), 0)
				if runs != 1 || time.Since(began) > oncepipe.DefaultLease {
					t.Errorf("%d runs after %v", runs, time.Since(began))
				}
				if op == "release" {
					if !errors.Is(err, errBroken) {
						t.Errorf("got %v", err)
					}
					a.wantState(t, "step", oncepipe.StateWaiting, 1)
					return
				}
				if v != 1 || err != nil {
					t.Errorf("got %v, %v", v, err)
				}
				a.wantState(t, "step", oncepipe.StateCompleted, 1)
			})
		})
	}
}

// Recording the result fails for longer than a lease: the handler ran once, the
// claim is renewed meanwhile, and the call succeeds in the end.
func TestR51_CompleteIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failFor("complete", 25*time.Second)
		lost := false
		a.after = func(_ context.Context, op string, _ int) error {
			if op != "complete" || lost {
				return nil
			}
			lost = true // the first reply
			return errLine
		}
		runs := 0
		v, err := oncepipe.Once(a, "step", func(context.Context, int) (int, error) { runs++; return 7, nil })(keyed(t), 0)
		if v != 7 || err != nil || runs != 1 {
			t.Errorf("got %v, %v after %d runs", v, err, runs)
		}
		if a.called("extend") < 2 {
			t.Errorf("renewed %d times meanwhile", a.called("extend"))
		}
		if r := a.record(t, "step"); r.State != oncepipe.StateCompleted || string(r.Result) != "7" || r.Fence != 1 {
			t.Errorf("record %+v", r)
		}
	})
}

// A result that the store refuses for ever does not fail a done effect, nor does
// it hold the worker for ever.
func TestR51_ResultThatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &refusing{newFaulty()}
		began := time.Now()
		v, err := oncepipe.Once(a, "step", func(context.Context, int) (string, error) { return "poison", nil })(keyed(t), 0)
		if v != "poison" || err != nil || time.Since(began) > 2*oncepipe.DefaultLease {
			t.Errorf("got %q, %v after %v", v, err, time.Since(began))
		}
		if r := a.record(t, "step"); r.State != oncepipe.StateCompleted || r.HasResult {
			t.Errorf("record %+v", r)
		}
	})
}

type refusing struct{ *faultyStore }

func (s *refusing) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	if reqs[0].HasResult {
		return nil, errLine
	}
	return s.faultyStore.Complete(ctx, reqs)
}

// The Completion arrived and its reply did not; a renewal that finds the claim
// gone does not make a failure of it.
func TestR51_CompletedWhileTheReplyIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.after = func(_ context.Context, op string, n int) error {
			if op == "complete" && n == 1 {
				time.Sleep(15 * time.Second)
				return errLine
			}
			return nil
		}
		v, err := oncepipe.Once(a, "step", func(context.Context, int) (int, error) { return 7, nil })(keyed(t), 0)
		if v != 7 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
		if a.called("extend") == 0 {
			t.Error("no renewal meanwhile")
		}
	})
}

// A hard stop and one failure of the store at the same time do not make a done
// effect run again.
func TestR51_CompleteIsRepeatedAtAHardStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failCalls("complete", 2)
		r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout = time.Second })
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
			<-ctx.Done()
			return nil
		})))
		r.b.send("k")
		r.start()
		synctest.Wait()
		r.cancel()
		r.finish()
		if rec := a.recordOf(t, oncepipe.RecordID{Namespace: "rig/step", Key: "k"}); rec.State != oncepipe.StateCompleted {
			t.Errorf("record %+v", rec)
		}
	})
}

// When it can't be recorded at all, the item goes back, and only the end of the
// lease lets somebody in, who is told.
func TestR51_NeverRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		b := a.beside()
		a.before = func(_ context.Context, op string, _ int) error {
			if op == "claim" {
				return nil
			}
			return errLine
		}
		_, err := oncepipe.Once(a, "step", func(context.Context, int) (int, error) { return 7, nil })(keyed(t), 0)
		if !errors.Is(err, oncepipe.ErrLeaseLost) || !errors.Is(err, errLine) {
			t.Errorf("got %v", err)
		}
		a.wantState(t, "step", oncepipe.StateClaimed, 1)
		time.Sleep(oncepipe.DefaultLease)
		_, err = oncepipe.Once(b, "step", func(ctx context.Context, _ int) (int, error) {
			if info, _ := oncepipe.InfoFrom(ctx); !info.Takeover || info.Attempt != 2 {
				t.Errorf("info %+v", info)
			}
			return 7, nil
		})(keyed(t), 0)
		if err != nil {
			t.Error(err)
		}
	})
}

// When the claim can't be given back, the error is still what the handler said,
// with its marks, and the lease ends it.
func TestR36_ReleaseFails(t *testing.T) {
	for _, said := range []error{errBroken, oncepipe.Permanent(errBroken), oncepipe.Snooze(time.Minute)} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			a.before = failCalls("release", 3)
			call := oncepipe.Once(a, "step", func(ctx context.Context, n int) (int, error) {
				if info, _ := oncepipe.InfoFrom(ctx); info.Takeover != (n == 2) {
					t.Errorf("info %+v", info)
				}
				if n == 2 {
					return 2, nil
				}
				return 0, said
			})
			_, err := call(keyed(t), 1)
			if !errors.Is(err, errLine) || oncepipe.IsPermanent(err) != oncepipe.IsPermanent(said) {
				t.Errorf("got %v", err)
			}
			a.wantState(t, "step", oncepipe.StateClaimed, 1)
			if _, err := call(keyed(t), 0); !errors.Is(err, oncepipe.ErrBusy) {
				t.Errorf("got %v", err)
			}
			time.Sleep(oncepipe.DefaultLease)
			if a.called("extend") > 0 {
				t.Error("renewed after the end")
			}
			if v, err := call(keyed(t), 2); v != 2 || err != nil {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
}

// One release that fails is repeated, and so is one whose reply is lost.
func TestR36_ReleaseIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before, a.after = failCalls("release", 1), failCalls("release", 2)
		_, err := oncepipe.Once(a, "step", func(context.Context, int) (int, error) { return 0, errBroken })(keyed(t), 0)
		if err != errBroken {
			t.Errorf("got %v, want the handler's error as it was", err)
		}
		a.wantState(t, "step", oncepipe.StateWaiting, 1)
	})
}

// A claim whose reply was lost is repeated with the same id: one acquisition,
// one run.
func TestR33_LostClaimReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.after = failCalls("claim", 2)
		runs := 0
		_, err := oncepipe.Once(a, "step", func(context.Context, int) (int, error) { runs++; return 1, nil })(keyed(t), 0)
		if err != nil || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
		if len(a.claims) != 3 || a.claims[0].Claim != a.claims[1].Claim || a.claims[1].Claim != a.claims[2].Claim {
			t.Errorf("claims %+v", a.claims)
		}
		if r := a.record(t, "step"); r.Fence != 1 || r.Attempt != 1 {
			t.Errorf("record %+v", r)
		}
	})
}

// The same owner name twice is two owners: every acquisition has its own id.
func TestR27_NewTokenForEveryAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		call := oncepipe.Once(a, "step", func(context.Context, int) (int, error) { return 0, errBroken })
		for range 2 {
			_, _ = call(keyed(t), 0)
		}
		if len(a.claims) != 2 || a.claims[0].Owner != a.claims[1].Owner || a.claims[0].Claim == a.claims[1].Claim {
			t.Fatalf("claims %+v", a.claims)
		}
		// Claimed a third time: neither of the first has a say.
		id := oncepipe.RecordID{Namespace: "step", Key: "k"}
		_, err := oncepipe.Once(a, "step", func(ctx context.Context, _ int) (int, error) {
			for _, old := range a.claims[:2] {
				ext, err1 := a.mem.Extend(ctx, []oncepipe.Extension{{RecordID: id, Claim: old.Claim, Lease: time.Hour}})
				com, err2 := a.mem.Complete(ctx, []oncepipe.Completion{{RecordID: id, Claim: old.Claim}})
				rel, err3 := a.mem.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: id, Claim: old.Claim, To: oncepipe.ToWaiting}})
				if err := errors.Join(err1, err2, err3); err != nil || ext[0] || com[0] || rel[0] {
					t.Errorf("an old claim did something: %v %v %v %v", ext, com, rel, err)
				}
			}
			return 1, nil
		})(keyed(t), 0)
		if err != nil {
			t.Error(err)
		}
	})
}

// A takeover whose answer was lost is given back, and whoever comes next is told
// of it nevertheless.
func TestR49_TakeoverIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.abandon(t, "step", "k")
		time.Sleep(oncepipe.DefaultLease)
		a.after = failCalls("claim", 3)
		call := oncepipe.OnceDo(a, "step", func(ctx context.Context, _ int) error {
			if info, _ := oncepipe.InfoFrom(ctx); !info.Takeover || info.Attempt != 2 {
				t.Errorf("info %+v", info)
			}
			return nil
		})
		if err := call(keyed(t), 0); !errors.Is(err, errLine) {
			t.Errorf("got %v", err)
		}
		a.wantState(t, "step", oncepipe.StateWaiting, 1)
		if err := call(keyed(t), 0); err != nil {
			t.Error(err)
		}
	})
}

// A step inside a step: each has its record, its token and its claim.
func TestOnceInsideOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		var tokens [3]string
		inner := oncepipe.Once(a, "inner", func(ctx context.Context, _ int) (int, error) {
			info, _ := oncepipe.InfoFrom(ctx)
			tokens[1] = info.Token()
			time.Sleep(time.Minute)
			return 1, nil
		})
		fail := errBroken
		outer := oncepipe.Once(a, "outer", func(ctx context.Context, n int) (int, error) {
			info, _ := oncepipe.InfoFrom(ctx)
			tokens[0] = info.Token()
			v, err := inner(ctx, n)
			info, _ = oncepipe.InfoFrom(ctx)
			tokens[2] = info.Token()
			return v, errors.Join(err, fail)
		})
		if _, err := outer(keyed(t), 0); !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
		fail = nil
		if v, err := outer(keyed(t), 0); v != 1 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
		if tokens[0] == tokens[1] || tokens[0] != tokens[2] {
			t.Errorf("tokens %v", tokens)
		}
		a.wantState(t, "inner", oncepipe.StateCompleted, 1)
		a.wantState(t, "outer", oncepipe.StateCompleted, 2)
	})
}
