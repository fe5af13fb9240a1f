package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oncepipe/oncepipe"
)

var listRules = []Rule{
	{"S8.1", "list shows the records of a state, in order and by pages", func(s *subject) {
		var want []oncepipe.RecordID
		for _, ns := range []string{"b", "a", "a b"} {
			for n := range 7 {
				for _, state := range presentStates {
					rid := oncepipe.RecordID{Namespace: ns, Key: fmt.Sprintf("%v-%d", state, n)}
					s.recordInState(rid, state)
					if state == oncepipe.StateFailed {
						want = append(want, rid)
					}
				}
			}
		}
		slices.SortFunc(want, func(a, b oncepipe.RecordID) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key))
		})
		for _, limit := range []int{1, 4, 21, 100} {
			s.listed(want, oncepipe.Query{State: oncepipe.StateFailed, Limit: limit})
			s.listed(want[:7], oncepipe.Query{State: oncepipe.StateFailed, Namespace: "a", Limit: limit})
			s.listed(want[10:], oncepipe.Query{State: oncepipe.StateFailed, After: want[9], Limit: limit})
		}
		s.listed(nil, oncepipe.Query{State: oncepipe.StateFailed, Namespace: "c"})
		for _, state := range []oncepipe.State{oncepipe.StateWaiting, oncepipe.StateUnknown} {
			if recs := s.list(oncepipe.Query{State: state, Namespace: "b"}); len(recs) != 7 || recs[3].State != state {
				s.Errorf("%v: %+v", state, recs)
			}
		}
	}},
	{"S8.2", "list shows what lookup shows", func(s *subject) {
		s.intoState("k", "fp", oncepipe.StateFailed)
		if recs := s.list(oncepipe.Query{State: oncepipe.StateFailed}); len(recs) != 1 || string(recs[0].Payload) != "what" ||
			recs[0].Reason != "why" || recs[0].Fingerprint != "fp" || recs[0].Fence != 1 {
			s.Errorf("listed %+v", recs)
		}
	}},
	{"S8.3", "list forgets a record that left the state", func(s *subject) {
		for _, state := range []oncepipe.State{oncepipe.StateWaiting, oncepipe.StateFailed, oncepipe.StateUnknown} {
			for _, key := range []string{"claimed", "resolved", "forgotten"} {
				s.intoState(state.String()+key, "", state)
			}
		}
		s.Advance(2 * delay)
		for _, state := range []oncepipe.State{oncepipe.StateWaiting, oncepipe.StateFailed, oncepipe.StateUnknown} {
			left := 0
			s.forget(true, state.String()+"forgotten", false)
			if state == oncepipe.StateUnknown {
				left = 1
			} else {
				s.acquire(state.String() + "claimed")
			}
			if state == oncepipe.StateWaiting {
				left = 1
			} else {
				s.resolve(true, oncepipe.Resolution{RecordID: id(state.String() + "resolved"), To: oncepipe.StateCompleted})
			}
			if recs := s.list(oncepipe.Query{State: state}); len(recs) != left {
				s.Errorf("%v: %d listed, want %d: %+v", state, len(recs), left, recs)
			}
		}
		s.Advance(2 * s.Retention)
		s.prune(3, 100) // two resolved ones and the waiting one
		if recs := s.list(oncepipe.Query{State: oncepipe.StateWaiting}); len(recs) != 0 {
			s.Errorf("listed after prune: %+v", recs)
		}
	}},
	{"S8.4", "list gives ids that the other methods take, hashed ones too", func(s *subject) {
		long := oncepipe.RecordID{Namespace: strings.Repeat("n", 300), Key: strings.Repeat("k", 300)}
		lookalike := oncepipe.RecordID{Namespace: "n", Key: oncepipe.StorageKey(long.Key)}
		s.recordInState(long, oncepipe.StateFailed)
		s.recordInState(lookalike, oncepipe.StateFailed)
		recs := s.list(oncepipe.Query{State: oncepipe.StateFailed})
		if len(recs) != 2 || !recs[0].Stored || !recs[1].Stored {
			s.Fatalf("listed %+v", recs)
		}
		s.listed([]oncepipe.RecordID{recs[1].RecordID}, oncepipe.Query{State: oncepipe.StateFailed, Namespace: long.Namespace})
		s.listed([]oncepipe.RecordID{recs[1].RecordID}, oncepipe.Query{State: oncepipe.StateFailed, After: recs[0].RecordID})
		again, err := s.Store.Lookup(s.ctx(), []oncepipe.RecordID{recs[0].RecordID, recs[1].RecordID})
		s.noError("lookup", err)
		if again[0].State != oncepipe.StateFailed || again[0].RecordID != recs[0].RecordID || again[1].State != oncepipe.StateFailed {
			s.Errorf("looked up %+v", again)
		}
		gone, err := s.Store.Forget(s.ctx(), []oncepipe.RecordID{recs[1].RecordID}, false)
		s.one("forget", true, gone, err)
		again, err = s.Store.Lookup(s.ctx(), []oncepipe.RecordID{long, lookalike})
		s.noError("lookup", err)
		if again[0].State != oncepipe.StateAbsent || again[1].State != oncepipe.StateFailed {
			s.Errorf("after forget: %+v", again)
		}
	}},
	{"S8.5", "states that are too many to list are refused", func(s *subject) {
		for _, state := range []oncepipe.State{oncepipe.StateAbsent, oncepipe.StateClaimed, oncepipe.StateCompleted, 99} {
			if _, err := s.Store.List(s.ctx(), oncepipe.Query{State: state}); err == nil {
				s.Errorf("list of %v accepted", state)
			}
		}
	}},
	{"S8.6", "count knows every record by its state", func(s *subject) {
		want := map[oncepipe.State]int{}
		for i, state := range presentStates {
			for n := range i + 1 {
				s.intoState(fmt.Sprint(state, n), "", state)
				want[state]++
			}
		}
		got, err := s.Store.Count(s.ctx())
		s.noError("count", err)
		if !maps.Equal(got, want) {
			s.Errorf("counted %v, want %v", got, want)
		}
	}},
}

