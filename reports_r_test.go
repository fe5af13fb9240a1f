package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

// The tests of this file each bear the number of a fault that another system
// had with duplicates and claims; docs/reports.md lists them.

const (
	done      = oncepipe.Done
	duplicate = oncepipe.Duplicate
	dead      = oncepipe.Dead
	returned  = oncepipe.Returned
)

// failsOnce fails the first run of a key, or what until says.
func failUntil(run int) func(context.Context, brokerMsg, int) error {
	return func(_ context.Context, _ brokerMsg, n int) error {
		if n < run {
			return errBroken
		}
		return nil
	}
}

func succeed(context.Context, brokerMsg, int) error { return nil }

// A message that fails and is given back is no duplicate when it comes again,
// whether there is a retry policy or not.
func TestR01_RedeliveryAfterAFailureRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = nil }) // given up is returned
		r.b.redeliver = true
		oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(2)))
		r.run("k")
		r.wantRuns("k", 2)
		r.wantOutcomes("k", returned, done)
	})
}

// The guard learns of a key when everything behind Dedup has succeeded, not
// when the first stage has.
func TestR02_GuardIsFilledAfterTheLastStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := oncepipe.LRU(8)
		r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = nil })
		r.b.redeliver = true
		first := r.handler(succeed)
		mid := oncepipe.Stage(r.dedup(oncepipe.WithGuard(guard)), "effect", func(ctx context.Context, m brokerMsg) (brokerMsg, error) {
			return m, first(ctx, m)
		})
		var commits atomic.Int32
		oncepipe.Sink(mid, "commit", func(context.Context, brokerMsg) error {
			if guard.Len() != 0 {
				t.Error("the guard knows a key that is not committed")
			}
			if commits.Add(1) == 1 {
				return errBroken
			}
			return nil
		})
		r.run("k")
		r.wantRuns("k", 2)
		r.wantOutcomes("k", returned, done)
		if guard.Len() != 1 {
			t.Errorf("guard knows %d keys, want 1", guard.Len())
		}
	})
}

// What a failed attempt left in the item is not believed: the item object is
// the same, and it runs again.
func TestR03_SameItemObjectRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type box struct{ handled bool }
		p := oncepipe.New("boxes", oncepipe.Config{})
		b := &box{}
		in := oncepipe.Dedup(oncepipe.FromSeq(p, "src", slices.Values([]*box{b})), "dedup", func(*box) string { return "k" })
		runs := 0
		oncepipe.Sink(in, "work", func(_ context.Context, b *box) error {
			runs++
			b.handled = true
			if runs == 1 {
				return errBroken
			}
			return nil
		}, oncepipe.Retry(brokerRetry(time.Second)))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := p.Stats(); runs != 2 || st.Done != 1 || st.Duplicate != 0 {
			t.Errorf("%d runs, stats %+v", runs, st)
		}
	})
}

// Fail, back off, dispatch again with the same key, guard on: never a
// duplicate, not of any layer.
func TestR04_RequeueIsNoDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		mid := oncepipe.Stage(r.dedup(), "pass", func(_ context.Context, m brokerMsg) (brokerMsg, error) { return m, nil })
		oncepipe.Sink(oncepipe.Dedup(mid, "second layer", brokerKey), "work", r.handler(failUntil(3)),
			oncepipe.Retry(brokerRetry(time.Minute)))
		st := r.run("k")
		r.wantRuns("k", 3)
		r.wantOutcomes("k", done)
		for _, d := range st.Dedups {
			if d.Fresh != 1 || d.Committed != 0 || d.Joined != 0 {
				t.Errorf("a retry met a layer of dedup: %+v", d)
			}
		}
	})
}

// The canonical one: first sight, handler error, redelivery.
func TestR06_RedeliveryAfterHandlerErrorRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(2)))
		r.start()
		r.b.send("k")
		synctest.Wait()
		r.wantOutcomes("k", dead)
		r.b.send("k") // the sender tries again
		r.b.send("k") // and once more, although it is done
		r.b.end()
		r.finish()
		r.wantRuns("k", 2)
		r.wantOutcomes("k", dead, done, duplicate)
	})
}

// A handler that returns nothing of worth, panics or ends its goroutine leaves
// no key behind.
func TestR10_NoEndingLeavesTheKeyClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		fn    func()
		first oncepipe.Outcome
		again oncepipe.Outcome
	}{
		"zero value": {func() {}, done, duplicate},
		"panic":      {func() { panic("boom") }, dead, done},
		"nil panic":  {func() { panic(nil) }, dead, done},
		"goexit":     {runtime.Goexit, dead, done},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				count := r.handler(func(_ context.Context, _ brokerMsg, run int) error {
					if run == 1 {
						c.fn()
					}
					return nil
				})
				out := oncepipe.Stage(r.dedup(), "work", func(ctx context.Context, m brokerMsg) (*brokerMsg, error) {
					return nil, count(ctx, m)
				}, oncepipe.Retry(brokerRetry(time.Second)))
				oncepipe.Discard(out)
				r.start()
				r.b.send("k")
				synctest.Wait()
				if d := r.p.Stats().Dedups[0]; d.InFlight != 0 {
					t.Errorf("%d keys still in flight", d.InFlight)
				}
				r.b.send("k")
				r.b.end()
				r.finish()
				r.wantOutcomes("k", c.first, c.again)
			})
		})
	}
}

