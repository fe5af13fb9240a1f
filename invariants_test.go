package oncepipe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// world.run checks what holds for every graph and every course of things: I5,
// I8, I9, and as far as a random graph shows them I1 and I4. The tests below that
// use it differ in what they make likely.

func TestI5_RandomGraphs(t *testing.T) {
	check(t, 120, func(rt *rapid.T) {
		p := drawPlan(rt)
		runPlan(t, rt, p, rapid.Bool().Draw(rt, "dedup"), nil)
	})
}

// Without Goexit in operators and abandoned handlers every key behind a Dedup is
// there once.
func TestI4_RandomGraphs(t *testing.T) {
	check(t, 100, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.calm = true
		runPlan(t, rt, p, true, nil)
	})
}

// Every instant is as good as another to be cancelled at.
func TestI8_CancelledGraphs(t *testing.T) {
	check(t, 100, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.cancel = time.Duration(rapid.IntRange(1, 3000).Draw(rt, "instant")) * time.Millisecond
		p.drain = rapid.SampledFrom([]time.Duration{time.Millisecond, -1}).Draw(rt, "short drain")
		runPlan(t, rt, p, rapid.Bool().Draw(rt, "dedup"), nil)
	})
}

// A delivery is acked when each of its children has succeeded in each branch,
// and none sooner.
func TestI1_AckAfterEveryChild(t *testing.T) {
	check(t, 60, func(rt *rapid.T) {
		p := drawPlan(rt)
		children := rapid.IntRange(1, 4).Draw(rt, "children")
		inBubble(t, rt, func() []string {
			w := newWorld(&p)
			done := map[string]bool{}
			w.onSettle = func(m msg, s Settlement) {
				w.settled(m, s)
				w.mu.Lock()
				defer w.mu.Unlock()
				for i := range children {
					for _, sink := range []string{"left", "right"} {
						if s.Outcome == Done && !done[fmt.Sprint(sink, m.delivery, Key(m.key, fmt.Sprint(i)))] {
							w.faults = append(w.faults, fmt.Sprintf("I1: delivery %d is acked before child %d is %s", m.delivery, i, sink))
						}
					}
				}
			}
			in := From(w.p, "source", Source[msg](w.src))
			each := FlatMap(in, func(v msg) []msg {
				out := make([]msg, children)
				for i := range out {
					out[i] = v
					out[i].key = Key(v.key, fmt.Sprint(i))
				}
				return out
			})
			branches := Broadcast(w.stage(flow{each, false}).Stream, 2)
			for i, sink := range []string{"left", "right"} {
				h := w.handler(sink, false, true, nil)
				Sink(branches[i], sink, func(ctx context.Context, v msg) error {
					_, err := h(ctx, v)
					w.mu.Lock()
					defer w.mu.Unlock()
					if err == nil {
						done[fmt.Sprint(sink, v.delivery, v.key)] = true
					}
					return err
				}, Workers(2), Retry(RetryPolicy{MaxAttempts: 4, Slots: 3}))
			}
			w.run()
			return w.faults
		})
	})
}

// spyGuard looks at a guard's keys when they come.
type spyGuard struct {
	Guard
	added func(key string)
}

func (g spyGuard) Add(key, fingerprint string) {
	g.added(key)
	g.Guard.Add(key, fingerprint)
}

func TestI2_GuardKnowsOnlyWhatIsDone(t *testing.T) {
	check(t, 60, func(rt *rapid.T) {
		p := drawPlan(rt)
		inBubble(t, rt, func() []string {
			w := newWorld(&p)
			added := map[string]int{}
			g := spyGuard{Ring(3), func(key string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if added[key]++; w.effects[key] < added[key] {
					w.faults = append(w.faults, fmt.Sprintf("I2: guard learns of %s for the time %d after %d successes", key, added[key], w.effects[key]))
				}
			}}
			in := From(w.p, "source", Source[msg](w.src))
			fresh := Dedup(in, "dedup", func(v msg) string { return v.key }, WithGuard(g))
			w.sink(w.stage(flow{fresh, true}))
			w.run()
			return w.faults
		})
	})
}

