package record

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Callers are gathered: whoever finds the writer's token free begins a commit for
// all that wait. Nothing runs while nobody calls, and a lone caller waits for
// nobody.

// job is what one caller wants to have committed: a batch of requests, or one effect.
type job[T any] struct {
	work []T
	done chan struct{} // closed when err is set
	err  error
	crew *crew // that commits it; guarded by gatherer.mu
	gone bool  // its caller doesn't wait any more, or is answered; guarded by gatherer.mu
}

// finish answers the job's caller, for whom its crew works no longer.
func (g *gatherer[T]) finish(j *job[T], err error) {
	g.mu.Lock()
	if !j.gone {
		j.gone = true
		j.crew.waiting--
	}
	g.mu.Unlock()
	j.err = err
	close(j.done)
}

// crew is the callers of one commit. It ends with the last of them, not with the
// one who began it: to repeat it for the others while it may still happen would
// make their requests twice.
type crew struct {
	waiting int // guarded by gatherer.mu
	end     context.CancelFunc
}

// maxGathered is how many pieces of work are committed at once; a job is never split.
const maxGathered = 1024

// patience is how often in a row yielding has to bring nobody before a commit
// begins. With 1 and several processors, one that is late by a moment is missed.
const patience = 4

// gatherer has what its callers bring committed together.
type gatherer[T any] struct {
	writer  chan struct{}                          // holds a token while somebody writes
	commit  func(ctx context.Context, w []T) error // in one transaction
	refused func(error) bool                       // what failed is undone, for the fault of a part of it

	mu   sync.Mutex
	jobs []*job[T] // that nobody has begun
}

func (g *gatherer[T]) put(j *job[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs = append(g.jobs, j)
}

// leave is called by a job's caller when he goes: what nobody has begun never
// happens. It reports whether he was the last to wait for a commit, which ends then.
func (g *gatherer[T]) leave(j *job[T]) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if j.gone { // answered in this moment
		return false
	}
	j.gone = true
	if j.crew == nil {
		if i := slices.Index(g.jobs, j); i >= 0 {
			g.jobs = slices.Delete(g.jobs, i, i+1)
		}
		return false
	}
	if j.crew.waiting--; j.crew.waiting > 0 {
		return false
	}
	j.crew.end()
	return true
}

func (g *gatherer[T]) isGone(j *job[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return j.gone
}

func (g *gatherer[T]) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.jobs)
}

// take removes the jobs that go into the next commit. It first lets other
// goroutines run for as long as that brings more: callers that were answered
// together come back together, and without this every commit gets half of them.
func (g *gatherer[T]) take(c *crew) []*job[T] {
	for n, quiet := g.len(), 0; n < maxGathered && quiet < patience; quiet++ {
		runtime.Gosched()
		if more := g.len(); more > n {
			n, quiet = more, -1
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n, work := 0, 0
	for n < len(g.jobs) && (n == 0 || work+len(g.jobs[n].work) <= maxGathered) {
		work += len(g.jobs[n].work)
		g.jobs[n].crew = c
		n++
	}
	c.waiting = n
	jobs := slices.Clone(g.jobs[:n])
	g.jobs = slices.Delete(g.jobs, 0, n)
	return jobs
}

// do has work committed, perhaps with that of others. When ctx ends while others
// wait for the same commit, it is not known whether work was committed.
func (g *gatherer[T]) do(ctx context.Context, work []T) error {
	if err := ctx.Err(); err != nil || len(work) == 0 {
		return err
	}
	j := &job[T]{work: work, done: make(chan struct{})}
	g.put(j)
	for {
		select {
		case <-j.done:
			return j.err
		case g.writer <- struct{}{}:
			g.begin(ctx)
		case <-ctx.Done():
			if g.leave(j) {
				<-j.done
			}
			select {
			case <-j.done: // just in time, or ended by it
				if j.err == nil {
					return nil
				}
			default:
			}
			return ctx.Err()
		}
	}
}

// begin starts a commit for those that wait. The caller has the writer's token,
// which the commit gives back.
func (g *gatherer[T]) begin(ctx context.Context) {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	jobs := g.take(&crew{end: end})
	if len(jobs) == 0 {
		end()
		<-g.writer
		return
	}
	go g.run(ctx, end, jobs)
}

func (g *gatherer[T]) run(ctx context.Context, end context.CancelFunc, jobs []*job[T]) {
	open := jobs
	defer func() {
		end()
		<-g.writer
		if r := recover(); r != nil { // a driver's; each caller hears of it in his own goroutine
			for _, j := range open {
				g.finish(j, fmt.Errorf("panic in a commit: %v\n%s", r, debug.Stack()))
			}
		}
	}()
	var all []T
	for _, j := range jobs {
		all = append(all, j.work...)
	}
	err := g.commit(ctx, all)
	alone := err != nil && len(jobs) > 1 && g.refused(err)
	for _, j := range jobs {
		err := err
		switch {
		case !alone:
		case g.isGone(j):
			err = context.Canceled
		default: // one caller's fault must not be another's
			err = g.commit(ctx, j.work)
		}
		open = open[1:]
		g.finish(j, err)
	}
}

// lock takes a token of a channel that holds one.
func lock(ctx context.Context, token chan struct{}) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case token <- struct{}{}:
		return func() { <-token }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// maxPause is short, because another process that is busy all the time leaves the
// lock free for moments only, and nobody queues for it.
const maxPause = 10 * time.Millisecond

// Patiently calls try until it says that trying again is of no use, ctx ends, or
// limit is over.
func Patiently(ctx context.Context, limit time.Duration, try func() (again bool, err error)) error {
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		again, err := try()
		if !again || err == nil {
			return err
		}
		if time.Since(begun) >= limit {
			return fmt.Errorf("gave up after %v: %w", limit, err)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) // apart from the others that met the same lock
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w while waiting to try again after: %w", ctx.Err(), err)
		}
	}
}
