package storetest

import (
	"fmt"
	"slices"

	"github.com/oncepipe/oncepipe"
)

var batchRules = []Rule{
	{"S5.1", "empty batch has no answers", func(s *subject) {
		answers, err := s.Store.Claim(s.ctx(), nil)
		s.noError("claim", err)
		held, err := s.Store.Complete(s.ctx(), nil)
		s.noError("complete", err)
		recs, err := s.Store.Lookup(s.ctx(), nil)
		s.noError("lookup", err)
		if len(answers)+len(held)+len(recs) != 0 {
			s.Errorf("%v, %v, %v", answers, held, recs)
		}
	}},
	{"S5.2", "answers come item by item, in the order of the request", func(s *subject) {
		s.intoState("m-completed", "", oncepipe.StateCompleted)
		s.intoState("a-claimed", "", oncepipe.StateClaimed)
		s.intoState("z-waiting", "", oncepipe.StateWaiting)
		s.intoState("b-unknown", "", oncepipe.StateUnknown)
		s.intoState("y-other", "fp", oncepipe.StateCompleted)
		s.intoState("c-failed", "", oncepipe.StateFailed)
		other := request("y-other")
		other.Fingerprint = "other"
		answers := s.claims(request("z-waiting"), request("n-new"), request("a-claimed"), other,
			request("m-completed"), request("b-unknown"), request("c-failed"))
		var got []oncepipe.ClaimStatus
		for _, a := range answers {
			got = append(got, a.Status)
		}
		want := []oncepipe.ClaimStatus{
			oncepipe.ClaimWaiting, oncepipe.ClaimAcquired, oncepipe.ClaimBusy, oncepipe.ClaimMismatch,
			oncepipe.ClaimCompleted, oncepipe.ClaimUnknown, oncepipe.ClaimAcquired,
		}
		if !slices.Equal(got, want) {
			s.Errorf("statuses %v, want %v", got, want)
		}
		ids := []oncepipe.RecordID{id("z-waiting"), id("never"), id("a-claimed"), id("z-waiting")}
		recs, err := s.Store.Lookup(s.ctx(), ids)
		s.noError("lookup", err)
		states := []oncepipe.State{oncepipe.StateWaiting, oncepipe.StateAbsent, oncepipe.StateClaimed, oncepipe.StateWaiting}
		for i, rec := range recs {
			if rec.RecordID != ids[i] || rec.State != states[i] {
				s.Errorf("lookup %d: %+v", i, rec)
			}
		}
	}},
	{"S5.3", "key twice in a batch acts in sequence", func(s *subject) {
		first, second := request("k"), request("k")
		answers := s.claims(first, request("between"), second, first)
		if answers[0].Status != oncepipe.ClaimAcquired || answers[2].Status != oncepipe.ClaimBusy || !equalAnswers(answers[3], answers[0]) {
			s.Errorf("claims: %+v", answers)
		}
		s.near("wait", answers[2].Wait, lease)
		answers = s.claims(request("two"), request("two"))
		if answers[0].Status != oncepipe.ClaimAcquired || answers[1].Status != oncepipe.ClaimBusy {
			s.Errorf("claims: %+v", answers)
		}

		held, err := s.Store.Complete(s.ctx(), []oncepipe.Completion{
			{RecordID: id("k"), Claim: second.Claim, Result: []byte("second"), HasResult: true},
			{RecordID: id("k"), Claim: first.Claim, Result: []byte("first"), HasResult: true},
			{RecordID: id("k"), Claim: first.Claim, Result: []byte("again"), HasResult: true},
		})
		s.noError("complete", err)
		if !slices.Equal(held, []bool{false, true, true}) {
			s.Errorf("completions: %v", held)
		}
		if a := s.claim(oncepipe.ClaimCompleted, request("k")); string(a.Result) != "first" {
			s.Errorf("result %q", a.Result)
		}

		claim := s.acquire("r")
		held, err = s.Store.Release(s.ctx(), []oncepipe.ReleaseRequest{
			{RecordID: id("r"), Claim: claim, To: oncepipe.ToFailed, Reason: "first"},
			{RecordID: id("r"), Claim: claim, To: oncepipe.ToUnknown, Reason: "second"},
			{RecordID: id("r"), Claim: claim, To: oncepipe.ToFailed, Reason: "third"},
		})
		s.noError("release", err)
		if !slices.Equal(held, []bool{true, false, true}) {
			s.Errorf("releases: %v", held)
		}
		if rec := s.state("r", oncepipe.StateFailed); rec.Reason != "first" {
			s.Errorf("reason %q", rec.Reason)
		}

		claim = s.acquire("e")
		held, err = s.Store.Extend(s.ctx(), []oncepipe.Extension{
			{RecordID: id("e"), Claim: claim, Lease: lease},
			{RecordID: id("e"), Claim: oncepipe.NewClaimID(), Lease: 2 * lease},
			{RecordID: id("e"), Claim: claim, Lease: 3 * lease},
		})
		s.noError("extend", err)
		if !slices.Equal(held, []bool{true, false, true}) {
			s.Errorf("extensions: %v", held)
		}
		s.near("lease", s.lookup("e").Lease, 3*lease)

		s.intoState("u", "", oncepipe.StateUnknown)
		done, err := s.Store.Resolve(s.ctx(), []oncepipe.Resolution{
			{RecordID: id("u"), Fence: 1, To: oncepipe.StateWaiting}, {RecordID: id("u"), Fence: 1, To: oncepipe.StateCompleted},
		})
		s.noError("resolve", err)
		if !slices.Equal(done, []bool{true, false}) {
			s.Errorf("resolutions: %v", done)
		}
		s.state("u", oncepipe.StateWaiting)
		gone, err := s.Store.Forget(s.ctx(), []oncepipe.RecordID{id("u"), id("u"), id("e"), id("u")}, false)
		s.noError("forget", err)
		if !slices.Equal(gone, []bool{true, true, false, true}) {
			s.Errorf("forgotten: %v", gone)
		}
	}},
	{"S5.4", "keys many times in a batch act in sequence", func(s *subject) {
		var reqs []oncepipe.ClaimRequest
		for n := range 90 {
			reqs = append(reqs, request(string("cabbage"[(n*n+n/3)%7])))
		}
		held := map[string]bool{}
		for n, a := range s.claims(reqs...) {
			want := oncepipe.ClaimAcquired
			if held[reqs[n].Key] {
				want = oncepipe.ClaimBusy
			}
			held[reqs[n].Key] = true
			if a.Status != want {
				s.Errorf("claim %d, of %s: %v, want %v", n, reqs[n].Key, a.Status, want)
			}
		}
	}},
	{"S5.5", "large batch is answered whole", func(s *subject) {
		const n = 1500
		reqs := make([]oncepipe.ClaimRequest, n)
		for i := range reqs {
			reqs[i] = request(fmt.Sprintf("k%d", (i*7919)%n)) // unsorted, each once
		}
		for i, a := range s.claims(reqs...) {
			if a.Status != oncepipe.ClaimAcquired {
				s.Fatalf("claim %d: %v", i, a.Status)
			}
		}
		completions := make([]oncepipe.Completion, n)
		for i, r := range reqs {
			completions[i] = oncepipe.Completion{RecordID: r.RecordID, Claim: r.Claim, Result: []byte(r.Key), HasResult: true}
		}
		held, err := s.Store.Complete(s.ctx(), completions)
		s.noError("complete", err)
		if len(held) != n || slices.Contains(held, false) {
			s.Errorf("%d answers, all held: %v", len(held), !slices.Contains(held, false))
		}
		for i := range reqs {
			reqs[i].Claim = oncepipe.NewClaimID()
		}
		for i, a := range s.claims(reqs...) {
			if a.Status != oncepipe.ClaimCompleted || string(a.Result) != reqs[i].Key {
				s.Fatalf("claim %d of %s: %v %q", i, reqs[i].Key, a.Status, a.Result)
			}
		}
	}},
}
