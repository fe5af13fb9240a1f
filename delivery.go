package oncepipe

import (
	"context"
	"sync/atomic"
	"time"
)

// item is a value on its way. It travels by value; what the fast path doesn't
// need stands behind the ticket.
type item[T any] struct {
	v T
	t *ticket
}

// ticket is what an item carries besides its value. At any time one goroutine
// owns an item and with it the ticket.
type ticket struct {
	key       string
	partition uint64 // 0: none
	scope     *scope
}

// own returns the ticket to write to: itself, or a copy where others read it.
func (t *ticket) own(copied bool) *ticket {
	if copied {
		c := *t
		return &c
	}
	return t
}

func (t *ticket) settle(v verdict) { t.scope.settle(v) }

// verdict is the outcome of one item, on its way to the delivery.
type verdict struct {
	outcome Outcome
	delay   time.Duration
	err     error
	given   bool // Returned although given up, for want of a place for its dead letter
	apart   bool // whoever settles must not be ended by a Goexit of the source

	abandoned bool // Returned although its handler still runs
}

// scope is what several items settle together: a delivery, or the part of one
// that passed a Dedup stage. It is settled when its last item is, with the worst
// verdict of all.
type scope struct {
	open     atomic.Int32
	worst    atomic.Pointer[verdict] // stays nil while there is but one item
	admitted time.Duration           // of the delivery, on the pipeline's clock
	owner    settler
	claim    *claim // of the last Dedup with a store; nil: none
}

// settler is told once what became of its scope.
type settler interface {
	settled(v verdict)
	holdLimit() time.Duration // how long the source lets its deliveries be held; 0: for ever
	takesBack() bool          // whether the source can be given its delivery back
}

// forced marks a scope that was settled over the heads of its items: no number
// of them can count it down to zero any more.
const forced = -1 << 30

// fork adds n items to the scope. Only the owner of an item of the scope may call it.
func (s *scope) fork(n int32) { s.open.Add(n) }

// settle ends one item of the scope.
func (s *scope) settle(v verdict) {
	if s.open.Load() == 1 && s.worst.Load() == nil {
		if s.open.CompareAndSwap(1, 0) {
			s.owner.settled(v)
		}
		return
	}
	s.merge(v)
	if s.open.Add(-1) == 0 {
		worst := *s.worst.Load()
		worst.apart = v.apart
		s.owner.settled(worst)
	}
}

func (s *scope) merge(v verdict) {
	for {
		old := s.worst.Load()
		if old != nil && !v.worseThan(old) {
			return
		}
		if s.worst.CompareAndSwap(old, &v) {
			return
		}
	}
}

// worseThan says whether v counts in place of old. Of those that are returned
// the one with the longest delay does.
func (v *verdict) worseThan(old *verdict) bool {
	return v.outcome > old.outcome || v.outcome == old.outcome && v.delay > old.delay
}

// force settles the scope whatever its items do. What they say later is not
// heard.
func (s *scope) force(v verdict) {
	if s.open.Swap(forced) > 0 {
		s.owner.settled(v)
	}
}

// delivery is one hand-over of a value by a source.
type delivery[T any] struct {
	ticket ticket
	scope  scope
	src    *sourceNode[T]
	value  T
	settle func(context.Context, Settlement) error
}

func (d *delivery[T]) holdLimit() time.Duration { return d.src.hold }
func (d *delivery[T]) takesBack() bool          { return d.settle != nil }

// settled tells observers and the source of the outcome. Where whoever settles
// survives a Goexit, they are called right here: that is not so where the source has no
// Settle, since such a source may be a loop itself, or be told by the recorder.
func (d *delivery[T]) settled(v verdict) {
	p := d.src.p
	direct := v.complete() && !v.apart && d.settle != nil
	if !p.observed() {
		d.conclude(v, direct)
		return
	}
	defer d.conclude(v, direct) // also when an observer ends the goroutine
	e := Event{Kind: EventSettled, Stage: d.src.name, Key: d.ticket.key, Outcome: v.outcome, Delay: v.delay, Err: v.err}
	if direct {
		e.Pipeline = p.name
		p.observe(e, p.cfg.Observers)
	} else {
		p.event(e)
	}
}

// conclude counts the outcome and tells the source. The count comes first, since
// the source may look at Stats in answer to it.
func (d *delivery[T]) conclude(v verdict, direct bool) {
	p := d.src.p
	d.src.outcomes.add(v.outcome)
	switch {
	case d.settle != nil:
		s := Settlement{Outcome: v.outcome, Delay: v.delay, Err: v.err}
		p.acks.settle(ack{source: d.src.name, key: d.ticket.key, fn: d.settle, s: s}, direct)
	case v.outcome == Returned:
		p.returned.add(ReturnedItem{Source: d.src.name, Key: d.ticket.key, Value: d.value, Err: v.err})
	}
}

// outcomeCounters counts settled deliveries by outcome. Each stands on a cache
// line of its own, since every goroutine that settles writes it.
type outcomeCounters struct {
	n [int(Returned) + 1]struct {
		atomic.Int64
		_ [56]byte
	}
}

func (c *outcomeCounters) add(o Outcome) { c.n[o].Add(1) }

func (c *outcomeCounters) load(o Outcome) int64 { return c.n[o].Load() }
