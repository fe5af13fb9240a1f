package oncepipe

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncepipe/oncepipe/chans"
)

// Defaults of Transduce's options.
const (
	DefaultKept    = 10_000      // values
	DefaultKeptFor = time.Second // and for how long
)

var errKept = errors.New("oncepipe: a step of the transducer has kept it to the end")

// Transduce puts the values of a stream through a transducer of package chans:
// steps with a memory, which Map, Filter and FlatMap don't have. It is a stage with
// one goroutine and a buffer, so that the order stays. See Buffer, BatchSize,
// BatchWait and Namespace.
//
// What becomes of an item follows what the steps do with its value:
//
//   - Nothing comes out of it: it is Filtered.
//   - One value comes out of it: that has its key. Of several, those behind the
//     first have its key and their position as key, unless KeyBy gives them another.
//     The item is settled when all of them are, with the worst outcome.
//   - It is kept, and goes into a group (chans.PartitionAll, chans.PartitionBy): it
//     is not settled before the group is, and then as the group is. A group has a
//     key that is made of its members' keys, none if one of them has none, and is in
//     no partition: PartitionBy before Transduce has no meaning behind it.
//   - Parts of a group that a step takes apart stem from all of its members.
//   - A step fails for it, by an error or a panic: it is a dead letter. When a step
//     fails for a group, each of its members is. It is not tried again; chans.Rescue
//     deals with it in the run.
//
// A value is kept for no longer than BatchWait, and no more than BatchSize are: then
// the steps give on what they have, as at the end of the input and when the
// pipeline drains. So a group may be smaller than its step says. BatchWait(0) makes groups
// of what is queued.
//
// What steps remember ends with the pipeline. chans.Distinct and chans.Dedupe
// forget an item that was not done in the end, so that its next delivery passes. A
// copy of one under way is Filtered, whatever becomes of that; Dedup has it wait.
//
// When a step stops the run, as chans.Take does, the pipeline drains, as if Run's
// context had ended. What the steps did not see any more goes back to its source. What
// they saw is settled by what came out of it: the value that ended chans.TakeWhile is
// Filtered, and one of whose parts some were taken is done with these.
func Transduce[A, B any](in Stream[A], name string, xf chans.Xform[A, B], opts ...Option) Stream[B] {
	return Stream[B]{newTransducer(in, name, xf, opts).out}
}

func newTransducer[A, B any](in Stream[A], name string, xf chans.Xform[A, B], opts []Option) *stage[A, B] {
	o := collect(opts, "Buffer", "BatchSize", "BatchWait", "Namespace")
	most, wait := DefaultKept, DefaultKeptFor
	if o.batchSize > 0 {
		most = o.batchSize
	}
	if o.given["BatchWait"] {
		wait = o.batchWait
	}
	o.batchSize, o.batchWait = 0, 0 // it runs no batches
	if xf == nil {
		o.wrong("transducer is nil")
	}
	s := wireStage[A, B](in, "transduce", name, o)
	s.out.keyed = false
	s.hire = func() crewman {
		x := &transducer[A, B]{worker: worker[A, B]{s: s}, xf: xf, most: most, wait: wait}
		x.timer = time.AfterFunc(time.Hour, s.lane.wake)
		x.timer.Stop()
		return x
	}
	return s
}

// transducer is a worker that drives a run. How it comes by an item is the
// worker's way.
type transducer[A, B any] struct {
	worker[A, B]
	xf    chans.Xform[A, B]
	most  int // values that may be kept
	wait  time.Duration
	timer *time.Timer // wakes who waits for an item

	begun bool
	run   *chans.Driver[A]
	ended bool // the run has: what comes is returned
	dirty bool // something was kept since the last flush

	count  atomic.Int64               // inputs of the run
	busy   atomic.Bool                // steps run
	within atomic.Pointer[into[A, B]] // the input that is being put; nil: none

	mu   sync.Mutex
	kept list.List // of *into[A, B], the first one kept first; written by the worker alone
	lost []func()  // makes the run forget what was not done in the end
}

// drive runs the worker until the stage is done. After a Goexit of a step another
// goroutine goes on.
func (x *transducer[A, B]) drive() {
	var j job[A]
	over := false
	defer func() {
		if over {
			x.leave()
			return
		}
		r := recover()
		defer x.s.p.spawn(x.drive)
		x.crashed(&j, r)
	}()
	x.begin()
	for x.take(&j) {
		if gate := x.s.gate.Load(); gate != nil && !x.worker.wait(&j, *gate) {
			continue
		}
		x.put(&j)
	}
	x.finish()
	over = true
}

// begin makes the run, which calls code of the user.
func (x *transducer[A, B]) begin() {
	switch {
	case x.ended || x.run != nil:
		return
	case x.begun:
		x.abort(ErrGoexit)
		return
	}
	x.begun = true
	err := protect(func() error {
		x.run = chans.Drive(x.xf, x.emit, func(e *chans.ItemError) error { return e })
		return nil
	})
	if err != nil {
		x.abort(err)
		return
	}
	x.heed()
}

// take takes the next item. Meanwhile nothing is kept for too long.
func (x *transducer[A, B]) take(j *job[A]) bool {
	s := x.s
	for x.dirty && x.kept.Len() > 0 && !s.p.hard.Load() && !s.isDone() {
		left := x.patience()
		if (left > 0 || x.wait == 0 || s.p.isDraining()) && x.poll(j) {
			return true
		}
		if left <= 0 {
			if gate := s.gate.Load(); gate != nil && !x.opens(*gate) {
				break
			}
			x.flush()
			continue
		}
		x.rest()
		x.timer.Reset(left)
		found := x.waitOnce(j)
		x.timer.Stop()
		if found {
			return true
		}
	}
	return x.next(j)
}

