package oncepipe

import (
	"context"
	"sync"
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

// leaseHold renews a claim while its handler runs. Its context ends with cause
// ErrLeaseLost when the claim is gone, or before it could be: the watchdog counts
// from when the last good request was sent, since the store's lease began no
// earlier. A renewal that fails is not yet a lost lease.
//
// There are only timers here, so that a handler that is quicker than the first
// renewal costs no goroutine.
type leaseHold struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	st     Store
	ext    Extension

	mu        sync.Mutex
	ended     bool
	recording bool // the handler has returned; Complete is under way
	beat      *time.Timer
	watchdog  *time.Timer
	beating   sync.WaitGroup
	endBeat   context.CancelFunc
	beatCtx   context.Context
}

func holdLease(ctx context.Context, st Store, req ClaimRequest, sent time.Time) *leaseHold {
	h := &leaseHold{st: st, ext: Extension{RecordID: req.RecordID, Claim: req.Claim, Lease: req.Lease}}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.beatCtx, h.endBeat = context.WithCancel(context.WithoutCancel(ctx))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beat = time.AfterFunc(req.Lease/leaseBeats, h.renew)
	h.watchdog = time.AfterFunc(leaseLeft(h.ext.Lease, sent), func() { h.cancel(ErrLeaseLost) })
	return h
}

// leaseLeft is how long something may go on under a lease that was asked for at
// sent.
func leaseLeft(lease time.Duration, sent time.Time) time.Duration {
	return time.Until(sent.Add(lease - lease/watchdogParts))
}

func (h *leaseHold) renew() {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return
	}
	h.beating.Add(1)
	h.mu.Unlock()
	defer h.beating.Done()

	sent := time.Now()
	ctx, cancel := context.WithTimeout(h.beatCtx, h.ext.Lease/leaseBeats)
	held, err := h.st.Extend(ctx, []Extension{h.ext})
	cancel()

	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
	case err != nil:
		h.beat.Reset(h.ext.Lease / watchdogParts)
	case !held[0] && h.recording:
		// Perhaps a Completion arrived whose reply was lost. Complete will be told;
		// the watchdog limits how long that is tried.
	case !held[0]:
		h.watchdog.Stop()
		h.cancel(ErrLeaseLost)
	default:
		h.beat.Reset(h.ext.Lease / leaseBeats)
		h.watchdog.Reset(leaseLeft(h.ext.Lease, sent))
	}
}

// record says that a claim that is gone may be so because it was completed.
func (h *leaseHold) record() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recording = true
}

// end stops renewing and waits for a renewal under way.
func (h *leaseHold) end() {
	h.mu.Lock()
	h.ended = true
	h.beat.Stop()
	h.watchdog.Stop()
	h.mu.Unlock()
	h.endBeat()
	h.beating.Wait()
	h.cancel(context.Canceled)
}
