package chans_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/chans"
)

// 64: by type.
func TestPubByType(t *testing.T) {
	p := &chans.Pub[string, any]{Topic: func(v any) string { return fmt.Sprintf("%T", v) }}
	var subs []chan any
	for _, topic := range []string{"int", "int", "string", "string"} {
		c := make(chan any, 3)
		p.Sub(topic, c, chans.CloseAtEnd)
		p.Sub(topic, c, chans.CloseAtEnd) // the same
		subs = append(subs, c)
	}
	noError(t, p.Run(t.Context(), filled[any](1, "a", 2, "b", 3, "c")))
	for i, expected := range []string{"[1 2 3]", "[1 2 3]", "[a b c]", "[a b c]"} {
		got, err := chans.Into(t.Context(), nil, subs[i])
		noError(t, err)
		if fmt.Sprint(got) != expected {
			t.Errorf("subscriber %d: got %v, want %s", i, got, expected)
		}
	}
	number(t, "discarded", p.Discarded(), 0)
	same(t, "topics", []int{p.Topics()}, []int{0})
}

// byTens is a Pub whose topic is the tens of a number.
func byTens(buffer func(int) int) *chans.Pub[int, int] {
	return &chans.Pub[int, int]{Topic: func(v int) int { return v / 10 }, Buffer: buffer}
}

func none(int) int { return 0 }

// 65: a value without subscribers is discarded and holds up nobody.
func TestPubWithoutSubscribers(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := byTens(nil)
		c := make(chan int, 9)
		p.Sub(1, c, chans.CloseAtEnd)
		noError(t, p.Run(ctx, filled(20, 10, 21, 30)))
		polls(t, "10s", c, "10", "closed")
		number(t, "discarded", p.Discarded(), 3)
	})
}

// 66: topics are isolated by their buffers until one is full; with a buffer of 0
// they aren't.
func TestPubIsolatesTopics(t *testing.T) {
	for name, w := range map[string]struct {
		buffer func(int) int
		passed int // values of the stuck topic: in its hand, in the buffer, and in that of Run
	}{
		"as it is": {nil, chans.TopicBuffer + 2},
		"3":        {func(int) int { return 3 }, 5},
		"0":        {none, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context, end func()) {
				p := byTens(w.buffer)
				stuck, live := make(chan int), make(chan int, 99)
				p.Sub(1, stuck, chans.CloseAtEnd)
				p.Sub(2, live, chans.CloseAtEnd)
				from := make(chan int)
				wait := running(func() error { return p.Run(ctx, from) })
				passed := 0
				for offered(t, from, 20) && offered(t, from, 10) {
					passed++
				}
				same(t, "live", []int{len(live)}, []int{w.passed})
				yes(t, "the stuck topic held up the source", passed == w.passed)
				yes(t, "unsubscribed", p.Unsub(1, stuck))
				yes(t, "released", offered(t, from, 20))
				close(from)
				noError(t, wait())
				number(t, "discarded", p.Discarded(), w.passed)
			})
		})
	}
}

// 67: the end of the source closes subscribers unless they are kept; Unsub stops
// without closing; who loses the last topic by UnsubTopic is closed.
func TestPubEndsOfSubscribers(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := byTens(nil)
		plain, kept, unsubbed, forgotten, two := make(chan int, 9), make(chan int, 9), make(chan int, 9), make(chan int, 9), make(chan int, 9)
		keptForgotten := make(chan int, 9)
		l, gone := chans.Sliding[int](2, nil), chans.Sliding[int](2, nil)
		p.Sub(1, plain, chans.CloseAtEnd)
		p.Sub(1, kept, chans.KeepOpen)
		p.Sub(1, unsubbed, chans.CloseAtEnd)
		p.Sub(2, forgotten, chans.CloseAtEnd)
		p.Sub(2, keptForgotten, chans.KeepOpen)
		p.Sub(2, two, chans.CloseAtEnd)
		p.Sub(3, two, chans.CloseAtEnd)
		p.SubLossy(3, l, chans.CloseAtEnd)
		p.SubLossy(3, gone, chans.CloseAtEnd)
		from := make(chan int)
		wait := running(func() error { return p.Run(ctx, from) })
		from <- 10
		from <- 20
		synctest.Wait()
		yes(t, "unsubscribed once", p.Unsub(1, unsubbed) && !p.Unsub(1, unsubbed) && !p.Unsub(7, unsubbed))
		yes(t, "unsubscribed once", p.UnsubLossy(3, gone) && !p.UnsubLossy(3, gone))
		p.UnsubTopic(2)
		p.UnsubTopic(2)
		polls(t, "forgotten", forgotten, "20", "closed")
		for _, v := range []int{11, 21, 30} {
			from <- v
		}
		close(from)
		noError(t, wait())
		polls(t, "plain", plain, "10", "11", "closed")
		polls(t, "kept", kept, "10", "11", "nothing")
		polls(t, "unsubscribed", unsubbed, "10", "nothing")
		polls(t, "kept and forgotten", keptForgotten, "20", "nothing")
		polls(t, "two topics", two, "20", "30", "closed")
		polls(t, "lossy", l.C(), "30", "closed")
		polls(t, "lossy, unsubscribed", gone.C(), "nothing")
		number(t, "discarded", p.Discarded(), 1)
		late := make(chan int)
		p.Sub(1, late, chans.CloseAtEnd)
		polls(t, "late", late, "closed")
	})
}

