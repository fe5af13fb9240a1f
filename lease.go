package oncepipe

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	claimTries    = 3
	repeatMin     = 10 * time.Millisecond
	repeatMax     = time.Second
	leaseBeats    = 3  // renewals per lease
	watchdogParts = 10 // the last part of a lease in which nothing may run any more
)

// repeated calls fn until it has no error: at most tries times, or with tries 0
// until ctx ends. The requests it is used for can be repeated.
func repeated[T any](ctx context.Context, tries int, fn func() (T, error)) (T, error) {
	delay := repeatMin
	for n := 1; ; n++ {
		v, err := fn()
		if err == nil || n == tries || ctx.Err() != nil || !sleep(ctx, delay) {
			return v, err
		}
		delay = min(2*delay, repeatMax)
	}
}

// leaseHold renews a claim for as long as something runs under it. Its context
// ends with cause ErrLeaseLost when the claim is gone, or before it could be: the
// watchdog counts from when the last good request was sent, since the store's
// lease began no earlier. A renewal that fails is not yet a lost lease.
type leaseHold struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	k      *keeper
	ext    Extension

	// Under the keeper's lock.
	kept      bool
	place     int       // among those kept
	beat      time.Time // when to renew; zero: no more
	deadline  time.Time // when the watchdog bites
	asking    bool      // a renewal is under way
	recording bool      // the handler has returned; Complete is under way

	// ctx has ended, or is about to: those that are lost at once end one after the
	// other, and what the first of them lets go on must not begin under another one.
	// Set under the lock.
	lost atomic.Bool
}

// holdLease hands a claim to the keeper of its store where ctx is that of a
// pipeline which has one, and else to one of its own.
func holdLease(ctx context.Context, st Store, req ClaimRequest, sent time.Time) *leaseHold {
	h := newHold(ctx, req)
	if c, ok := ctx.Value(infoKey{}).(infoCarrier); ok {
		if k := c.keeper(st); k != nil && k.keep(h, sent) {
			return h
		}
	}
	k := newKeeper(context.WithoutCancel(ctx), st)
	k.alone = true
	k.keep(h, sent)
	return h
}

func newHold(ctx context.Context, req ClaimRequest) *leaseHold {
	h := &leaseHold{ext: Extension{RecordID: req.RecordID, Claim: req.Claim, Lease: req.Lease}}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	return h
}

// leaseLeft is how long something may go on under a lease that was asked for at
// sent.
func leaseLeft(lease time.Duration, sent time.Time) time.Duration {
	return time.Until(sent.Add(lease - lease/watchdogParts))
}

// record says that a claim that is gone may be so because it was completed.
func (h *leaseHold) record() {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.recording = true
}

// end stops renewing. Where the keeper is the hold's own it waits for a renewal
// under way.
func (h *leaseHold) end() {
	h.k.drop(h)
	h.cancel(context.Canceled)
}

// due is when the keeper has to look at the hold again.
func (h *leaseHold) due() time.Time {
	switch {
	case h.lost.Load() && (h.asking || h.beat.IsZero()):
		return time.Time{}
	case h.asking, h.beat.IsZero(), !h.lost.Load() && h.deadline.Before(h.beat):
		return h.deadline
	default:
		return h.beat
	}
}

// dueSoon tells whether to renew the hold along with those that are due.
func (h *leaseHold) dueSoon(now time.Time) bool {
	return !h.asking && !h.beat.IsZero() && !now.Before(h.beat.Add(-h.ext.Lease/watchdogParts))
}

// answered takes in what became of a renewal.
func (h *leaseHold) answered(held bool, err error, sent, now time.Time) {
	h.asking = false
	switch {
	case err != nil:
		h.beat = now.Add(h.ext.Lease / watchdogParts)
	case held:
		h.beat = now.Add(h.ext.Lease / leaseBeats)
		h.deadline = sent.Add(h.ext.Lease - h.ext.Lease/watchdogParts)
	default:
		// While recording, a Completion may have arrived whose reply was lost. Complete
		// will be told; the watchdog limits how long that is tried.
		h.beat = time.Time{}
		if !h.recording {
			h.deadline = now
		}
	}
}

// keeper renews claims on a store: all of those that are due, or nearly, with one
// request. It is a timer and no goroutine: what is over before its first renewal
// costs a place in a list.
type keeper struct {
	st    Store
	base  context.Context // of renewals
	stop  context.CancelFunc
	alone bool           // it ends with its first hold
	down  *outage        // nil: nobody is told
	calls sync.WaitGroup // renewals under way

	renewed, failed atomic.Int64

	mu     sync.Mutex
	closed bool
	holds  []*leaseHold
	timer  *time.Timer
	next   time.Time // when the timer fires; zero: it is not set
}