// While nothing is returned, a key succeeds in the last stage once, however many
// copies there are.
func TestI6_PlainStageBehindDedup(t *testing.T) {
	check(t, 60, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.hold = 0
		inBubble(t, rt, func() []string {
			w := newWorld(&p)
			in := From(w.p, "source", Source[msg](w.src))
			fresh := Dedup(in, "dedup", func(v msg) string { return v.key })
			w.sink(w.stage(flow{fresh, true}))
			lost := map[string]bool{}
			settled := w.onSettle
			w.onSettle = func(m msg, s Settlement) {
				settled(m, s)
				w.mu.Lock()
				defer w.mu.Unlock()
				lost[m.root] = lost[m.root] || s.Outcome == Returned
			}
			w.run()
			for root, n := range w.effects {
				if n > 1 && !lost[root] {
					w.faults = append(w.faults, fmt.Sprintf("I6: %s succeeded %d times", root, n))
				}
			}
			return w.faults
		})
	})
}

// An operator that gives an item behind a Dedup another key changes nothing in
// the table of those in flight.
func TestI4_KeyByBehindDedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		in := FromSeq(p, "source", slices.Values([]string{"a", "a", "a"}))
		other := KeyBy(Dedup(in, "dedup", func(v string) string { return v }), func(v string) string { return "other " + v })
		runs := 0
		Sink(other, "sink", func(context.Context, string) error { runs++; time.Sleep(time.Second); return nil })
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); runs != 1 || s.Duplicate != 2 || s.Dedups[0].Guarded != 1 {
			t.Errorf("%d runs, %+v", runs, s)
		}
	})
}

// A copy in each of the states of the first one: running, parked, done.
func TestI4_CopyInEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan string)
		p := New("p", Config{Logger: quiet})
		fresh := Dedup(FromChan(p, "source", ch), "dedup", func(v string) string { return v }, JoinLimit(2, 2, 2*time.Hour))
		attempts := 0
		Sink(fresh, "sink", func(context.Context, string) error {
			attempts++
			time.Sleep(time.Second)
			if attempts == 1 {
				return errHandler
			}
			return nil
		}, Workers(4), Retry(RetryPolicy{Backoff: constant(time.Hour)}))
		go func() {
			ch <- "k"
			time.Sleep(time.Second / 2)
			ch <- "k" // runs
			time.Sleep(time.Minute)
			ch <- "k" // parked
			time.Sleep(time.Hour)
			ch <- "k" // done
			close(ch)
		}()
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); attempts != 2 || s.Done != 1 || s.Duplicate != 3 || s.Dedups[0].Acked != 2 || s.Dedups[0].Committed != 1 {
			t.Errorf("%d attempts, %+v", attempts, s)
		}
	})
}

func constant(d time.Duration) func() backoff.BackOff {
	return func() backoff.BackOff { return backoff.NewConstantBackOff(d) }
}

// Many joined copies and a parked first one: all workers are there for others.
func TestI7_JoinedCopiesHoldNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, copies = 3, 500
		ch := make(chan string)
		p := New("p", Config{Logger: quiet})
		fresh := Dedup(FromChan(p, "source", ch), "dedup", func(v string) string { return v },
			JoinLimit(copies, copies, 48*time.Hour))
		first := true
		var atOnce, most atomic.Int32
		Sink(fresh, "sink", func(_ context.Context, v string) error {
			if v == "k" {
				if first {
					first = false
					return errHandler
				}
				return nil
			}
			now := atOnce.Add(1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			time.Sleep(time.Second)
			atOnce.Add(-1)
			return nil
		}, Workers(workers), Buffer(Fixed(0)), Retry(RetryPolicy{Backoff: constant(time.Hour), Slots: workers + 1}))
		go func() {
			defer close(ch)
			for range copies + 1 {
				ch <- "k"
			}
			synctest.Wait()
			if s := p.Stats(); s.Stages[0].Running != 0 || s.Dedups[0].Waiting != copies {
				t.Errorf("%+v", s)
			}
			for i := range workers {
				ch <- fmt.Sprint("other", i)
			}
		}()
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); most.Load() != workers || s.Duplicate != copies || s.Done != workers+1 {
			t.Errorf("%d at once, %+v", most.Load(), s)
		}
	})
}