// A hundred copies at once through a hundred workers: one effect.
func TestR12_CopiesAtOnceActOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		fan := oncepipe.Stage(r.in, "fan", func(_ context.Context, m brokerMsg) (brokerMsg, error) { return m, nil },
			oncepipe.Workers(100))
		oncepipe.Sink(oncepipe.Dedup(fan, "dedup", brokerKey, oncepipe.JoinLimit(100, 100, time.Hour)), "work",
			r.handler(func(context.Context, brokerMsg, int) error { time.Sleep(time.Second); return nil }),
			oncepipe.Workers(100))
		st := r.run(slices.Repeat([]string{"k"}, 100)...)
		r.wantRuns("k", 1)
		if st.Done != 1 || st.Duplicate != 99 {
			t.Errorf("done %d, duplicate %d", st.Done, st.Duplicate)
		}
	})
}

// While the first copy runs, the second gets no answer at all, and no success
// when the first fails.
func TestR14_NoAckForUnfinishedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(context.Context, brokerMsg, int) error {
			time.Sleep(30 * time.Second)
			return oncepipe.Permanent(errBroken)
		}))
		r.b.send("k", "k")
		r.b.end()
		r.start()
		for range 29 {
			time.Sleep(time.Second)
			synctest.Wait()
			r.wantOutcomes("k")
		}
		r.finish()
		r.wantRuns("k", 1)
		r.wantOutcomes("k", dead, dead)
	})
}

// Fifty duplicates hold no worker: the owner gets the second worker that it
// needs.
func TestR18_DuplicatesHoldNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		helped := make(chan struct{})
		oncepipe.Sink(r.dedup(oncepipe.JoinLimit(50, 50, time.Minute)), "work", r.handler(func(_ context.Context, m brokerMsg, _ int) error {
			if m.Key == "helper" {
				close(helped)
				return nil
			}
			<-helped
			return nil
		}), oncepipe.Workers(4), oncepipe.Buffer(oncepipe.Fixed(0)))
		r.start()
		r.b.send(slices.Repeat([]string{"owner"}, 51)...)
		synctest.Wait()
		if s := r.p.Stats(); s.Stages[0].Running != 1 || s.Dedups[0].Waiting != 50 {
			t.Errorf("%d workers busy, %d copies joined", s.Stages[0].Running, s.Dedups[0].Waiting)
		}
		r.b.send("helper")
		r.b.end()
		r.finish()
		r.wantRuns("owner", 1)
	})
}

// Ten copies wait for a leader that is lost, three times over: one of them at a
// time takes its place.
func TestR21_OneHeirAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
			time.Sleep(time.Second)
			if run <= 3 {
				return oncepipe.ErrLeaseLost
			}
			return nil
		}), oncepipe.Workers(8))
		r.run(slices.Repeat([]string{"k"}, 11)...)
		r.wantRuns("k", 4)
		r.wantAlone()
		r.wantOutcomes("k", append([]oncepipe.Outcome{returned, returned, returned, done}, slices.Repeat([]oncepipe.Outcome{duplicate}, 7)...)...)
	})
}

// The same with a leader that panics: that is the end of this key for all of
// them, and the next copy that comes runs.
func TestR21_LeaderPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
			time.Sleep(time.Second)
			if run == 1 {
				panic("boom")
			}
			return nil
		}), oncepipe.Workers(8))
		r.start()
		r.b.send(slices.Repeat([]string{"k"}, 11)...)
		time.Sleep(2 * time.Second)
		r.wantOutcomes("k", slices.Repeat([]oncepipe.Outcome{dead}, 11)...)
		r.b.send("k")
		r.b.end()
		r.finish()
		r.wantRuns("k", 2)
		r.wantAlone()
	})
}

// The heir's deadline for joining and its taking over can meet: it is settled
// once all the same.
func TestR21_HeirWhoseWaitIsOver(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			oncepipe.Sink(r.dedup(oncepipe.JoinLimit(16, 16, time.Second)), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
				time.Sleep(time.Second)
				if run <= 2 {
					return oncepipe.ErrLeaseLost
				}
				return nil
			}), oncepipe.Workers(2))
			r.run("k", "k", "k", "k")
			r.wantAlone()
		})
	}
}

