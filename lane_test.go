package oncepipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"pgregory.net/rapid"
)

// The lane with every combination of workers, slots and buffer, before a sink
// that stands still for a minute: the items get through as far as slots allow, and
// what is inside is bounded.
func TestI5_LaneCombinations(t *testing.T) {
	const items = 30
	for _, workers := range []int{1, 3, 8} {
		for _, slots := range []int{1, 2, 5} {
			for _, size := range []int{0, 1, 8} {
				for _, always := range []bool{false, true} {
					name := fmt.Sprintf("workers=%d/slots=%d/buffer=%d/always=%v", workers, slots, size, always)
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { laneCase(t, items, workers, slots, size, always) })
					})
				}
			}
		}
	}
}

func laneCase(t *testing.T, items, workers, slots, size int, always bool) {
	const hopeless = 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := New("p", Config{Logger: quiet, DrainTimeout: time.Second})
	in := FromSeq(p, "source", func(yield func(int) bool) {
		for i := range items {
			if !yield(i) {
				return
			}
		}
	})
	var mu sync.Mutex
	tries := map[int]int{}
	out := Stage(in, "stage", func(_ context.Context, v int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		tries[v]++
		if v == hopeless && always || v%3 == 1 && tries[v] <= 2 {
			return v, errHandler
		}
		return v, nil
	}, Workers(workers), Buffer(Fixed(size)), Retry(RetryPolicy{Slots: slots, Backoff: constant(time.Second)}))
	got := map[int]int{}
	stood := false
	Sink(out, "sink", func(_ context.Context, v int) error {
		if len(got) == items/3 && !stood {
			stood = true
			time.Sleep(time.Minute)
		}
		got[v]++
		return nil
	}, Buffer(Fixed(size)))

	over := make(chan struct{})
	go func() {
		// Never at a whole second, where Stats would be read while items come and go.
		time.Sleep(125 * time.Millisecond)
		for {
			select {
			case <-over:
				return
			case <-time.After(250 * time.Millisecond):
			}
			s := p.Stats()
			// One in the source's hand, one in the sink's.
			if bound := int64(2*size + slots + 2); s.InFlight > bound {
				t.Errorf("%d in flight, bound is %d", s.InFlight, bound)
			}
			if s.Stages[0].Parked > int64(slots) {
				t.Errorf("%d parked in %d slots", s.Stages[0].Parked, slots)
			}
		}
	}()
	stop := time.AfterFunc(5*time.Minute, cancel)
	began := time.Now()
	err := p.Run(ctx)
	took := time.Since(began)
	stop.Stop()
	close(over)

	for v, n := range got {
		if n != 1 {
			t.Errorf("item %d came %d times", v, n)
		}
	}
	s := p.Stats()
	if !s.Conserved() {
		t.Errorf("%+v", s)
	}
	switch {
	case !always:
		if err != nil || len(got) != items || took > 2*time.Minute {
			t.Errorf("%d of %d after %v: %v", len(got), items, took, err)
		}
	case slots == 1:
		// The hopeless item has the only slot: Run holds until it is cancelled.
		var re *ReturnedError
		if !errors.As(err, &re) || took < 5*time.Minute || len(got) != hopeless+size && len(got) < hopeless {
			t.Errorf("%d after %v: %v", len(got), took, err)
		}
	default:
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 1 || re.Items[0].Value != hopeless || len(got) != items-1 {
			t.Errorf("%d of %d: %v", len(got), items, err)
		}
	}
}

func laneJob(v int) job[int] {
	return job[int]{item: item[int]{v, &ticket{scope: &scope{}}}}
}

