package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/oncepipe/oncepipe"
	"pgregory.net/rapid"
)

// The tests of this file each bear the number of a fault that another pipeline
// or queue had; docs/reports.md lists them.

func brokerKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	return keys
}

// A retry never waits for a place in a channel, whatever the sizes.
func TestP01_RetryNeedsNoPlace(t *testing.T) {
	for buffer := range 3 {
		for workers := 1; workers <= 3; workers++ {
			for slots := 1; slots <= 3; slots++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					policy := brokerRetry(time.Second)
					policy.Slots = slots
					oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(3)), oncepipe.Retry(policy),
						oncepipe.Workers(workers), oncepipe.Buffer(oncepipe.Fixed(buffer)))
					st := r.run(brokerKeys(12)...)
					if st.Done != 12 || st.Stages[0].Runs != 36 {
						t.Errorf("buffer %d, workers %d, slots %d: %+v", buffer, workers, slots, st)
					}
				})
			}
		}
	}
}

// Everything fails for a minute, with every slot and place taken; then all is
// done.
func TestP02_OutageWithEverythingFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		up := time.Now().Add(time.Minute)
		policy := brokerRetry(time.Second)
		policy.Slots = 4
		oncepipe.Sink(r.dedup(), "work", r.handler(func(context.Context, brokerMsg, int) error {
			if time.Now().Before(up) {
				return errBroken
			}
			return nil
		}), oncepipe.Retry(policy), oncepipe.Workers(2), oncepipe.Buffer(oncepipe.Fixed(2)))
		if st := r.run(brokerKeys(50)...); st.Done != 50 {
			t.Errorf("%+v", st)
		}
	})
}

// The size of the buffer is no cure, since nothing is ill: the same runs with
// every size.
func TestP03_ResultDoesNotDependOnTheBuffer(t *testing.T) {
	for _, size := range []int{0, 1, 100} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			policy := brokerRetry(time.Second)
			policy.Slots = 1
			oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(4)), oncepipe.Retry(policy), oncepipe.Buffer(oncepipe.Fixed(size)))
			st := r.run(brokerKeys(100)...)
			if st.Done != 100 || st.Stages[0].Runs != 400 || st.Stages[0].Retried != 300 {
				t.Errorf("buffer %d: %+v", size, st)
			}
		})
	}
}

// The goroutine that keeps the order never waits for a worker that waits for it.
func TestP05_SequencerAndWorkersDoNotWaitForEachOther(t *testing.T) {
	for _, kind := range []oncepipe.Option{oncepipe.Ordered(), oncepipe.PerPartition()} {
		for slots := 1; slots <= 3; slots++ {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				policy := brokerRetry(time.Second)
				policy.Slots = slots
				count := r.handler(failUntil(2))
				in := oncepipe.PartitionBy(r.dedup(), func(m brokerMsg) string { return m.Key[len(m.Key)-1:] })
				out := oncepipe.Stage(in, "work", func(ctx context.Context, m brokerMsg) (brokerMsg, error) {
					return m, count(ctx, m)
				}, kind, oncepipe.Retry(policy), oncepipe.Workers(3), oncepipe.Buffer(oncepipe.Fixed(0)))
				oncepipe.Sink(out, "slow", func(context.Context, brokerMsg) error { time.Sleep(time.Second); return nil },
					oncepipe.Buffer(oncepipe.Fixed(0)))
				if st := r.run(brokerKeys(30)...); st.Done != 30 {
					t.Errorf("slots %d: %+v", slots, st)
				}
			})
		}
	}
}

// testOutageIsBounded lets an endless source meet a stage that always fails.
func testOutageIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		policy := brokerRetry(time.Second)
		policy.Slots = 5
		mid := oncepipe.Stage(r.dedup(), "pass", func(_ context.Context, m brokerMsg) (brokerMsg, error) { return m, nil },
			oncepipe.Buffer(oncepipe.Fixed(3)))
		oncepipe.Sink(mid, "down", r.handler(func(context.Context, brokerMsg, int) error { return errBroken }),
			oncepipe.Retry(policy), oncepipe.Workers(2), oncepipe.Buffer(oncepipe.Fixed(4)))
		r.b.send(brokerKeys(1000)...)
		r.start()
		const most = 5 + 4 + 1 + 3 + 1 // slots, buffer, worker of pass, its buffer, the source's hand
		for range 100 {
			time.Sleep(10 * time.Minute / 100)
			if st := r.p.Stats(); st.Admitted > most {
				t.Fatalf("%d items admitted, room is for %d", st.Admitted, most)
			}
		}
		r.cancel()
		r.finish()
	})
}

func TestP06_OutageIsBounded(t *testing.T) { testOutageIsBounded(t) }
func TestP07_RetriesHaveALimit(t *testing.T) {
	testOutageIsBounded(t)
}

