package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Callers are gathered: whoever finds the writer's token free commits for all
// that wait. There is no committer that runs, so nothing has to be stopped, and
// a lone caller waits for nobody.

// item is one request of a batch. apply may run more than once; every request
// can be repeated, as the contract of oncepipe.Store says.
type item struct {
	id    storedID
	apply func(ctx context.Context, s *session) error
}

// job is one caller's batch.
type job struct {
	items []item
	done  chan struct{} // closed when err is set
	err   error
	gone  bool // its caller doesn't wait any more; guarded by queue.mu
}

func (j *job) finish(err error) {
	j.err = err
	close(j.done)
}

// queue holds the jobs that nobody has begun.
type queue struct {
	mu   sync.Mutex
	jobs []*job
}

// maxGathered is how many items are committed at once; a job is never split.
const maxGathered = 1024

// put appends jobs whose callers still wait.
func (q *queue) put(jobs ...*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range jobs {
		if !j.gone {
			q.jobs = append(q.jobs, j)
		}
	}
}

// leave is called by a job's caller when he goes: what nobody has begun never
// happens.
func (q *queue) leave(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j.gone = true
	if i := slices.Index(q.jobs, j); i >= 0 {
		q.jobs = slices.Delete(q.jobs, i, i+1)
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}

// take removes the jobs that go into the next commit. It first lets other
// goroutines run for as long as that brings more: callers that were answered
// together come back together, and without this every commit gets half of them.
func (q *queue) take() []*job {
	for n := q.len(); n < maxGathered; {
		runtime.Gosched()
		more := q.len()
		if more == n {
			break
		}
		n = more
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n, items := 0, 0
	for n < len(q.jobs) && (n == 0 || items+len(q.jobs[n].items) <= maxGathered) {
		items += len(q.jobs[n].items)
		n++
	}
	jobs := slices.Clone(q.jobs[:n])
	q.jobs = slices.Delete(q.jobs, 0, n)
	return jobs
}

// write has items applied, in one transaction, perhaps with those of others.
func (st *Store) write(ctx context.Context, items []item) error {
	if st.inTx(ctx) {
		return oncepipe.ErrInTx
	}
	if err := ctx.Err(); err != nil || len(items) == 0 {
		return err
	}
	j := &job{items: items, done: make(chan struct{})}
	st.queue.put(j)
	for {
		select {
		case <-j.done:
			return j.err
		case st.writer <- struct{}{}:
			st.lead(ctx)
		case <-ctx.Done():
			st.queue.leave(j)
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
func (st *Store) lead(ctx context.Context) {
	defer func() { <-st.writer }()
	jobs := st.queue.take()
	// Jobs that are not finished, because ctx is over and their callers' contexts
	// aren't, go back; the next of them leads.
	defer func() { st.queue.put(jobs...) }()
	if len(jobs) == 0 {
		return
	}
	err := st.commit(ctx, jobs)
	if err == nil || len(jobs) == 1 || st.again(err) {
		if err == nil || ctx.Err() == nil {
			jobs = finish(jobs, len(jobs), err)
		}
		return
	}
	// One caller's fault must not be another's: each for himself.
	for len(jobs) > 0 && ctx.Err() == nil {
		err := st.commit(ctx, jobs[:1])
		if err == nil || ctx.Err() == nil {
			jobs = finish(jobs, 1, err)
		}
	}
}

// finish finishes the first n jobs and returns the others.
func finish(jobs []*job, n int, err error) []*job {
	for _, j := range jobs[:n] {
		j.finish(err)
	}
	return jobs[n:]
}

// commit applies the items of jobs in one transaction, in the order of the keys,
// so that two processes don't lock each other's records crosswise. Items of one
// key keep their order.
func (st *Store) commit(ctx context.Context, jobs []*job) error {
	items := jobs[0].items
	if len(jobs) > 1 || len(items) > 1 {
		items = nil
		for _, j := range jobs {
			items = append(items, j.items...)
		}
		slices.SortStableFunc(items, func(a, b item) int {
			return cmp.Or(cmp.Compare(a.id.ns, b.id.ns), cmp.Compare(a.id.key, b.id.key))
		})
	}
	return st.transact(ctx, func(s *session) error {
		for _, i := range items {
			if err := i.apply(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// transact runs f in a transaction, and again when that met another one. f has
// to begin with a write: a transaction of SQLite's that reads first can't be
// made a writing one after somebody else has written.
func (st *Store) transact(ctx context.Context, f func(*session) error) error {
	return st.patiently(ctx, func() (bool, error) {
		err := inTx(ctx, st.db, func(tx *sql.Tx) error { return f(&session{st: st, tx: tx}) })
		return st.again(err), because(ctx, err)
	})
}

// lock takes the writer's token for a transaction that can't be gathered.
func (st *Store) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case st.writer <- struct{}{}:
		return func() { <-st.writer }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// maxPause is short, because another process that is busy all the time leaves the
// lock free for moments only, and nobody queues for it.
const maxPause = 10 * time.Millisecond

// patiently calls try until it says that trying again is of no use, ctx ends, or
// Config.BusyTimeout is over.
func (st *Store) patiently(ctx context.Context, try func() (again bool, err error)) error {
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		again, err := try()
		if !again || err == nil {
			return err
		}
		if time.Since(begun) >= st.cfg.BusyTimeout {
			return fmt.Errorf("gave up after %v: %w", st.cfg.BusyTimeout, err)
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
