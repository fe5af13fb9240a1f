package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"
)

// From makes a stream of what src delivers.
func From[T any](p *Pipeline, name string, src Source[T]) Stream[T] {
	n := addSource[T](p, name)
	if src == nil {
		p.wrong(fmt.Errorf("source %q is nil", name))
		return Stream[T]{n.out}
	}
	if l, ok := src.(HoldLimiter); ok {
		n.hold = l.HoldLimit()
	}
	if l, ok := src.(RedeliveryLimiter); ok {
		n.redelivery = l.MaxRedelivery()
	}
	n.resumes = true
	n.loop = func(ctx context.Context) error { return n.receive(ctx, src) }
	return Stream[T]{n.out}
}

// FromChan makes a stream of what comes out of ch, until ch is closed. When the
// pipeline drains, what was not received stays in ch. An item that can't be
// finished can't be given back either: Run's error lists it.
func FromChan[T any](p *Pipeline, name string, ch <-chan T) Stream[T] {
	n := addSource[T](p, name)
	n.resumes = true
	n.loop = func(ctx context.Context) error {
		// The clock is read when time can have passed: after a wait.
		at := p.now()
		for i := 1; ; i++ {
			select {
			case v, ok := <-ch:
				if !ok {
					return nil
				}
				if i%64 == 0 {
					if ctx.Err() != nil {
						n.emit(v, at)
						return nil
					}
					at = p.now()
				}
				n.emit(v, at)
				continue
			default:
			}
			select {
			case v, ok := <-ch:
				if !ok {
					return nil
				}
				at = p.now()
				n.emit(v, at)
			case <-ctx.Done():
				return nil
			}
		}
	}
	return Stream[T]{n.out}
}

// FromSeq makes a stream of the values of seq. When the pipeline drains, the
// iteration is ended. An item that can't be finished can't be given back: Run's
// error lists it. A panic of seq makes the pipeline drain and is returned by Run.
func FromSeq[T any](p *Pipeline, name string, seq iter.Seq[T]) Stream[T] {
	n := addSource[T](p, name)
	n.loop = func(context.Context) error {
		for v := range seq {
			n.emit(v, p.now())
			if p.isDraining() {
				break
			}
		}
		return nil
	}
	return Stream[T]{n.out}
}

// sourceNode admits deliveries.
type sourceNode[T any] struct {
	p          *Pipeline
	name       string
	hold       time.Duration
	redelivery time.Duration
	out        *port[T]
	loop       func(context.Context) error // until the source is at its end

	slab     []delivery[T]
	used     int // of slab
	admitted atomic.Int64
	outcomes outcomeCounters
	busy     atomic.Bool // the loop runs
	resumes  bool        // the loop can be called again
	sending  bool        // an item is on its way through operators
}

// newSourceNode makes what admits items: of a source, or those injected into a
// stage.
func newSourceNode[T any](p *Pipeline, name string, out *port[T]) *sourceNode[T] {
	n := &sourceNode[T]{p: p, name: name, out: out}
	p.counters = append(p.counters, n)
	return n
}

func addSource[T any](p *Pipeline, name string) *sourceNode[T] {
	n := newSourceNode(p, name, newPort[T](p, name, traits{order: ordered}))
	p.add(n)
	p.sources++
	return n
}

func (n *sourceNode[T]) label() (string, string) { return n.name, "source" }
func (n *sourceNode[T]) check() error            { return nil }

// maxRedelivery is 0 where the source says nothing of it.
func (n *sourceNode[T]) maxRedelivery() time.Duration { return n.redelivery }

func (n *sourceNode[T]) open()  { n.busy.Store(true) }
func (n *sourceNode[T]) start() { n.p.spawn(n.drive) }
func (n *sourceNode[T]) drain() {}
func (n *sourceNode[T]) halt()  {}
func (n *sourceNode[T]) sweep() {}

func (n *sourceNode[T]) abandon() []AbandonedHandler {
	if n.busy.Load() {
		return []AbandonedHandler{{Stage: n.name}}
	}
	return nil
}

// drive runs the loop. What it can't go on from ends the pipeline, but not the
// items that are under way.
func (n *sourceNode[T]) drive() {
	var err error
	ended := false
	defer func() {
		if !ended {
			r := recover()
			if r == nil && n.sending && n.resumes {
				// An operator ended the goroutine, and took one item with it.
				n.sending = false
				n.p.spawn(n.drive)
				return
			}
			err = crashError(r)
		}
		if err != nil {
			n.p.stop(fmt.Errorf("source %s: %w", n.name, err))
		}
		n.busy.Store(false)
		n.out.next.close()
	}()
	err = n.loop(n.p.receiving)
	ended = true
}

// receive calls src for as long as there are deliveries. An outage is waited out
// with a backoff.
func (n *sourceNode[T]) receive(ctx context.Context, src Source[T]) error {
	outage := defaultBackoff()
	for ctx.Err() == nil {
		d, err := src.Receive(ctx)
		switch {
		case err == nil:
			outage.Reset()
			it := n.admit(d)
			if n.p.hard.Load() { // too late; perhaps even for Run
				it.t.settle(verdict{outcome: Returned, err: ErrDrainTimeout})
				return nil
			}
			n.send(it)
		case errors.Is(err, io.EOF), ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil
		case judge(err).kind == markPermanent:
			return strip(err)
		default:
			delay := outage.NextBackOff()
			n.p.log.Warn("oncepipe: source does not deliver; trying again", "source", n.name, "error", err, "delay", delay)
			if !sleep(ctx, delay) {
				return nil
			}
		}
	}
	return nil
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// admit makes an item of a delivery.
func (n *sourceNode[T]) admit(in Delivery[T]) item[T] {
	d := &delivery[T]{settle: in.Settle}
	d.ticket.key = in.Key
	return n.item(d, in.Value, n.p.now())
}

// emit sends a value of a source without keys and settlement on its way.
// Only the source's own goroutine calls it.
func (n *sourceNode[T]) emit(v T, at time.Duration) {
	if n.used == len(n.slab) {
		n.slab, n.used = make([]delivery[T], deliverySlab), 0
	}
	d := &n.slab[n.used]
	n.used++
	n.send(n.item(d, v, at))
}

func (n *sourceNode[T]) send(it item[T]) {
	n.sending = true
	n.out.pass(it)
	n.sending = false
}

// deliverySlab is how many deliveries a source makes room for at once. One that
// waits long keeps that many alive.
const deliverySlab = 4

func (n *sourceNode[T]) item(d *delivery[T], v T, at time.Duration) item[T] {
	n.admitted.Add(1)
	d.src, d.value = n, v
	d.scope.open.Store(1)
	d.scope.admitted = at
	d.scope.owner = d
	d.ticket.scope = &d.scope
	return item[T]{v, &d.ticket}
}

func (n *sourceNode[T]) counted() SourceStats {
	o := &n.outcomes
	s := SourceStats{
		Name: n.name,
		Done: o.load(Done), Duplicate: o.load(Duplicate), Filtered: o.load(Filtered),
		Shed: o.load(Shed), Dead: o.load(Dead), Returned: o.load(Returned),
	}
	s.Admitted = n.admitted.Load()
	return s
}
