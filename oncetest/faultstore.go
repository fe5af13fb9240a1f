package oncetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// ErrOutage is what a FaultStore answers during an Outage.
var ErrOutage = errors.New("oncetest: the store is away")

// Forever is a delay that lasts until the call's context ends.
const Forever time.Duration = math.MaxInt64

// StoreCall is a call of a store.
type StoreCall struct {
	Op  StoreOp
	N   int                 // the how many-th call of its Op this is, from 1
	IDs []oncepipe.RecordID // what it is about, in the order of the request; nil for OpList, OpCount and OpPrune
}

// StoreFault is what happens to one call. The zero value is a call that goes well.
type StoreFault struct {
	// Delay is how long the request takes. If the context ends meanwhile, the call
	// is not made, and answered with the context's error.
	Delay time.Duration

	// FailBefore is the answer to a request that is lost: the call is not made.
	FailBefore error

	// DelayAfter is how long the reply takes. If the context ends meanwhile, the
	// call was made, and is answered with the context's error.
	DelayAfter time.Duration

	// FailAfter is the answer when the reply is lost: the call was made. A call
	// that failed by itself keeps its own error.
	FailAfter error
}

// FaultStore is a store behind a bad line: an oncepipe.Store and Retainer as
// StepStore makes them, on which calls are late, lost and answered with errors. Time is
// that of the caller, fake in a synctest bubble. It is safe for concurrent use.
type FaultStore struct {
	steps
	fault func(StoreCall) StoreFault

	mu    sync.Mutex
	calls map[StoreOp]int
	made  map[StoreOp]int
	next  map[StoreOp][]StoreFault
	up    time.Time // the end of the outage
}

// NewFaultStore puts a bad line before st. fault is asked about every call, by
// several goroutines at once where the store is; nil is a line on which all goes
// well until Next or Outage says otherwise.
func NewFaultStore(st oncepipe.Store, fault func(StoreCall) StoreFault) *FaultStore {
	f := &FaultStore{fault: fault, calls: map[StoreOp]int{}, made: map[StoreOp]int{}, next: map[StoreOp][]StoreFault{}}
	f.steps = steps{st, f.line}
	return f
}

// Next has fault happen to the next n calls of op, behind those that were asked
// for before. They are not shown to the function of NewFaultStore.
func (f *FaultStore) Next(op StoreOp, n int, fault StoreFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.next[op] = append(f.next[op], fault)
	}
}

// Outage cuts the line for d from now on; Forever is until EndOutage. Requests are
// answered with ErrOutage and not made. So are those that are under way, and
// replies that are, to calls that were made. A further Outage replaces the first.
func (f *FaultStore) Outage(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = time.Now().Add(d)
}

// EndOutage mends the line.
func (f *FaultStore) EndOutage() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = time.Time{}
}

// Calls is how many calls of op were begun, whatever became of them.
func (f *FaultStore) Calls(op StoreOp) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Made is how many calls of op came through to the store, whatever became of
// their replies.
func (f *FaultStore) Made(op StoreOp) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[op]
}

// line makes one call.
func (f *FaultStore) line(ctx context.Context, call StoreCall, do func() error) error {
	fault := f.begin(call)
	if err := f.wait(ctx, call.Op, fault.Delay); err != nil {
		return err
	}
	if fault.FailBefore != nil {
		return fault.FailBefore
	}
	f.mu.Lock()
	f.made[call.Op]++
	f.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	if err := f.wait(ctx, call.Op, fault.DelayAfter); err != nil {
		return err
	}
	return fault.FailAfter
}

// begin counts a call and decides what happens to it.
func (f *FaultStore) begin(call StoreCall) StoreFault {
	f.mu.Lock()
	f.calls[call.Op]++
	call.N = f.calls[call.Op]
	if next := f.next[call.Op]; len(next) > 0 {
		f.next[call.Op] = next[1:]
		f.mu.Unlock()
		return next[0]
	}
	f.mu.Unlock()
	if f.fault == nil {
		return StoreFault{}
	}
	return f.fault(call)
}

// wait is one way over the line, on which d passes.
func (f *FaultStore) wait(ctx context.Context, op StoreOp, d time.Duration) error {
	if d > 0 {
		var over <-chan time.Time
		if d != Forever { // a timer for it would let a bubble's time run on for centuries
			t := time.NewTimer(d)
			defer t.Stop()
			over = t.C
		}
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("oncetest: %s: %w", op, ctx.Err())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.up) {
		return fmt.Errorf("%s: %w", op, ErrOutage)
	}
	return nil
}