// What is remembered of a failed item goes with the item.
func TestP09_NoResidueOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5_000
		p := oncepipe.New("residue", oncepipe.Config{})
		in := oncepipe.FromSeq(p, "src", func(yield func(int) bool) {
			for i := range n {
				if !yield(i) {
					return
				}
			}
		})
		keyed := oncepipe.Dedup(in, "dedup", func(i int) string { return fmt.Sprint(i) }, oncepipe.WithGuard(oncepipe.LRU(10)))
		failed := make([]bool, n)
		oncepipe.Sink(keyed, "work", func(_ context.Context, i int) error {
			if !failed[i] {
				failed[i] = true
				return errBroken
			}
			return nil
		}, oncepipe.Retry(brokerRetry(time.Second)))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := p.Stats()
		if d := st.Dedups[0]; st.Done != n || d.InFlight != 0 || d.Waiting != 0 || d.Guarded != 10 || st.Stages[0].Parked != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// There is no second queue behind the one that Stats shows.
func TestP11_StatsShowEveryParkedItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		policy := brokerRetry(time.Hour)
		policy.Slots = 2000
		oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(2)), oncepipe.Retry(policy))
		r.start()
		r.b.send(brokerKeys(1500)...)
		synctest.Wait()
		if st := r.p.Stats(); st.Stages[0].Parked != 1500 || st.InFlight != 1500 || st.Dedups[0].InFlight != 1500 {
			t.Errorf("%+v", st)
		}
		r.b.end()
		r.finish()
	})
}

// A retry passes the guard, which it would fill.
func TestP12_RetryIsNoDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(2)), oncepipe.Retry(brokerRetry(time.Second)))
		r.run("k")
		r.wantRuns("k", 2)
		r.wantOutcomes("k", done)
	})
}

// The last step fails, the source delivers again: it is done again.
func TestP13_FailedLastStepIsDoneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *oncepipe.Config) {
			c.DeadLetters = func(context.Context, oncepipe.DeadLetter) error { return errBroken }
		})
		r.b.redeliver = true
		mid := oncepipe.Map(r.dedup(), func(m brokerMsg) brokerMsg { return m })
		oncepipe.Sink(mid, "persist", r.handler(failUntil(3)))
		r.run("k")
		r.wantRuns("k", 3)
		r.wantOutcomes("k", returned, returned, done)
	})
}

// A copy that comes during the backoff joins; it doesn't run beside the first,
// nor move its time.
func TestP15_CopyDuringBackoffJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { testCopyDuringBackoff(t) })
}

func TestP19_OnePendingEntryPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { testCopyDuringBackoff(t) })
}

func testCopyDuringBackoff(t *testing.T) {
	r := newRig(t)
	var at []time.Duration
	began := time.Now()
	oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
		at = append(at, time.Since(began))
		if run == 1 {
			return errBroken
		}
		return nil
	}), oncepipe.Workers(4), oncepipe.Retry(brokerRetry(40*time.Second)))
	r.start()
	r.b.send("k")
	for range 3 {
		time.Sleep(10 * time.Second)
		r.b.send("k")
	}
	r.b.end()
	r.finish()
	if !slices.Equal(at, []time.Duration{0, 40 * time.Second}) {
		t.Errorf("ran at %v", at)
	}
	r.wantAlone()
	r.wantOutcomes("k", done, duplicate, duplicate, duplicate)
}

// The claim lives as long as the item, however long the backoff is: copies are
// given back, none runs.
func TestP16_ClaimOutlivesEveryTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.b.redeliver = true
		oncepipe.Sink(r.dedup(oncepipe.JoinLimit(4, 4, time.Minute)), "work", r.handler(failUntil(2)),
			oncepipe.Retry(brokerRetry(3*time.Hour)), oncepipe.Workers(4))
		r.run("k", "k", "k")
		r.wantRuns("k", 2)
		if n := r.b.count(returned); n < 2*60 {
			t.Errorf("copies came back %d times", n)
		}
		if r.b.count(done) != 1 || r.b.count(duplicate) != 2 {
			t.Errorf("outcomes %v", r.b.outcomes("k"))
		}
	})
}

// What a copy meets in each state of its key.
func TestP17_CopyInEachState(t *testing.T) {
	for name, c := range map[string]struct {
		at     time.Duration // when the copy comes
		fn     func(run int) error
		joined int64
		runs   int
		want   []oncepipe.Outcome
	}{
		"queued":  {5 * time.Second, func(int) error { return nil }, 1, 1, []oncepipe.Outcome{done, duplicate}},
		"running": {15 * time.Second, func(int) error { return nil }, 1, 1, []oncepipe.Outcome{done, duplicate}},
		"parked": {25 * time.Second, func(run int) error {
			if run == 1 {
				return errBroken
			}
			return nil
		}, 1, 2, []oncepipe.Outcome{done, duplicate}},
		"done": {25 * time.Second, func(int) error { return nil }, 0, 1, []oncepipe.Outcome{done, duplicate}},
		"dead": {25 * time.Second, func(run int) error {
			if run == 1 {
				return oncepipe.Permanent(errBroken)
			}
			return nil
		}, 0, 2, []oncepipe.Outcome{dead, done}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, m brokerMsg, run int) error {
					time.Sleep(10 * time.Second)
					if m.Key == "before" {
						return nil
					}
					return c.fn(run)
				}), oncepipe.Retry(brokerRetry(time.Minute/2)))
				r.start()
				r.b.send("before", "k") // k runs from 10 s to 20 s
				time.Sleep(c.at)
				r.b.send("k")
				r.b.end()
				st := r.finish()
				r.wantRuns("k", c.runs)
				r.wantAlone()
				r.wantOutcomes("k", c.want...)
				if st.Dedups[0].Joined != c.joined {
					t.Errorf("%d copies joined, want %d", st.Dedups[0].Joined, c.joined)
				}
			})
		})
	}
}