// (a) A copy of completed work is acked, every time.
func TestR22_CompletedIsAckedEveryTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.b.redeliver = true
		oncepipe.Sink(r.dedup(), "work", r.handler(succeed))
		r.start()
		for range 5 {
			r.b.send("k")
			synctest.Wait()
		}
		r.b.end()
		r.finish()
		r.wantRuns("k", 1)
		r.wantOutcomes("k", done, duplicate, duplicate, duplicate, duplicate)
	})
}

// (b) A guard of two keys with ten in flight: each runs once, since what is in
// flight is not the guard's to evict.
func TestR22_SmallGuardManyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		testInFlightIsNotEvicted(t, 2, 10)
	})
}

func TestR40_InFlightIsNeverEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		testInFlightIsNotEvicted(t, 1, 200)
	})
}

func testInFlightIsNotEvicted(t *testing.T, guard, keys int) {
	r := newRig(t)
	oncepipe.Sink(r.dedup(oncepipe.WithGuard(oncepipe.LRU(guard))), "work", r.handler(func(context.Context, brokerMsg, int) error {
		time.Sleep(time.Minute / 2)
		return nil
	}), oncepipe.Workers(keys))
	for range 2 {
		for i := range keys {
			r.b.send(fmt.Sprint(i))
		}
	}
	r.b.end()
	r.start()
	st := r.finish()
	if st.Done != int64(keys) || st.Duplicate != int64(keys) {
		t.Errorf("done %d, duplicate %d, want %d of each", st.Done, st.Duplicate, keys)
	}
}

// What a copy gets while the first one is in flight: it waits, for as long as
// JoinLimit says and in the number that JoinLimit says, and is then given back
// with a delay.
func TestR24_AnswerWhileInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(oncepipe.JoinLimit(2, 10, 10*time.Second)), "work", r.handler(func(context.Context, brokerMsg, int) error {
			time.Sleep(time.Minute)
			return nil
		}))
		r.start()
		r.b.send("k", "k", "k", "k") // one runs, two wait, one has no place
		synctest.Wait()
		r.wantOutcomes("k", returned)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		r.wantOutcomes("k", returned, returned, returned)
		for _, s := range r.b.got["k"] {
			if s.Delay != 10*time.Second || s.Err == nil {
				t.Errorf("settled as %+v, want a delay of 10s and why", s)
			}
		}
		r.b.end()
		r.finish()
		r.wantRuns("k", 1)
	})
}

// The shutdown ends the context that Run has, and not the one on which the
// broker is told.
func TestR38_SettledAlthoughCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(ctx context.Context, m brokerMsg, _ int) error {
			if m.Key == "slow" {
				<-ctx.Done() // the hard end
				return ctx.Err()
			}
			time.Sleep(time.Second)
			return nil
		}), oncepipe.Workers(2))
		r.b.send("quick", "slow")
		r.start()
		synctest.Wait()
		r.cancel()
		began := time.Now()
		st := r.finish()
		r.wantOutcomes("quick", done)
		r.wantOutcomes("slow", returned)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the drain took %v, want the drain timeout", took)
		}
		if st.Dedups[0].InFlight != 0 || r.b.deadCtx != 0 {
			t.Errorf("%d keys held, %d settlements on a dead context", st.Dedups[0].InFlight, r.b.deadCtx)
		}
	})
}

// Attempt 1 runs into its time limit; attempt 2 and the dead letter have a
// context that lives.
func TestR39_FreshContextForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letters := 0
		r := newRig(t, func(c *oncepipe.Config) {
			c.DeadLetters = func(ctx context.Context, l oncepipe.DeadLetter) error {
				letters++
				if ctx.Err() != nil {
					t.Errorf("dead letter on an ended context: %v", ctx.Err())
				}
				if !errors.Is(l.Err, oncepipe.ErrAttemptTimeout) {
					t.Errorf("dead letter says %v", l.Err)
				}
				return nil
			}
		})
		policy := brokerRetry(time.Second)
		policy.MaxAttempts = 3
		oncepipe.Sink(r.in, "work", r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
			if ctx.Err() != nil {
				t.Errorf("attempt begins on an ended context: %v", ctx.Err())
			}
			<-ctx.Done()
			if context.Cause(ctx) != oncepipe.ErrAttemptTimeout {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return ctx.Err()
		}), oncepipe.Timeout(time.Second), oncepipe.Retry(policy))
		r.run("k")
		r.wantRuns("k", 3)
		r.wantOutcomes("k", dead)
		if letters != 1 {
			t.Errorf("%d dead letters", letters)
		}
	})
}

