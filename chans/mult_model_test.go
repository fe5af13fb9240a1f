package chans_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/chans"
)

// op is one step of a random history. Histories are drawn before the bubble.
type op struct {
	Do   string
	I, J int
	On   bool
}

func history(rt *rapid.T, names ...string) []op {
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) op {
		return op{
			rapid.SampledFrom(names).Draw(rt, "do"),
			rapid.IntRange(0, 3).Draw(rt, "i"), rapid.IntRange(0, 2).Draw(rt, "j"), rapid.Bool().Draw(rt, "on"),
		}
	}), 1, 40).Draw(rt, "history")
}

// modelTap is a channel as a list. One with room 0 gives what waits directly.
type modelTap struct {
	room          int
	drops, slides bool
	buffer        []int
	closed        bool
	shed          int

	tapped, keep bool
}

func (c *modelTap) lossy() bool { return c.drops || c.slides }

func (c *modelTap) put(v int) (done bool) {
	switch {
	case len(c.buffer) < c.room:
		c.buffer = append(c.buffer, v)
	case c.drops:
		c.shed++
	case c.slides:
		c.shed++
		c.buffer = append(c.buffer[1:], v)
	default:
		return false
	}
	return true
}

func (c *modelTap) end() { c.closed = c.closed || !c.keep }

// modelMult is a Mult whose goroutine has always come to rest.
type modelMult struct {
	taps         []*modelTap
	began, ended bool
	sourceClosed bool
	stopped      bool
	busy         bool // with the value v, for which taps wait
	v, got       int
	waiting      []*modelTap
	discarded    int
	unsent       []int
}

func (m *modelMult) accepts() bool { return m.began && !m.ended && !m.busy }

func (m *modelMult) give(v int) {
	m.busy, m.v, m.got = true, v, 0
	for _, c := range m.taps {
		switch {
		case !c.tapped:
		case c.closed:
			c.tapped = false
		case c.put(v):
			m.got++
		default:
			m.waiting = append(m.waiting, c)
		}
	}
	m.settle()
}

// settle goes on when nobody waits any more.
func (m *modelMult) settle() {
	m.waiting = slices.DeleteFunc(m.waiting, func(c *modelTap) bool {
		if c.closed {
			c.tapped = false
		}
		return !c.tapped
	})
	if m.busy && len(m.waiting) == 0 {
		m.busy = false
		if m.got == 0 {
			m.discarded++
		}
	}
	switch {
	case !m.began || m.ended:
	case m.stopped && m.busy:
		m.unsent = []int{m.v}
		m.finish()
	case m.stopped, m.sourceClosed && !m.busy:
		m.finish()
	}
}

func (m *modelMult) finish() {
	m.ended = true
	m.busy, m.waiting = false, nil
	m.untapAll()
}

func (m *modelMult) untapAll() {
	for _, c := range m.taps {
		if c.tapped {
			c.tapped = false
			c.end()
		}
	}
}

func (m *modelMult) poll(c *modelTap) string {
	i := slices.Index(m.waiting, c)
	switch {
	case len(c.buffer) > 0:
		v := c.buffer[0]
		c.buffer = c.buffer[1:]
		if i >= 0 {
			c.buffer = append(c.buffer, m.v)
			m.took(i)
		}
		return fmt.Sprint(v)
	case i >= 0:
		v := m.v
		m.took(i)
		return fmt.Sprint(v)
	case c.closed:
		return "closed"
	}
	return "nothing"
}

func (m *modelMult) took(i int) {
	m.waiting = slices.Delete(m.waiting, i, i+1)
	m.got++
	m.settle()
}

func (m *modelMult) do(o op, n int) (result string) {
	c := m.taps[o.I]
	switch o.Do {
	case "run":
		m.began = true
		m.settle()
	case "put":
		accepts := m.accepts() && !m.sourceClosed
		if accepts {
			m.give(n)
		}
		return fmt.Sprint(accepts)
	case "take":
		return m.poll(c)
	case "tap":
		c.keep = o.On
		if c.tapped = !m.ended; m.ended {
			c.end()
		}
	case "untap":
		was := c.tapped
		c.tapped = false
		m.settle()
		return fmt.Sprint(was)
	case "untap all":
		m.untapAll()
		m.settle()
	case "close":
		c.closed = true
		m.settle()
	case "end source":
		m.sourceClosed = true
		m.settle()
	case "stop":
		m.stopped = true
		m.settle()
	}
	return ""
}