// Given up is given up: the next copy is let in.
func TestP18_DeadLetterReleasesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		policy := brokerRetry(time.Second)
		policy.MaxAttempts = 2
		oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(3)), oncepipe.Retry(policy))
		r.start()
		r.b.send("k", "k")
		time.Sleep(time.Minute)
		r.b.send("k")
		r.b.end()
		st := r.finish()
		r.wantOutcomes("k", dead, dead, done)
		r.wantRuns("k", 3)
		if l := r.letter(0); len(r.letters) != 1 || l.Attempts != 2 || l.Age != time.Second {
			t.Errorf("letters %+v", r.letters)
		}
		if st.Dedups[0].InFlight != 0 {
			t.Errorf("%d keys in flight", st.Dedups[0].InFlight)
		}
	})
}

// Other keys can't push one that runs out of memory.
func TestP21_SlowKeyAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(oncepipe.WithGuard(oncepipe.Ring(4))), "work", r.handler(func(_ context.Context, m brokerMsg, _ int) error {
			if m.Key == "slow" {
				time.Sleep(20 * time.Second)
			}
			return nil
		}), oncepipe.Workers(2))
		r.start()
		for i := range 20 {
			r.b.send("slow", fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		r.b.end()
		r.finish()
		r.wantAlone()
		r.wantRuns("slow", 1)
	})
}

// Sixty-four goroutines come with one key at once: one is the first.
func TestP22_OneWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		gate := make(chan struct{})
		var arrived atomic.Int32
		fan := oncepipe.Stage(r.in, "fan", func(_ context.Context, m brokerMsg) (brokerMsg, error) {
			if arrived.Add(1) == 64 {
				close(gate)
			}
			<-gate
			return m, nil
		}, oncepipe.Workers(64))
		oncepipe.Sink(oncepipe.Dedup(fan, "dedup", brokerKey, oncepipe.JoinLimit(64, 64, time.Minute)), "work",
			r.handler(succeed), oncepipe.Workers(64))
		st := r.run(slices.Repeat([]string{"k"}, 64)...)
		r.wantRuns("k", 1)
		if st.Done != 1 || st.Duplicate != 63 {
			t.Errorf("%+v", st)
		}
	})
}

// A handler that doesn't hear its time limit keeps its worker and its key: the
// second attempt begins after the first has ended.
func TestP28_NoAttemptBesideATimedOutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(ctx context.Context, _ brokerMsg, run int) error {
			time.Sleep(3 * time.Second)
			if run == 1 {
				return ctx.Err()
			}
			return nil
		}), oncepipe.Timeout(time.Second), oncepipe.Workers(3), oncepipe.Retry(brokerRetry(0)))
		r.run("k", "k")
		r.wantAlone()
		r.wantRuns("k", 2)
	})
}

// Cancelled with one running, one queued and one parked: each has its outcome.
func TestP29_DrainLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, m brokerMsg, _ int) error {
			if m.Key == "parked" {
				return errBroken
			}
			time.Sleep(2 * time.Second)
			return nil
		}), oncepipe.Retry(brokerRetry(time.Minute)))
		r.b.send("parked", "running", "queued")
		r.start()
		time.Sleep(time.Second)
		r.cancel()
		r.finish()
		r.wantOutcomes("parked", returned)
		r.wantOutcomes("running", done)
		r.wantOutcomes("queued", done)
	})
}

// Cancelled at every millisecond of a backoff: the item is done or returned,
// once.
func TestP30_CancelAtEveryMomentOfABackoff(t *testing.T) {
	for at := range 32 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(3)), oncepipe.Retry(brokerRetry(10*time.Millisecond)))
			r.b.send("k", "k")
			r.start()
			time.Sleep(time.Duration(at) * time.Millisecond)
			if at%2 == 0 {
				synctest.Wait()
			}
			r.cancel()
			r.finish()
			if n := r.b.count(done); n+r.b.count(returned)+r.b.count(duplicate) != r.b.delivery || n > 1 {
				t.Errorf("cancelled at %d ms: %v", at, r.b.outcomes("k"))
			}
		})
	}
}