// Items come out when they are due, not before, the first parked first among
// equals, each once.
func TestLaneModel(t *testing.T) {
	check(t, 100, func(rt *rapid.T) {
		delays := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 60).Draw(rt, "delays")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 3), len(delays), len(delays)).Draw(rt, "gaps")
		inBubble(t, rt, func() (faults []string) {
			l := newLane[int]()
			l.start()
			due := make([]time.Duration, len(delays))
			var got []int
			over := make(chan struct{})
			go func() {
				defer close(over)
				for range delays {
					for {
						<-l.ready
						if j, ok := l.take(); ok {
							if now := time.Since(l.epoch); now != due[j.v] {
								faults = append(faults, fmt.Sprintf("item %d is taken at %v, due at %v", j.v, now, due[j.v]))
							}
							got = append(got, j.v)
							break
						}
					}
				}
			}()
			for i, d := range delays {
				time.Sleep(time.Duration(gaps[i]) * time.Millisecond)
				due[i] = time.Since(l.epoch) + time.Duration(d)*time.Millisecond
				if !l.park(laneJob(i), time.Duration(d)*time.Millisecond) {
					faults = append(faults, "not parked")
				}
			}
			<-over
			want := make([]int, len(delays))
			for i := range want {
				want[i] = i
			}
			slices.SortStableFunc(want, func(a, b int) int { return cmp.Compare(due[a], due[b]) })
			// What is due at once may be taken before an item that is parked later in
			// the same instant, so that only the dues have to be in order.
			for i := range got {
				if due[got[i]] != due[want[i]] {
					faults = append(faults, fmt.Sprintf("order %v, want %v", got, want))
					break
				}
			}
			if n := l.parked.Load(); n != 0 || l.timer.Stop() {
				faults = append(faults, fmt.Sprintf("%d parked and a timer are left", n))
			}
			return faults
		})
	})
}

// Equal dues leave in the order in which they came.
func TestLaneFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane[int]()
		l.start()
		for i := range 1000 {
			l.park(laneJob(i), time.Second)
		}
		for i := range 1000 {
			<-l.ready
			if j, ok := l.take(); !ok || j.v != i {
				t.Fatalf("%d is item %d (%v)", i, j.v, ok)
			}
		}
	})
}

// The oldest is that of those which are parked, whatever came and went.
func TestLaneOldest(t *testing.T) {
	check(t, 100, func(rt *rapid.T) {
		moves := rapid.SliceOfN(rapid.IntRange(-1, 20), 1, 80).Draw(rt, "moves") // an admission, or -1: one leaves
		inBubble(t, rt, func() (faults []string) {
			l := newLane[int]()
			l.start()
			parked := map[int]time.Duration{}
			for i, m := range moves {
				if m < 0 && len(parked) > 0 {
					<-l.ready
					if j, ok := l.take(); ok {
						delete(parked, j.v)
					}
				} else if m >= 0 {
					j := laneJob(i)
					j.t.scope.admitted = time.Duration(m)
					l.park(j, time.Duration(m%5)*time.Millisecond)
					parked[i] = time.Duration(m)
				}
				got, ok := l.oldest()
				if want := slices.Sorted(maps.Values(parked)); ok != (len(want) > 0) || ok && got != want[0] {
					faults = append(faults, fmt.Sprintf("after move %d: %v, %v of %v", i, got, ok, want))
				}
			}
			l.shut()
			if _, ok := l.oldest(); ok {
				faults = append(faults, "something is left")
			}
			return faults
		})
	})
}

// A delay beyond the end of time is no delay in the past, and shut returns
// what is parked in order and refuses the rest.
func TestLaneShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane[int]()
		l.start()
		time.Sleep(time.Hour)
		l.park(laneJob(2), math.MaxInt64)
		l.park(laneJob(1), 50*365*24*time.Hour)
		l.park(laneJob(0), time.Second)
		var got []int
		for _, j := range l.shut() {
			got = append(got, j.v)
		}
		if !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("shut returns %v", got)
		}
		if l.park(laneJob(3), 0) {
			t.Error("parked in a lane that is shut")
		}
		if len(l.shut()) != 0 || l.timer.Stop() {
			t.Error("something is left")
		}
	})
}

