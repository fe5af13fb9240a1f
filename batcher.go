package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// batchPart is a part of a batch that is still to be run. err is why what it was
// cut from failed; nil for the whole.
type batchPart struct {
	from, to int
	err      error
	lost     bool // a single item's claim: it is not to be run
}

// batcher is a worker that runs batches. How it comes by an item is the worker's
// way; next to it, only the worker that has the stage's forming token waits for
// items or slots, so that batches fill one after the other.
type batcher[A, B any] struct {
	worker[A, B]
	fn    func(context.Context, []A) ([]B, error)
	timer *time.Timer // wakes who waits for a batch to be filled

	hand atomic.Pointer[batchHand]
	call atomic.Pointer[batchCall] // the last one of the batch

	jobs   []job[A]
	parts  []batchPart // the next one last
	calls  uint32
	alone  int // items that failed alone
	worked int // calls that did not fail as a whole
	values []A // what fn gets

	// What became of the part that is being emitted, and the place that is next.
	part    batchPart
	at      int
	results []B
	errs    []error
}

// drive runs the worker until the stage is done. What a panic or Goexit left
// undone is in b, for the goroutine that replaces this one.
func (b *batcher[A, B]) drive() {
	ended := false
	defer func() {
		if ended {
			b.leave()
			return
		}
		r := recover()
		defer b.s.p.spawn(b.drive)
		b.crashed(r)
	}()
	for {
		b.emit()
		if len(b.parts) == 0 {
			b.finish()
			if !b.form() {
				break
			}
		}
		b.run()
	}
	ended = true
}

// form makes the next batch. It returns false when there is nothing more to do.
func (b *batcher[A, B]) form() bool {
	s := b.s
	<-s.forming
	defer token(s.forming)
	var j job[A]
	for b.next(&j) {
		b.add(&j)
		b.fill(&j)
		if gate := s.gate.Load(); gate == nil || b.pass(*gate) {
			b.begin()
			return true
		}
		s.gathering.Store(0)
	}
	return false
}

// add puts j, whose slot moves along, into the batch.
func (b *batcher[A, B]) add(j *job[A]) {
	b.holding = false
	b.jobs = append(b.jobs, *j)
	b.s.gathering.Store(int64(len(b.jobs)))
}

// fill adds items until the batch is full or has waited for long enough.
func (b *batcher[A, B]) fill(j *job[A]) {
	s := b.s
	var until time.Duration
	if s.opt.batchWait > 0 {
		until = s.p.now() + s.opt.batchWait
	}
	for len(b.jobs) < s.opt.batchSize && (b.grab(j) || b.linger(j, until)) {
		b.add(j)
	}
	b.timer.Stop()
	if b.holding {
		b.holding = false
		s.release()
	}
}

// grab takes an item if there is one, and a slot for it.
func (b *batcher[A, B]) grab(j *job[A]) bool {
	s := b.s
	if !b.holding && !s.inputClosed.Load() {
		select {
		case s.slots <- struct{}{}:
			b.holding = true
		default:
		}
	}
	return b.poll(j)
}

// linger waits for another item. It returns false when the batch is to run as it
// is. Whatever ends the wait comes with the lane's token.
func (b *batcher[A, B]) linger(j *job[A], until time.Duration) bool {
	s := b.s
	for s.opt.batchWait > 0 && !s.inputClosed.Load() && !s.p.isDraining() {
		left := until - s.p.now()
		if left <= 0 {
			return false
		}
		b.timer.Reset(left)
		if b.holding {
			if b.await(j) {
				return true
			}
			continue
		}
		if len(b.jobs)+int(s.lane.parked.Load()) >= s.policy.Slots {
			return false // all slots are with these
		}
		select {
		case s.slots <- struct{}{}:
			b.holding = true
		case <-s.lane.ready:
			if b.due(j) {
				return true
			}
		}
	}
	return false
}

// pass waits at the gate of a paused stage. It returns false when the pipeline
// drained instead, and the items are returned.
func (b *batcher[A, B]) pass(gate chan struct{}) bool {
	s := b.s
	select {
	case <-gate:
		return true
	case <-s.p.draining:
	}
	for _, j := range b.jobs {
		s.returned(j.item, 0, s.leftover(j))
		s.release()
	}
	b.clear()
	return false
}

