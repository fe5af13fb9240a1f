package oncepipe

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe/internal/due"
)

// Defaults of RetryPolicy.
const (
	DefaultSlots  = 256
	DefaultMaxAge = 24 * time.Hour
)

// RetryPolicy says how a stage tries failed items again. The zero value is a
// good policy: exponential backoff from 100 ms to 30 s, until the item is a day
// old.
type RetryPolicy struct {
	// MaxAttempts is how often an item may be run in this stage, the first time
	// included. 0: no limit.
	MaxAttempts int

	// Backoff makes the backoff of an item when it first fails; NextBackOff is
	// called once for every further wait. A negative wait (backoff.Stop) gives the
	// item up. Default: exponential, 100 ms to 30 s, jitter 0.5, for ever. It is
	// called from several goroutines; what it returns, from one at a time.
	Backoff func() backoff.BackOff

	// MaxDelay caps every wait, whether it comes from Backoff or from RetryAfter.
	// 0: no cap.
	MaxDelay time.Duration

	// MaxAge gives an item up when its next attempt would begin later than this
	// after its delivery was admitted, time spent running included. 0:
	// DefaultMaxAge. Negative: no limit.
	MaxAge time.Duration

	// Slots is how many items may be inside the stage: running, waiting for a
	// retry or due. When all are taken the stage stops reading its buffer. 0:
	// DefaultSlots; see BatchSize for batches. More workers than slots are of no
	// use.
	Slots int
}

func (r RetryPolicy) check() error {
	var errs []error
	if r.MaxAttempts < 0 {
		errs = append(errs, errors.New("negative MaxAttempts"))
	}
	if r.MaxDelay < 0 {
		errs = append(errs, errors.New("negative MaxDelay"))
	}
	if r.Slots < 0 || r.Slots > math.MaxInt32 {
		errs = append(errs, errors.New("slots out of range"))
	}
	return errors.Join(errs...)
}

func (r RetryPolicy) withDefaults() RetryPolicy {
	if r.Backoff == nil {
		r.Backoff = defaultBackoff
	}
	if r.MaxAge == 0 {
		r.MaxAge = DefaultMaxAge
	}
	if r.Slots == 0 {
		r.Slots = DefaultSlots
	}
	return r
}

// nextDelay asks the item's backoff. The error is its panic or Goexit.
func (r RetryPolicy) nextDelay(st *retryState) (delay time.Duration, err error) {
	err = isolate(func() error {
		if st.backoff == nil {
			st.backoff = r.Backoff()
		}
		delay = st.backoff.NextBackOff()
		return nil
	})
	return delay, err
}

func defaultBackoff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second),
		backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxElapsedTime(0),
	)
}

// retryState is what a stage remembers of an item that failed in it.
type retryState struct {
	attempts int // counted ones
	backoff  backoff.BackOff
	err      error         // of the last attempt
	seq      uint64        // Ordered: the item's place
	longer   time.Duration // that its source is to wait, should it have to take it back
	left     time.Duration // of its wait and that, when the lane was shut
}

// job is an item inside a stage. retry is nil until it first fails, but for
// Ordered stages.
type job[A any] struct {
	item[A]
	retry *retryState
}

// left is how long the item was still to wait when its lane was shut.
func (j *job[A]) left() time.Duration {
	if j.retry == nil {
		return 0
	}
	return j.retry.left
}

func (j *job[A]) attempts() int {
	if j.retry == nil {
		return 0
	}
	return j.retry.attempts
}

// lane holds the parked items of a stage. Every parked item has a slot, so that
// the lane is bounded and handing an item to it never waits.
//
// One timer serves all of them. When it fires, ready gets a token; the worker
// that takes it takes the first due item and passes the token on while more are
// due. So there is always either a token on its way or a timer that is set for
// the first item, and no goroutine that hands items over.
type lane[A any] struct {
	parked atomic.Int64 // what the fast path looks at
	ready  chan struct{}

	mu     sync.Mutex
	closed bool
	timer  *time.Timer
	epoch  time.Time
	index  due.Index
	jobs   []job[A]        // by place
	since  []time.Duration // by place: when its delivery was admitted; noJob where there is none
}

// noJob is later than everything.
const noJob = time.Duration(math.MaxInt64)

func newLane[A any]() *lane[A] {
	return &lane[A]{ready: make(chan struct{}, 1)}
}

// start is called by Run, so that the timer belongs to the world Run runs in.
func (l *lane[A]) start() {
	l.epoch = time.Now()
	l.timer = time.AfterFunc(time.Hour, l.wake)
	l.timer.Stop()
}

func (l *lane[A]) wake() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// park keeps j until delay is over. It returns false when the lane is closed.
func (l *lane[A]) park(j job[A], delay time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.push(j, delay)
	}
	return !l.closed
}

// admit parks what make returns, due at once. It makes nothing, and returns false, when
// the lane is closed.
func (l *lane[A]) admit(make func() job[A]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.push(make(), 0)
	}
	return !l.closed
}

func (l *lane[A]) push(j job[A], delay time.Duration) {
	now := time.Since(l.epoch)
	at := now + delay
	if at < now {
		at = math.MaxInt64
	}
	place, first := l.index.Push(int64(at))
	if int(place) == len(l.jobs) {
		l.jobs = append(l.jobs, j)
		l.since = append(l.since, j.t.scope.admitted)
	} else {
		l.jobs[place] = j
		l.since[place] = j.t.scope.admitted
	}
	l.parked.Add(1)
	if first {
		l.timer.Reset(at - now)
	}
}

// take returns the first item if it is due. The caller has the token.
func (l *lane[A]) take() (job[A], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.index.Len() == 0 {
		return job[A]{}, false
	}
	now := int64(time.Since(l.epoch))
	place, at := l.index.First()
	if at > now {
		l.timer.Reset(time.Duration(at - now))
		return job[A]{}, false
	}
	j := l.pop(place)
	l.parked.Add(-1)
	if l.index.Len() > 0 {
		if _, at := l.index.First(); at <= now {
			l.wake()
		} else {
			l.timer.Reset(time.Duration(at - now))
		}
	}
	return j, true
}

// pop takes the first item out.
func (l *lane[A]) pop(place uint32) job[A] {
	l.index.Pop()
	j := l.jobs[place]
	l.jobs[place], l.since[place] = job[A]{}, noJob
	if l.index.Len() == 0 {
		l.jobs, l.since = l.jobs[:0], l.since[:0]
	}
	return j
}

// shutIf refuses further items if empty, which is asked under the lock, says that there
// is none in the stage. It reports whether there is none.
func (l *lane[A]) shutIf(empty func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !empty() {
		return false
	}
	l.closed = true
	return true
}

// shut refuses further items, stops the timer and returns what is parked.
func (l *lane[A]) shut() []job[A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.timer.Stop()
	now := int64(time.Since(l.epoch))
	out := make([]job[A], 0, l.index.Len())
	for l.index.Len() > 0 {
		place, at := l.index.First()
		j := l.pop(place)
		if j.retry != nil {
			j.retry.left = time.Duration(max(at-now, 0)) + j.retry.longer
		}
		out = append(out, j)
	}
	l.index, l.jobs, l.since = due.Index{}, nil, nil
	l.parked.Store(0)
	return out
}

// oldest returns when the longest-known delivery with a parked item was
// admitted. It reads one number after the other, so that a million parked items
// hold up nobody for long.
func (l *lane[A]) oldest() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.index.Len() == 0 {
		return 0, false
	}
	return slices.Min(l.since), true
}
