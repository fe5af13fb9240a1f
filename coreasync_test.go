package oncepipe_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

// The question that this library answers, as it goes in clojure.core.async and
// as it goes here.

// distinct is core.async's: a value is marked as seen before the steps behind it
// have run.
func distinct[K comparable, T any](key func(T) K) func(T) bool {
	var mu sync.Mutex
	seen := map[K]bool{}
	return func(v T) bool {
		mu.Lock()
		defer mu.Unlock()
		k := key(v)
		if seen[k] {
			return false
		}
		seen[k] = true
		return true
	}
}

// There: distinct before a failing step swallows the redelivery, which is
// acked, and the effect never happens. Here: the redelivery passes, and the
// duplicate behind it doesn't.
func TestCoreAsync_DistinctBeforeFailingStep(t *testing.T) {
	run := func(t *testing.T, dedup func(*brokerRig) oncepipe.Stream[brokerMsg], retry ...oncepipe.Option) (*brokerRig, int) {
		r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = nil })
		r.b.redeliver = true
		effects := 0
		oncepipe.Sink(dedup(r), "write", r.handler(func(_ context.Context, _ brokerMsg, run int) error {
			if run == 1 {
				return errBroken
			}
			effects++
			return nil
		}), retry...)
		r.start()
		r.b.send("k")
		time.Sleep(time.Hour)
		r.b.send("k") // a duplicate
		r.b.end()
		r.finish()
		return r, effects
	}
	withDistinct := func(r *brokerRig) oncepipe.Stream[brokerMsg] { return oncepipe.Filter(r.in, distinct(brokerKey)) }
	withDedup := func(r *brokerRig) oncepipe.Stream[brokerMsg] { return r.dedup() }

	synctest.Test(t, func(t *testing.T) {
		r, effects := run(t, withDistinct)
		r.wantOutcomes("k", returned, oncepipe.Filtered, oncepipe.Filtered)
		if effects != 0 {
			t.Errorf("distinct let the retry pass: %d effects", effects)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, effects := run(t, withDedup)
		r.wantOutcomes("k", returned, done, duplicate)
		if effects != 1 {
			t.Errorf("Dedup: %d effects", effects)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the retry of the stage itself
		r, effects := run(t, withDedup, oncepipe.Retry(brokerRetry(time.Second)))
		r.wantOutcomes("k", done, duplicate)
		if effects != 1 {
			t.Errorf("Dedup: %d effects", effects)
		}
	})
}

// There: a worker that puts failures back into its own full input waits for
// itself; 0 of 100 are done. Here: 100 of 100, with the same buffer and one
// slot.
func TestCoreAsync_RequeueIntoOwnInput(t *testing.T) {
	const n, buffer = 100, 10
	synctest.Test(t, func(t *testing.T) {
		in := make(chan int, buffer)
		stop := make(chan struct{}) // only so that the test can end
		var wg sync.WaitGroup
		wg.Go(func() { // the producer
			for i := range n {
				select {
				case in <- i:
				case <-stop:
					return
				}
			}
		})
		synctest.Wait() // the input is full
		doneN := 0
		failed := map[int]bool{}
		wg.Go(func() { // the worker
			for {
				select {
				case i := <-in:
					if failed[i] {
						doneN++
						continue
					}
					failed[i] = true
					select {
					case in <- i: // waits for room that only this goroutine can make
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		})
		time.Sleep(24 * time.Hour) // durably blocked: no time helps
		synctest.Wait()
		if doneN != 0 || len(in) != buffer {
			t.Errorf("the hand-made loop did %d of %d, %d wait", doneN, n, len(in))
		}
		close(stop)
		wg.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		policy := brokerRetry(0)
		policy.Slots = 1
		oncepipe.Sink(r.in, "work", r.handler(failUntil(2)), oncepipe.Buffer(oncepipe.Fixed(buffer)), oncepipe.Retry(policy))
		if st := r.run(brokerKeys(n)...); st.Done != n {
			t.Errorf("done %d of %d", st.Done, n)
		}
	})
}

// There: the producer has closed the input, the retry is refused and lost.
// Here: a stage whose input has ended stays open until what is in it is done.
func TestCoreAsync_ClosedInputRefusesRetry(t *testing.T) {
	const n = 20
	synctest.Test(t, func(t *testing.T) {
		in := &clojureChan[int]{}
		for i := range n {
			in.put(i)
		}
		in.close()
		doneN, lost := 0, 0
		failed := map[int]bool{}
		for i, ok := in.take(); ok; i, ok = in.take() {
			switch {
			case failed[i]:
				doneN++
			case !in.put(i):
				lost++
			}
			failed[i] = true
		}
		if doneN != 0 || lost != n {
			t.Errorf("done %d, lost %d of %d", doneN, lost, n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := oncepipe.New("closed", oncepipe.Config{})
		ch := make(chan int, n)
		for i := range n {
			ch <- i
		}
		close(ch)
		failures := map[int]int{}
		oncepipe.Sink(oncepipe.FromChan(p, "in", ch), "work", func(_ context.Context, i int) error {
			if failures[i] < 3 {
				failures[i]++
				return errBroken
			}
			return nil
		}, oncepipe.Retry(brokerRetry(time.Minute)))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := p.Stats(); st.Done != n || st.Stages[0].Retried != 3*n {
			t.Errorf("%+v", st)
		}
	})
}

// clojureChan is a channel as core.async has it: put says false after close,
// what was put before can still be taken.
type clojureChan[T any] struct {
	values []T
	closed bool
}

func (c *clojureChan[T]) put(v T) bool {
	if !c.closed {
		c.values = append(c.values, v)
	}
	return !c.closed
}

func (c *clojureChan[T]) close() { c.closed = true }

func (c *clojureChan[T]) take() (v T, ok bool) {
	if len(c.values) == 0 {
		return v, false
	}
	v, c.values = c.values[0], c.values[1:]
	return v, true
}