// The drain's time is over when five of a hundred are done: the others are
// given back, what was not received stays where it was.
func TestP31_ForcedStopReturnsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout = 4700 * time.Millisecond })
		oncepipe.Sink(r.dedup(), "work", r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}), oncepipe.Buffer(oncepipe.Fixed(200)))
		r.b.send(brokerKeys(100)...)
		r.start()
		time.Sleep(time.Second / 2)
		r.cancel()
		r.finish()
		if r.b.count(done) != 5 || r.b.count(returned) != 95 {
			t.Errorf("done %d, returned %d", r.b.count(done), r.b.count(returned))
		}
		for _, list := range r.b.got {
			if s := list[0]; s.Outcome == returned && !errors.Is(s.Err, oncepipe.ErrShutdown) && !errors.Is(s.Err, oncepipe.ErrDrainTimeout) {
				t.Errorf("returned because of %v", s.Err)
			}
		}
	})
}

// The drain begins while many backoffs end: nothing is sent where nobody
// listens.
func TestP33_CancelWhileTimersAreDue(t *testing.T) {
	for round := range 40 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(3)), oncepipe.Workers(4),
				oncepipe.Retry(brokerRetry(time.Millisecond)), oncepipe.Buffer(oncepipe.Fixed(round%3)))
			r.b.send(brokerKeys(50)...)
			r.start()
			time.Sleep(time.Duration(round%4) * time.Millisecond / 2)
			r.cancel()
			r.finish()
		})
	}
}

// What a handler returns behind a hard stop is not sent to a channel that was
// closed under it: the item is returned, not the victim of a panic.
func TestP34_LateResultIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout = time.Second })
		first := oncepipe.Stage(r.in, "deaf", func(_ context.Context, m brokerMsg) (brokerMsg, error) {
			time.Sleep(1500 * time.Millisecond) // longer than the drain, and not longer than Run waits
			return m, nil
		}, oncepipe.Workers(2))
		oncepipe.Sink(oncepipe.Dedup(first, "dedup", brokerKey), "work", r.handler(succeed))
		r.b.send("a", "b")
		r.start()
		synctest.Wait()
		r.cancel()
		r.finish()
		r.wantOutcomes("a", returned)
		r.wantOutcomes("b", returned)
		if len(r.letters) != 0 || strings.Contains(r.log.String(), "panic") {
			t.Errorf("letters %+v, log\n%s", r.letters, r.log)
		}
	})
}

// A handler that needs two of the drain's ten seconds has a live context to its
// end.
func TestP35_HandlerContextOutlivesTheCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		work := oncepipe.Stage(r.dedup(), "work", func(ctx context.Context, m brokerMsg) (brokerMsg, error) {
			time.Sleep(2 * time.Second)
			return m, ctx.Err()
		})
		oncepipe.Sink(work, "publish", r.handler(func(ctx context.Context, _ brokerMsg, _ int) error { return ctx.Err() }))
		r.b.send("k")
		r.start()
		synctest.Wait()
		r.cancel()
		r.finish()
		r.wantOutcomes("k", done)
	})
}

// Many callers of Inject and Stats beside a shutdown: nobody hangs, nothing is
// lost.
func TestP39_CallsBesideTheShutdown(t *testing.T) {
	for round := range 50 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			policy := brokerRetry(time.Millisecond)
			policy.Slots = 8
			oncepipe.Sink(r.in, "work", r.handler(failUntil(2)), oncepipe.Workers(3), oncepipe.Retry(policy))
			r.start()
			var wg sync.WaitGroup
			var injected atomic.Int64
			for i := range 20 {
				wg.Go(func() {
					for k := range 10 {
						err := r.p.Inject("work", fmt.Sprint(i), brokerMsg{Key: fmt.Sprint(i, k)})
						switch {
						case err == nil:
							injected.Add(1)
						case !errors.Is(err, oncepipe.ErrFull) && !errors.Is(err, oncepipe.ErrNotRunning):
							t.Error(err)
						}
						r.p.Stats()
						time.Sleep(time.Duration(i%3) * 100 * time.Microsecond)
					}
				})
			}
			time.Sleep(time.Duration(round) * 50 * time.Microsecond)
			r.cancel()
			err := <-r.ended
			wg.Wait()
			st := r.settled()
			listed := 0
			if re, ok := errors.AsType[*oncepipe.ReturnedError](err); ok {
				listed = len(re.Items)
			}
			if st.Admitted != injected.Load() || int64(listed) != st.Returned {
				t.Errorf("%d injected, %d listed, %+v", injected.Load(), listed, st)
			}
		})
	}
}

// Stats and Inject can be called while the pipeline starts and while it comes to its
// end: what was taken is done, and counted when Run has returned.
func TestP39_CallsBesideStartAndEnd(t *testing.T) {
	for round := range 50 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			oncepipe.Sink(r.dedup(), "work", r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
				if i, _ := oncepipe.InfoFrom(ctx); i.Attempt == 1 && round%2 == 0 {
					return errBroken
				}
				return nil
			}), oncepipe.Workers(2), oncepipe.Ordered(), oncepipe.Retry(brokerRetry(time.Millisecond)))
			var wg sync.WaitGroup
			var taken atomic.Int64
			for range 2 {
				wg.Go(func() {
					for range 50 {
						r.p.Stats()
						if r.p.Inject("work", "", brokerMsg{}) == nil {
							taken.Add(1)
						}
						runtime.Gosched()
					}
				})
			}
			st := r.run("a", "b")
			wg.Wait()
			if st.Done != taken.Load()+2 {
				t.Errorf("%d taken, %+v", taken.Load(), st)
			}
		})
	}
}

