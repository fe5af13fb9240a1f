package oncepipe

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"time"
)

// Failed is an item that a TryStage gave up.
type Failed[A any] struct {
	Value    A
	Key      string
	Attempts int
	Reason   Reason
	Err      error // of the last attempt, and why there was no other
}

// Stage runs fn for every item, on workers that read from a bounded buffer, and
// emits the results. See Workers, Buffer, Retry, Timeout, Limit, Ordered and
// PerPartition.
//
// fn must honour its context when the service has to stop in time: the context
// ends when the drain time-out is over (cause ErrDrainTimeout), with the
// attempt's time limit, and when a lease is lost. InfoFrom tells it key and attempt.
//
// An error of fn is tried again, as far as Retry allows; then the item becomes a
// dead letter. Permanent, RetryAfter, Snooze and Unknown say more. A panic is a
// *PanicError and permanent, and so is runtime.Goexit (ErrGoexit); the worker
// goes on.
func Stage[A, B any](in Stream[A], name string, fn func(context.Context, A) (B, error), opts ...Option) Stream[B] {
	s := newStage(in, "stage", name, fn, opts)
	return Stream[B]{s.out}
}

// TryStage is Stage for those who handle failures in the flow: what is given up
// comes out of the second stream, in place of a dead letter.
func TryStage[A, B any](in Stream[A], name string, fn func(context.Context, A) (B, error), opts ...Option) (Stream[B], Stream[Failed[A]]) {
	s := newStage(in, "trystage", name, fn, opts)
	s.failed = newPort[Failed[A]](s.p, name, traits{shared: true})
	return Stream[B]{s.out}, Stream[Failed[A]]{s.failed}
}

// Sink is Stage for a function without a result: it ends the stream.
func Sink[A any](in Stream[A], name string, fn func(context.Context, A) error, opts ...Option) {
	var run func(context.Context, A) (struct{}, error)
	if fn != nil {
		run = func(ctx context.Context, v A) (struct{}, error) { return struct{}{}, fn(ctx, v) }
	}
	s := newStage(in, "sink", name, run, opts)
	s.out.next = discardOp[struct{}]{}
}

// stageCore is what a stage is apart from its types.
type stageCore struct {
	p         *Pipeline
	name      string
	kind      string
	namespace string
	opt       options
	policy    RetryPolicy
	workers   int
	plain     bool // no limit on attempts

	slots       chan struct{} // full: nobody may take another item
	inputClosed atomic.Bool
	done        atomic.Bool  // no item is left and none will come
	running     atomic.Int32 // worker goroutines
	gate        atomic.Pointer[chan struct{}]

	failures, retries, snoozes, dead, replays, shedding atomic.Int64

	forming   chan struct{} // of batches: a token for the worker that forms one
	gathering atomic.Int64  // items of the batch that is being formed
	batches   atomic.Int64
}

// crewman runs the items of a stage one after the other, or batch after batch.
type crewman interface {
	drive()
	// report tells how many runs were begun, how many of these are not over, and
	// when the first delivery of these was admitted.
	report() (runs int64, running int, oldest time.Duration)
	abandon() []AbandonedHandler
}

type stage[A, B any] struct {
	stageCore
	from   string
	fn     func(context.Context, A) (B, error)
	in     inbox[A]
	lane   *lane[A]
	out    *port[B]
	failed *port[Failed[A]] // nil: failures are dead letters
	hire   func() crewman
	crew   []crewman
	seq    *sequencer[A, B] // nil: workers read the inbox themselves
	src    *sourceNode[A]   // of injected items
}

func newStage[A, B any](in Stream[A], kind, name string, fn func(context.Context, A) (B, error), opts []Option) *stage[A, B] {
	o := collect(opts, "Workers", "Buffer", "Retry", "Timeout", "Limit", "Ordered", "PerPartition", "Namespace")
	if fn == nil {
		o.wrong("function is nil")
	}
	s := wireStage[A, B](in, kind, name, o)
	s.fn = fn
	s.hire = func() crewman { return &worker[A, B]{s: s} }
	return s
}

