package memstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/internal/claimmodel"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// maxFence bounds the walk: acquisitions of the key since it was new.
const maxFence = 4

// The machine of one record in claimmodel and the reference store give the same
// answers and go to the same states, in every state and for every request. So
// what the model shows is shown of the contract.
func TestModel(t *testing.T) {
	type node struct {
		rec  claimmodel.Record
		path []transition
	}
	var model claimmodel.Store
	start := claimmodel.Record{}
	found := map[claimmodel.Record]bool{start: true}
	states := map[claimmodel.State]int{start.State: 1}
	statuses := map[claimmodel.Status]int{}
	open := []node{{rec: start}}
	walked := 0
	for len(open) > 0 {
		at := open[0]
		open = open[1:]
		for _, tr := range transitions(at.rec) {
			after, want := at.rec.Pass(), claimmodel.Answer{}
			if !tr.pass {
				after, want = model.Do(at.rec, tr.op)
			}
			s := newWalker()
			for _, before := range at.path {
				s.do(t, before)
			}
			if got := s.do(t, tr); got != want {
				t.Fatalf("in %+v, after %v: %+v is answered\n%+v, the model says\n%+v", at.rec, at.path, tr, got, want)
			}
			s.compare(t, fmt.Sprintf("in %+v, after %v, then %+v", at.rec, at.path, tr), after)
			walked++
			statuses[want.Status]++
			if !found[after] && after.Fence <= maxFence {
				found[after] = true
				states[after.State]++
				open = append(open, node{after, append(slices.Clip(at.path), tr)})
			}
		}
	}
	t.Logf("%d records, %d transitions", len(found), walked)
	for s := claimmodel.Absent; s <= claimmodel.Unknown; s++ {
		if states[s] == 0 {
			t.Errorf("the walk never came to a record that is %v", oncepipe.State(s))
		}
	}
	for s := claimmodel.Acquired; s <= claimmodel.Ambiguous; s++ {
		if statuses[s] == 0 {
			t.Errorf("no claim was answered %v", oncepipe.ClaimStatus(s))
		}
	}
}

// transition is a request, or the store's clock going on.
type transition struct {
	pass bool
	op   claimmodel.Op
}

// transitions are all that can befall r: requests of two owners and of nobody,
// and resolutions with the right fence and with wrong ones.
func transitions(r claimmodel.Record) []transition {
	ops := []claimmodel.Op{{Kind: claimmodel.DoForget}, {Kind: claimmodel.DoForget, Force: true}}
	for claim := range claimmodel.Claim(3) {
		if claim != 0 { // a request without a claim id is refused
			ops = append(ops,
				claimmodel.Op{Kind: claimmodel.DoClaim, Claim: claim},
				claimmodel.Op{Kind: claimmodel.DoClaim, Claim: claim, NoTakeover: true})
		}
		ops = append(ops,
			claimmodel.Op{Kind: claimmodel.DoExtend, Claim: claim},
			claimmodel.Op{Kind: claimmodel.DoComplete, Claim: claim},
			claimmodel.Op{Kind: claimmodel.DoRelease, Claim: claim, To: claimmodel.Waiting},
			claimmodel.Op{Kind: claimmodel.DoRelease, Claim: claim, To: claimmodel.Waiting, Delayed: true},
			claimmodel.Op{Kind: claimmodel.DoRelease, Claim: claim, To: claimmodel.Waiting, Uncounted: true},
			claimmodel.Op{Kind: claimmodel.DoRelease, Claim: claim, To: claimmodel.Failed},
			claimmodel.Op{Kind: claimmodel.DoRelease, Claim: claim, To: claimmodel.Unknown})
	}
	for _, fence := range []uint8{0, r.Fence, r.Fence + 1} {
		for _, to := range []claimmodel.State{claimmodel.Completed, claimmodel.Waiting, claimmodel.Failed} {
			ops = append(ops, claimmodel.Op{Kind: claimmodel.DoResolve, Fence: fence, To: to})
		}
	}
	all := []transition{{pass: true}}
	for _, op := range ops {
		all = append(all, transition{op: op})
	}
	return all
}

