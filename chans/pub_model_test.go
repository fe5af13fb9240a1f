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

// modelTopic is a Mult behind a queue.
type modelTopic struct {
	modelMult
	room  int
	queue []int
}

func (tp *modelTopic) subscribed() bool {
	return slices.ContainsFunc(tp.taps, func(c *modelTap) bool { return c.tapped })
}

// modelPub is a Pub with two topics that has always come to rest. A value of a
// third topic has no subscribers.
type modelPub struct {
	topics       []*modelTopic
	subs         []*modelTap // two of each topic
	began, ended bool
	sourceClosed bool
	stopped      bool
	hand         []int // of Run, at most one
	discarded    int
	unsent       []int
}

func newModelPub() *modelPub {
	subs := []*modelTap{{}, {room: 2}, {room: 2, drops: true}, {}}
	p := &modelPub{subs: subs}
	for i := range 2 {
		tp := &modelTopic{room: 1 - i}
		tp.taps, tp.began = subs[2*i:2*i+2], true
		p.topics = append(p.topics, tp)
	}
	return p
}

func (p *modelPub) accepts() bool {
	return p.began && !p.ended && !p.sourceClosed && len(p.hand) == 0
}

// settle moves values as far as they go.
func (p *modelPub) settle() {
	if !p.began {
		return
	}
	if p.stopped {
		p.stop()
	}
	for moved := true; moved; {
		moved = p.route()
		for _, tp := range p.topics {
			busy := tp.busy
			tp.settle()
			moved = moved || busy != tp.busy
			if !tp.subscribed() {
				p.discarded += len(tp.queue)
				tp.queue = nil
			}
			if len(tp.queue) > 0 && !tp.busy {
				v := tp.queue[0]
				tp.queue = tp.queue[1:]
				tp.give(v)
				moved = true
			}
		}
	}
	if p.sourceClosed && len(p.hand) == 0 {
		p.ended = true
	}
	for _, tp := range p.topics {
		if p.ended && !tp.busy {
			tp.untapAll()
		}
	}
}

func (p *modelPub) route() (moved bool) {
	if len(p.hand) == 0 {
		return false
	}
	v := p.hand[0]
	if v%3 == 2 || !p.topics[v%3].subscribed() {
		p.hand = nil
		p.discarded++
		return true
	}
	tp := p.topics[v%3]
	switch {
	case tp.room == 0 && !tp.busy:
		tp.give(v)
	case len(tp.queue) < tp.room:
		tp.queue = append(tp.queue, v)
	default:
		return false
	}
	p.hand = nil
	return true
}

func (p *modelPub) stop() {
	for _, tp := range p.topics {
		if tp.busy {
			p.unsent = append(p.unsent, tp.v)
		}
		p.unsent = append(p.unsent, tp.queue...)
		tp.queue = nil
		tp.busy, tp.waiting = false, nil
		tp.untapAll()
	}
	p.unsent = append(p.unsent, p.hand...)
	p.hand, p.ended = nil, true
}

func (p *modelPub) total() int {
	n := p.discarded
	for _, tp := range p.topics {
		n += tp.discarded
	}
	return n
}

func (p *modelPub) do(o op, n int) (result string) {
	c, tp := p.subs[o.I], p.topics[o.I/2]
	defer p.settle()
	switch o.Do {
	case "run":
		p.began = true
	case "put":
		accepts := p.accepts()
		if accepts {
			p.hand = []int{n}
		}
		return fmt.Sprint(accepts)
	case "take":
		return tp.poll(c)
	case "tap":
		c.keep = o.On
		if !p.ended {
			c.tapped = true
		} else if !c.tapped {
			c.end()
		}
	case "untap":
		was := c.tapped
		c.tapped = false
		return fmt.Sprint(was)
	case "untap topic":
		tp.untapAll()
	case "untap all":
		for _, tp := range p.topics {
			tp.untapAll()
		}
	case "close":
		c.closed = true
	case "end source":
		p.sourceClosed = true
	case "stop":
		p.stopped = true
	}
	return ""
}