// opens waits at the gate of a paused stage. It returns false when the pipeline
// drains instead.
func (x *transducer[A, B]) opens(gate <-chan struct{}) bool {
	select {
	case <-gate:
		return true
	case <-x.s.p.draining:
		return false
	}
}

// patience is how long the value that was kept first may still be kept.
func (x *transducer[A, B]) patience() time.Duration {
	p := x.s.p
	if x.wait == 0 || p.isDraining() {
		return 0
	}
	return x.kept.Front().Value.(*into[A, B]).since + x.wait - p.now()
}

// put puts an item through the steps.
func (x *transducer[A, B]) put(j *job[A]) {
	s := x.s
	if x.ended {
		s.returned(j.item, 0, ErrShutdown)
		x.over(*j, true)
		return
	}
	if c := j.t.scope.claim; c != nil && !x.claimed(*j, c) {
		return
	}
	x.forget()
	in := x.admit(j.item)
	x.holding = false
	x.within.Store(in)
	x.count.Add(1)
	x.busy.Store(true)
	err := x.run.Put(j.v, in)
	x.busy.Store(false)
	x.leaveSteps(in, err)
	x.over(*j, false)
	if x.kept.Len() >= x.most {
		x.flush()
	}
	x.heed()
}

// leaveSteps ends a Put.
func (x *transducer[A, B]) leaveSteps(in *into[A, B], err error) {
	x.within.Store(nil)
	if in.memory != nil {
		in.memory.taken(x.run.Last())
	}
	in.Release(err)
}

// flush makes the steps give on what they have kept.
func (x *transducer[A, B]) flush() {
	x.giveOn(x.run.Flush)
	x.dirty = false
	x.heed()
}

// giveOn calls what makes the steps give on. It fails only where a step of the
// user's does beside that: nobody can tell then what of all that is kept it has lost.
func (x *transducer[A, B]) giveOn(kept func() error) {
	x.busy.Store(true)
	err := kept()
	x.busy.Store(false)
	if err != nil {
		x.abort(cause(err))
	}
}

// abort gives the run up.
func (x *transducer[A, B]) abort(err error) {
	x.ended = true
	x.s.p.stop(fmt.Errorf("transducer %s: %w", x.s.name, err))
	x.giveBack(err)
}

// heed ends the run when a step has stopped it, and with it the pipeline.
func (x *transducer[A, B]) heed() {
	if !x.ended && x.run.Stopped() && !x.s.p.hard.Load() {
		x.s.p.end()
		x.end()
	}
}

// end makes the steps give on what they have kept, for good.
func (x *transducer[A, B]) end() {
	x.ended = true
	x.giveOn(x.run.Close)
}

// finish ends the run. What the steps have is given on, unless the stage is
// paused or the pipeline was stopped: then it goes back.
func (x *transducer[A, B]) finish() {
	x.timer.Stop()
	p := x.s.p
	why := errKept
	switch {
	case p.hard.Load():
		why = ErrDrainTimeout
	case x.s.gate.Load() != nil:
		why = ErrShutdown
	case !x.ended:
		x.end()
	}
	x.giveBack(why)
}

// crashed is called in place of what a Goexit left undone. Of what steps were
// giving on, chans has told.
func (x *transducer[A, B]) crashed(j *job[A], r any) {
	x.busy.Store(false)
	if in := x.within.Load(); in != nil {
		x.leaveSteps(in, crashError(r))
		x.over(*j, false)
	}
}

// unsettled lists the inputs that are in the run.
func (x *transducer[A, B]) unsettled() []*into[A, B] {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []*into[A, B]
	for e := x.kept.Front(); e != nil; e = e.Next() {
		list = append(list, e.Value.(*into[A, B]))
	}
	return list
}

func (x *transducer[A, B]) giveBack(why error) {
	for _, in := range x.unsettled() {
		in.giveBack(why)
	}
}

// lose is called by whoever settles.
func (x *transducer[A, B]) lose(forget func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lost = append(x.lost, forget)
}

func (x *transducer[A, B]) forget() {
	if !x.run.Remembers() {
		return
	}
	x.mu.Lock()
	lost := x.lost
	x.lost = nil
	x.mu.Unlock()
	for _, forget := range lost {
		forget()
	}
}

func (x *transducer[A, B]) report() (runs int64, running int, oldest time.Duration) {
	runs = x.count.Load()
	if in := x.within.Load(); in != nil {
		return runs, 1, in.it.t.scope.admitted
	}
	return runs, 0, 0
}

// abandon returns all that is in the run, and names one of it: the input that is
// being put, or the first of those that are given on.
func (x *transducer[A, B]) abandon() []AbandonedHandler {
	if !x.busy.Load() {
		return nil
	}
	stuck := x.unsettled()
	if in := x.within.Load(); in != nil {
		stuck = append([]*into[A, B]{in}, stuck...)
	}
	name := AbandonedHandler{Stage: x.s.name, Attempt: 1}
	if len(stuck) > 0 {
		name.Key = stuck[0].it.t.key
	}
	for _, in := range stuck {
		in.it.t.scope.force(verdict{outcome: Returned, err: ErrDrainTimeout, abandoned: true})
	}
	return []AbandonedHandler{name}
}