// begin is the beginning of an attempt for every item of the batch.
func (b *batcher[A, B]) begin() {
	h := b.hand.Load()
	h = &batchHand{before: h.before, items: make([]batchItem, len(b.jobs))}
	for i := range b.jobs {
		h.items[i].ticket, h.items[i].number = b.jobs[i].t, int32(b.jobs[i].attempts()+1)
	}
	b.hand.Store(h)
	b.parts = append(b.parts, batchPart{to: len(b.jobs)})
	b.calls, b.alone, b.worked = 0, 0, 0
	b.s.gathering.Store(0)
}

// finish forgets a batch whose items are all over.
func (b *batcher[A, B]) finish() {
	h := b.hand.Load()
	b.hand.Store(&batchHand{before: h.before + int64(len(h.items))})
	b.call.Store(nil)
	b.clear()
}

func (b *batcher[A, B]) clear() {
	clear(b.jobs)
	b.jobs = b.jobs[:0]
}

// run calls the function for the next part.
func (b *batcher[A, B]) run() {
	s := b.s
	b.take()
	b.at = b.part.from
	if b.part.lost || b.part.err != nil && s.p.hard.Load() {
		return // it failed with what it was cut from
	}
	b.calls++
	items := b.hand.Load().items[b.part.from:b.part.to]
	call := &batchCall{Context: s.p.handlers, stage: &s.stageCore, number: b.calls, items: items}
	b.call.Store(call)
	s.batches.Add(1)
	for _, j := range b.jobs[b.part.from:b.part.to] {
		b.values = append(b.values, j.v)
	}
	b.running = true
	results, cut, err := b.runLimited(call, b.values[:len(b.values):len(b.values)])
	b.running = false
	b.conclude(results, cut, err)
}

// take takes the next part out. An item whose claim is lost, so that another
// process may have it, is a part by itself and not to be run.
func (b *batcher[A, B]) take() {
	last := len(b.parts) - 1
	p := b.parts[last]
	b.parts[last] = batchPart{}
	b.parts = b.parts[:last]
	end := p.from
	var err error
	for end < p.to {
		if err = b.ready(end); err != nil {
			break
		}
		end++
	}
	b.part = p
	if end == p.from {
		end++
		b.part.lost, b.part.err = true, err
	}
	if end < p.to {
		b.parts = append(b.parts, batchPart{from: end, to: p.to, err: p.err})
		b.part.to = end
	}
}

func (b *batcher[A, B]) ready(at int) error {
	if c := b.jobs[at].t.scope.claim; c != nil {
		return c.ready()
	}
	return nil
}

// heedClaims makes the call's context end when one of its items' claims is lost.
func (c *batchCall) heedClaims() (leave func()) {
	var stops []func() bool
	var end context.CancelCauseFunc
	for i := range c.items {
		claim := c.items[i].ticket.scope.claim
		if claim == nil {
			continue
		}
		if end == nil {
			c.Context, end = context.WithCancelCause(c.Context)
		}
		stops = append(stops, context.AfterFunc(claim.ctx, func() { end(context.Cause(claim.ctx)) }))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
		if end != nil {
			end(context.Canceled)
		}
	}
}

// cutting says whether a part that failed is cut.
type cutting uint8

const (
	byError cutting = iota
	never
	always
)

// runLimited also says what is known of an error without looking at it.
func (b *batcher[A, B]) runLimited(call *batchCall, values []A) (results []B, cut cutting, err error) {
	s := b.s
	defer call.heedClaims()()
	if err := s.limit(call); err != nil {
		return nil, never, err
	}
	ctx, cancel := s.timed(call)
	defer cancel()
	results, err = b.fn(ctx, values)
	switch {
	case ctx.Err() == nil:
	case context.Cause(ctx) == ErrLeaseLost && !s.p.hard.Load():
		cut = always // those that have their claim are run again
	default:
		cut = never
	}
	return results, cut, timedOut(ctx, err)
}

