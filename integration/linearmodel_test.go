package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// cell is the record of one key and the store's clock: the contract of
// oncepipe.Store once more, written from its documentation and not from the code
// of the stores. Retention is left out.
type cell struct {
	now         time.Duration
	state       oncepipe.State
	claim       oncepipe.ClaimID
	fence       uint64
	attempt     int
	takeovers   int
	takeover    bool          // the latest acquisition was one
	until       time.Duration // claimed: end of the lease; waiting: when it is due
	fingerprint string
	result      string
	hasResult   bool
}

// The requests to a cell are those of oncepipe.Store, and these.
type (
	advance time.Duration
	lookup  struct{ oncepipe.RecordID }
	forget  struct {
		oncepipe.RecordID
		force bool
	}
)

// said is an answer to any request.
type said struct {
	yes         bool // held, done or gone
	status      oncepipe.ClaimStatus
	state       oncepipe.State // of a lookup
	fence       uint64
	attempt     int
	takeovers   int
	takeover    bool
	wait        time.Duration // to the second
	fingerprint string
	result      string
	hasResult   bool
}

// do lets a request act on the cell.
func (c cell) do(req any) (cell, said) {
	switch r := req.(type) {
	case advance:
		c.now += time.Duration(r)
		return c, said{}
	case oncepipe.ClaimRequest:
		return c.claimBy(r)
	case oncepipe.Extension:
		if c.state != oncepipe.StateClaimed || !c.isOf(r.Claim) {
			return c, said{}
		}
		c.until = c.now + r.Lease
		return c, said{yes: true}
	case oncepipe.Completion:
		if c.state == oncepipe.StateClaimed && c.isOf(r.Claim) {
			return c.completed(r.Result, r.HasResult), said{yes: true}
		}
		return c, said{yes: c.state == oncepipe.StateCompleted && c.isOf(r.Claim)}
	case oncepipe.ReleaseRequest:
		return c.release(r)
	case oncepipe.Resolution:
		return c.resolve(r)
	case forget:
		if !r.force && c.state == oncepipe.StateClaimed && c.now < c.until {
			return c, said{}
		}
		return cell{now: c.now}, said{yes: true}
	case lookup:
		return c, c.seen()
	default:
		panic(fmt.Sprintf("no request: %T", req))
	}
}

func (c cell) isOf(claim oncepipe.ClaimID) bool {
	return c.claim == claim && claim != oncepipe.ClaimID{}
}

func (c cell) claimBy(r oncepipe.ClaimRequest) (cell, said) {
	switch runs := c.now < c.until; {
	case c.fingerprint != "" && r.Fingerprint != "" && c.fingerprint != r.Fingerprint:
		return c, c.met(oncepipe.ClaimMismatch)
	case c.state == oncepipe.StateCompleted:
		return c, c.met(oncepipe.ClaimCompleted)
	case c.state == oncepipe.StateUnknown:
		return c, c.met(oncepipe.ClaimUnknown)
	case c.state == oncepipe.StateClaimed && c.isOf(r.Claim):
		c.until = c.now + r.Lease
		return c, c.met(oncepipe.ClaimAcquired)
	case c.state == oncepipe.StateClaimed && runs:
		return c, c.met(oncepipe.ClaimBusy)
	case c.state == oncepipe.StateClaimed && r.NoTakeover:
		c.state, c.claim, c.until = oncepipe.StateUnknown, oncepipe.ClaimID{}, 0
		c.takeovers++
		return c, c.met(oncepipe.ClaimUnknown)
	case c.state != oncepipe.StateAbsent && (c.isOf(r.Claim) || runs):
		return c, c.met(oncepipe.ClaimWaiting)
	case c.state == oncepipe.StateAbsent:
		c.fingerprint = r.Fingerprint
	}
	c.takeover = c.state == oncepipe.StateClaimed
	if c.takeover {
		c.takeovers++
	}
	c.state, c.claim, c.until = oncepipe.StateClaimed, r.Claim, c.now+r.Lease
	c.fence++
	c.attempt++
	return c, c.met(oncepipe.ClaimAcquired)
}

