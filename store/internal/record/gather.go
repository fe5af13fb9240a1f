package record

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Callers are gathered: whoever finds the writer's token free commits for all
// that wait. There is no committer that runs, so nothing has to be stopped, and
// a lone caller waits for nobody.

// job is what one caller wants to have committed, T: a batch of requests, or one effect.
type job[T any] struct {
	work []T
	done chan struct{} // closed when err is set
	err  error
	gone bool // its caller doesn't wait any more; guarded by queue.mu
}

func (j *job[T]) finish(err error) {
	j.err = err
	close(j.done)
}

// maxGathered is how many pieces of work are committed at once; a job is never split.
const maxGathered = 1024

// gatherer has what its callers bring committed together. One of them does it for all.
type gatherer[T any] struct {
	writer chan struct{}                          // holds a token while somebody writes
	commit func(ctx context.Context, w []T) error // in one transaction
	again  func(error) bool                       // a failed commit says nothing of its parts

	mu   sync.Mutex
	jobs []*job[T] // that nobody has begun
}

// put appends jobs whose callers still wait.
func (g *gatherer[T]) put(jobs ...*job[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range jobs {
		if !j.gone {
			g.jobs = append(g.jobs, j)
		}
	}
}

// leave is called by a job's caller when he goes: what nobody has begun never
// happens.
func (g *gatherer[T]) leave(j *job[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	j.gone = true
	if i := slices.Index(g.jobs, j); i >= 0 {
		g.jobs = slices.Delete(g.jobs, i, i+1)
	}
}

func (g *gatherer[T]) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.jobs)
}

// take removes the jobs that go into the next commit. It first lets other
// goroutines run for as long as that brings more: callers that were answered
// together come back together, and without this every commit gets half of them.
func (g *gatherer[T]) take() []*job[T] {
	for n := g.len(); n < maxGathered; {
		runtime.Gosched()
		more := g.len()
		if more == n {
			break
		}
		n = more
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n, work := 0, 0
	for n < len(g.jobs) && (n == 0 || work+len(g.jobs[n].work) <= maxGathered) {
		work += len(g.jobs[n].work)
		n++
	}
	jobs := slices.Clone(g.jobs[:n])
	g.jobs = slices.Delete(g.jobs, 0, n)
	return jobs
}

// do has work committed, perhaps with that of others.
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
			g.lead(ctx)
		case <-ctx.Done():
			g.leave(j)
			select {
			case <-j.done: // just in time
				return j.err
			default:
				return ctx.Err()
			}
		}
	}
}

// lead commits for those that wait, and then hands the writer's token on.
func (g *gatherer[T]) lead(ctx context.Context) {
	defer func() { <-g.writer }()
	jobs := g.take()
	// Jobs that are not finished, because ctx is over and their callers' contexts
	// aren't, go back; the next of them leads.
	defer func() { g.put(jobs...) }()
	if len(jobs) == 0 {
		return
	}
	var all []T
	for _, j := range jobs {
		all = append(all, j.work...)
	}
	err := g.commit(ctx, all)
	if err == nil || len(jobs) == 1 || g.again(err) {
		if err == nil || !over(ctx) {
			jobs = finish(jobs, len(jobs), err)
		}
		return
	}
	// One caller's fault must not be another's: each for himself.
	for len(jobs) > 0 && !over(ctx) {
		err := g.commit(ctx, jobs[0].work)
		if err == nil || !over(ctx) {
			jobs = finish(jobs, 1, err)
		}
	}
}

// over tells whether ctx has ended, or is about to: a connection whose deadline is
// that of ctx may say so first.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// finish finishes the first n jobs and returns the others.
func finish[T any](jobs []*job[T], n int, err error) []*job[T] {
	for _, j := range jobs[:n] {
		j.finish(err)
	}
	return jobs[n:]
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
