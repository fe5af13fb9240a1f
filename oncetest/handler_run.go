package oncetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// delivery is one of a message; it has to be settled, however often it must be
// repeated for that.
type delivery struct {
	id       int
	settled  bool
	repeated int
	due      time.Duration // of its repetition
	err      error         // why it is repeated
}

// run is a handler at work on a delivery.
type run struct {
	*delivery
	copy    int // of the message, 1, 2, …
	process *Process
	name    string      // of the message
	where   string      // which process, if there are several
	told    bool        // the story knows it
	void    bool        // the broker has taken the message back: what becomes of the run is not heard
	acked   atomic.Bool // by Process.Ack
	ctx     context.Context

	deadline time.Duration // of ctx, since the schedule began
}

// opening begins a line of the story about r.
func (r *run) opening() string {
	switch {
	case r.told && r.copy == 1:
		return fmt.Sprintf("the first run of %s goes on: ", r.name)
	case r.told:
		return fmt.Sprintf("run %d of %s goes on: ", r.copy, r.name)
	}
	r.told = true
	if r.copy == 1 {
		return fmt.Sprintf("%s is delivered%s: ", r.name, r.where)
	}
	return fmt.Sprintf("%s comes again%s: ", r.name, r.where)
}

// act is a goroutine of the program that stands at a step or has something to
// tell.
type act struct {
	process *Process
	run     *run // nil where the step's context isn't that of a handler
	item    *run // then: the latest of the item's message, in a pipeline
	name    string
	ack     bool
	done    bool // behind the step
	answer  chan verdict

	numbered bool
	todo     []Faults // what is still to happen here
	after    Faults   // what happens behind the step

	enter, leave, reply bool
	ctx                 context.Context
	value               any
}

// who is the goroutine that an act is of, as far as one can tell.
func (a *act) who() any {
	if a.run != nil {
		return a.run
	}
	return a
}

// verdict is how an act goes on.
type verdict struct {
	kill  bool
	err   error
	cut   bool
	again bool // ask once more behind the step
}

// signal is what a goroutine of the program tells the simulation.
type signal struct {
	act   *act
	ended *run
	err   error
	how   ending
	aside bool // a cleanup has ended
}

type ending int

const (
	exited ending = iota
	returned
	panicked
)

// perform runs the handler of r.
func (s *sim) perform(r *run, handle func(ctx context.Context, id, copy int) error, cancel context.CancelFunc) {
	defer cancel()
	end := signal{ended: r}
	defer func() {
		if v := recover(); v != nil {
			end.how, end.err = panicked, fmt.Errorf("panic: %v", v)
		}
		s.signals <- end
	}()
	err := handle(r.ctx, r.id, r.copy)
	if err == nil && !r.acked.Load() {
		err = r.process.ack(r)
	}
	end.how, end.err = returned, err
}