// met is the answer to a claim.
func (c cell) met(status oncepipe.ClaimStatus) said {
	s := said{status: status, fence: c.fence, takeovers: c.takeovers}
	switch status {
	case oncepipe.ClaimAcquired:
		s.attempt, s.takeover = c.attempt, c.takeover
	case oncepipe.ClaimBusy, oncepipe.ClaimWaiting:
		s.wait = max(c.until-c.now, 0)
	case oncepipe.ClaimCompleted:
		s.result, s.hasResult = c.result, c.hasResult
	}
	return s
}

func (c cell) completed(result []byte, has bool) cell {
	c.state, c.until, c.result, c.hasResult = oncepipe.StateCompleted, 0, "", has
	if has {
		c.result = string(result)
	}
	return c
}

func (c cell) release(r oncepipe.ReleaseRequest) (cell, said) {
	to := map[oncepipe.ReleaseTo]oncepipe.State{
		oncepipe.ToWaiting: oncepipe.StateWaiting, oncepipe.ToFailed: oncepipe.StateFailed, oncepipe.ToUnknown: oncepipe.StateUnknown,
	}[r.To]
	if c.state != oncepipe.StateClaimed || !c.isOf(r.Claim) {
		return c, said{yes: c.state == to && c.isOf(r.Claim)}
	}
	c.state, c.until = to, 0
	if to == oncepipe.StateWaiting {
		c.until = c.now + max(r.Delay, 0)
		if r.Uncounted {
			c.attempt--
		}
	}
	return c, said{yes: true}
}

func (c cell) resolve(r oncepipe.Resolution) (cell, said) {
	failed := c.state == oncepipe.StateFailed
	if !failed && c.state != oncepipe.StateUnknown || c.fence != r.Fence {
		return c, said{}
	}
	c.claim = oncepipe.ClaimID{}
	if r.To == oncepipe.StateCompleted {
		return c.completed(r.Result, r.HasResult), said{yes: true}
	}
	c.state = r.To
	if r.To == oncepipe.StateWaiting && failed {
		c.attempt, c.takeovers = 0, 0
	}
	return c, said{yes: true}
}

// seen is the answer to a lookup.
func (c cell) seen() said {
	s := said{state: c.state, fence: c.fence, attempt: c.attempt, takeovers: c.takeovers, fingerprint: c.fingerprint}
	switch c.state {
	case oncepipe.StateClaimed:
		s.wait = c.until - c.now
	case oncepipe.StateWaiting:
		s.wait = max(c.until-c.now, 0)
	case oncepipe.StateCompleted:
		s.result, s.hasResult = c.result, c.hasResult
	}
	return s
}

// ask hands a batch, of requests of one type, to a store.
func ask(ctx context.Context, st oncepipe.Store, reqs []any) ([]said, error) {
	switch first := reqs[0].(type) {
	case oncepipe.ClaimRequest:
		answers, err := st.Claim(ctx, typed[oncepipe.ClaimRequest](reqs))
		return each(answers, saidOfClaim), err
	case oncepipe.Extension:
		held, err := st.Extend(ctx, typed[oncepipe.Extension](reqs))
		return each(held, saidYes), err
	case oncepipe.Completion:
		held, err := st.Complete(ctx, typed[oncepipe.Completion](reqs))
		return each(held, saidYes), err
	case oncepipe.ReleaseRequest:
		held, err := st.Release(ctx, typed[oncepipe.ReleaseRequest](reqs))
		return each(held, saidYes), err
	case oncepipe.Resolution:
		done, err := st.Resolve(ctx, typed[oncepipe.Resolution](reqs))
		return each(done, saidYes), err
	case forget:
		ids := each(typed[forget](reqs), func(f forget) oncepipe.RecordID { return f.RecordID })
		gone, err := st.Forget(ctx, ids, first.force)
		return each(gone, saidYes), err
	case lookup:
		ids := each(typed[lookup](reqs), func(l lookup) oncepipe.RecordID { return l.RecordID })
		recs, err := st.Lookup(ctx, ids)
		return each(recs, saidOfRecord), err
	default:
		return nil, fmt.Errorf("no request: %T", first)
	}
}

