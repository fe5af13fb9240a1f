package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// longLeases is from how many leases on a claim is not held through a backoff.
const longLeases = 2

// errDoneElsewhere says that another process has done a key meanwhile.
var errDoneElsewhere = errors.New("oncepipe: done by another process")

// claim is the right to act on a key, of an item that passes a Dedup with a
// store. Attempts run in its context. It belongs to whoever has the item, but for
// the context and the atomic fields.
type claim struct {
	p      *Pipeline
	st     Store
	policy ClaimPolicy
	outer  *claim          // of a Dedup before; nil: none
	each   []*claim        // of a group's members, which is all that a group's claim has but for the context
	scope  *scope          // of the item
	ctx    context.Context // once acquired: ends with ErrLeaseLost, and with the pipeline's handlers
	end    context.CancelCauseFunc

	attempt  atomic.Int32
	takeover atomic.Bool // an owner of the key has vanished

	req   ClaimRequest
	asked bool       // the store may have given it
	hold  *leaseHold // nil: not acquired, or given back for the time of a backoff
}

// acquired makes the claim hold.
func (c *claim) acquired(ans ClaimAnswer, sent time.Time) {
	base := c.p.handlers
	attempt, takeover := int32(ans.Attempt), ans.Takeovers > 0
	if o := c.outer; o != nil {
		base = o.ctx
		attempt, takeover = max(attempt, o.attempt.Load()), takeover || o.takeover.Load()
	}
	if c.ctx == nil {
		c.ctx, c.end = context.WithCancelCause(base)
	}
	c.attempt.Store(attempt)
	c.takeover.Store(takeover)
	c.hold = &leaseHold{ctx: c.ctx, cancel: c.end, ext: Extension{RecordID: c.req.RecordID, Claim: c.req.Claim, Lease: c.req.Lease}}
	if !c.p.keeper(c.st).keep(c.hold, sent) { // Run did not wait for the answer
		c.end(ErrLeaseLost)
	}
}

// tooOften returns ErrMaxTakeovers where an answer says so.
func (c *claim) tooOften(ans ClaimAnswer) error {
	if limit := c.policy.MaxTakeovers; limit > 0 && ans.Takeover && ans.Takeovers > limit {
		return fmt.Errorf("%w (%d times)", ErrMaxTakeovers, ans.Takeovers)
	}
	return nil
}

// letGo ends the renewals, before the claim is given back or when all is over.
func (c *claim) letGo() {
	switch {
	case c.hold != nil:
		c.hold.end()
	case c.end != nil:
		c.end(context.Canceled)
	}
}

// lost tells whether nothing may begin under the claim any more.
func (c *claim) lost() bool {
	switch {
	case c.hold != nil && c.hold.lost.Load():
		return true
	case c.outer != nil && c.outer.lost():
		return true
	case slices.ContainsFunc(c.each, (*claim).lost):
		return true
	default:
		return c.ctx.Err() != nil && context.Cause(c.ctx) == ErrLeaseLost
	}
}

// leave gives the claim back for the time of a long backoff, unless other items
// go on under it. Where that fails the claim is held on.
func (c *claim) leave(s *scope, delay time.Duration) {
	if c.hold == nil || s != c.scope || s.open.Load() != 1 || delay <= longLeases*c.req.Lease || c.lost() {
		return
	}
	ctx, cancel := c.p.settling(c.req.Lease)
	defer cancel()
	held, err := asked(1, func() ([]bool, error) {
		return c.st.Release(ctx, []ReleaseRequest{{
			RecordID: c.req.RecordID, Claim: c.req.Claim, To: ToWaiting, Delay: delay, Reason: "waits for a retry",
		}})
	})
	switch {
	case err != nil:
	case !held[0]:
		c.end(ErrLeaseLost)
	default:
		c.hold.k.drop(c.hold)
		c.hold, c.asked = nil, false
		c.req.Claim = NewClaimID() // the old one is spent
	}
}

// ready returns nil when the item may run, and else what has become of it: a
// Snooze while somebody else has the key or the store can't be reached.
func (c *claim) ready() error {
	switch {
	case c.lost():
		return ErrLeaseLost
	case c.hold != nil:
		return nil
	case c.each != nil:
		for _, m := range c.each {
			if err := m.ready(); err != nil {
				return err
			}
		}
		return nil
	}
	c.asked = true
	ctx, cancel := context.WithTimeout(c.p.handlers, c.req.Lease/claimTries)
	defer cancel()
	sent := time.Now()
	answers, err := asked(1, func() ([]ClaimAnswer, error) { return c.st.Claim(ctx, []ClaimRequest{c.req}) })
	if err != nil || leaseLeft(c.req.Lease, sent) <= 0 {
		return Snooze(repeatMax)
	}
	ans := answers[0]
	c.asked = ans.Status == ClaimAcquired
	switch ans.Status {
	case ClaimAcquired:
		if err := c.tooOften(ans); err != nil {
			return err
		}
		c.acquired(ans, sent)
		return nil
	case ClaimCompleted:
		return errDoneElsewhere
	case ClaimBusy, ClaimWaiting:
		return busy(ans)
	case ClaimMismatch:
		return ErrMismatch
	case ClaimUnknown:
		return ErrUnknownOutcome
	default:
		return badStatus(ans)
	}
}

// busy is a Snooze for as long as somebody else may have the key: a moment at
// least, so that a store whose clock is coarse isn't asked in a loop.
func busy(ans ClaimAnswer) error {
	return marked(markSnooze, max(ans.Wait, time.Millisecond), ErrBusy)
}

func badStatus(ans ClaimAnswer) error {
	return fmt.Errorf("store answered a claim with status %v", ans.Status)
}

// settling is the context of one request to a store that the shutdown doesn't
// end.
func (p *Pipeline) settling(lease time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(p.handlers), min(lease/claimTries, p.cfg.SettleTimeout))
}

// release says what becomes of the record of an item with this verdict.
func (c *claim) release(v *verdict, payload []byte) ReleaseRequest {
	rel := ReleaseRequest{RecordID: c.req.RecordID, Claim: c.req.Claim, To: ToWaiting, Delay: v.delay}
	if v.err != nil {
		_ = protect(func() error { rel.Reason = v.err.Error(); return nil }) // without words, no reason
	}
	if v.outcome == Dead {
		rel.To, rel.Delay, rel.Payload = ToFailed, 0, payload
		return rel
	}
	rel.Uncounted = c.hold == nil || v.outcome == Shed
	for _, no := range []error{ErrShutdown, ErrDrainTimeout, ErrLeaseLost} {
		rel.Uncounted = rel.Uncounted || errors.Is(v.err, no)
	}
	return rel
}