// walker lets transitions act on one record of the reference store.
type walker struct {
	st  *memstore.Store
	now time.Time
	id  oncepipe.RecordID
}

func newWalker() *walker {
	w := &walker{now: time.Unix(0, 0), id: oncepipe.RecordID{Namespace: "p/s", Key: "k"}}
	w.st = memstore.New(memstore.Config{Now: func() time.Time { return w.now }})
	return w
}

const modelLease = time.Minute // of claims, and the delay of releases

func claimID(c claimmodel.Claim) oncepipe.ClaimID { return oncepipe.ClaimID{byte(c)} }

func (w *walker) do(t *testing.T, tr transition) claimmodel.Answer {
	t.Helper()
	if tr.pass {
		w.now = w.now.Add(2 * modelLease)
		return claimmodel.Answer{}
	}
	op, claim := tr.op, claimID(tr.op.Claim)
	switch op.Kind {
	case claimmodel.DoClaim:
		return w.claim(t, op)
	case claimmodel.DoExtend:
		return only(t)(w.st.Extend(t.Context(), []oncepipe.Extension{{RecordID: w.id, Claim: claim, Lease: modelLease}}))
	case claimmodel.DoComplete:
		return only(t)(w.st.Complete(t.Context(), []oncepipe.Completion{{RecordID: w.id, Claim: claim}}))
	case claimmodel.DoRelease:
		req := oncepipe.ReleaseRequest{RecordID: w.id, Claim: claim, To: releaseTo[op.To], Uncounted: op.Uncounted}
		if op.Delayed {
			req.Delay = modelLease
		}
		return only(t)(w.st.Release(t.Context(), []oncepipe.ReleaseRequest{req}))
	case claimmodel.DoResolve:
		return only(t)(w.st.Resolve(t.Context(), []oncepipe.Resolution{{RecordID: w.id, Fence: uint64(op.Fence), To: oncepipe.State(op.To)}}))
	case claimmodel.DoForget:
		return only(t)(w.st.Forget(t.Context(), []oncepipe.RecordID{w.id}, op.Force))
	}
	t.Fatalf("the store has no request like %+v", op)
	return claimmodel.Answer{}
}

var releaseTo = map[claimmodel.State]oncepipe.ReleaseTo{
	claimmodel.Waiting: oncepipe.ToWaiting,
	claimmodel.Failed:  oncepipe.ToFailed,
	claimmodel.Unknown: oncepipe.ToUnknown,
}

func (w *walker) claim(t *testing.T, op claimmodel.Op) claimmodel.Answer {
	t.Helper()
	answers, err := w.st.Claim(t.Context(), []oncepipe.ClaimRequest{
		{RecordID: w.id, Claim: claimID(op.Claim), Lease: modelLease, NoTakeover: op.NoTakeover},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := answers[0]
	return claimmodel.Answer{
		Status: claimmodel.Status(a.Status), Fence: uint8(a.Fence), Takeovers: uint8(a.Takeovers),
		Attempt: uint8(a.Attempt), Takeover: a.Takeover,
	}
}

// only returns what reads the answers to a batch of one.
func only(t *testing.T) func([]bool, error) claimmodel.Answer {
	t.Helper()
	return func(held []bool, err error) claimmodel.Answer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return claimmodel.Answer{Held: held[0]}
	}
}

// compare looks the record up. Who owns it can't be seen, but what the next
// transitions answer tells.
func (w *walker) compare(t *testing.T, where string, want claimmodel.Record) {
	t.Helper()
	recs, err := w.st.Lookup(t.Context(), []oncepipe.RecordID{w.id})
	if err != nil {
		t.Fatal(err)
	}
	r := recs[0]
	want.Claim, want.Takeover = 0, false
	got := claimmodel.Record{
		State: claimmodel.State(r.State), Fence: uint8(r.Fence), Attempt: uint8(r.Attempt), Takeovers: uint8(r.Takeovers),
		Ready: r.State == oncepipe.StateClaimed && r.Lease <= 0 || r.State == oncepipe.StateWaiting && r.Wait <= 0,
	}
	if got != want {
		t.Fatalf("%s: the record is\n%+v, the model says\n%+v", where, got, want)
	}
}
