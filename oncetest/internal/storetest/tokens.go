package storetest

import (
	"context"
	"errors"

	"github.com/oncepipe/oncepipe"
)

var tokenRules = []Rule{
	{"S2.1", "I3 token of an older claim changes nothing and is told so", func(s *subject) {
		old := s.acquire("k")
		s.Advance(2 * lease)
		s.acquire("k")
		s.unchanged("k", func() { s.refused("k", old) })
		s.Advance(2 * lease) // the younger claim's lease being over doesn't revive it
		s.unchanged("k", func() { s.refused("k", old) })
	}},
	{"S2.2", "R25 token of somebody else releases nothing", func(s *subject) {
		for _, state := range presentStates {
			key := state.String()
			s.intoState(key, "", state)
			s.unchanged(key, func() {
				s.refused(key, oncepipe.ClaimID{})
				s.refused(key, oncepipe.NewClaimID())
			})
		}
	}},
	{"S2.3", "R25 rejected claim has no rights", func(s *subject) {
		s.acquire("k")
		req := request("k")
		s.claim(oncepipe.ClaimBusy, req)
		s.unchanged("k", func() { s.refused("k", req.Claim) })
	}},
	{"S2.4", "R27 owner's name is no fence", func(s *subject) {
		first, second := request("k"), request("k")
		first.Owner, second.Owner = "worker-1", "worker-1"
		s.claim(oncepipe.ClaimAcquired, first)
		s.claim(oncepipe.ClaimBusy, second)
		s.Advance(2 * lease)
		s.claim(oncepipe.ClaimAcquired, second)
		s.unchanged("k", func() { s.refused("k", first.Claim) })
		s.complete(true, "k", second.Claim, "")
	}},
	{"S2.5", "R55 write to a record that is not there is not held", func(s *subject) {
		claim := s.acquire("k")
		s.forget(true, "k", true)
		s.refused("k", claim)
		s.refused("never", oncepipe.NewClaimID())
		s.refused("never", oncepipe.ClaimID{})
		s.state("k", oncepipe.StateAbsent)
		s.state("never", oncepipe.StateAbsent)
	}},
	{"S2.6", "token is good for its own key only", func(s *subject) {
		claim := s.acquire("a")
		s.acquire("b")
		s.unchanged("b", func() { s.refused("b", claim) })
		s.complete(true, "a", claim, "")
	}},
	{"S2.7", "claim whose lease is over is held until somebody takes it", func(s *subject) {
		completed, waiting, extended := s.acquire("completed"), s.acquire("waiting"), s.acquire("extended")
		s.Advance(10 * lease)
		s.complete(true, "completed", completed, "")
		s.releaseTo(true, oncepipe.ToWaiting, "waiting", waiting)
		s.extend(true, "extended", extended, lease)
		s.state("completed", oncepipe.StateCompleted)
		s.state("waiting", oncepipe.StateWaiting)
		s.claim(oncepipe.ClaimBusy, request("extended"))
	}},
	{"S2.8", "extension runs from now", func(s *subject) {
		claim := s.acquire("k")
		s.Advance(lease / 2)
		s.extend(true, "k", claim, lease)
		s.near("lease", s.lookup("k").Lease, lease)
		s.extend(true, "k", claim, lease) // repeated
		s.Advance(lease * 2 / 3)
		s.near("wait", s.claim(oncepipe.ClaimBusy, request("k")).Wait, lease-lease*2/3)
		s.extend(true, "k", claim, lease/2) // a shorter one too
		s.near("lease", s.lookup("k").Lease, lease/2)
	}},
	{"S2.9", "extension keeps attempt, fence and takeovers", func(s *subject) {
		s.acquire("k")
		s.Advance(2 * lease)
		claim := s.acquire("k")
		before := s.lookup("k")
		s.extend(true, "k", claim, lease)
		after := s.lookup("k")
		before.Lease, after.Lease = 0, 0
		if !equalRecords(before, after) {
			s.Errorf("record %+v, before %+v", after, before)
		}
	}},
	{"S2.10", "completion is held again and changes nothing the second time", func(s *subject) {
		claim := s.acquire("k")
		s.complete(true, "k", claim, "first")
		s.Advance(lease)
		s.unchanged("k", func() { s.complete(true, "k", claim, "second") })
		if a := s.claim(oncepipe.ClaimCompleted, request("k")); string(a.Result) != "first" {
			s.Errorf("result %q", a.Result)
		}
	}},
	{"S2.11", "completion that failed is no answer to others, nor one that was refused", func(s *subject) {
		for _, key := range []string{"failed", "refused"} {
			c := oncepipe.Completion{RecordID: id(key), Claim: s.acquire(key), Result: []byte("early"), HasResult: true}
			if key == "refused" {
				c.Claim = oncepipe.NewClaimID()
				s.completion(false, c)
			} else {
				ctx, cancel := context.WithCancel(s.ctx())
				cancel()
				if held, err := s.Store.Complete(ctx, []oncepipe.Completion{c}); !errors.Is(err, context.Canceled) || len(held) != 0 {
					s.Errorf("complete: %v, %v", held, err)
				}
			}
			// Whatever has become of it, a claim must say what the record says.
			status, state := s.claims(request(key))[0].Status, s.lookup(key).State
			if (status == oncepipe.ClaimCompleted) != (state == oncepipe.StateCompleted) {
				s.Errorf("%s: a claim says %v of a record that is %v", key, status, state)
			}
		}
	}},
	{"S2.12", "release is held again and changes nothing the second time", func(s *subject) {
		for _, to := range []oncepipe.ReleaseTo{oncepipe.ToWaiting, oncepipe.ToFailed, oncepipe.ToUnknown} {
			key := string(rune('a' + to))
			claim := s.acquire(key)
			r := oncepipe.ReleaseRequest{RecordID: id(key), Claim: claim, To: to, Delay: delay, Uncounted: to == oncepipe.ToWaiting, Reason: "first", Payload: []byte("first")}
			s.release(true, r)
			s.unchanged(key, func() {
				r.Reason, r.Payload, r.Delay = "second", []byte("second"), 3*delay
				s.release(true, r)
				s.extend(false, key, claim, lease)
				s.complete(false, key, claim, "")
				for _, other := range []oncepipe.ReleaseTo{oncepipe.ToWaiting, oncepipe.ToFailed, oncepipe.ToUnknown} {
					if other != to {
						s.releaseTo(false, other, key, claim)
					}
				}
			})
		}
	}},
	{"S2.13", "release that is repeated after somebody else's claim is not held", func(s *subject) {
		old := s.acquire("k")
		s.releaseTo(true, oncepipe.ToWaiting, "k", old)
		s.Advance(2 * delay)
		younger := s.acquire("k")
		s.unchanged("k", func() { s.refused("k", old) })
		s.releaseTo(true, oncepipe.ToWaiting, "k", younger)
		s.unchanged("k", func() { s.refused("k", old) })
	}},
	{"S2.14", "completed claim can't be released or extended", func(s *subject) {
		claim := s.intoState("k", "", oncepipe.StateCompleted)
		s.unchanged("k", func() {
			s.extend(false, "k", claim, lease)
			s.releaseTo(false, oncepipe.ToWaiting, "k", claim)
			s.releaseTo(false, oncepipe.ToFailed, "k", claim)
			s.releaseTo(false, oncepipe.ToUnknown, "k", claim)
		})
		req := request("k")
		req.Claim = claim
		s.claim(oncepipe.ClaimCompleted, req)
	}},
	{"S2.15", "fence grows with every acquisition", func(s *subject) {
		var last uint64
		acquire := func() oncepipe.ClaimID {
			req := request("k")
			a := s.claim(oncepipe.ClaimAcquired, req)
			if a.Fence <= last {
				s.Errorf("fence %d after %d", a.Fence, last)
			}
			last = a.Fence
			return req.Claim
		}
		acquire()
		s.Advance(2 * lease)
		s.releaseTo(true, oncepipe.ToWaiting, "k", acquire())
		s.Advance(2 * delay)
		s.releaseTo(true, oncepipe.ToFailed, "k", acquire())
		s.releaseTo(true, oncepipe.ToUnknown, "k", acquire())
		s.resolve(true, oncepipe.Resolution{RecordID: id("k"), To: oncepipe.StateWaiting})
		acquire()
	}},
}

// refused checks that claim has no right to key.
func (s *subject) refused(key string, claim oncepipe.ClaimID) {
	s.Helper()
	s.extend(false, key, claim, 100*lease)
	s.complete(false, key, claim, "stale")
	s.releaseTo(false, oncepipe.ToWaiting, key, claim)
	s.releaseTo(false, oncepipe.ToFailed, key, claim)
	s.releaseTo(false, oncepipe.ToUnknown, key, claim)
}