// wireStage makes a stage that has nobody to run its items.
func wireStage[A, B any](in Stream[A], kind, name string, o options) *stage[A, B] {
	mustBeWired(in)
	p := in.out.p
	policy := RetryPolicy{MaxAttempts: 1}
	if o.retry != nil {
		policy = *o.retry
	}
	if policy.Slots == 0 {
		policy.Slots = o.slots()
	}
	policy = policy.withDefaults()
	s := &stage[A, B]{
		stageCore: stageCore{
			p: p, name: name, kind: kind, namespace: o.namespace, opt: o, policy: policy,
			workers: min(o.workers, policy.Slots),
			plain:   o.timeout == 0 && o.limiter == nil,
		},
		from: in.out.from,
		lane: newLane[A](),
	}
	if s.namespace == "" {
		s.namespace = p.name
	}
	if o.perPartition {
		switch {
		case !in.out.keyed:
			s.opt.wrong("PerPartition needs PartitionBy before it")
		case in.out.order == unordered:
			s.opt.wrong("PerPartition behind %q, which emits out of order", in.out.from)
		}
	}
	s.in = inbox[A]{p: p, policy: o.buffer, shed: func(it item[A]) {
		s.shedding.Add(1)
		p.event(Event{Kind: EventShed, Stage: name, Key: it.t.key})
		it.t.settle(verdict{outcome: Shed})
	}}
	s.src = newSourceNode[A](p, name, nil)
	s.out = newPort[B](p, name, traits{order: s.orderAfter(in.out.order), keyed: in.out.keyed, shared: true})
	p.add(s)
	read(in, s)
	return s
}

// orderAfter says what the stage leaves of its input's order.
func (s *stageCore) orderAfter(before order) order {
	switch {
	case s.opt.ordered, s.workers == 1 && s.opt.retry == nil:
		return before
	case s.opt.perPartition:
		return min(before, perPartition)
	default:
		return unordered
	}
}

func (s *stage[A, B]) accept(it item[A]) { s.in.accept(it) }
func (s *stage[A, B]) close()            { s.in.close() }

func (s *stage[A, B]) label() (string, string) { return s.name, s.kind }
func (s *stage[A, B]) readsFrom() []string     { return []string{s.from} }
func (s *stage[A, B]) check() error            { return s.opt.check() }

func (s *stage[A, B]) open() {
	s.in.open(s.opt.buffer.size, s.workers)
	s.slots = make(chan struct{}, s.policy.Slots)
	s.lane.start()
	if s.opt.ordered || s.opt.perPartition {
		s.seq = newSequencer(s)
	}
	s.crew = make([]crewman, s.workers)
	for i := range s.crew {
		s.crew[i] = s.hire()
	}
	if s.opt.batchSize > 0 {
		s.forming = make(chan struct{}, 1)
		s.forming <- struct{}{}
	}
	s.running.Store(int32(s.workers))
}

func (s *stage[A, B]) start() {
	if s.seq != nil {
		s.p.spawn(s.seq.dispatch)
	}
	for _, w := range s.crew {
		s.p.spawn(w.drive)
	}
}

// release gives a slot back. When the input is closed and this was the last
// one, the stage is done: an item inside would hold a slot. What is injected takes
// one before it comes to the lane, whose lock decides.
func (s *stage[A, B]) release() {
	<-s.slots
	if s.inputClosed.Load() && s.lane.shutIf(s.empty) && s.done.CompareAndSwap(false, true) {
		s.lane.wake()
	}
}

func (s *stage[A, B]) empty() bool { return len(s.slots) == 0 }

func (s *stageCore) isDone() bool { return s.done.Load() }

// halt tells workers that wait of a hard stop.
func (s *stage[A, B]) halt() { s.lane.wake() }

func (s *stage[A, B]) returned(it item[A], delay time.Duration, err error) {
	it.t.settle(verdict{outcome: Returned, delay: delay, err: err})
}

// drain gives back what waits for a retry; nothing may run before it is due.
// It does so beside Run, whose time must not depend on sources, nor on the room
// that an Ordered stage needs to emit what waited for these.
func (s *stage[A, B]) drain() {
	left := s.lane.shut()
	s.lane.wake() // a batch doesn't wait to be filled any longer
	if len(left) == 0 {
		return
	}
	s.p.spawn(func() { s.giveBack(left) })
}