// recordInState is intoState for any id.
func (s *subject) recordInState(rid oncepipe.RecordID, state oncepipe.State) {
	s.Helper()
	req := request("")
	req.RecordID = rid
	s.claim(oncepipe.ClaimAcquired, req)
	to := map[oncepipe.State]oncepipe.ReleaseTo{
		oncepipe.StateWaiting: oncepipe.ToWaiting, oncepipe.StateFailed: oncepipe.ToFailed, oncepipe.StateUnknown: oncepipe.ToUnknown,
	}[state]
	switch {
	case to != 0:
		s.release(true, oncepipe.ReleaseRequest{RecordID: rid, Claim: req.Claim, To: to, Delay: delay})
	case state == oncepipe.StateCompleted:
		s.completion(true, oncepipe.Completion{RecordID: rid, Claim: req.Claim})
	}
}

func (s *subject) list(q oncepipe.Query) []oncepipe.Record {
	s.Helper()
	recs, err := s.Store.List(s.ctx(), q)
	s.noError("list", err)
	return recs
}

// listed reads all pages of a query.
func (s *subject) listed(want []oncepipe.RecordID, q oncepipe.Query) {
	s.Helper()
	var got []oncepipe.RecordID
	for {
		page := s.list(q)
		if q.Limit > 0 && len(page) > q.Limit {
			s.Fatalf("%d records on a page of %d", len(page), q.Limit)
		}
		if len(page) == 0 {
			break
		}
		for _, rec := range page {
			if rec.State != q.State {
				s.Errorf("listed %v as %v", rec.State, q.State)
			}
			got = append(got, rec.RecordID)
		}
		if q.After = got[len(got)-1]; len(got) > len(want)+1 {
			break
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("%+v: listed\n %v\nwant\n %v", q, got, want)
	}
}