// A slow observer holds things up; it doesn't lose events.
func TestP40_SlowObserverMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, panicked atomic.Int32
		r := newRig(t, func(c *oncepipe.Config) {
			c.Observers = append([]oncepipe.Observer{
				func(oncepipe.Event) { time.Sleep(time.Second); slow.Add(1) },
				func(oncepipe.Event) { panicked.Add(1); panic("observer") },
			}, c.Observers...)
		})
		oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(3)), oncepipe.Retry(brokerRetry(time.Millisecond)))
		r.run(brokerKeys(10)...)
		// Two failures and two retries each, and one settlement.
		if slow.Load() != 50 || panicked.Load() != 50 || len(r.events) != 50 {
			t.Errorf("observers saw %d, %d and %d events, want 50 each", slow.Load(), panicked.Load(), len(r.events))
		}
	})
}

// An iteration that is broken off, and one that is never begun, leave no
// goroutine behind.
func TestP41_BrokenOffIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		kids := oncepipe.FlatMapSeq(r.in, func(brokerMsg) iter.Seq[int] {
			return func(yield func(int) bool) {
				for i := range 1000 {
					if !yield(i) {
						return
					}
				}
			}
		})
		oncepipe.Sink(kids, "stuck", func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() },
			oncepipe.Buffer(oncepipe.Fixed(0)))
		r.b.send("k")
		r.start()
		synctest.Wait()
		r.cancel()
		r.finish()
		r.wantOutcomes("k", returned)
	})
}

// A branch that stands still doesn't keep the others from the end.
func TestP42_BranchThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		branches := oncepipe.Broadcast(r.in, 2)
		oncepipe.Sink(branches[0], "stuck", func(ctx context.Context, _ brokerMsg) error { <-ctx.Done(); return ctx.Err() },
			oncepipe.Buffer(oncepipe.Fixed(1)))
		oncepipe.Sink(branches[1], "quick", r.handler(succeed))
		r.b.send(brokerKeys(10)...)
		r.start()
		synctest.Wait()
		r.cancel()
		st := r.finish()
		if st.Returned != st.Admitted || st.Admitted == 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Nothing starts before Run: the bubble would not end.
func TestP43_BuiltAndNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", r.handler(succeed), oncepipe.Ordered(), oncepipe.Workers(4))
		r.cancel()
	})
}

// Twenty thousand parked items are no goroutine and no timer each: a stage
// makes one timer, in its lane.
func TestP44_ParkedItemsHaveOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		p := oncepipe.New("parked", oncepipe.Config{})
		ch := make(chan int)
		policy := brokerRetry(time.Hour)
		constant := policy.Backoff()
		policy.Backoff = func() backoff.BackOff { return constant }
		policy.Slots = n
		runs := 0
		oncepipe.Sink(oncepipe.FromChan(p, "src", ch), "work", func(context.Context, int) error {
			if runs++; runs <= n {
				return errBroken
			}
			return nil
		}, oncepipe.Retry(policy))
		ended := make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		for i := range n {
			ch <- i
		}
		synctest.Wait()
		timers := 0
		for _, file := range []string{"retry.go", "stage.go", "worker.go", "sequence.go"} {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			timers += len(regexp.MustCompile(`time\.(NewTimer|AfterFunc|After|Sleep|NewTicker)\(`).FindAll(src, -1))
		}
		if timers != 1 {
			t.Errorf("a stage makes timers in %d places", timers)
		}
		if parked := p.Stats().Stages[0].Parked; parked != n {
			t.Errorf("%d parked", parked)
		}
		if more := runtime.NumGoroutine() - goroutines; more > 10 { // the runtime has some of its own
			t.Errorf("%d goroutines more", more)
		}
		close(ch)
		if err := <-ended; err != nil || p.Stats().Done != n {
			t.Errorf("%v, %+v", err, p.Stats())
		}
	})
}

// Handing something in after the end is an error, not a panic.
func TestP45_InjectAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		oncepipe.Sink(r.in, "work", r.handler(succeed))
		if err := r.p.Inject("work", "k", brokerMsg{}); !errors.Is(err, oncepipe.ErrNotRunning) {
			t.Errorf("before Run: %v", err)
		}
		r.run("k")
		if err := r.p.Inject("work", "k", brokerMsg{}); !errors.Is(err, oncepipe.ErrNotRunning) {
			t.Errorf("after Run: %v", err)
		}
		if err := r.p.Run(t.Context()); err == nil {
			t.Error("a second Run was not refused")
		}
	})
}

