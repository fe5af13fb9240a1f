package oncetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/oncepipe/oncepipe"
)

// ErrInjected is the failure of a step that a schedule lets fail.
var ErrInjected = errors.New("injected failure")

// World is what outlives a process: the time of one schedule.
type World struct {
	cleanups cleanups
	dir      string
}

// Cleanup calls f when the schedule is over, the last one first.
func (w *World) Cleanup(f func()) { w.cleanups.add(f) }

// Dir is a directory for what outlives the processes, the same at every call. It
// is removed when the schedule is over, after the cleanups of what was made in
// it. It panics where none can be made.
func (w *World) Dir() string {
	if w.dir == "" {
		dir, err := os.MkdirTemp("", "oncetest")
		if err != nil {
			panic(fmt.Errorf("oncetest: making the world's directory: %w", err))
		}
		w.dir = dir
		w.Cleanup(func() { _ = os.RemoveAll(dir) }) // the system removes what is left there
	}
	return w.dir
}

// Process is one start of the program under test, from its beginning to its
// end, which may be a kill. A Program's Start makes all that the program
// keeps in memory; the next process has none of it.
type Process struct {
	ctx      context.Context
	stop     context.CancelCauseFunc
	instance int
	dead     atomic.Bool
	late     atomic.Int64 // steps that were asked for when it was dead
	async    bool         // its work is done in goroutines of its own
	keys     sync.Map     // of items of a pipeline, to their latest runs
	locks    bool         // locks are held while its goroutines stand at steps
	started  atomic.Bool
	runs     []*run
	cleanups cleanups
	ask      func(a *act) verdict
	order    *sync.Mutex // see ordered
}

// Context ends with the process.
func (p *Process) Context() context.Context { return p.ctx }

// Instance is 1, or 2 for the process that runs beside the first one.
func (p *Process) Instance() int { return p.instance }

// Cleanup calls f when the process has ended, the last one first; also when it
// was killed: then f is what the operating system and the servers do for a process
// that is gone, such as closing its connections.
func (p *Process) Cleanup(f func()) { p.cleanups.add(f) }

// Step does something that can fail, hang or be the last thing that the process
// does: a statement, a commit, a call of another service. Before and after do the
// schedule may hold the run, let it fail with ErrInjected, pass the time-out of
// ctx, or kill the process: then Step does not return, and its goroutine ends
// with its deferred functions.
//
// Where ctx has ended do is not called, as with a client that looks at it, and
// the error is the cause of that. The name is for the story. What lies between two steps
// happens at once.
//
// All that changes the world has to be in a step. Other goroutines of a killed
// process go on until their next one: what they do before that has happened.
//
// Step may be called from any goroutine. Of two that come to a step at one instant,
// such as a run and a goroutine that it has started, either may be first: then a
// schedule can take another course when it is run again. In Start it is just a call of do.
func (p *Process) Step(ctx context.Context, name string, do func() error) error {
	if !p.started.Load() {
		return do()
	}
	a := p.act(ctx)
	a.name = name
	v := p.ask(a)
	switch {
	case v.kill || p.dead.Load():
		runtime.Goexit()
	case v.err != nil:
		return fmt.Errorf("%s: %w", name, v.err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	ordered(p.order)
	err := do()
	ordered(p.order)
	if err != nil || !v.again {
		return err
	}
	a.done = true
	v = p.ask(a)
	switch {
	case v.kill || p.dead.Load():
		runtime.Goexit()
	case v.err != nil:
		return fmt.Errorf("%s: %w", name, v.err)
	case v.cut:
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	return nil
}

// Ack acknowledges the message of ctx before its handler has returned, for
// programs that do so themselves. It is a step.
func (p *Process) Ack(ctx context.Context) error {
	r, _ := ctx.Value(runKey{}).(*run)
	if r == nil {
		return errors.New("oncetest: Ack outside of a handler")
	}
	return p.ack(r)
}

func (p *Process) ack(r *run) error {
	v := p.ask(&act{process: p, run: r, name: "ack", ack: true, answer: make(chan verdict, 1)})
	if v.kill || p.dead.Load() {
		runtime.Goexit()
	}
	return v.err
}

// Enter says that from here until leave is called nobody else may be at work on
// the message of ctx, in no process. Two at once are a failure, unless the first
// one's context has ended or its process was killed.
func (p *Process) Enter(ctx context.Context) (leave func()) {
	in, out := p.act(ctx), p.act(ctx)
	in.enter, out.leave = true, true
	p.ask(in)
	return func() { p.ask(out) }
}

// Reply records what this run answers. All runs of a message must answer the
// same; values are compared with reflect.DeepEqual.
func (p *Process) Reply(ctx context.Context, v any) {
	a := p.act(ctx)
	a.reply, a.value = true, v
	p.ask(a)
}

// act is something that the goroutine with ctx does.
func (p *Process) act(ctx context.Context) *act {
	a := &act{process: p, ctx: ctx, answer: make(chan verdict, 1)}
	if a.run, _ = ctx.Value(runKey{}).(*run); a.run != nil {
		return a
	}
	key := ""
	if batch := oncepipe.BatchFrom(ctx); len(batch) > 0 {
		key = batch[0].Key
	} else if info, ok := oncepipe.InfoFrom(ctx); ok {
		key = info.Key
	}
	if r, ok := p.keys.Load(key); ok {
		a.item = r.(*run)
	}
	return a
}

type runKey struct{}

// cleanups are called from the last to the first.
type cleanups struct{ list []func() }

func (c *cleanups) add(f func()) { c.list = append(c.list, f) }

func (c *cleanups) call() {
	for len(c.list) > 0 {
		last := len(c.list) - 1
		f := c.list[last]
		c.list = c.list[:last]
		f()
	}
}

// Store makes every call of st a step, named after it: claim, complete, release.
// See StepStore.
func (p *Process) Store(st oncepipe.Store) oncepipe.Store {
	return StepStore(st, p.Step)
}