// Several readers look as fast as they can, in real time.
func TestI9_StatsUnderLoad(t *testing.T) {
	const items = 5_000
	p := New("p", Config{Logger: quiet, DeadLetters: func(context.Context, DeadLetter) error { return nil }})
	in := FromSeq(p, "source", func(yield func(int) bool) {
		for i := range items {
			if !yield(i) {
				return
			}
		}
	})
	fresh := Dedup(Filter(in, func(v int) bool { return v%7 != 0 }), "dedup", func(v int) string { return fmt.Sprint(v % 2000) })
	mid := Stage(fresh, "stage", func(_ context.Context, v int) (int, error) {
		if v%11 == 0 {
			return v, Permanent(errHandler)
		}
		return v, nil
	}, Workers(2), Buffer(Dropping(8)))
	Sink(mid, "sink", func(_ context.Context, v int) error { return nil }, Buffer(Sliding(4)), Workers(2))

	var readers errgroup.Group
	over := make(chan struct{})
	for range 2 {
		readers.Go(func() error {
			for {
				s := p.Stats()
				sum := s.Done + s.Duplicate + s.Filtered + s.Shed + s.Dead + s.Returned
				if s.Admitted < sum || s.InFlight != s.Admitted-sum {
					return fmt.Errorf("%+v", s)
				}
				select {
				case <-over:
					return nil
				default:
				}
			}
		})
	}
	err := p.Run(t.Context())
	close(over)
	if err != nil {
		t.Error(err)
	}
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); !s.Conserved() || s.Admitted != items {
		t.Errorf("%+v", s)
	}
}

// script is a backoff that says what was drawn for its item, and counts.
type script struct {
	waits []time.Duration
	calls int
}

func (s *script) NextBackOff() time.Duration {
	s.calls++
	if s.calls > len(s.waits) {
		return backoff.Stop
	}
	return s.waits[s.calls-1]
}
func (s *script) Reset() { panic("Reset") }

// Every item waits what its own backoff says, one question for every failure,
// while others look at it all the time.
func TestI10_DelaysAreOnesOwn(t *testing.T) {
	check(t, 40, func(rt *rapid.T) {
		waits := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 5000), 0, 5), 1, 12).Draw(rt, "waits")
		inBubble(t, rt, func() (faults []string) {
			var mu sync.Mutex
			fault := func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, fmt.Sprintf(format, args...))
			}
			var p *Pipeline
			look := func(Event) { _ = p.Stats() }
			p = New("p", Config{Logger: quiet, Observers: []Observer{look, look}})
			given := make([]*script, len(waits))
			ended := make([]time.Time, len(waits))
			attempts := make([]int, len(waits))
			// The stage asks for a backoff where an item fails first: current says which.
			var current atomic.Int32
			in := FromSeq(p, "source", func(yield func(int) bool) {
				for i := range waits {
					if !yield(i) {
						return
					}
				}
			})
			turn := make(chan struct{}, 1)
			Sink(in, "sink", func(_ context.Context, i int) error {
				turn <- struct{}{} // failures one after the other, so that current is known
				n := attempts[i]
				if n > 0 {
					if want, got := time.Duration(waits[i][n-1])*time.Millisecond, time.Since(ended[i]); got != want {
						fault("I10: item %d waits %v before attempt %d, want %v", i, got, n+1, want)
					}
				}
				attempts[i]++
				ended[i] = time.Now()
				if n == len(waits[i]) {
					<-turn
					return nil
				}
				if n == 0 {
					current.Store(int32(i))
				} else {
					<-turn
				}
				return errHandler
			}, Workers(max(2, len(waits))), Retry(RetryPolicy{Backoff: func() backoff.BackOff {
				i := current.Load()
				s := &script{}
				for _, ms := range waits[i] {
					s.waits = append(s.waits, time.Duration(ms)*time.Millisecond)
				}
				if given[i] != nil {
					fault("I10: item %d gets a second backoff", i)
				}
				given[i] = s
				<-turn
				return s
			}}))
			over := make(chan struct{})
			go func() {
				for {
					select {
					case <-over:
						return
					case <-time.After(7 * time.Millisecond):
						_ = p.Stats()
						_ = p.Describe()
					}
				}
			}()
			if err := p.Run(context.Background()); err != nil {
				fault("Run: %v", err)
			}
			close(over)
			for i, s := range given {
				if len(waits[i]) > 0 && s.calls != len(waits[i]) || attempts[i] != len(waits[i])+1 {
					fault("I10: item %d has %d attempts, its backoff is asked %v", i, attempts[i], s)
				}
			}
			return faults
		})
	})
}