// The index of many parked items, what the lane has beside the items themselves,
// is at most 32 bytes for each.
func TestLaneIndexSize(t *testing.T) {
	const n = 100_000
	synctest.Test(t, func(t *testing.T) {
		l := newLane[int]()
		l.start()
		j := laneJob(0)
		for i := range n {
			l.park(j, time.Hour+time.Duration(i%1000)*time.Millisecond)
		}
		time.Sleep(time.Hour + 500*time.Millisecond)
		for range n / 2 {
			l.take()
		}
		bytes := l.index.Bytes()
		if per := float64(bytes) / float64(n); per > 32 {
			t.Errorf("%.1f bytes for an item", per)
		}
		l.shut()
	})
}

// Ordered stages emit in the order of their input, whatever fails.
func TestI5_OrderedEmitsInOrder(t *testing.T) {
	check(t, 80, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.calm = true
		workers := rapid.IntRange(1, 4).Draw(rt, "workers")
		slots := rapid.IntRange(1, 5).Draw(rt, "slots")
		size := rapid.IntRange(0, 8).Draw(rt, "buffer")
		inBubble(t, rt, func() []string {
			w := newWorld(&p)
			n := p.deliveries
			in := KeyBy(FromSeq(w.p, "source", numbered(n)), func(m msg) string { return m.key })
			h := w.handler("stage", true, false, ptr(&stage[msg, msg]{lane: newLane[msg]()}))
			out := Stage(in, "stage", h, Workers(workers), Buffer(Fixed(size)), Ordered(),
				Retry(RetryPolicy{MaxAttempts: 4, Slots: slots}))
			last := -1
			var mu sync.Mutex
			Discard(Map(out, func(m msg) msg {
				mu.Lock()
				defer mu.Unlock()
				if m.delivery <= last {
					w.errorf("item %d is emitted after %d", m.delivery, last)
				}
				last = m.delivery
				return m
			}))
			w.runPlain()
			return w.faults
		})
	})
}

// PerPartition runs the items of a partition in their order: none begins before
// the one before it is over, and none at all once one was returned.
func TestI5_PerPartitionOrder(t *testing.T) {
	check(t, 80, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.calm = true
		workers := rapid.IntRange(1, 4).Draw(rt, "workers")
		slots := rapid.IntRange(1, 5).Draw(rt, "slots")
		inBubble(t, rt, func() []string {
			w := newWorld(&p)
			part := func(m msg) string { return strconv.Itoa(m.delivery % p.keys) }
			in := KeyBy(FromSeq(w.p, "source", numbered(p.deliveries)), func(m msg) string { return m.key })
			h := w.handler("stage", true, false, ptr(&stage[msg, msg]{lane: newLane[msg]()}))
			last := map[string]int{}
			ok := map[string]bool{}
			var mu sync.Mutex
			out := Stage(PartitionBy(in, part), "stage", func(ctx context.Context, m msg) (msg, error) {
				mu.Lock()
				if m.delivery < last[part(m)] {
					w.errorf("item %d runs after %d", m.delivery, last[part(m)])
				}
				last[part(m)] = m.delivery
				mu.Unlock()
				v, err := h(ctx, m)
				if err == nil {
					mu.Lock()
					ok[m.key] = true
					mu.Unlock()
				}
				return v, err
			}, Workers(workers), PerPartition(), Retry(RetryPolicy{MaxAttempts: 4, Slots: slots}))
			emitted := map[string]int{}
			Discard(Map(out, func(m msg) msg {
				mu.Lock()
				defer mu.Unlock()
				if m.delivery < emitted[part(m)] {
					w.errorf("item %d is emitted after %d", m.delivery, emitted[part(m)])
				}
				emitted[part(m)] = m.delivery
				return m
			}))
			err := w.runPlain()
			var re *ReturnedError
			if errors.As(err, &re) {
				for _, it := range re.Items {
					m := it.Value.(msg)
					if errors.Is(it.Err, ErrShutdown) && emitted[part(m)] > m.delivery {
						w.errorf("item %d was returned, %d of its partition ran: %v", m.delivery, emitted[part(m)], it.Err)
					}
				}
			}
			return w.faults
		})
	})
}