// A panic is a dead letter with its stack, and not tried again, whatever its
// value says.
func TestP47_PanicIsPermanent(t *testing.T) {
	for name, value := range map[string]any{
		"text": "boom", "error": errBroken,
		"retry after": oncepipe.RetryAfter(time.Second, errBroken), "snooze": oncepipe.Snooze(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
					if run == 1 {
						panic(value)
					}
					return nil
				}), oncepipe.Retry(brokerRetry(time.Second)))
				r.run("k")
				r.wantRuns("k", 1)
				r.wantOutcomes("k", dead)
				l := r.letter(0)
				pe, ok := errors.AsType[*oncepipe.PanicError](l.Err)
				if l.Reason != oncepipe.ReasonPanic || !ok || !strings.Contains(string(pe.Stack), "TestP47") {
					t.Errorf("letter %+v", l)
				}
			})
		})
	}
}

// Every third item panics; the only worker lives on.
func TestP48_WorkerSurvivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *oncepipe.Config) {
			keep := c.DeadLetters
			c.DeadLetters = func(ctx context.Context, l oncepipe.DeadLetter) error {
				time.Sleep(time.Second) // the worker is not back before its letter is written
				return keep(ctx, l)
			}
		})
		n := 0
		oncepipe.Sink(r.in, "work", r.handler(func(context.Context, brokerMsg, int) error {
			if n++; n%3 == 0 {
				panic("boom")
			}
			return nil
		}))
		if st := r.run(brokerKeys(30)...); st.Done != 20 || st.Dead != 10 {
			t.Errorf("%+v", st)
		}
		r.wantAlone()
	})
}

// A retry holds back what is behind it in its partition, and nothing else.
func TestP49_RetryKeepsTheOrderOfItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		in := oncepipe.PartitionBy(r.in, func(m brokerMsg) string { return m.Key[:1] })
		began := time.Now()
		ended := map[string]time.Duration{}
		oncepipe.Sink(in, "work", r.handler(func(_ context.Context, m brokerMsg, run int) error {
			if m.Key == "a1" && run <= 2 {
				return errBroken
			}
			ended[m.Key] = time.Since(began)
			return nil
		}), oncepipe.PerPartition(), oncepipe.Retry(brokerRetry(time.Second)))
		r.run("a1", "a2", "b1", "a3", "b2")
		if want := []string{"a1", "b1", "b2", "a1", "a1", "a2", "a3"}; !slices.Equal(r.order, want) {
			t.Errorf("ran %v, want %v", r.order, want)
		}
		if ended["b2"] != 0 || ended["a1"] != 2*time.Second {
			t.Errorf("ended at %v", ended)
		}
	})
}

// One worker, nothing failing: first in, first out, over three stages.
func TestP51_FirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.dedup()
		for i := range 3 {
			s = oncepipe.Stage(s, fmt.Sprint("s", i), func(_ context.Context, m brokerMsg) (brokerMsg, error) { return m, nil },
				oncepipe.Retry(oncepipe.RetryPolicy{}), oncepipe.Buffer(oncepipe.Fixed(i)))
		}
		oncepipe.Sink(s, "last", r.handler(succeed))
		keys := brokerKeys(200)
		r.run(keys...)
		if !slices.Equal(r.order, keys) {
			t.Errorf("order %v", r.order)
		}
	})
}

// Operators that make new values of other types don't lose the settlement.
func TestP52_SettlementOutlivesTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		texts := oncepipe.Map(r.dedup(), func(m brokerMsg) *string { return &m.Key })
		lengths := oncepipe.Stage(texts, "length", func(_ context.Context, s *string) (int, error) { return len(*s), nil })
		kids := oncepipe.FlatMap(lengths, func(n int) []float64 { return make([]float64, n) })
		branches := oncepipe.Broadcast(oncepipe.KeyBy(kids, func(float64) string { return "another" }), 2)
		oncepipe.Discard(branches[0])
		oncepipe.Sink(oncepipe.Filter(branches[1], func(float64) bool { return false }), "never", func(context.Context, float64) error { return nil })
		if st := r.run("a", "bb", "ccc"); st.Done != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// One item that can't be done delays nobody but itself.
func TestP53_PoisonDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		oncepipe.Sink(r.dedup(), "work", r.handler(func(_ context.Context, m brokerMsg, _ int) error {
			if m.Key == "poison" {
				return errBroken
			}
			time.Sleep(time.Millisecond)
			if m.Key == "k999" && time.Since(began) != time.Second {
				t.Errorf("the good ones took %v, want 1s", time.Since(began))
			}
			return nil
		}), oncepipe.Retry(oncepipe.RetryPolicy{MaxAttempts: 20}))
		r.run(append([]string{"poison"}, brokerKeys(1000)...)...)
		r.wantRuns("poison", 20)
	})
}

