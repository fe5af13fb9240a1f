package integration

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/memstore"
	"github.com/oncepipe/oncepipe/store/pgxstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// All times of the histories are whole multiples of 10 s, and all durations are
// not: so no time is on the edge of a lease, where the stores may round.
const (
	lockstepRetention = 1003 * time.Second
	lockstepTick      = 10 * time.Second
	lockstepMaxResult = 8
)

// Random histories get the same answers of the reference and of the database.
func TestLockstep(t *testing.T) {
	db := openDB(t, "file::memory:", 1)
	advance := newClock(t, db)
	sut := openStore(t, db, sqlstore.Config{Retention: lockstepRetention, MaxResult: lockstepMaxResult, Clock: testClock})
	lockstep(t, sut, func() { mustExec(t, db, "DELETE FROM oncepipe_records") }, advance)
}

// servedHistories is how many of rapid's histories are tried on a server that
// commits to a disk.
const servedHistories = 40

func TestLockstep_Served(t *testing.T) {
	forBackends(t, servedBackends(), func(t *testing.T, b backend) {
		p := b.place(t)
		db, advance := p.open(t, 4), p.clocked(t)
		sut := openStore(t, db, sqlstore.Config{
			Dialect: b.dialect, Retention: lockstepRetention, MaxResult: lockstepMaxResult, Clock: testClock,
		})
		lockstepUpTo(t, servedHistories, sut, func() { mustExec(t, db, "DELETE FROM oncepipe_records") }, advance)
	})
}

func TestLockstep_Pgx(t *testing.T) {
	dsn := servertest.PostgresSchema(t)
	pool, advance := pgxPool(t, dsn, 4), place{"pgx", dsn}.clocked(t)
	sut := pgxStore(t, pool, pgxstore.Config{Retention: lockstepRetention, MaxResult: lockstepMaxResult, Clock: testClock})
	lockstepUpTo(t, servedHistories, sut, func() { pgxExec(t, pool, "DELETE FROM oncepipe_records") }, advance)
}

// lockstep compares sut with the reference. It was made with lockstepRetention
// and lockstepMaxResult; empty removes its records, advance puts its clock forward.
func lockstep(t *testing.T, sut oncepipe.Store, empty func(), advance func(time.Duration)) {
	t.Helper()
	lockstepUpTo(t, math.MaxInt, sut, empty, advance)
}

// lockstepUpTo is lockstep with so many histories, or all that rapid has.
func lockstepUpTo(t *testing.T, histories int, sut oncepipe.Store, empty func(), advance func(time.Duration)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		if histories == 0 {
			return
		}
		histories--
		defer func() {
			if rt.Failed() {
				histories = math.MaxInt // rapid looks for a shorter one
			}
		}()
		empty()
		now := time.Unix(0, 0)
		model := memstore.New(memstore.Config{
			Retention: lockstepRetention, MaxResult: lockstepMaxResult, Now: func() time.Time { return now },
		})
		h := &history{T: rt, model: model, sut: sut, claims: map[oncepipe.RecordID][]oncepipe.ClaimID{}}
		rt.Repeat(map[string]func(*rapid.T){
			"": h.compareRecords,
			"advance": func(rt *rapid.T) {
				d := lockstepTick * time.Duration(rapid.SampledFrom([]int{0, 1, 2, 5, 60, 101, 1000}).Draw(rt, "ticks"))
				now = now.Add(d)
				advance(d)
			},
			"claim":    h.claim,
			"extend":   h.extend,
			"complete": h.complete,
			"release":  h.release,
			"resolve":  h.resolve,
			"forget":   h.forget,
			"list":     h.list,
			"prune": func(rt *rapid.T) {
				both(h, "prune", func(s oncepipe.Store) (int, error) { return s.Prune(t.Context(), 1000) })
			},
		})
	})
}

type history struct {
	*rapid.T
	model, sut oncepipe.Store
	claims     map[oncepipe.RecordID][]oncepipe.ClaimID // all that were ever used
	last       uint16
}

var lockstepIDs = []oncepipe.RecordID{
	{Namespace: "", Key: "a"},
	{Namespace: "n", Key: "a"},
	{Namespace: "n", Key: "A"},
	{Namespace: "n", Key: "a "},
	{Namespace: "n\x00", Key: "\xff"},
}

