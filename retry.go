package oncepipe

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
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
	// DefaultSlots. More workers than slots are of no use.
	Slots int
}

func (r RetryPolicy) check() error {
	var errs []error
	if r.MaxAttempts < 0 {
		errs = append(errs, errors.New("MaxAttempts is negative"))
	}
	if r.MaxDelay < 0 {
		errs = append(errs, errors.New("MaxDelay is negative"))
	}
	if r.Slots < 0 || r.Slots > math.MaxInt32 {
		errs = append(errs, errors.New("Slots is out of range"))
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
	left     time.Duration // of its wait, when the lane was shut
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
	heap   laneHeap
	jobs   []job[A] // by place
	free   []uint32 // places in jobs
	seq    uint32
}

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
	if l.closed {
		return false
	}
	now := time.Since(l.epoch)
	due := now + delay
	if due < now {
		due = math.MaxInt64
	}
	var place uint32
	if n := len(l.free); n > 0 {
		place = l.free[n-1]
		l.free = l.free[:n-1]
		l.jobs[place] = j
	} else {
		place = uint32(len(l.jobs))
		l.jobs = append(l.jobs, j)
	}
	l.heap.push(laneEntry{due: int64(due), seq: l.seq, place: place})
	l.seq++
	l.parked.Add(1)
	if l.heap[0].place == place {
		l.timer.Reset(due - now)
	}
	return true
}

// take returns the first item if it is due. The caller has the token.
func (l *lane[A]) take() (job[A], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.heap) == 0 {
		return job[A]{}, false
	}
	now := int64(time.Since(l.epoch))
	first := l.heap[0]
	if first.due > now {
		l.timer.Reset(time.Duration(first.due - now))
		return job[A]{}, false
	}
	l.heap.pop()
	j := l.jobs[first.place]
	l.jobs[first.place] = job[A]{}
	l.free = append(l.free, first.place)
	l.parked.Add(-1)
	switch {
	case len(l.heap) == 0:
		l.jobs, l.free = l.jobs[:0], l.free[:0]
	case l.heap[0].due <= now:
		l.wake()
	default:
		l.timer.Reset(time.Duration(l.heap[0].due - now))
	}
	return j, true
}

// shut refuses further items, stops the timer and returns what is parked.
func (l *lane[A]) shut() []job[A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.timer.Stop()
	now := int64(time.Since(l.epoch))
	out := make([]job[A], 0, len(l.heap))
	for len(l.heap) > 0 {
		first := l.heap[0]
		l.heap.pop()
		j := l.jobs[first.place]
		if j.retry != nil {
			j.retry.left = time.Duration(max(first.due-now, 0))
		}
		out = append(out, j)
	}
	l.heap, l.jobs, l.free = nil, nil, nil
	l.parked.Store(0)
	return out
}

// oldest returns when the longest-known delivery with a parked item was
// admitted.
func (l *lane[A]) oldest() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Duration
	for i, e := range l.heap {
		if at := l.jobs[e.place].t.scope.admitted; i == 0 || at < first {
			first = at
		}
	}
	return first, len(l.heap) > 0
}

// laneEntry stands for a parked item: 16 bytes, without pointers, so that a
// million of them are no work for the garbage collector.
type laneEntry struct {
	due   int64 // nanoseconds since the lane's epoch
	seq   uint32
	place uint32
}

func (a laneEntry) before(b laneEntry) bool {
	return a.due < b.due || a.due == b.due && int32(a.seq-b.seq) < 0
}

// laneHeap is a 4-ary heap: half as deep as a binary one, and the children of
// an entry share a cache line.
type laneHeap []laneEntry

func (h *laneHeap) push(e laneEntry) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = e
	*h = s
}

// pop removes the first entry.
func (h *laneHeap) pop() {
	s := *h
	last := len(s) - 1
	e := s[last]
	s = s[:last]
	*h = s
	i := 0
	for {
		child := 4*i + 1
		if child >= last {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, last); c++ {
			if s[c].before(s[least]) {
				least = c
			}
		}
		if !s[least].before(e) {
			break
		}
		s[i] = s[least]
		i = least
	}
	if last > 0 {
		s[i] = e
	}
}