// A key that was given up can be handed in again, by Inject or by the source.
func TestR46_GivenUpRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
			if run <= 2 {
				return oncepipe.Permanent(errBroken)
			}
			return nil
		}))
		r.start()
		r.b.send("k")
		synctest.Wait()
		r.b.send("k")
		synctest.Wait()
		r.wantOutcomes("k", dead, dead)
		l := r.letter(1)
		if err := r.p.Inject(l.Stage, l.Key, l.Value); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.wantRuns("k", 3)
		r.b.send("k") // Inject goes past Dedup, so that this one still runs
		r.b.end()
		st := r.finish()
		r.wantRuns("k", 4)
		if st.Admitted != 4 || st.Dead != 2 || st.Done != 2 {
			t.Errorf("stats %+v", st)
		}
	})
}

// A retry isn't a duplicate of itself, whether it is parked, due or running.
func TestR74_RetryDoesNotMeetItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(20)), oncepipe.Workers(3),
			oncepipe.Retry(brokerRetry(time.Millisecond)))
		st := r.run("a", "b", "c")
		for _, k := range []string{"a", "b", "c"} {
			r.wantRuns(k, 20)
		}
		if st.Done != 3 || st.Dedups[0].Joined != 0 {
			t.Errorf("stats %+v", st)
		}
	})
}

// Another payload under the same key is told apart at once, in flight or done.
func TestR80_MismatchWhileInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		in := oncepipe.DedupFingerprint(r.in, "dedup", brokerKey, func(m brokerMsg) string { return m.Body })
		oncepipe.Sink(in, "work", r.handler(func(context.Context, brokerMsg, int) error { time.Sleep(time.Minute); return nil }))
		r.start()
		r.b.sendMsg(brokerMsg{Key: "k", Body: "10 EUR"})
		synctest.Wait()
		r.b.sendMsg(brokerMsg{Key: "k", Body: "99 EUR"})
		synctest.Wait()
		r.wantOutcomes("k", dead)
		time.Sleep(2 * time.Minute)
		r.b.sendMsg(brokerMsg{Key: "k", Body: "99 EUR"}) // now it is done
		r.b.sendMsg(brokerMsg{Key: "k", Body: "10 EUR"})
		r.b.end()
		r.finish()
		r.wantRuns("k", 1)
		r.wantOutcomes("k", dead, done, dead, duplicate)
		for i := range 2 {
			if l := r.letter(i); l.Reason != oncepipe.ReasonMismatch || !errors.Is(l.Err, oncepipe.ErrMismatch) {
				t.Errorf("letter %+v", l)
			}
		}
	})
}

// "Handle it later", with the same key: it runs later.
func TestR83_SnoozedRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
			if run == 1 {
				return oncepipe.Snooze(time.Hour)
			}
			if since := time.Since(began); since != time.Hour {
				t.Errorf("ran after %v", since)
			}
			return nil
		}))
		r.run("k")
		r.wantRuns("k", 2)
		r.wantOutcomes("k", done)
	})
}

// Duplicates are counted by what they met, and are no error in the log.
func TestR87_DuplicatesAreCountedAndNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(context.Context, brokerMsg, int) error { time.Sleep(time.Second); return nil }))
		r.start()
		r.b.send("k", "k", "k") // two join
		time.Sleep(2 * time.Second)
		r.b.send("k", "k", "k") // three meet a finished key
		r.b.send("")            // and one has no key
		r.b.end()
		st := r.finish()
		d := st.Dedups[0]
		if d.Fresh != 1 || d.Joined != 2 || d.Acked != 2 || d.Committed != 3 || d.NoKey != 1 || st.Duplicate != 5 {
			t.Errorf("counted %+v, duplicate %d", d, st.Duplicate)
		}
		log := r.log.String()
		if strings.Contains(log, "level=ERROR") || strings.Contains(log, "key=k ") {
			t.Errorf("logged:\n%s", log)
		}
		kinds := map[oncepipe.EventKind]int{}
		for _, e := range r.events {
			kinds[e.Kind]++
		}
		if kinds[oncepipe.EventJoined] != 2 || kinds[oncepipe.EventDuplicate] != 3 {
			t.Errorf("events %v", kinds)
		}
	})
}

// Nothing runs on behind Run: the bubble ends only when every goroutine has.
func TestR88_NothingOutlivesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(oncepipe.JoinLimit(5, 5, time.Hour)), "work", r.handler(func(context.Context, brokerMsg, int) error {
			time.Sleep(time.Second)
			return errBroken
		}), oncepipe.Workers(3), oncepipe.Retry(brokerRetry(time.Hour)))
		r.b.badAcks = 3
		r.b.send("a", "a", "b", "b", "c", "c", "d", "e")
		r.start()
		time.Sleep(1500 * time.Millisecond)
		before := runtime.NumGoroutine()
		r.cancel()
		r.finish()
		synctest.Wait()
		if after := runtime.NumGoroutine(); after >= before {
			t.Errorf("%d goroutines, before the end %d", after, before)
		}
	})
}
