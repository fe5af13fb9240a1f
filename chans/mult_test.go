package chans_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/chans"
)

// running runs fn in a goroutine and returns a function that waits for its error.
func running(fn func() error) (wait func() error) {
	_, wait = chans.Go(0, func(chan<- struct{}) error { return fn() })
	return wait
}

// poll is the value that is in c when nothing moves any more.
func poll(t *testing.T, c <-chan int) string {
	t.Helper()
	synctest.Wait()
	v, ok, err := chans.Poll(c)
	synctest.Wait()
	switch {
	case err != nil:
		return "closed"
	case !ok:
		return "nothing"
	}
	return fmt.Sprint(v)
}

// offered reports whether somebody takes v when nothing moves any more.
func offered(t *testing.T, c chan<- int, v int) bool {
	t.Helper()
	synctest.Wait()
	ok, err := chans.Offer(c, v)
	noError(t, err)
	synctest.Wait()
	return ok
}

func polls(t *testing.T, what string, c <-chan int, expected ...string) {
	t.Helper()
	for _, v := range expected {
		if got := poll(t, c); got != v {
			t.Errorf("%s: got %s, want %s", what, got, v)
		}
	}
}

func yes(t *testing.T, what string, got bool) {
	t.Helper()
	if !got {
		t.Errorf("not so: %s", what)
	}
}

func number(t *testing.T, what string, got uint64, expected int) {
	t.Helper()
	if got != uint64(expected) {
		t.Errorf("%s: got %d, want %d", what, got, expected)
	}
}

// 58: two taps with room both get all, in order.
func TestMultGivesAllToAll(t *testing.T) {
	var m chans.Mult[int]
	a, b := make(chan int, 4), make(chan int, 4)
	m.Tap(a, chans.CloseAtEnd)
	m.Tap(b, chans.CloseAtEnd)
	m.Tap(b, chans.CloseAtEnd) // the same
	noError(t, m.Run(t.Context(), filled(0, 1, 2, 3)))
	same(t, "a", taken(t, a), []int{0, 1, 2, 3})
	same(t, "b", taken(t, b), []int{0, 1, 2, 3})
	number(t, "discarded", m.Discarded(), 0)
}

// 59: one of three unbuffered taps is closed; the others wait for one another.
func TestMultWaitsForAll(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mult[int]
		a, b, c := make(chan int), make(chan int), make(chan int)
		for _, tap := range []chan int{a, b, c} {
			m.Tap(tap, chans.CloseAtEnd)
		}
		close(b)
		wait := running(func() error { return m.Run(ctx, filled(1, 2)) })
		polls(t, "a", a, "1", "nothing")
		polls(t, "c", c, "1", "2")
		polls(t, "a", a, "2", "closed")
		polls(t, "c", c, "closed")
		noError(t, wait())
		yes(t, "the closed tap is no tap any more", !m.Untap(b))
	})
}

// Who reads the taps in any order gets the value of each.
func TestMultHasNoOrderAmongTaps(t *testing.T) {
	for n := 1; n <= 6; n++ {
		bubble(t, func(t *testing.T, ctx context.Context, end func()) {
			var m chans.Mult[int]
			taps := make([]chan int, n)
			for i := range taps {
				taps[i] = make(chan int)
				m.Tap(taps[i], chans.CloseAtEnd)
			}
			wait := running(func() error { return m.Run(ctx, filled(1, 2, 3)) })
			for range 3 {
				for i := range taps {
					<-taps[n-1-i]
				}
			}
			noError(t, wait())
		})
	}
}

// 60: without taps the source never waits; values are discarded and counted. 61:
// a late tap begins with the next value.
func TestMultWithoutTaps(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mult[int]
		from := make(chan int)
		wait := running(func() error { return m.Run(ctx, from) })
		from <- 1
		from <- 2
		synctest.Wait()
		number(t, "discarded", m.Discarded(), 2)
		late := make(chan int, 9)
		m.Tap(late, chans.CloseAtEnd)
		from <- 3
		close(from)
		noError(t, wait())
		polls(t, "late", late, "3", "closed")
		number(t, "discarded", m.Discarded(), 2)
	})
}