// A subscriber of two topics is closed when both are done, not before.
func TestPubClosesAfterTheLastTopic(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := byTens(nil)
		two, stuck := make(chan int, 9), make(chan int)
		p.Sub(1, two, chans.CloseAtEnd)
		p.Sub(2, two, chans.CloseAtEnd)
		p.Sub(2, stuck, chans.CloseAtEnd)
		wait := running(func() error { return p.Run(ctx, filled(10, 20, 21, 11)) })
		synctest.Wait()
		var list []int
		list = append(list, taken(t, two)...)
		polls(t, "stuck", stuck, "20", "21", "closed")
		noError(t, wait())
		list = append(list, taken(t, two)...)
		slices.Sort(list)
		same(t, "values", list, []int{10, 11, 20, 21})
		polls(t, "two", two, "closed")
	})
}

func TestPubUnsubAll(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := byTens(none)
		a, b, kept := make(chan int), make(chan int), make(chan int)
		for topic := range 3 {
			p.Sub(topic, a, chans.CloseAtEnd)
			p.Sub(topic, kept, chans.KeepOpen)
		}
		p.Sub(1, b, chans.CloseAtEnd)
		wait := running(func() error { return p.Run(ctx, filled(1, 2, 3, 10, 11)) })
		same(t, "topics", []int{p.Topics()}, []int{3})
		synctest.Wait()
		p.UnsubAll()
		noError(t, wait())
		polls(t, "a", a, "closed")
		polls(t, "b", b, "closed")
		polls(t, "kept", kept, "nothing")
		number(t, "discarded", p.Discarded(), 5)
		same(t, "topics", []int{p.Topics()}, []int{0})
	})
}

// 68: a topic that can't be told is the failure of its value. It ends Run, or is
// rescued; either way nobody hangs.
func TestPubTopicPanics(t *testing.T) {
	topic := func(v int) any {
		switch v {
		case 2:
			panic(errBroken)
		case 3:
			return []int{} // can't be looked up
		}
		return "good"
	}
	other := errors.New("other")
	for name, w := range map[string]struct {
		rescue func(*chans.ItemError) error
		want   error
		got    []int
	}{
		"no rescue": {nil, errBroken, []int{1}},
		"discarded": {func(e *chans.ItemError) error {
			if e.Value == 2 {
				is(t, e, errBroken)
			}
			return nil
		}, nil, []int{1, 4}},
		"an error":       {func(*chans.ItemError) error { return other }, other, []int{1}},
		"another panic":  {func(*chans.ItemError) error { panic(other) }, other, []int{1}},
		"only the first": {func(e *chans.ItemError) error { return map[bool]error{true: other}[e.Value == 3] }, other, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &chans.Pub[any, int]{Topic: topic, Rescue: w.rescue}
			c := make(chan int, 9)
			p.Sub("good", c, chans.CloseAtEnd)
			err := p.Run(t.Context(), filled(1, 2, 3, 4))
			if w.want == nil {
				noError(t, err)
				number(t, "discarded", p.Discarded(), 2)
			} else {
				is(t, err, w.want)
			}
			var e *chans.ItemError
			yes(t, "an ItemError with its value", w.rescue != nil || errors.As(err, &e) && e.Value == 2)
			got, err := chans.Into(t.Context(), nil, c)
			noError(t, err)
			same(t, "values", got, w.got)
		})
	}
}