// giveBack goes on in another goroutine when this one is ended by what an Ordered
// stage emits after an item that is out of its way.
func (s *stage[A, B]) giveBack(left []job[A]) {
	at := 0
	defer func() {
		if at < len(left) {
			s.p.spawn(func() { s.giveBack(left[at:]) })
		}
	}()
	for at < len(left) {
		j := left[at]
		at++
		s.returned(j.item, j.left(), s.leftover(j))
		s.over(j, true)
	}
}

func (s *stage[A, B]) leftover(j job[A]) error {
	if j.retry == nil || j.retry.err == nil {
		return ErrShutdown
	}
	return fmt.Errorf("%w; last error: %w", ErrShutdown, j.retry.err)
}

// over ends an item's stay in the stage: its place in the order and its slot
// are free.
func (s *stage[A, B]) over(j job[A], returned bool) {
	if s.seq != nil {
		s.seq.over(j, returned)
	} else {
		s.release()
	}
}

// sweep returns what a hard stop left in the stage.
func (s *stage[A, B]) sweep() {
	left := s.lane.shut()
	if s.seq != nil {
		left = append(left, s.seq.sweep()...)
	}
	var it item[A]
	for s.in.take(&it) {
		left = append(left, job[A]{item: it})
	}
	for _, j := range left {
		s.returned(j.item, j.left(), s.leftover(j))
	}
}

// queued yields what can be received from ch without waiting.
func queued[T any](ch <-chan T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for {
			select {
			case v, ok := <-ch:
				if !ok || !yield(v) {
					return
				}
			default:
				return
			}
		}
	}
}

// abandon gives up the handlers that still run after a hard stop: their
// deliveries are returned and nothing that they do later is heard.
func (s *stage[A, B]) abandon() []AbandonedHandler {
	var names []AbandonedHandler
	for _, w := range s.crew {
		names = append(names, w.abandon()...)
	}
	return names
}

func (s *stage[A, B]) pause(on bool) {
	if on {
		gate := make(chan struct{})
		s.gate.CompareAndSwap(nil, &gate)
		return
	}
	if gate := s.gate.Swap(nil); gate != nil {
		close(*gate)
	}
}

// inject puts a value into the lane, due at once, where the input's state
// doesn't matter.
func (s *stage[A, B]) inject(v any, key string) error {
	a, ok := v.(A)
	if !ok {
		return fmt.Errorf("stage %q takes %T, not %T", s.name, a, v)
	}
	select {
	case s.slots <- struct{}{}:
	default:
		return ErrFull
	}
	in := s.lane.admit(func() job[A] {
		j := job[A]{item: s.src.admit(Delivery[A]{Value: a, Key: key})}
		if s.seq != nil {
			s.seq.enroll(&j)
		}
		return j
	})
	if !in {
		s.release()
		return ErrNotRunning
	}
	return nil
}

func (s *stage[A, B]) stats() StageStats {
	st := StageStats{
		Name: s.name, Kind: s.kind,
		Depth: s.in.len(), Capacity: s.opt.buffer.size,
		Workers: s.workers, Slots: s.policy.Slots,
		Parked: s.lane.parked.Load(),
		Failed: s.failures.Load(), Retried: s.retries.Load(), Snoozed: s.snoozes.Load(),
		Dead: s.dead.Load(), Replayed: s.replays.Load(), Shed: s.shedding.Load(),
		Batches: s.batches.Load(), Gathering: s.gathering.Load(),
		Paused: s.gate.Load() != nil,
	}
	oldest, found := s.lane.oldest()
	for _, w := range s.crew {
		runs, running, admitted := w.report()
		st.Runs += runs
		st.Running += running
		if running > 0 && (!found || admitted < oldest) {
			oldest, found = admitted, true
		}
	}
	if found {
		st.Oldest = s.p.now() - oldest
	}
	st.Done = st.Runs - st.Failed - st.Snoozed - int64(st.Running)
	return st
}