// 61: a tap that comes while a value waits doesn't get that one.
func TestMultTapDuringValue(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mult[int]
		slow, late := make(chan int), make(chan int, 9)
		m.Tap(slow, chans.CloseAtEnd)
		wait := running(func() error { return m.Run(ctx, filled(1, 2)) })
		synctest.Wait()
		m.Tap(late, chans.CloseAtEnd)
		polls(t, "slow", slow, "1", "2")
		polls(t, "late", late, "2", "closed")
		noError(t, wait())
	})
}

// 62: a closed tap is removed, an untapped one stays open, a kept one survives
// the source.
func TestMultEndsOfTaps(t *testing.T) {
	var m chans.Mult[int]
	closed, untapped, kept, plain := make(chan int, 1), make(chan int, 1), make(chan int, 1), make(chan int, 1)
	l, keptLossy, untappedLossy := chans.Sliding[int](1, nil), chans.Sliding[int](1, nil), chans.Sliding[int](1, nil)
	close(closed)
	m.Tap(closed, chans.CloseAtEnd)
	m.Tap(untapped, chans.CloseAtEnd)
	m.Tap(kept, chans.CloseAtEnd)
	m.Tap(kept, chans.KeepOpen)
	m.Tap(plain, chans.KeepOpen)
	m.Tap(plain, chans.CloseAtEnd)
	m.TapLossy(l, chans.CloseAtEnd)
	m.TapLossy(keptLossy, chans.KeepOpen)
	m.TapLossy(untappedLossy, chans.CloseAtEnd)
	yes(t, "untapped", m.Untap(untapped) && !m.Untap(untapped))
	yes(t, "untapped", m.UntapLossy(untappedLossy) && !m.UntapLossy(untappedLossy))
	noError(t, m.Run(t.Context(), filled(1)))
	untapped <- 7
	polledAll := func(c <-chan int) (list []int, err error) {
		for {
			v, ok, err := chans.Poll(c)
			if !ok {
				return list, err
			}
			list = append(list, v)
		}
	}
	for name, w := range map[string]struct {
		c    <-chan int
		want string
	}{
		"closed":         {closed, "[] chans: closed"},
		"untapped":       {untapped, "[7] <nil>"},
		"kept":           {kept, "[1] <nil>"},
		"plain":          {plain, "[1] chans: closed"},
		"lossy":          {l.C(), "[1] chans: closed"},
		"kept lossy":     {keptLossy.C(), "[1] <nil>"},
		"untapped lossy": {untappedLossy.C(), "[] <nil>"},
	} {
		list, err := polledAll(w.c)
		if got := fmt.Sprint(list, err); got != w.want {
			t.Errorf("%s: got %s, want %s", name, got, w.want)
		}
	}
	yes(t, "no tap after the end", !m.Untap(plain) && !m.Untap(kept))

	late, lateKept := make(chan int), make(chan int)
	m.Tap(late, chans.CloseAtEnd)
	m.Tap(lateKept, chans.KeepOpen)
	if _, err := polledAll(late); err != chans.ErrClosed {
		t.Errorf("a late tap waits for ever: %v", err)
	}
	if _, err := polledAll(lateKept); err != nil {
		t.Errorf("a late tap was not kept open: %v", err)
	}
}

// 63: a tap that the mult waits for frees the others when it is untapped or
// closed, at once.
func TestMultReleases(t *testing.T) {
	for name, leave := range map[string]func(m *chans.Mult[int], c chan int){
		"untap":         func(m *chans.Mult[int], c chan int) { m.Untap(c) },
		"untap, close":  func(m *chans.Mult[int], c chan int) { m.Untap(c); close(c) },
		"close":         func(_ *chans.Mult[int], c chan int) { close(c) },
		"close, untap":  func(m *chans.Mult[int], c chan int) { close(c); m.Untap(c) },
		"close, others": func(m *chans.Mult[int], c chan int) { close(c); m.Tap(make(chan int, 9), chans.KeepOpen) },
	} {
		for stuckToo := range 3 {
			t.Run(fmt.Sprint(name, stuckToo), func(t *testing.T) {
				bubble(t, func(t *testing.T, ctx context.Context, end func()) {
					var m chans.Mult[int]
					stuck, live := make(chan int), make(chan int, 9)
					m.Tap(stuck, chans.CloseAtEnd)
					m.Tap(live, chans.CloseAtEnd)
					others := make([]chan int, stuckToo)
					for i := range others {
						others[i] = make(chan int)
						m.Tap(others[i], chans.CloseAtEnd)
					}
					wait := running(func() error { return m.Run(ctx, filled(1, 2)) })
					polls(t, "live", live, "1", "nothing")
					leave(&m, stuck)
					for _, c := range others {
						polls(t, "live", live, "nothing")
						polls(t, "other", c, "1")
					}
					polls(t, "live", live, "2")
					for _, c := range others {
						polls(t, "other", c, "2")
					}
					noError(t, wait())
				})
			})
		}
	}
}

