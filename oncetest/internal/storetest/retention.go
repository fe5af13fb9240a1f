package storetest

import (
	"fmt"
	"time"

	"github.com/oncepipe/oncepipe"
)

var retentionRules = []Rule{
	{"S7.1", "R66 every record that is over goes away, no other does", func(s *subject) {
		for _, state := range presentStates {
			s.intoState(state.String(), "", state)
			rec := s.lookup(state.String())
			switch state {
			case oncepipe.StateClaimed, oncepipe.StateUnknown:
				if rec.Retention != 0 {
					s.Errorf("%v is kept for %v", state, rec.Retention)
				}
			case oncepipe.StateWaiting:
				s.near("retention of waiting", rec.Retention, delay+s.Retention)
			default:
				s.near("retention of "+state.String(), rec.Retention, s.Retention)
			}
		}
		s.prune(0, 100)
		s.Advance(s.Retention - 2*slack)
		s.prune(0, 100)
		s.Advance(4 * slack)
		s.prune(2, 100)
		s.state("completed", oncepipe.StateAbsent)
		s.state("failed", oncepipe.StateAbsent)
		s.Advance(delay)
		s.prune(1, 100)
		s.state("waiting", oncepipe.StateAbsent)
		s.Advance(100 * s.Retention)
		s.prune(0, 100)
		s.state("claimed", oncepipe.StateClaimed)
		s.state("unknown", oncepipe.StateUnknown)
	}},
	{"S7.2", "R66 record that is in use again is not pruned", func(s *subject) {
		s.intoState("waiting", "", oncepipe.StateWaiting)
		s.intoState("failed", "", oncepipe.StateFailed)
		s.Advance(2 * s.Retention)
		waiting, failed := s.acquire("waiting"), s.acquire("failed")
		s.prune(0, 100)
		s.complete(true, "waiting", waiting, "")
		s.complete(true, "failed", failed, "")
		s.prune(0, 100)
		s.near("retention", s.lookup("waiting").Retention, s.Retention)
	}},
	{"S7.3", "R67 retention runs from completion, duplicates don't extend it", func(s *subject) {
		claim := s.acquire("k")
		s.extend(true, "k", claim, s.Retention)
		s.Advance(s.Retention / 2)
		s.complete(true, "k", claim, "result")
		s.near("retention", s.lookup("k").Retention, s.Retention)
		step := s.Retention / 4
		for n := range 4 {
			s.near("retention", s.lookup("k").Retention, s.Retention-step*time.Duration(n))
			s.claim(oncepipe.ClaimCompleted, request("k"))
			s.complete(true, "k", claim, "again")
			s.Advance(step)
		}
		s.Advance(slack)
		s.prune(1, 100)
		s.state("k", oncepipe.StateAbsent)
	}},
	{"S7.4", "record that is still there is a duplicate, even past its retention", func(s *subject) {
		s.intoState("k", "", oncepipe.StateCompleted)
		s.Advance(3 * s.Retention)
		s.claim(oncepipe.ClaimCompleted, request("k"))
		if rec := s.state("k", oncepipe.StateCompleted); rec.Retention >= 0 {
			s.Errorf("retention %v", rec.Retention)
		}
		s.prune(1, 100)
		if a := s.claim(oncepipe.ClaimAcquired, request("k")); a.Attempt != 1 {
			s.Errorf("answer %+v", a)
		}
	}},
	{"S7.5", "prune removes at most its limit", func(s *subject) {
		for n := range 25 {
			s.intoState(fmt.Sprint("k", n), "", oncepipe.StateCompleted)
		}
		s.Advance(2 * s.Retention)
		s.intoState("younger", "", oncepipe.StateCompleted)
		s.prune(0, 0)
		s.prune(0, -1)
		s.prune(10, 10)
		s.prune(10, 10)
		s.prune(5, 10)
		s.prune(0, 10)
		s.state("younger", oncepipe.StateCompleted)
	}},
}