// realMult does the same with a Mult.
type realMult struct {
	t      *testing.T
	m      chans.Mult[int]
	ctx    context.Context
	stop   func()
	from   chan int
	ended  bool
	taps   []chan int
	lossy  []*chans.Lossy[int]
	closed []bool
	wait   func() error
}

func newRealMult(t *testing.T, ctx context.Context, stop func()) *realMult {
	return &realMult{
		t: t, ctx: ctx, stop: stop, from: make(chan int),
		taps:   []chan int{make(chan int), make(chan int, 2)},
		lossy:  []*chans.Lossy[int]{chans.Dropping[int](2, nil), chans.Sliding[int](2, nil)},
		closed: make([]bool, 4),
	}
}

func (r *realMult) c(i int) <-chan int {
	if i < 2 {
		return r.taps[i]
	}
	return r.lossy[i-2].C()
}

func (r *realMult) do(o op, n int) (result string) {
	atEnd := chans.CloseAtEnd
	if o.On {
		atEnd = chans.KeepOpen
	}
	switch {
	case o.Do == "run" && r.wait == nil:
		r.wait = running(func() error { return r.m.Run(r.ctx, r.from) })
	case o.Do == "put":
		return fmt.Sprint(!r.ended && offered(r.t, r.from, n))
	case o.Do == "take":
		return poll(r.t, r.c(o.I))
	case o.Do == "tap" && o.I < 2:
		r.m.Tap(r.taps[o.I], atEnd)
	case o.Do == "tap":
		r.m.TapLossy(r.lossy[o.I-2], atEnd)
	case o.Do == "untap" && o.I < 2:
		return fmt.Sprint(r.m.Untap(r.taps[o.I]))
	case o.Do == "untap":
		return fmt.Sprint(r.m.UntapLossy(r.lossy[o.I-2]))
	case o.Do == "untap all":
		r.m.UntapAll()
	case o.Do == "close" && o.I < 2:
		close(r.taps[o.I])
	case o.Do == "close":
		r.lossy[o.I-2].Close()
	case o.Do == "end source" && !r.ended:
		r.ended = true
		close(r.from)
	case o.Do == "stop":
		r.stop()
	}
	return ""
}

// A Mult does what its sequential model does, whatever happens in which order.
func TestMultAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := history(rt, "run", "put", "put", "put", "put", "take", "take", "take", "take", "tap", "tap", "tap",
			"untap", "untap", "untap all", "close", "end source", "stop")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			real := newRealMult(t, ctx, func() { cancel(errBroken) })
			model := &modelMult{taps: []*modelTap{{}, {room: 2}, {room: 2, drops: true}, {room: 2, slides: true}}}
			check := func(n int, o op) {
				if o.Do == "close" && o.I < 2 && model.taps[o.I].closed {
					return
				}
				got := real.do(o, n)
				synctest.Wait()
				if expected := model.do(o, n); got != expected {
					rt.Errorf("%d: %v: got %s, want %s", n, o, got, expected)
				}
				if d := real.m.Discarded(); d != uint64(model.discarded) {
					rt.Errorf("%d: %v: discarded %d, want %d", n, o, d, model.discarded)
				}
			}
			for n, o := range ops {
				check(n, o)
			}
			for n, o := range []op{{Do: "run"}, {Do: "stop"}, {Do: "end source"}} {
				check(100+n, o)
			}
			for i, c := range model.taps {
				for range 4 {
					check(200, op{Do: "take", I: i})
				}
				if c.lossy() && real.lossy[i-2].Shed() != uint64(c.shed) {
					rt.Errorf("shed %d, want %d", real.lossy[i-2].Shed(), c.shed)
				}
			}
			var u *chans.Unsent[int]
			if err := real.wait(); errors.As(err, &u) != (model.unsent != nil) || u != nil && !slices.Equal(u.Values, model.unsent) {
				rt.Errorf("got %v, want unsent %v", err, model.unsent)
			}
		})
	})
}
