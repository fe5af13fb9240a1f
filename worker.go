package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// attempt is one run of a handler, and the context it runs in. It is made for
// that run and never changed, so that a handler may keep it.
type attempt struct {
	stage  *stageCore
	ticket *ticket // never written to behind a stage, see traits.shared
	number int32
	run    uint32 // of its worker, counted modulo 2³²
}

// The context's end is that of the pipeline's handlers: it outlives the
// shutdown's beginning, and ends with ErrDrainTimeout. Behind a Dedup with a
// store it is that of the item's claim too.

func (a *attempt) parent() context.Context {
	if c := a.ticket.scope.claim; c != nil {
		return c.ctx
	}
	return a.stage.p.handlers
}

func (a *attempt) Deadline() (time.Time, bool) { return time.Time{}, false }
func (a *attempt) Done() <-chan struct{}       { return a.parent().Done() }
func (a *attempt) Err() error                  { return a.parent().Err() }

func (a *attempt) Value(key any) any {
	if _, ok := key.(infoKey); ok {
		return a
	}
	return a.parent().Value(key)
}

func (a *attempt) info() Info {
	i := a.stage.info()
	a.ticket.tell(&i, int(a.number))
	return i
}

// info is what is known of a stage's runs without an item.
func (s *stageCore) info() Info {
	return Info{Pipeline: s.p.name, Stage: s.name, Namespace: s.namespace}
}

// tell says what is known of the item and its attempt.
func (t *ticket) tell(i *Info, attempt int) {
	i.Key, i.Attempt = t.key, attempt
	if c := t.scope.claim; c != nil {
		i.Attempt, i.Takeover = max(i.Attempt, int(c.attempt.Load())), c.takeover.Load()
	}
}

func (a *attempt) replayed() { a.stage.replays.Add(1) }

func (a *attempt) keeper(st Store) *keeper { return a.stage.p.keeper(st) }

// attemptSlab is how many attempts a worker makes room for at once. A handler
// that keeps its context keeps that many alive.
const attemptSlab = 16

// yields is how often a worker yields before it waits.
const yields = 4

// worker runs the items of a stage one after the other. Only its own goroutine
// uses it, but for the two atomic fields.
type worker[A, B any] struct {
	s *stage[A, B]

	current atomic.Pointer[attempt] // nil while it has no item
	idle    atomic.Int64            // runs begun before it last had no item

	holding  bool // a slot, without an item
	running  bool // the handler is
	emitting bool // operators behind the stage are
	open     bool // the item in hand is not over
	runs     int64
	slab     []attempt
	used     int // of slab

	_ [64]byte // its counters are not another worker's cache line
}

// drive runs the worker until the stage is done. A panic of a handler or a
// Goexit unwinds to here: the goroutine is replaced.
func (w *worker[A, B]) drive() {
	var j job[A] // on the stack: the heap would cost the collector's barriers
	ended := false
	defer func() {
		if ended {
			w.leave()
			return
		}
		r := recover()
		defer w.s.p.spawn(w.drive) // afterwards: there is one goroutine to a worker
		w.crashed(j, r)
	}()
	for w.next(&j) {
		if gate := w.s.gate.Load(); gate != nil && !w.wait(&j, *gate) {
			continue
		}
		w.run(&j)
	}
	ended = true
}

func (w *worker[A, B]) leave() {
	s := w.s
	w.rest()
	// After a hard stop nobody waits for the end of an input, and somebody may
	// still emit.
	if s.running.Add(-1) == 0 && !s.p.hard.Load() {
		s.out.next.close()
		if s.failed != nil {
			s.failed.next.close()
		}
	}
}

// next takes the next item into j: due ones first, then the
// buffer's. It tries without waiting before it waits, which is what a busy stage
// needs. It returns false when there is nothing more to do.
func (w *worker[A, B]) next(j *job[A]) bool {
	s := w.s
	if s.p.hard.Load() {
		return false
	}
	if w.poll(j) {
		return true
	}
	return w.nextSlow(j)
}

