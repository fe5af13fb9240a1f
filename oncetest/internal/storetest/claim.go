package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncepipe/oncepipe"
)

var claimRules = []Rule{
	{"S1.1", "claim of a new key is acquired", func(s *subject) {
		s.state("k", oncepipe.StateAbsent)
		req := request("k")
		req.Owner, req.Fingerprint = "host-1", "fp"
		a := s.claim(oncepipe.ClaimAcquired, req)
		if a.Attempt != 1 || a.Takeover || a.Takeovers != 0 || a.Fence == 0 || a.Wait != 0 || a.HasResult {
			s.Errorf("answer %+v", a)
		}
		rec := s.state("k", oncepipe.StateClaimed)
		if rec.Owner != "host-1" || rec.Fingerprint != "fp" || rec.Attempt != 1 || rec.Fence != a.Fence || rec.Takeovers != 0 {
			s.Errorf("record %+v", rec)
		}
		s.near("lease", rec.Lease, lease)
	}},
	{"S1.2", "claim of a claimed key is busy for the rest of the lease", func(s *subject) {
		s.acquire("k")
		s.near("wait", s.claim(oncepipe.ClaimBusy, request("k")).Wait, lease)
		s.Advance(lease / 3)
		s.near("wait", s.claim(oncepipe.ClaimBusy, request("k")).Wait, lease-lease/3)
	}},
	{"S1.3", "claim that is repeated gets the same answer and runs from the repetition", func(s *subject) {
		req := request("k")
		first := s.claim(oncepipe.ClaimAcquired, req)
		s.Advance(lease * 2 / 3)
		if again := s.claim(oncepipe.ClaimAcquired, req); !equalAnswers(again, first) {
			s.Errorf("repeated: %+v, first %+v", again, first)
		}
		s.near("lease", s.state("k", oncepipe.StateClaimed).Lease, lease)
		s.Advance(2 * lease) // over, and nobody took it
		if again := s.claim(oncepipe.ClaimAcquired, req); !equalAnswers(again, first) {
			s.Errorf("repeated after its lease: %+v, first %+v", again, first)
		}
	}},
	{"S1.4", "claim that took over gets the same answer when repeated", func(s *subject) {
		s.acquire("k")
		s.Advance(2 * lease)
		req := request("k")
		first := s.claim(oncepipe.ClaimAcquired, req)
		if again := s.claim(oncepipe.ClaimAcquired, req); !equalAnswers(again, first) || !again.Takeover {
			s.Errorf("repeated: %+v, first %+v", again, first)
		}
	}},
	{"S1.5", "claim id that was given back is spent", func(s *subject) {
		waiting := s.intoState("waiting", "", oncepipe.StateWaiting)
		failed := s.intoState("failed", "", oncepipe.StateFailed)
		s.Advance(2 * delay)
		for key, claim := range map[string]oncepipe.ClaimID{"waiting": waiting, "failed": failed} {
			late := request(key)
			late.Claim = claim
			s.unchanged(key, func() { s.claim(oncepipe.ClaimWaiting, late) })
			s.claim(oncepipe.ClaimAcquired, request(key))
		}
	}},
	{"S1.6", "R28 claim is taken over once its lease is over, not after the retention", func(s *subject) {
		req := request("k")
		fence := s.claim(oncepipe.ClaimAcquired, req).Fence
		for n := 1; n <= 3; n++ {
			s.Advance(lease - 2*slack)
			s.claim(oncepipe.ClaimBusy, request("k"))
			s.Advance(4 * slack)
			a := s.claim(oncepipe.ClaimAcquired, request("k"))
			if !a.Takeover || a.Takeovers != n || a.Attempt != n+1 || a.Fence != fence+1 {
				s.Errorf("takeover %d: %+v, fence before %d", n, a, fence)
			}
			fence = a.Fence
		}
		if rec := s.state("k", oncepipe.StateClaimed); rec.Takeovers != 3 || rec.Attempt != 4 {
			s.Errorf("record %+v", rec)
		}
	}},
	{"S1.7", "takeover is told once, takeovers are kept", func(s *subject) {
		s.acquire("k")
		s.Advance(2 * lease)
		claim := s.acquire("k")
		s.releaseTo(true, oncepipe.ToWaiting, "k", claim)
		s.Advance(2 * delay)
		if a := s.claim(oncepipe.ClaimAcquired, request("k")); a.Takeover || a.Takeovers != 1 || a.Attempt != 3 {
			s.Errorf("answer %+v", a)
		}
	}},
	{"S1.8", "NoTakeover turns a claim whose lease is over into unknown", func(s *subject) {
		old := s.acquire("k")
		req := request("k")
		req.NoTakeover = true
		s.claim(oncepipe.ClaimBusy, req)
		s.Advance(2 * lease)
		before := s.lookup("k")
		s.claim(oncepipe.ClaimUnknown, req)
		after := s.state("k", oncepipe.StateUnknown)
		if after.Attempt != before.Attempt || after.Fence != before.Fence || after.Takeovers != before.Takeovers+1 {
			s.Errorf("record %+v, before %+v", after, before)
		}
		s.claim(oncepipe.ClaimUnknown, req)
		s.claim(oncepipe.ClaimUnknown, request("k"))
		for _, claim := range []oncepipe.ClaimID{old, req.Claim, {}} {
			s.unchanged("k", func() {
				s.extend(false, "k", claim, lease)
				s.complete(false, "k", claim, "late")
				s.releaseTo(false, oncepipe.ToUnknown, "k", claim)
				s.releaseTo(false, oncepipe.ToWaiting, "k", claim)
			})
		}
	}},
	{"S1.9", "NoTakeover acquires what nobody holds", func(s *subject) {
		s.intoState("waiting", "", oncepipe.StateWaiting)
		s.intoState("failed", "", oncepipe.StateFailed)
		s.Advance(2 * delay)
		for _, key := range []string{"new", "waiting", "failed"} {
			req := request(key)
			req.NoTakeover = true
			first := s.claim(oncepipe.ClaimAcquired, req)
			s.Advance(2 * lease)
			if again := s.claim(oncepipe.ClaimAcquired, req); !equalAnswers(again, first) { // its own claim is no takeover
				s.Errorf("%s: repeated %+v, first %+v", key, again, first)
			}
		}
	}},
	{"S1.10", "R29 lease that is not positive is refused", func(s *subject) {
		for _, d := range []time.Duration{0, -1, -time.Hour} {
			good, bad := request("good"), request("bad")
			bad.Lease = d
			if _, err := s.Store.Claim(s.ctx(), []oncepipe.ClaimRequest{good, bad}); err == nil {
				s.Errorf("lease %v accepted", d)
			}
			s.state("bad", oncepipe.StateAbsent)
			s.state("good", oncepipe.StateAbsent)
		}
		claim := s.acquire("k")
		s.unchanged("k", func() {
			if _, err := s.Store.Extend(s.ctx(), []oncepipe.Extension{{RecordID: id("k"), Claim: claim}}); err == nil {
				s.Errorf("extension by nothing accepted")
			}
		})
	}},
	{"S1.11", "R29 lease of a nanosecond is soon over", func(s *subject) {
		req := request("k")
		req.Lease = 1
		s.claim(oncepipe.ClaimAcquired, req)
		s.Advance(slack)
		if a := s.claim(oncepipe.ClaimAcquired, request("k")); !a.Takeover {
			s.Errorf("answer %+v", a)
		}
	}},
	{"S1.12", "zero claim id and empty key are refused", func(s *subject) {
		zero, empty := request("zero"), request("")
		zero.Claim = oncepipe.ClaimID{}
		if _, err := s.Store.Claim(s.ctx(), []oncepipe.ClaimRequest{request("good"), zero}); err == nil {
			s.Errorf("zero claim id accepted")
		}
		if _, err := s.Store.Claim(s.ctx(), []oncepipe.ClaimRequest{request("good"), empty}); !errors.Is(err, oncepipe.ErrNoKey) {
			s.Errorf("empty key: %v, want ErrNoKey", err)
		}
		s.state("good", oncepipe.StateAbsent)
	}},
	{"S1.13", "R80 other fingerprint is a mismatch in every state, in flight too", func(s *subject) {
		for _, state := range presentStates {
			key := state.String()
			claim := s.intoState(key, "fp", state)
			s.unchanged(key, func() {
				other := request(key)
				other.Fingerprint = "other"
				s.claim(oncepipe.ClaimMismatch, other)
				other.Claim = claim
				s.claim(oncepipe.ClaimMismatch, other)
			})
		}
		s.Advance(2 * delay) // lease over, backoff due
		for _, state := range presentStates {
			for _, noTakeover := range []bool{false, true} {
				other := request(state.String())
				other.Fingerprint, other.NoTakeover = "other", noTakeover
				s.claim(oncepipe.ClaimMismatch, other)
				s.state(state.String(), state)
			}
		}
	}},
	{"S1.14", "empty fingerprint is not compared", func(s *subject) {
		s.intoState("with", "fp", oncepipe.StateCompleted)
		s.claim(oncepipe.ClaimCompleted, request("with"))
		s.intoState("without", "", oncepipe.StateCompleted)
		req := request("without")
		req.Fingerprint = "fp"
		s.claim(oncepipe.ClaimCompleted, req)
	}},
	{"S1.15", "fingerprint is that of the first claim, byte by byte", func(s *subject) {
		s.intoState("k", "fp\x00\xff ", oncepipe.StateFailed)
		s.acquire("k")
		if rec := s.lookup("k"); rec.Fingerprint != "fp\x00\xff " {
			s.Errorf("fingerprint %q", rec.Fingerprint)
		}
		for i, fp := range []string{"fp\x00\xff", "FP\x00\xff ", "fp", "fp\x00\xff \x00"} {
			req := request("k")
			req.Fingerprint = fp
			if a := s.claims(req)[0]; a.Status != oncepipe.ClaimMismatch {
				s.Errorf("fingerprint %d: %v", i, a.Status)
			}
		}
	}},
	{"S1.16", "completed key stays completed", func(s *subject) {
		s.intoState("k", "", oncepipe.StateCompleted)
		for range 3 {
			s.Advance(2 * lease)
			req := request("k")
			s.unchanged("k", func() {
				a := s.claim(oncepipe.ClaimCompleted, req)
				if a.Wait != 0 || a.Takeover {
					s.Errorf("answer %+v", a)
				}
			})
			s.complete(false, "k", req.Claim, "other")
		}
	}},
	{"S1.17", "cancelled context is an error, not an answer", func(s *subject) {
		ctx, cancel := context.WithCancel(s.ctx())
		cancel()
		answers, err := s.Store.Claim(ctx, []oncepipe.ClaimRequest{request("k")})
		if !errors.Is(err, context.Canceled) || len(answers) != 0 {
			s.Errorf("claim: %v, %v", answers, err)
		}
		if recs, err := s.Store.Lookup(ctx, []oncepipe.RecordID{id("k")}); !errors.Is(err, context.Canceled) || len(recs) != 0 {
			s.Errorf("lookup: %v, %v", recs, err)
		}
	}},
}

// equalAnswers compares all but the remaining times.
func equalAnswers(a, b oncepipe.ClaimAnswer) bool {
	a.Wait, b.Wait = 0, 0
	return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}