// conclude notes what became of the part that ran, for emit, or cuts it.
func (b *batcher[A, B]) conclude(results []B, cut cutting, err error) {
	clear(b.values)
	b.values = b.values[:0]
	p := &b.part
	n := p.to - p.from
	var each *BatchError
	_, panicked := err.(*PanicError)
	switch {
	case err == nil, !panicked && cut != always && errors.As(err, &each):
		b.worked++
		b.results, p.err = results, nil
		switch {
		case each == nil:
		case len(each.Errs) == n:
			b.errs = each.Errs
		default:
			p.err = fmt.Errorf("%w: %d errors for %d items: %v", ErrBatchResults, len(each.Errs), n, err) // their marks don't count
		}
	case n > 1 && (cut == always || cut == byError && b.cuts(err)):
		middle := p.from + n/2
		b.parts = append(b.parts, batchPart{from: middle, to: p.to, err: err}, batchPart{from: p.from, to: middle, err: err})
		b.at = p.to // nothing to emit
	default:
		p.err = err
		if n == 1 && !IsPermanent(err) {
			b.alone++
		}
	}
}

// cuts says whether to look for the item that is to blame for err.
func (b *batcher[A, B]) cuts(err error) bool {
	s := b.s
	v := judge(err)
	switch {
	case s.p.hard.Load(), isWholeBatch(err), errors.Is(err, ErrLeaseLost),
		v.kind == markSnooze, v.kind == markRetryAfter:
		return false
	case v.kind == markPermanent, b.worked > 0, b.alone < 2:
		return true
	}
	// An outage, it seems. An item that has no other attempt is not to be given up
	// for that.
	for _, j := range b.jobs[b.part.from:b.part.to] {
		if most := s.policy.MaxAttempts; most > 0 && j.attempts()+1 >= most {
			return true
		}
	}
	return false
}

// failure returns the error of the item at a place of the part that ran.
func (b *batcher[A, B]) failure(at int) error {
	i, n := at-b.part.from, b.part.to-b.part.from
	switch {
	case b.part.err != nil:
		return b.part.err
	case b.errs != nil && b.errs[i] != nil:
		return b.errs[i]
	case len(b.results) != n:
		return fmt.Errorf("%w: %d results for %d items", ErrBatchResults, len(b.results), n)
	}
	return nil
}

// emit hands on what is done of the part that ran, and lets the stage decide
// what becomes of what failed.
func (b *batcher[A, B]) emit() {
	s := b.s
	for b.at < b.part.to {
		j := b.jobs[b.at]
		err := b.failure(b.at)
		if err != nil {
			b.over() // before somebody else may have it
			if s.fail(j, err) != stays {
				s.release()
			}
			continue
		}
		if !s.p.hard.Load() || j.t.scope.open.Load() > 0 { // else it was abandoned
			if b.hand.Load().items[b.at].replayed.Load() == b.calls {
				s.replays.Add(1)
			}
			b.emitting = true
			s.out.next.accept(item[B]{b.results[b.at-b.part.from], j.t})
			b.emitting = false
		}
		b.over()
		s.release()
	}
	b.part, b.at, b.results, b.errs = batchPart{}, 0, nil, nil
}

// over ends the batch's hold on the item that is next, and goes on to the one
// behind it.
func (b *batcher[A, B]) over() {
	b.hand.Load().items[b.at].over.Store(true)
	b.at++
}

// crashed is called in place of what a panic (r) or a Goexit (nil) left undone.
func (b *batcher[A, B]) crashed(r any) {
	switch {
	case b.running:
		b.running = false
		b.conclude(nil, byError, crashError(r))
	case b.emitting:
		b.emitting = false
		j := b.jobs[b.at]
		b.s.p.crashed(b.s.name, j.t, j.v, r)
		b.over()
		b.s.release()
	}
}

func (b *batcher[A, B]) report() (runs int64, running int, oldest time.Duration) {
	h := b.hand.Load()
	for i := range h.items {
		if it := &h.items[i]; !it.over.Load() {
			if at := it.ticket.scope.admitted; running == 0 || at < oldest {
				oldest = at
			}
			running++
		}
	}
	return h.before + int64(len(h.items)), running, oldest
}

// abandon names the items of the call under way. Those that wait behind it in
// their batch are returned too.
func (b *batcher[A, B]) abandon() []AbandonedHandler {
	var names []AbandonedHandler
	if call := b.call.Load(); call != nil {
		for i := range call.items {
			if it := &call.items[i]; !it.over.Load() {
				names = append(names, AbandonedHandler{Stage: b.s.name, Key: it.ticket.key, Attempt: int(it.number)})
			}
		}
	}
	h := b.hand.Load()
	for i := range h.items {
		if it := &h.items[i]; !it.over.Load() {
			it.ticket.scope.force(verdict{outcome: Returned, err: ErrDrainTimeout, abandoned: true})
		}
	}
	return names
}