// poll takes an item into j if there is one: a due one, or, for a slot in hand,
// one of the buffer.
func (w *worker[A, B]) poll(j *job[A]) bool {
	s := w.s
	if s.lane.parked.Load() > 0 {
		select {
		case <-s.lane.ready:
			if w.due(j) {
				return true
			}
		default:
		}
	}
	if w.holding {
		j.retry = nil
		if s.in.take(&j.item) {
			return true
		}
		// To yield is cheaper than to wait and be woken, where there is something
		// to yield to.
		for range yields {
			runtime.Gosched()
			if s.in.take(&j.item) {
				return true
			}
		}
	}
	return false
}

// nextSlow waits on two channels, no more: what a waiting worker costs grows with
// their number. So the lane's token also says that the stage is done or the
// pipeline stopped; who finds that it does passes it on to the next worker.
func (w *worker[A, B]) nextSlow(j *job[A]) bool {
	s := w.s
	w.rest()
	*j = job[A]{}
	for {
		if s.p.hard.Load() || s.isDone() {
			s.lane.wake()
			return false
		}
		if w.waitOnce(j) {
			return true
		}
	}
}

// waitOnce waits until there is an item, which it takes into j, or something
// else to look at.
func (w *worker[A, B]) waitOnce(j *job[A]) bool {
	s := w.s
	switch {
	case s.seq != nil:
		select {
		case *j = <-s.seq.work:
			return true
		case <-s.lane.ready:
			return w.due(j)
		}
	case w.holding:
		return w.await(j)
	case s.inputClosed.Load():
		<-s.lane.ready
		return w.due(j)
	default:
		select {
		case s.slots <- struct{}{}:
			w.holding = true
			return false
		case <-s.lane.ready:
			return w.due(j)
		}
	}
}

// await waits for an item of the buffer or a due one. It reports whether there is one in
// j; if not, the worker looks again what to wait for.
func (w *worker[A, B]) await(j *job[A]) bool {
	s := w.s
	ready := false
	if s.in.await() {
		select {
		case <-s.in.filled:
		case <-s.lane.ready:
			ready = true
		}
	}
	s.in.awake()
	if ready && s.in.size > 0 {
		return w.due(j)
	}
	// Without places, an item that came for this worker can't be left where it is.
	j.retry = nil
	if s.in.take(&j.item) {
		if ready {
			s.lane.wake()
		}
		return true
	}
	if ready {
		return w.due(j)
	}
	if s.in.ended() {
		w.inputEnded()
	}
	return false
}

func (w *worker[A, B]) inputEnded() {
	w.s.inputClosed.Store(true)
	w.holding = false
	w.s.release()
}

// due takes the first due item into j. It brings its own slot.
// The caller has the lane's token.
func (w *worker[A, B]) due(j *job[A]) bool {
	due, ok := w.s.lane.take()
	if !ok {
		return false
	}
	*j = due
	if w.holding {
		w.holding = false
		<-w.s.slots // not the last one: j has one
	}
	return true
}

// wait keeps j while the stage is paused. It returns false when
// the pipeline drained instead, and the item is returned.
func (w *worker[A, B]) wait(j *job[A], gate chan struct{}) bool {
	select {
	case <-gate:
		return true
	case <-w.s.p.draining:
	}
	w.s.returned(j.item, 0, w.s.leftover(*j))
	w.over(*j, true)
	return false
}

// over ends the stay of an item that this worker ran. Its slot stays with the
// worker, for the next item.
func (w *worker[A, B]) over(j job[A], returned bool) {
	w.open = false
	if w.s.seq != nil {
		w.s.seq.over(j, returned)
		return
	}
	w.holding = !w.s.inputClosed.Load()
	if !w.holding {
		w.s.release()
	}
}

func (w *worker[A, B]) run(j *job[A]) {
	if w.used == len(w.slab) {
		w.slab, w.used = make([]attempt, attemptSlab), 0
	}
	s := w.s
	t := j.t
	if c := t.scope.claim; c != nil && !w.claimed(*j, c) {
		return
	}
	a := &w.slab[w.used]
	w.used++
	w.runs++
	a.stage, a.ticket, a.number, a.run = &s.stageCore, t, int32(j.attempts()+1), uint32(w.runs)
	w.current.Store(a)
	w.holding = false
	w.running, w.open = true, true
	var v B
	var err error
	if s.plain {
		v, err = s.fn(a, j.v)
	} else {
		v, err = w.runLimited(a, j.v)
	}
	w.running = false
	switch {
	case err != nil:
		w.fail(*j, err)
	case s.p.hard.Load() && t.scope.open.Load() <= 0: // abandoned
		w.over(*j, true)
	case s.opt.ordered:
		w.open = false
		s.seq.put(j.retry.seq, emission[B]{full: true, emit: true, item: item[B]{v, t}})
	default:
		w.emitting = true
		s.out.next.accept(item[B]{v, t})
		w.emitting = false
		w.over(*j, false)
	}
}

