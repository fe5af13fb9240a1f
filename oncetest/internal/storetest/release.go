package storetest

import (
	"github.com/oncepipe/oncepipe"
)

var releaseRules = []Rule{
	{"S3.1", "R50 retryable, permanent and unknown failures lead to three states", func(s *subject) {
		for to, state := range map[oncepipe.ReleaseTo]oncepipe.State{
			oncepipe.ToWaiting: oncepipe.StateWaiting,
			oncepipe.ToFailed:  oncepipe.StateFailed,
			oncepipe.ToUnknown: oncepipe.StateUnknown,
		} {
			key := state.String()
			s.releaseTo(true, to, key, s.acquire(key))
			rec := s.state(key, state)
			if rec.Reason != "why" || rec.Attempt != 1 {
				s.Errorf("record %+v", rec)
			}
			payload := "what"
			if to == oncepipe.ToWaiting {
				payload = ""
			}
			if string(rec.Payload) != payload {
				s.Errorf("%v: payload %q, want %q", to, rec.Payload, payload)
			}
		}
	}},
	{"S3.2", "waiting key is not to be had before it is due", func(s *subject) {
		s.intoState("k", "", oncepipe.StateWaiting)
		s.near("wait", s.claim(oncepipe.ClaimWaiting, request("k")).Wait, delay)
		s.near("wait", s.lookup("k").Wait, delay)
		s.Advance(delay / 2)
		s.near("wait", s.claim(oncepipe.ClaimWaiting, request("k")).Wait, delay-delay/2)
		s.Advance(delay/2 + slack)
		if a := s.claim(oncepipe.ClaimAcquired, request("k")); a.Attempt != 2 || a.Takeover || a.Takeovers != 0 {
			s.Errorf("answer %+v", a)
		}
	}},
	{"S3.3", "waiting without a delay is due at once", func(s *subject) {
		for _, r := range []oncepipe.ReleaseRequest{{}, {Delay: -delay}} {
			r.RecordID, r.Claim, r.To = id("k"), s.acquire("k"), oncepipe.ToWaiting
			s.release(true, r)
		}
		s.acquire("k")
	}},
	{"S3.4", "uncounted release is no attempt", func(s *subject) {
		for range 3 {
			req := request("k")
			if a := s.claim(oncepipe.ClaimAcquired, req); a.Attempt != 1 {
				s.Errorf("attempt %d, want 1", a.Attempt)
			}
			s.release(true, oncepipe.ReleaseRequest{RecordID: id("k"), Claim: req.Claim, To: oncepipe.ToWaiting, Uncounted: true})
			if rec := s.lookup("k"); rec.Attempt != 0 {
				s.Errorf("attempts %d, want 0", rec.Attempt)
			}
		}
		s.release(true, oncepipe.ReleaseRequest{RecordID: id("k"), Claim: s.acquire("k"), To: oncepipe.ToWaiting})
		if a := s.claim(oncepipe.ClaimAcquired, request("k")); a.Attempt != 2 {
			s.Errorf("attempt %d, want 2", a.Attempt)
		}
	}},
	{"S3.5", "failed key can be claimed again at once", func(s *subject) {
		s.intoState("k", "", oncepipe.StateFailed)
		req := request("k")
		if a := s.claim(oncepipe.ClaimAcquired, req); a.Attempt != 2 || a.Takeover {
			s.Errorf("answer %+v", a)
		}
		s.claim(oncepipe.ClaimBusy, request("k"))
		s.complete(true, "k", req.Claim, "done")
		s.claim(oncepipe.ClaimCompleted, request("k"))
	}},
	{"S3.6", "payload of a failure is kept until the key is complete", func(s *subject) {
		s.intoState("k", "", oncepipe.StateFailed)
		claim := s.acquire("k") // a redrive; if its process dies now, this is the only copy
		if rec := s.lookup("k"); string(rec.Payload) != "what" || rec.Reason != "why" {
			s.Errorf("claimed again: %+v", rec)
		}
		s.release(true, oncepipe.ReleaseRequest{RecordID: id("k"), Claim: claim, To: oncepipe.ToWaiting, Reason: "later"})
		if rec := s.lookup("k"); string(rec.Payload) != "what" || rec.Reason != "later" {
			s.Errorf("waiting: %+v", rec)
		}
		claim = s.acquire("k")
		s.release(true, oncepipe.ReleaseRequest{RecordID: id("k"), Claim: claim, To: oncepipe.ToFailed, Reason: "again", Payload: []byte("newer")})
		if rec := s.lookup("k"); string(rec.Payload) != "newer" || rec.Reason != "again" {
			s.Errorf("failed again: %+v", rec)
		}
		s.complete(true, "k", s.acquire("k"), "")
		if rec := s.lookup("k"); len(rec.Payload) != 0 || rec.Reason != "" {
			s.Errorf("completed: %+v", rec)
		}
	}},
	{"S3.7", "unknown key is for nobody until it is resolved", func(s *subject) {
		claim := s.intoState("k", "", oncepipe.StateUnknown)
		s.Advance(10 * s.Retention)
		s.unchanged("k", func() {
			s.claim(oncepipe.ClaimUnknown, request("k"))
			s.extend(false, "k", claim, lease)
			s.complete(false, "k", claim, "")
			s.releaseTo(false, oncepipe.ToWaiting, "k", claim)
			s.prune(0, 10)
		})
	}},
	{"S3.8", "resolve settles an unknown key", func(s *subject) {
		for _, to := range []oncepipe.State{oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed} {
			key := to.String()
			claim := s.intoState(key, "", oncepipe.StateUnknown)
			r := oncepipe.Resolution{RecordID: id(key), To: to, Result: []byte("found out"), HasResult: true}
			s.resolve(true, r)
			rec := s.state(key, to)
			s.near("retention", rec.Retention, s.Retention)
			s.unchanged(key, func() {
				if to != oncepipe.StateFailed {
					s.resolve(false, r)
				}
				s.refused(key, claim)
				s.refused(key, oncepipe.ClaimID{})
			})
			if to == oncepipe.StateCompleted {
				if a := s.claim(oncepipe.ClaimCompleted, request(key)); string(a.Result) != "found out" || !a.HasResult {
					s.Errorf("answer %+v", a)
				}
				continue
			}
			if rec.HasResult || string(rec.Payload) != "what" {
				s.Errorf("record %+v", rec)
			}
			if a := s.claim(oncepipe.ClaimAcquired, request(key)); a.Attempt != 2 || a.Takeover {
				s.Errorf("answer %+v", a)
			}
		}
	}},
	{"S3.9", "resolve of a failed key is a redrive, or says that it is done", func(s *subject) {
		for _, to := range []oncepipe.State{oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed} {
			key := to.String()
			s.acquire(key)
			s.Advance(2 * lease)
			claim := s.acquire(key) // a takeover
			s.releaseTo(true, oncepipe.ToFailed, key, claim)
			s.resolve(true, oncepipe.Resolution{RecordID: id(key), To: to, Result: []byte("by hand"), HasResult: true})
			rec := s.state(key, to)
			s.near("retention", rec.Retention, s.Retention)
			s.refused(key, claim)
			switch to {
			case oncepipe.StateCompleted:
				if string(rec.Result) != "by hand" || len(rec.Payload) > 0 {
					s.Errorf("record %+v", rec)
				}
			case oncepipe.StateWaiting:
				if rec.Attempt != 0 || rec.Takeovers != 0 || string(rec.Payload) != "what" {
					s.Errorf("record %+v", rec)
				}
				if a := s.claim(oncepipe.ClaimAcquired, request(key)); a.Attempt != 1 || a.Takeovers != 0 || a.Takeover || a.Fence != 3 {
					s.Errorf("answer %+v", a)
				}
			default:
				if rec.Attempt != 2 || rec.Takeovers != 1 || string(rec.Payload) != "what" {
					s.Errorf("record %+v", rec)
				}
			}
		}
	}},
	{"S3.10", "I3 late resolution changes nothing", func(s *subject) {
		for _, state := range []oncepipe.State{oncepipe.StateUnknown, oncepipe.StateFailed} {
			key := state.String()
			s.intoState(key, "", state)
			seen := s.lookup(key).Fence
			s.resolve(true, oncepipe.Resolution{RecordID: id(key), To: oncepipe.StateWaiting})
			claim := s.acquire(key) // somebody else believed it as well, and ran again
			s.releaseTo(true, map[oncepipe.State]oncepipe.ReleaseTo{
				oncepipe.StateUnknown: oncepipe.ToUnknown, oncepipe.StateFailed: oncepipe.ToFailed,
			}[state], key, claim)
			s.unchanged(key, func() {
				for _, fence := range []uint64{0, seen, seen + 2} {
					done, err := s.Store.Resolve(s.ctx(), []oncepipe.Resolution{{RecordID: id(key), Fence: fence, To: oncepipe.StateWaiting}})
					s.one("resolve", false, done, err)
				}
			})
		}
	}},
	{"S3.11", "resolve leaves what is neither unknown nor failed alone", func(s *subject) {
		for _, state := range presentStates {
			if state == oncepipe.StateUnknown || state == oncepipe.StateFailed {
				continue
			}
			key := state.String()
			s.intoState(key, "", state)
			s.unchanged(key, func() {
				for _, to := range []oncepipe.State{oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed} {
					s.resolve(false, oncepipe.Resolution{RecordID: id(key), To: to})
				}
			})
		}
		s.resolve(false, oncepipe.Resolution{RecordID: id("never"), To: oncepipe.StateCompleted})
		s.state("never", oncepipe.StateAbsent)
	}},
	{"S3.12", "states that nothing leads to are refused", func(s *subject) {
		claim := s.acquire("k")
		for _, to := range []oncepipe.ReleaseTo{0, oncepipe.ToUnknown + 1} {
			if _, err := s.Store.Release(s.ctx(), []oncepipe.ReleaseRequest{{RecordID: id("k"), Claim: claim, To: to}}); err == nil {
				s.Errorf("release to %d accepted", to)
			}
		}
		s.state("k", oncepipe.StateClaimed)
		s.releaseTo(true, oncepipe.ToUnknown, "k", claim)
		for _, to := range []oncepipe.State{oncepipe.StateAbsent, oncepipe.StateClaimed, oncepipe.StateUnknown, 99} {
			if _, err := s.Store.Resolve(s.ctx(), []oncepipe.Resolution{{RecordID: id("k"), To: to}}); err == nil {
				s.Errorf("resolution to %v accepted", to)
			}
		}
		s.state("k", oncepipe.StateUnknown)
	}},
	{"S3.13", "forget makes a key new, whatever its state", func(s *subject) {
		for _, state := range presentStates {
			key := state.String()
			s.intoState(key, "fp", state)
			s.forget(true, key, state == oncepipe.StateClaimed)
			s.state(key, oncepipe.StateAbsent)
			req := request(key)
			req.Fingerprint = "other"
			if a := s.claim(oncepipe.ClaimAcquired, req); a.Attempt != 1 || a.Takeovers != 0 || a.Takeover {
				s.Errorf("answer %+v", a)
			}
		}
		s.forget(true, "never", false)
	}},
	{"S3.14", "forget refuses a live claim without force", func(s *subject) {
		claim := s.acquire("k")
		s.unchanged("k", func() { s.forget(false, "k", false) })
		s.extend(true, "k", claim, lease)
		s.Advance(2 * lease)
		s.forget(true, "k", false) // not live any more
		s.state("k", oncepipe.StateAbsent)
	}},
}