func (h *history) id(rt *rapid.T) oncepipe.RecordID {
	return rapid.SampledFrom(lockstepIDs).Draw(rt, "id")
}

// newClaim is one that was never used.
func (h *history) newClaim(id oncepipe.RecordID) oncepipe.ClaimID {
	h.last++
	claim := oncepipe.ClaimID{byte(h.last), byte(h.last >> 8), 1}
	h.claims[id] = append(h.claims[id], claim)
	return claim
}

// oldClaim is one of the latest of id's, the owner's among them; sometimes it is
// another record's, or nobody's.
func (h *history) oldClaim(rt *rapid.T, id oncepipe.RecordID) oncepipe.ClaimID {
	if rapid.IntRange(0, 9).Draw(rt, "foreign") == 0 {
		id = h.id(rt)
	}
	claims := h.claims[id]
	if len(claims) == 0 || rapid.IntRange(0, 19).Draw(rt, "zero") == 0 {
		return oncepipe.ClaimID{}
	}
	return claims[len(claims)-1-rapid.IntRange(0, min(len(claims), 3)-1).Draw(rt, "back")]
}

func (h *history) duration(rt *rapid.T, what string) time.Duration {
	return time.Second * time.Duration(rapid.SampledFrom([]int{5, 15, 25, 105, 2005}).Draw(rt, what))
}

func (h *history) bytes(rt *rapid.T, what string) []byte {
	return rapid.SampledFrom([][]byte{nil, {}, []byte("r"), []byte("12345678"), []byte("123456789")}).Draw(rt, what)
}

// batch draws a few requests.
func batch[Q any](rt *rapid.T, draw func(*rapid.T) Q) []Q {
	reqs := make([]Q, rapid.IntRange(1, 4).Draw(rt, "n"))
	for i := range reqs {
		reqs[i] = draw(rt)
	}
	return reqs
}