// A value that the last tap has left is one that nobody got.
func TestMultDiscardsWhatTheLastTapLeft(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mult[int]
		c, kept := make(chan int), make(chan int)
		m.Tap(c, chans.CloseAtEnd)
		m.Tap(kept, chans.KeepOpen)
		wait := running(func() error { return m.Run(ctx, filled(1, 2)) })
		synctest.Wait()
		m.UntapAll()
		noError(t, wait())
		polls(t, "untapped", c, "closed")
		polls(t, "kept", kept, "nothing")
		number(t, "discarded", m.Discarded(), 2)
	})
}

func TestMultHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mult[int]
		has, waits := make(chan int, 9), make(chan int)
		m.Tap(has, chans.CloseAtEnd)
		m.Tap(waits, chans.CloseAtEnd)
		from := filled(1, 2)
		wait := running(func() error { return m.Run(ctx, from) })
		synctest.Wait()
		end()
		err := wait()
		is(t, err, errBroken)
		same(t, "unsent", left[int](t, err), []int{1})
		same(t, "in the source", taken(t, from), []int{2})
		polls(t, "has", has, "1", "closed")
		polls(t, "waits", waits, "closed")
	})
}

func TestMultTakesNothingWhenEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	from := filled(1)
	is(t, new(chans.Mult[int]).Run(ctx, from), errBroken)
	is(t, (&chans.Pub[int, int]{Topic: identity[int]}).Run(ctx, from), errBroken)
	var x chans.Mix[int]
	x.Admix(from)
	is(t, x.Run(ctx, make(chan int, 9)), errBroken)
	same(t, "left", taken(t, from), []int{1})
}

// A lossy tap holds up nobody, sheds and counts.
func TestMultLossyTaps(t *testing.T) {
	var m chans.Mult[int]
	var seen []int
	d := chans.Dropping(2, func(v int) { seen = append(seen, v) })
	s := chans.Sliding(2, func(v int) { seen = append(seen, -v) })
	closed := chans.Sliding[int](2, nil)
	closed.Close()
	c := make(chan int, 9)
	m.TapLossy(d, chans.CloseAtEnd)
	m.Tap(c, chans.CloseAtEnd)
	m.TapLossy(s, chans.CloseAtEnd)
	m.TapLossy(closed, chans.CloseAtEnd)
	noError(t, m.Run(t.Context(), filled(1, 2, 3, 4)))
	same(t, "dropping", taken(t, d.C()), []int{1, 2})
	same(t, "sliding", taken(t, s.C()), []int{3, 4})
	same(t, "plain", taken(t, c), []int{1, 2, 3, 4})
	same(t, "shed", seen, []int{3, -1, 4, -2})
	number(t, "shed", d.Shed()+s.Shed(), 4)
	yes(t, "the closed one is removed", !m.UntapLossy(closed))
}

// An observer can disconnect its tap, and all others.
func TestMultObserverUntaps(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mult[int]
		var l *chans.Lossy[int]
		stuck := make(chan int)
		l = chans.Dropping(1, func(int) {
			yes(t, "untapped", m.UntapLossy(l) && m.Untap(stuck))
			l.Close()
			close(stuck)
			m.Tap(make(chan int, 9), chans.KeepOpen)
		})
		m.TapLossy(l, chans.CloseAtEnd)
		from := make(chan int)
		wait := running(func() error { return m.Run(ctx, from) })
		from <- 1
		synctest.Wait() // a tap added at once may get it, too
		m.Tap(stuck, chans.CloseAtEnd)
		from <- 2
		from <- 3
		close(from)
		noError(t, wait())
		same(t, "values", taken(t, l.C()), []int{1})
		number(t, "shed", l.Shed(), 1)
		number(t, "discarded", m.Discarded(), 0)
	})
}