func ptr[T any](v T) *T { return &v }

// numbered yields n items with keys of their own.
func numbered(n int) func(func(msg) bool) {
	return func(yield func(msg) bool) {
		for i := range n {
			if k := "k" + strconv.Itoa(i); !yield(msg{key: k, root: k, delivery: i}) {
				return
			}
		}
	}
}

// runPlain runs a graph that has another source than the plan's.
func (w *world) runPlain() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	limit := w.plan.cancel
	if limit == 0 {
		limit = 2 * time.Hour
	}
	stop := time.AfterFunc(limit, cancel)
	defer stop.Stop()
	err := w.p.Run(ctx)
	if s := w.p.Stats(); !s.Conserved() {
		w.errorf("I9: %+v", s)
	}
	if err != nil && strings.Contains(err.Error(), "abandoned") {
		w.errorf("%v", err)
	}
	return err
}

// Ordered successors of a parked item that can't be emitted for want of room
// don't keep Run beyond its time.
func TestDrainOfOrderedStageIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet, DrainTimeout: time.Second})
		in := FromSeq(p, "source", numbered(8))
		out := Stage(in, "stage", func(_ context.Context, m msg) (msg, error) {
			if m.delivery == 1 {
				return m, errHandler
			}
			return m, nil
		}, Workers(4), Ordered(), Retry(RetryPolicy{Backoff: constant(time.Hour)}))
		Sink(out, "sink", func(ctx context.Context, _ msg) error { <-ctx.Done(); return ctx.Err() }, Buffer(Fixed(0)))
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		err := p.Run(ctx)
		if took := time.Since(began); took != time.Minute+time.Second {
			t.Errorf("Run took %v", took)
		}
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 8 {
			t.Error(err)
		}
	})
}

// A panic or Goexit of a backoff gives the item up and nothing else.
func TestBackoffThatCrashes(t *testing.T) {
	for name, bad := range crashes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var letters []DeadLetter
				p := New("p", Config{Logger: quiet, DeadLetters: func(_ context.Context, l DeadLetter) error { letters = append(letters, l); return nil }})
				runs := 0
				Sink(FromSeq(p, "source", numbered(3)), "sink", func(_ context.Context, m msg) error {
					if runs++; m.delivery == 1 {
						return errHandler
					}
					return nil
				}, Retry(RetryPolicy{Slots: 1, Backoff: func() backoff.BackOff { bad(); return nil }}))
				if err := p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				if len(letters) != 1 || letters[0].Reason != ReasonPanic || !errors.Is(letters[0].Err, errHandler) || runs != 3 {
					t.Errorf("%d runs, %+v", runs, letters)
				}
			})
		})
	}
}

// What is injected while the stage comes to its end has a slot before the lane shuts
// and runs, or is refused, and then nothing was made of it.
func TestLaneShutIf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane[int]()
		l.start()
		slots, made := 0, 0
		empty := func() bool { return slots == 0 }
		admit := func() bool { return l.admit(func() job[int] { made++; return laneJob(made) }) }
		slots++
		if l.shutIf(empty) || !admit() {
			t.Fatal("shut over an item")
		}
		<-l.ready
		j, ok := l.take()
		if !ok || j.v != 1 {
			t.Fatalf("item %d (%v)", j.v, ok)
		}
		if l.shutIf(empty) || !l.park(j, time.Second) {
			t.Fatal("shut while its item runs, which is to be parked again")
		}
		<-l.ready
		if j, ok = l.take(); !ok || j.v != 1 {
			t.Fatalf("item %d (%v)", j.v, ok)
		}
		slots--
		for range 2 {
			if !l.shutIf(empty) {
				t.Error("an empty stage's lane is not shut")
			}
		}
		if admit() || l.park(j, 0) || made != 1 {
			t.Errorf("a lane that is shut takes an item; %d made", made)
		}
	})
}