func typed[Q any](reqs []any) []Q { return each(reqs, func(r any) Q { return r.(Q) }) }

func each[A, B any](all []A, f func(A) B) []B {
	mapped := make([]B, len(all))
	for i, a := range all {
		mapped[i] = f(a)
	}
	return mapped
}

func saidYes(yes bool) said { return said{yes: yes} }

func saidOfClaim(a oncepipe.ClaimAnswer) said {
	return said{
		status: a.Status, fence: a.Fence, attempt: a.Attempt, takeovers: a.Takeovers, takeover: a.Takeover,
		wait: a.Wait.Round(time.Second), result: string(a.Result), hasResult: a.HasResult,
	}
}

func saidOfRecord(r oncepipe.Record) said {
	s := said{
		state: r.State, fence: r.Fence, attempt: r.Attempt, takeovers: r.Takeovers,
		fingerprint: r.Fingerprint, result: string(r.Result), hasResult: r.HasResult,
	}
	switch r.State {
	case oncepipe.StateClaimed:
		s.wait = r.Lease.Round(time.Second)
	case oncepipe.StateWaiting:
		s.wait = max(r.Wait, 0).Round(time.Second)
	}
	return s
}

// The cell answers as the reference does, so that histories are measured by the
// contract.
func TestCell(t *testing.T) {
	id := oncepipe.RecordID{Namespace: "n", Key: "k"}
	rapid.Check(t, func(rt *rapid.T) {
		var c cell
		st := memstore.New(memstore.Config{Now: func() time.Time { return time.Unix(0, 0).Add(c.now) }})
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			req := drawRequest(rt, id)
			next, want := c.do(req)
			if _, passes := req.(advance); !passes {
				got, err := ask(t.Context(), st, []any{req})
				if err != nil || got[0] != want {
					rt.Fatalf("in %+v: %+v is answered\n%+v, %v; the cell says\n%+v", c, req, got, err, want)
				}
			}
			c = next
			if got, err := ask(t.Context(), st, []any{lookup{id}}); err != nil || got[0] != c.seen() {
				rt.Fatalf("after %+v: there is\n%+v, %v; the cell says\n%+v", req, got, err, c.seen())
			}
		}
	})
}

func drawRequest(rt *rapid.T, id oncepipe.RecordID) any {
	claim := oncepipe.ClaimID{byte(rapid.IntRange(1, 3).Draw(rt, "claim"))}
	d := time.Second * time.Duration(rapid.SampledFrom([]int{5, 15, 25}).Draw(rt, "duration"))
	result, has := []byte(rapid.SampledFrom([]string{"", "r"}).Draw(rt, "result")), rapid.Bool().Draw(rt, "has")
	flag := rapid.Bool().Draw(rt, "flag")
	switch rapid.IntRange(0, 8).Draw(rt, "request") {
	case 0:
		return advance(lockstepTick * time.Duration(rapid.IntRange(0, 2).Draw(rt, "ticks")))
	case 1, 2:
		fingerprint := rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(rt, "fingerprint")
		return oncepipe.ClaimRequest{RecordID: id, Claim: claim, Lease: d, NoTakeover: flag, Fingerprint: fingerprint}
	case 3:
		return oncepipe.Extension{RecordID: id, Claim: claim, Lease: d}
	case 4:
		return oncepipe.Completion{RecordID: id, Claim: claim, Result: result, HasResult: has}
	case 5, 6:
		to := oncepipe.ReleaseTo(rapid.IntRange(1, 3).Draw(rt, "to"))
		return oncepipe.ReleaseRequest{RecordID: id, Claim: claim, To: to, Delay: d - 10*time.Second, Uncounted: flag}
	case 7:
		to := rapid.SampledFrom([]oncepipe.State{oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed}).Draw(rt, "to")
		fence := uint64(rapid.IntRange(0, 4).Draw(rt, "fence"))
		return oncepipe.Resolution{RecordID: id, Fence: fence, To: to, Result: result, HasResult: has}
	default:
		return forget{id, flag}
	}
}