// The value of an observer that panics reaches the other taps before it ends Run.
func TestMultObserverPanics(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mult[int]
		l := chans.Dropping(1, func(int) { panic(errBroken) })
		c := make(chan int)
		m.TapLossy(l, chans.CloseAtEnd)
		m.Tap(c, chans.CloseAtEnd)
		from := filled(1, 2, 3)
		wait := running(func() error { return m.Run(ctx, from) })
		polls(t, "other", c, "1", "2", "closed")
		err := wait()
		is(t, err, errBroken)
		var e *chans.ItemError
		yes(t, "an ItemError of 2", errors.As(err, &e) && e.Value == 2)
		same(t, "left", taken(t, from), []int{3})
	})
}

// When an observer ends Run's goroutine, the taps are ended.
func TestMultObserverGoexit(t *testing.T) {
	var m chans.Mult[int]
	l := chans.Dropping(1, func(int) { runtime.Goexit() })
	c := make(chan int, 9)
	m.TapLossy(l, chans.CloseAtEnd)
	m.Tap(c, chans.CloseAtEnd)
	is(t, running(func() error { return m.Run(t.Context(), filled(1, 2, 3)) })(), chans.ErrGoexit)
	for range c { // ends
	}
}

func TestFanOutMistakes(t *testing.T) {
	for name, wrong := range map[string]func(){
		"a nil tap":        func() { new(chans.Mult[int]).Tap(nil, chans.CloseAtEnd) },
		"a nil subscriber": func() { new(chans.Pub[int, int]).Sub(1, nil, chans.CloseAtEnd) },
		"a Pub without a Topic": func() {
			noError(t, new(chans.Pub[int, int]).Run(t.Context(), filled[int]()))
		},
		"a buffer below 0": func() {
			p := &chans.Pub[int, int]{Topic: identity[int], Buffer: func(int) int { return -1 }}
			p.Sub(1, make(chan int), chans.CloseAtEnd)
		},
		"an unknown switch":    func() { new(chans.Mix[int]).Toggle(8, true) },
		"an unknown solo mode": func() { new(chans.Mix[int]).SoloMode(chans.Solo) },
		"a second run of a Mult": func() {
			var m chans.Mult[int]
			noError(t, m.Run(t.Context(), filled[int]()))
			noError(t, m.Run(t.Context(), filled[int]()))
		},
		"a second run of a Pub": func() {
			p := &chans.Pub[int, int]{Topic: identity[int]}
			noError(t, p.Run(t.Context(), filled[int]()))
			noError(t, p.Run(t.Context(), filled[int]()))
		},
		"a second run of a Mix": func() {
			var m chans.Mix[int]
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			is(t, m.Run(ctx, make(chan int)), context.Canceled)
			is(t, m.Run(ctx, make(chan int)), context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { yes(t, "a panic", recover() != nil) }()
			wrong()
		})
	}
}

// Values are conserved and in order while taps come and go in other goroutines
// that close what they have untapped.
func TestMultUnderFire(t *testing.T) {
	var m chans.Mult[int]
	always := make(chan int)
	m.Tap(always, chans.CloseAtEnd)
	from := make(chan int)
	const n = 2000
	wait := running(func() error { return m.Run(t.Context(), from) })
	var comers []func() error
	for i := range 4 {
		comers = append(comers, running(func() error {
			for {
				c := make(chan int, i)
				m.Tap(c, chans.CloseAtEnd)
				last := 0
				for range 3 {
					v, ok := <-c
					if !ok {
						return nil
					}
					if last > 0 && v != last+1 {
						return fmt.Errorf("%d after %d", v, last)
					}
					last = v
				}
				if m.Untap(c) {
					close(c)
				}
			}
		}))
	}
	go feedN(from, n)
	got, err := chans.Into(t.Context(), nil, always)
	noError(t, err)
	noError(t, wait())
	for _, wait := range comers {
		noError(t, wait())
	}
	yes(t, "all values in order", len(got) == n && slices.IsSorted(got))
}

func feedN(c chan<- int, n int) {
	defer close(c)
	for i := range n {
		c <- i + 1
	}
}