// claimed reports whether j may run under its claim. If not, it is parked or over.
func (w *worker[A, B]) claimed(j job[A], c *claim) bool {
	if c.hold == nil {
		w.rest() // the store is asked
	}
	err := c.ready()
	if err == nil {
		return true
	}
	w.open, w.holding = true, false
	w.settle(j, w.s.refuse(j, err))
	return false
}

// begun is how many runs the worker has begun. It may be called from anywhere.
func (w *worker[A, B]) begun() (int64, *attempt) {
	n := w.idle.Load() // before current, whose run is none of those then
	a := w.current.Load()
	if a == nil {
		return w.idle.Load(), nil
	}
	return n + int64(a.run-uint32(n)), a
}

func (w *worker[A, B]) report() (runs int64, running int, oldest time.Duration) {
	n, a := w.begun()
	if a == nil {
		return n, 0, 0
	}
	return n, 1, a.ticket.scope.admitted
}

func (w *worker[A, B]) abandon() []AbandonedHandler {
	a := w.current.Load()
	if a == nil {
		return nil
	}
	a.ticket.scope.force(verdict{outcome: Returned, err: ErrDrainTimeout, abandoned: true})
	return []AbandonedHandler{{Stage: w.s.name, Key: a.ticket.key, Attempt: int(a.number)}}
}

// rest notes that the worker has no item.
func (w *worker[A, B]) rest() {
	w.idle.Store(w.runs)
	w.current.Store(nil)
}

func (w *worker[A, B]) runLimited(a *attempt, in A) (v B, err error) {
	s := w.s
	if err := s.limit(a); err != nil {
		return v, err
	}
	ctx, cancel := s.timed(a)
	defer cancel()
	v, err = s.fn(ctx, in)
	return v, timedOut(ctx, err)
}

// limit waits for the stage's limiter.
func (s *stageCore) limit(ctx context.Context) error {
	if s.opt.limiter == nil {
		return nil
	}
	if err := s.opt.limiter.Wait(ctx); err != nil {
		return fmt.Errorf("limiter: %w", err)
	}
	return nil
}

// timed gives an attempt's context its time limit, where there is one.
func (s *stageCore) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.opt.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.opt.timeout, ErrAttemptTimeout)
}

// timedOut names the time limit in an error that comes of it.
func timedOut(ctx context.Context, err error) error {
	if err != nil && errors.Is(err, context.DeadlineExceeded) && context.Cause(ctx) == ErrAttemptTimeout {
		return fmt.Errorf("%w: %w", ErrAttemptTimeout, err)
	}
	return err
}

// crashed is called in place of what a panic (r) or a Goexit (nil) left undone.
func (w *worker[A, B]) crashed(j job[A], r any) {
	switch {
	case w.running:
		w.running = false
		defer func() {
			if w.open { // by a Goexit in an operator behind a TryStage
				w.over(j, false)
			}
		}()
		w.fail(j, crashError(r))
	case w.emitting:
		w.emitting = false
		s := w.s
		s.p.crashed(s.name, j.t, j.v, r)
		w.over(j, false)
	case w.open:
		// Something behind the handler ended the goroutine. What was handed on is
		// settled by then; force is for what was not.
		lost := j.t.scope.open.Load() > 0
		j.t.scope.force(verdict{outcome: Returned, err: crashError(r)})
		w.over(j, lost)
	}
}

func crashError(r any) error {
	if r == nil {
		return ErrGoexit
	}
	return &PanicError{Value: r, Stack: debug.Stack()}
}

// fail lets the stage decide what becomes of j, whose attempt ended with err.
func (w *worker[A, B]) fail(j job[A], err error) {
	w.settle(j, w.s.fail(j, err))
}

// settle ends the item's stay, unless it stays.
func (w *worker[A, B]) settle(j job[A], f fate) {
	switch f {
	case stays:
		w.open = false
	case leaves:
		w.over(j, false)
	case goesBack:
		w.over(j, true)
	}
}