// What is given back comes with a delay, so that a source which delivers at
// once doesn't turn in a circle.
func TestP54_ReturnedWithDelay(t *testing.T) {
	for name, letters := range map[string]func(context.Context, oncepipe.DeadLetter) error{
		"no place for dead letters": nil,
		"dead letter not written":   func(context.Context, oncepipe.DeadLetter) error { return errBroken },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = letters })
				r.b.redeliver = true
				oncepipe.Sink(r.dedup(), "work", r.handler(func(context.Context, brokerMsg, int) error { return errBroken }))
				r.b.send("k")
				r.start()
				time.Sleep(time.Minute)
				if n := r.runsOf("k"); n < 2 || n > 20 {
					t.Errorf("%d runs in a minute", n)
				}
				r.cancel()
				r.finish()
			})
		})
	}
	t.Run("held too long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			b := &broker{redeliver: true, hold: time.Minute, wake: make(chan struct{}, 1), settles: map[int]int{}, got: map[string][]oncepipe.Settlement{}}
			in := oncepipe.From(r.p, "impatient", b)
			began := time.Now()
			oncepipe.Sink(oncepipe.Merge(in, r.in), "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
				if run == 1 {
					return errBroken
				}
				if d := time.Since(began); d != time.Hour {
					t.Errorf("ran again after %v", d)
				}
				return nil
			}), oncepipe.Retry(brokerRetry(time.Hour)))
			b.send("k")
			b.end()
			r.run()
			r.wantRuns("k", 2)
			if got := b.outcomes("k"); !slices.Equal(got, []oncepipe.Outcome{returned, done}) {
				t.Errorf("outcomes %v", got)
			}
		})
	})
}

// The letter of an item that died during the drain is written on a live
// context, and each attempt had one.
func TestP55_LetterDuringTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := 0
		r := newRig(t, func(c *oncepipe.Config) {
			c.DeadLetters = func(ctx context.Context, _ oncepipe.DeadLetter) error {
				time.Sleep(time.Second)
				written++
				return ctx.Err()
			}
		})
		oncepipe.Sink(r.in, "work", r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
			<-ctx.Done()
			return oncepipe.Permanent(ctx.Err())
		}), oncepipe.Timeout(time.Second))
		r.b.send("k")
		r.start()
		synctest.Wait()
		r.cancel()
		r.finish()
		r.wantOutcomes("k", dead)
		if written != 1 || r.b.deadCtx != 0 {
			t.Errorf("%d letters, %d settlements on an ended context", written, r.b.deadCtx)
		}
	})
}

// MaxAttempts counts runs, the first included.
func TestP58_MaxAttemptsCountsRuns(t *testing.T) {
	for n := 1; n <= 3; n++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			policy := brokerRetry(time.Second)
			policy.MaxAttempts = n
			oncepipe.Sink(r.in, "work", r.handler(failUntil(99)), oncepipe.Retry(policy))
			r.run("k")
			r.wantRuns("k", n)
			if l := r.letter(0); l.Attempts != n || l.Reason != oncepipe.ReasonExhausted || !errors.Is(l.Err, oncepipe.ErrMaxAttempts) || !errors.Is(l.Err, errBroken) {
				t.Errorf("letter %+v", l)
			}
		})
	}
}

// The mark of Permanent ends at the border of its stage, and the cause doesn't.
func TestP59_MarkEndsAtTheStage(t *testing.T) {
	for name, err := range map[string]error{
		"plain":   oncepipe.Permanent(errBroken),
		"nested":  oncepipe.Permanent(oncepipe.Permanent(errBroken)),
		"wrapped": fmt.Errorf("charging: %w", oncepipe.Permanent(errBroken)),
		"backoff": backoff.Permanent(errBroken),
		"both":    fmt.Errorf("charging: %w", backoff.Permanent(oncepipe.Permanent(errBroken))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				count := r.handler(func(context.Context, brokerMsg, int) error { return err })
				out, failed := oncepipe.TryStage(r.in, "inner", func(ctx context.Context, m brokerMsg) (brokerMsg, error) { return m, count(ctx, m) },
					oncepipe.Retry(brokerRetry(time.Second)))
				oncepipe.Discard(out)
				outer := 0
				policy := brokerRetry(time.Second)
				policy.MaxAttempts = 3
				oncepipe.Sink(failed, "outer", func(_ context.Context, f oncepipe.Failed[brokerMsg]) error {
					outer++
					return f.Err // an ordinary error here
				}, oncepipe.Retry(policy))
				r.run("k")
				r.wantRuns("k", 1)
				if outer != 3 {
					t.Errorf("the outer stage made %d attempts, want 3", outer)
				}
				if l := r.letter(0); oncepipe.IsPermanent(l.Err) || !errors.Is(l.Err, errBroken) || !strings.Contains(l.Err.Error(), strings.TrimSuffix(err.Error(), "broken")) {
					t.Errorf("letter says %v", l.Err)
				}
			})
		})
	}
}

// RetryAfter keeps the cause, is capped, and means at once when it is negative.
func TestP60_RetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		policy := brokerRetry(time.Second)
		policy.MaxAttempts, policy.MaxDelay = 4, time.Minute
		began := time.Now()
		var at []time.Duration
		waits := []time.Duration{10 * time.Second, time.Hour, -time.Hour, 0}
		oncepipe.Sink(r.in, "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
			at = append(at, time.Since(began))
			return oncepipe.RetryAfter(waits[run-1], errBroken)
		}), oncepipe.Retry(policy))
		r.run("k")
		if want := []time.Duration{0, 10 * time.Second, 70 * time.Second, 70 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("ran at %v, want %v", at, want)
		}
		if l := r.letter(0); !errors.Is(l.Err, errBroken) {
			t.Errorf("letter says %v", l.Err)
		}
	})
}