// realPub does the same with a Pub.
type realPub struct {
	t     *testing.T
	p     *chans.Pub[int, int]
	ctx   context.Context
	stop  func()
	from  chan int
	ended bool
	plain []chan int // nil for the lossy one
	lossy *chans.Lossy[int]
	wait  func() error
}

func newRealPub(t *testing.T, ctx context.Context, stop func()) *realPub {
	return &realPub{
		t: t, ctx: ctx, stop: stop, from: make(chan int),
		p: &chans.Pub[int, int]{
			Topic:  func(v int) int { return v % 3 },
			Buffer: func(k int) int { return 1 - k },
		},
		plain: []chan int{make(chan int), make(chan int, 2), nil, make(chan int)},
		lossy: chans.Dropping[int](2, nil),
	}
}

func (r *realPub) do(o op, n int) (result string) {
	atEnd := chans.CloseAtEnd
	if o.On {
		atEnd = chans.KeepOpen
	}
	c, lossy, topic := r.plain[o.I], r.plain[o.I] == nil, o.I/2
	switch {
	case o.Do == "run" && r.wait == nil:
		r.wait = running(func() error { return r.p.Run(r.ctx, r.from) })
	case o.Do == "put":
		return fmt.Sprint(!r.ended && offered(r.t, r.from, n))
	case o.Do == "take" && lossy:
		return poll(r.t, r.lossy.C())
	case o.Do == "take":
		return poll(r.t, c)
	case o.Do == "tap" && lossy:
		r.p.SubLossy(topic, r.lossy, atEnd)
	case o.Do == "tap":
		r.p.Sub(topic, c, atEnd)
	case o.Do == "untap" && lossy:
		return fmt.Sprint(r.p.UnsubLossy(topic, r.lossy))
	case o.Do == "untap":
		return fmt.Sprint(r.p.Unsub(topic, c))
	case o.Do == "untap topic":
		r.p.UnsubTopic(topic)
	case o.Do == "untap all":
		r.p.UnsubAll()
	case o.Do == "close" && lossy:
		r.lossy.Close()
	case o.Do == "close":
		close(c)
	case o.Do == "end source" && !r.ended:
		r.ended = true
		close(r.from)
	case o.Do == "stop":
		r.stop()
	}
	return ""
}

// A Pub does what its sequential model does, whatever happens in which order.
func TestPubAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := history(rt, "run", "put", "put", "put", "put", "put", "put", "take", "take", "take", "take",
			"tap", "tap", "tap", "tap", "untap", "untap", "untap topic", "untap all", "close", "end source", "stop")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			real := newRealPub(t, ctx, func() { cancel(errBroken) })
			model := newModelPub()
			check := func(n int, o op) {
				if o.Do == "close" && o.I != 2 && model.subs[o.I].closed {
					return
				}
				got := real.do(o, n)
				synctest.Wait()
				if expected := model.do(o, n); got != expected {
					rt.Errorf("%d: %v: got %s, want %s", n, o, got, expected)
				}
				if d := real.p.Discarded(); d != uint64(model.total()) {
					rt.Errorf("%d: %v: discarded %d, want %d", n, o, d, model.total())
				}
			}
			for n, o := range ops {
				check(n, o)
			}
			for n, o := range []op{{Do: "run"}, {Do: "stop"}, {Do: "end source"}} {
				check(100+n, o)
			}
			for i := range model.subs {
				for range 4 {
					check(200, op{Do: "take", I: i})
				}
			}
			var u *chans.Unsent[int]
			var back []int
			err := real.wait()
			if errors.As(err, &u) {
				back = u.Values
			}
			slices.Sort(back)
			slices.Sort(model.unsent)
			if !slices.Equal(back, model.unsent) || real.p.Topics() != 0 {
				rt.Errorf("got %v, want unsent %v; %d topics", err, model.unsent, real.p.Topics())
			}
		})
	})
}