// What was taken and not delivered comes back, those of each topic in order.
func TestPubHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := byTens(func(int) int { return 2 })
		a, b := make(chan int), make(chan int, 1)
		p.Sub(1, a, chans.CloseAtEnd)
		p.Sub(2, b, chans.CloseAtEnd)
		from := filled(10, 20, 11, 21, 22, 12, 13, 14, 15)
		wait := running(func() error { return p.Run(ctx, from) })
		synctest.Wait()
		end()
		err := wait()
		is(t, err, errBroken)
		back := left[int](t, err)
		same(t, "10s", filtered(back, func(v int) bool { return v < 20 }), []int{10, 11, 12, 13})
		same(t, "20s", filtered(back, func(v int) bool { return v >= 20 }), []int{21, 22})
		same(t, "in the source", taken(t, from), []int{14, 15})
		polls(t, "10s", a, "closed")
		polls(t, "20s", b, "20", "closed")
	})
}

// A failure in one topic ends the run; what waits in others comes back.
func TestPubObserverFails(t *testing.T) {
	for name, w := range map[string]struct {
		fail func()
		want error
	}{"panics": {func() { panic(errBroken) }, errBroken}, "Goexit": {runtime.Goexit, chans.ErrGoexit}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context, end func()) {
				p := byTens(nil)
				stuck, l := make(chan int), chans.Dropping(1, func(int) { w.fail() })
				p.Sub(1, stuck, chans.CloseAtEnd)
				p.SubLossy(2, l, chans.CloseAtEnd)
				from := make(chan int)
				wait := running(func() error { return p.Run(ctx, from) })
				for _, v := range []int{10, 11, 20, 21} {
					from <- v
				}
				err := wait()
				is(t, err, w.want)
				same(t, "unsent", left[int](t, err), []int{10, 11})
				polls(t, "stuck", stuck, "closed")
				polls(t, "lossy", l.C(), "20", "closed")
			})
		})
	}
}

// Topics go with their last subscriber, however it goes.
func TestPubEvictsTopics(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		p := byTens(nil)
		from := make(chan int)
		wait := running(func() error { return p.Run(ctx, from) })
		goroutines := runtime.NumGoroutine()
		for k := range 100 {
			c, closed := make(chan int), make(chan int)
			l := chans.Dropping[int](1, nil)
			p.Sub(k, c, chans.CloseAtEnd)
			p.Sub(k, closed, chans.CloseAtEnd)
			p.SubLossy(k, l, chans.CloseAtEnd)
			from <- 10 * k
			from <- 10 * k
			synctest.Wait()
			same(t, "topics", []int{p.Topics()}, []int{1})
			close(closed)
			yes(t, "unsubscribed", p.Unsub(k, c))
			synctest.Wait() // the second value is shed
			l.Close()
			from <- 10 * k
			synctest.Wait()
			same(t, "topics", []int{p.Topics()}, []int{0})
		}
		yes(t, "the goroutines of 100 topics have ended", runtime.NumGoroutine() < goroutines+50)
		number(t, "discarded", p.Discarded(), 100)
		close(from)
		noError(t, wait())
	})
}

// Topics and observers may use the Pub that calls them.
func TestPubCalledByItsFunctions(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var p *chans.Pub[int, int]
		c := make(chan int, 9)
		l := chans.Dropping(1, func(int) { p.UnsubTopic(1) })
		p = &chans.Pub[int, int]{Topic: func(v int) int {
			p.Sub(2, c, chans.CloseAtEnd)
			return v / 10
		}}
		p.SubLossy(1, l, chans.CloseAtEnd)
		noError(t, p.Run(ctx, filled(10, 11, 20)))
		polls(t, "lossy", l.C(), "10", "closed")
		polls(t, "c", c, "20", "closed")
	})
}

// Each value of a topic is received by a lasting subscriber in order, while others
// come and go; in the end every value is received, or counted.
func TestPubUnderFire(t *testing.T) {
	p := byTens(nil)
	const n, topics = 2000, 3
	from := make(chan int)
	lasting := make(chan int)
	for k := range topics {
		p.Sub(k, lasting, chans.CloseAtEnd)
	}
	wait := running(func() error { return p.Run(t.Context(), from) })
	var over atomic.Bool
	var comers []func() error
	for i := range 3 {
		comers = append(comers, running(func() error {
			for !over.Load() {
				c := make(chan int, i)
				p.Sub(i, c, chans.CloseAtEnd)
				if _, open := <-c; !open {
					return nil
				}
				if p.Unsub(i, c) {
					close(c)
				}
			}
			return nil
		}))
	}
	go func() {
		defer close(from)
		for i := range n {
			from <- i % (10 * topics)
		}
	}()
	counts := make([]int, 10*topics)
	for v := range lasting {
		if low := v - v%10; v > low && counts[v-1] <= counts[v] {
			t.Fatalf("%d out of order", v)
		}
		counts[v]++
	}
	over.Store(true)
	noError(t, wait())
	for _, wait := range comers {
		noError(t, wait())
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	same(t, "values", []int{total}, []int{n})
}