// MaxAge counts from the admission, time spent running included.
func TestP61_MaxAgeIncludesTheRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		policy := brokerRetry(time.Second)
		policy.MaxAge = 25 * time.Second
		oncepipe.Sink(r.in, "work", r.handler(func(context.Context, brokerMsg, int) error {
			time.Sleep(10 * time.Second)
			return errBroken
		}), oncepipe.Retry(policy))
		r.run("k")
		r.wantRuns("k", 3) // at 0, 11 and 22 s; the next would be at 33 s
		if l := r.letter(0); l.Reason != oncepipe.ReasonExpired || !errors.Is(l.Err, oncepipe.ErrMaxAge) || !errors.Is(l.Err, errBroken) || l.Age != 32*time.Second {
			t.Errorf("letter %+v", l)
		}
	})
}

// Snoozing is no attempt and no step of the backoff.
func TestP63_SnoozeIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		policy := oncepipe.RetryPolicy{MaxAttempts: 2, Backoff: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithRandomizationFactor(0), backoff.WithMultiplier(10))
		}}
		oncepipe.Sink(r.in, "work", r.handler(func(ctx context.Context, _ brokerMsg, run int) error {
			info, _ := oncepipe.InfoFrom(ctx)
			if want := max(1, run-5); info.Attempt != want {
				t.Errorf("run %d is attempt %d, want %d", run, info.Attempt, want)
			}
			if run <= 5 {
				return oncepipe.Snooze(time.Minute)
			}
			if since := time.Since(began); run == 7 && since != 5*time.Minute+time.Second {
				t.Errorf("second attempt after %v", since)
			}
			return errBroken
		}), oncepipe.Retry(policy))
		r.run("k")
		r.wantRuns("k", 7)
		if l := r.letter(0); l.Attempts != 2 {
			t.Errorf("letter %+v", l)
		}
	})
}

// Whatever a backoff says, a wait is between nothing and the cap.
func TestP64_WaitsAreWithinTheCap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.SampledFrom([]time.Duration{1, time.Second, time.Hour, math.MaxInt64}).Draw(rt, "MaxDelay")
		age := rapid.SampledFrom([]time.Duration{-1, 0, time.Minute, math.MaxInt64}).Draw(rt, "MaxAge")
		waits := rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]time.Duration{0, 1, math.MaxInt64, math.MaxInt64 - 1, 1 << 62}),
			rapid.Map(rapid.Int64Range(0, int64(48*time.Hour)), func(n int64) time.Duration { return time.Duration(n) }),
		), 1, 5).Draw(rt, "waits")
		after := rapid.Bool().Draw(rt, "RetryAfter")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			i := 0
			policy := oncepipe.RetryPolicy{MaxAge: age, MaxDelay: limit, Backoff: func() backoff.BackOff {
				return brokerWaits(func() time.Duration { i++; return waits[i-1] })
			}}
			oncepipe.Sink(r.in, "work", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
				switch {
				case run > len(waits):
					return nil
				case after:
					return oncepipe.RetryAfter(waits[run-1], errBroken)
				}
				return errBroken
			}), oncepipe.Retry(policy))
			r.b.send("k")
			r.b.end()
			r.start()
			for len(r.ended) == 0 {
				synctest.Wait()
				r.mu.Lock()
				for _, e := range r.events {
					if e.Kind == oncepipe.EventRetried && (e.Delay < 0 || e.Delay > limit) {
						rt.Fatalf("waits %v, MaxDelay %v", e.Delay, limit)
					}
				}
				parked := len(r.events) > 0 && r.events[len(r.events)-1].Delay > 1000*time.Hour
				r.mu.Unlock()
				if parked { // longer than the test can wait
					r.cancel()
				}
				if len(r.ended) == 0 {
					time.Sleep(time.Hour)
				}
			}
			r.finish()
		})
	})
}

type brokerWaits func() time.Duration

func (f brokerWaits) NextBackOff() time.Duration { return f() }
func (brokerWaits) Reset()                       {}

// The context of an attempt with a time limit ends with the attempt, so that
// what hangs on it is let go.
func TestP66_AttemptContextEndsWithTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var freed atomic.Int32
		oncepipe.Sink(r.in, "work", r.handler(func(ctx context.Context, _ brokerMsg, _ int) error {
			context.AfterFunc(ctx, func() { freed.Add(1) })
			return nil
		}), oncepipe.Timeout(time.Hour))
		r.start()
		r.b.send(brokerKeys(100)...)
		synctest.Wait()
		if freed.Load() != 100 {
			t.Errorf("%d of 100 contexts ended", freed.Load())
		}
		r.b.end()
		r.finish()
	})
}

// Nothing of one bubble lives on in the next: no timer, pool or goroutine of
// the package.
func TestP69_BubblesDoNotMeet(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			oncepipe.Sink(r.dedup(), "work", r.handler(failUntil(2)), oncepipe.Timeout(time.Second), oncepipe.Retry(oncepipe.RetryPolicy{}))
			r.run(brokerKeys(20)...)
		})
	}
}