// both compares what two stores answer; durations to the second.
func both[A any](h *history, what string, call func(oncepipe.Store) (A, error)) {
	want, wantErr := call(h.model)
	got, err := call(h.sut)
	if (err != nil) != (wantErr != nil) {
		h.Fatalf("%s: error %v, reference %v", what, err, wantErr)
	}
	if g, w := fmt.Sprintf("%+v", rounded(got)), fmt.Sprintf("%+v", rounded(want)); g != w {
		h.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func rounded(v any) any {
	switch all := v.(type) {
	case []oncepipe.ClaimAnswer:
		for i := range all {
			all[i].Wait = all[i].Wait.Round(time.Second)
		}
	case []oncepipe.Record:
		for i := range all {
			r := &all[i]
			r.Lease, r.Wait, r.Retention = r.Lease.Round(time.Second), r.Wait.Round(time.Second), r.Retention.Round(time.Second)
		}
	}
	return v
}

func (h *history) compareRecords(rt *rapid.T) {
	both(h, "lookup", func(s oncepipe.Store) ([]oncepipe.Record, error) { return s.Lookup(rt.Context(), lockstepIDs) })
	both(h, "count", func(s oncepipe.Store) (map[oncepipe.State]int, error) { return s.Count(rt.Context()) })
}

func (h *history) list(rt *rapid.T) {
	q := oncepipe.Query{
		State:     rapid.SampledFrom([]oncepipe.State{oncepipe.StateWaiting, oncepipe.StateFailed, oncepipe.StateUnknown}).Draw(rt, "state"),
		Namespace: rapid.SampledFrom([]string{"", "n"}).Draw(rt, "namespace"),
		Limit:     rapid.IntRange(1, len(lockstepIDs)).Draw(rt, "limit"),
	}
	if rapid.Bool().Draw(rt, "behind") {
		q.After = h.id(rt)
	}
	both(h, fmt.Sprintf("list %+v", q), func(s oncepipe.Store) ([]oncepipe.Record, error) { return s.List(rt.Context(), q) })
}

// fence is the one of id's record, or nearly.
func (h *history) fence(rt *rapid.T, id oncepipe.RecordID) uint64 {
	recs, err := h.model.Lookup(rt.Context(), []oncepipe.RecordID{id})
	if err != nil {
		rt.Fatal(err)
	}
	return recs[0].Fence + rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(rt, "fence")
}

func (h *history) claim(rt *rapid.T) {
	reqs := batch(rt, func(rt *rapid.T) oncepipe.ClaimRequest {
		id := h.id(rt)
		r := oncepipe.ClaimRequest{
			RecordID:    id,
			Lease:       h.duration(rt, "lease"),
			Fingerprint: rapid.SampledFrom([]string{"", "", "", "x", "y"}).Draw(rt, "fingerprint"),
			Owner:       rapid.SampledFrom([]string{"", "o"}).Draw(rt, "owner"),
			NoTakeover:  rapid.IntRange(0, 3).Draw(rt, "no takeover") == 0,
		}
		if rapid.IntRange(0, 3).Draw(rt, "repeated") == 0 {
			r.Claim = h.oldClaim(rt, id)
		} else {
			r.Claim = h.newClaim(id)
		}
		if rapid.IntRange(0, 49).Draw(rt, "bad lease") == 0 {
			r.Lease = 0
		}
		return r
	})
	both(h, fmt.Sprintf("claim %+v", reqs), func(s oncepipe.Store) ([]oncepipe.ClaimAnswer, error) { return s.Claim(rt.Context(), reqs) })
}

func (h *history) extend(rt *rapid.T) {
	reqs := batch(rt, func(rt *rapid.T) oncepipe.Extension {
		id := h.id(rt)
		return oncepipe.Extension{RecordID: id, Claim: h.oldClaim(rt, id), Lease: h.duration(rt, "lease")}
	})
	both(h, fmt.Sprintf("extend %+v", reqs), func(s oncepipe.Store) ([]bool, error) { return s.Extend(rt.Context(), reqs) })
}

func (h *history) complete(rt *rapid.T) {
	reqs := batch(rt, func(rt *rapid.T) oncepipe.Completion {
		id := h.id(rt)
		return oncepipe.Completion{
			RecordID: id, Claim: h.oldClaim(rt, id), Result: h.bytes(rt, "result"), HasResult: rapid.Bool().Draw(rt, "has"),
		}
	})
	both(h, fmt.Sprintf("complete %+v", reqs), func(s oncepipe.Store) ([]bool, error) { return s.Complete(rt.Context(), reqs) })
}

func (h *history) release(rt *rapid.T) {
	reqs := batch(rt, func(rt *rapid.T) oncepipe.ReleaseRequest {
		id := h.id(rt)
		r := oncepipe.ReleaseRequest{
			RecordID: id, Claim: h.oldClaim(rt, id),
			To:        oncepipe.ReleaseTo(rapid.IntRange(1, 3).Draw(rt, "to")),
			Uncounted: rapid.Bool().Draw(rt, "uncounted"),
			Reason:    rapid.SampledFrom([]string{"", "why"}).Draw(rt, "reason"),
			Payload:   h.bytes(rt, "payload"),
		}
		if rapid.Bool().Draw(rt, "delayed") {
			r.Delay = h.duration(rt, "delay")
		}
		return r
	})
	both(h, fmt.Sprintf("release %+v", reqs), func(s oncepipe.Store) ([]bool, error) { return s.Release(rt.Context(), reqs) })
}

func (h *history) resolve(rt *rapid.T) {
	reqs := batch(rt, func(rt *rapid.T) oncepipe.Resolution {
		id := h.id(rt)
		return oncepipe.Resolution{
			RecordID: id, Fence: h.fence(rt, id), Result: h.bytes(rt, "result"), HasResult: rapid.Bool().Draw(rt, "has"),
			To: rapid.SampledFrom([]oncepipe.State{oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed}).Draw(rt, "to"),
		}
	})
	both(h, fmt.Sprintf("resolve %+v", reqs), func(s oncepipe.Store) ([]bool, error) { return s.Resolve(rt.Context(), reqs) })
}

func (h *history) forget(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "really") != 0 { // else nothing gets old
		rt.Skip()
	}
	ids := batch(rt, h.id)
	force := rapid.Bool().Draw(rt, "force")
	both(h, fmt.Sprintf("forget %+v, %v", ids, force), func(s oncepipe.Store) ([]bool, error) { return s.Forget(rt.Context(), ids, force) })
}