func newKeeper(base context.Context, st Store) *keeper {
	k := &keeper{st: st}
	k.base, k.stop = context.WithCancel(base)
	return k
}

// keep takes h, whose claim was asked for at sent. It returns false when the
// keeper is closed.
func (k *keeper) keep(h *leaseHold, sent time.Time) bool {
	lease := h.ext.Lease
	k.mu.Lock()
	defer k.mu.Unlock()
	h.k = k
	if k.closed {
		return false
	}
	h.kept, h.place = true, len(k.holds)
	h.beat, h.deadline = time.Now().Add(lease/leaseBeats), sent.Add(lease-lease/watchdogParts)
	k.holds = append(k.holds, h)
	k.lookBy(h.due())
	return true
}

// drop forgets h. The timer stays as it is, since the next hold will need it;
// only the last one of a closed keeper stops it.
func (k *keeper) drop(h *leaseHold) {
	k.mu.Lock()
	if h.kept {
		h.kept = false
		last := len(k.holds) - 1
		k.holds[h.place] = k.holds[last]
		k.holds[h.place].place = h.place
		k.holds[last] = nil
		k.holds = k.holds[:last]
	}
	over := len(k.holds) == 0 && (k.closed || k.alone)
	k.mu.Unlock()
	if over {
		k.close()
	}
}

// close refuses further holds. With the last of those that it has, nothing is
// left of the keeper; a handler that Run didn't wait for keeps its claim so long.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	over := len(k.holds) == 0
	if over && k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	if over {
		k.stop()
		k.calls.Wait()
	}
}

func (k *keeper) held() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.holds)
}

// lookBy sets the timer to fire no later than at.
func (k *keeper) lookBy(at time.Time) {
	switch {
	case at.IsZero(), !k.next.IsZero() && !at.Before(k.next):
		return
	case k.timer == nil:
		k.timer = time.AfterFunc(time.Until(at), k.look)
	default:
		k.timer.Reset(time.Until(at))
	}
	k.next = at
}

// look renews what is due and ends what may not go on.
func (k *keeper) look() {
	k.mu.Lock()
	k.next = time.Time{}
	now := time.Now()
	lost := k.bite(now)
	var due []*leaseHold
	for _, h := range k.holds {
		if h.dueSoon(now) {
			h.asking = true
			due = append(due, h)
		}
		k.lookBy(h.due())
	}
	if len(due) > 0 {
		k.calls.Add(1)
		defer k.calls.Done()
	}
	k.mu.Unlock()
	loseAll(lost)
	if len(due) > 0 {
		k.renew(due)
	}
}

// bite returns the holds whose watchdog's time has come. The caller has the lock,
// and passes them to loseAll without it.
func (k *keeper) bite(now time.Time) (lost []*leaseHold) {
	for _, h := range k.holds {
		if !h.lost.Load() && !now.Before(h.deadline) {
			h.lost.Store(true)
			lost = append(lost, h)
		}
	}
	return lost
}

func loseAll(lost []*leaseHold) {
	for _, h := range lost {
		h.cancel(ErrLeaseLost)
	}
}

// renew extends leases with one request. Its time limit is that of the shortest:
// when it hangs there must be time for another.
func (k *keeper) renew(due []*leaseHold) {
	limit := due[0].ext.Lease
	exts := make([]Extension, len(due))
	for i, h := range due {
		exts[i] = h.ext
		limit = min(limit, h.ext.Lease)
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(k.base, limit/leaseBeats)
	held, err := asked(len(exts), func() ([]bool, error) { return k.st.Extend(ctx, exts) })
	cancel()
	if err != nil {
		k.failed.Add(1)
	} else {
		k.renewed.Add(int64(len(exts)))
	}
	if k.base.Err() == nil {
		k.down.note(err)
	}
	now := time.Now()
	k.mu.Lock()
	for i, h := range due {
		h.answered(err == nil && held[i], err, sent, now)
	}
	lost := k.bite(now)
	for _, h := range due {
		if h.kept {
			k.lookBy(h.due())
		}
	}
	k.mu.Unlock()
	loseAll(lost)
}

// asked calls a store with a batch of n. What a store must not do is an error
// here, since there is nobody else to catch it.
func asked[A any](n int, call func() ([]A, error)) (answers []A, err error) {
	if perr := isolate(func() error { answers, err = call(); return nil }); perr != nil {
		return nil, perr
	}
	if err == nil && len(answers) != n {
		err = fmt.Errorf("store gave %d answers to a batch of %d", len(answers), n)
	}
	return answers, err
}
