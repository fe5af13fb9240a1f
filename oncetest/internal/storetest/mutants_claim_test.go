package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

var claimMutants = []mutant{
	{func(good *memstore.Store) oncepipe.Store { return mutantClaimsNotAtomic{good} }, "S9.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantTakeoversNotAtomic{remember(good)} }, "S9.2"},
	{func(good *memstore.Store) oncepipe.Store { return &mutantOwnerIsFence{Store: good} }, "S2.4"},
	{func(good *memstore.Store) oncepipe.Store { return mutantClaimIDOfItsOwn{good} }, "S1.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantRepeatedClaimIsBusy{remember(good)} }, "S1.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantRepetitionKeepsLease{remember(good)} }, "S1.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantSpentClaimAcquires{good} }, "S1.5"},
	{func(*memstore.Store) oncepipe.Store { return newMutantClientClock() }, "S1.6"},
	{func(good *memstore.Store) oncepipe.Store { return mutantLeaseIsRetention{good} }, "S1.6"},
	{func(good *memstore.Store) oncepipe.Store { return mutantTakeoverKeepsFence{good} }, "S1.6"},
	{func(good *memstore.Store) oncepipe.Store { return mutantTakeoverNotCounted{good} }, "S1.6"},
	{func(good *memstore.Store) oncepipe.Store { return mutantTakeoverNotTold{good} }, "S1.6"},
	{func(good *memstore.Store) oncepipe.Store { return mutantFenceStandsStill{good} }, "S2.15"},
	{func(good *memstore.Store) oncepipe.Store { return mutantNoTakeoverIgnored{good} }, "S1.8"},
	{func(good *memstore.Store) oncepipe.Store { return mutantNoTakeoverOfItsOwn{remember(good)} }, "S1.9"},
	{func(good *memstore.Store) oncepipe.Store { return mutantLeaseZeroIsDefault{good} }, "S1.10"},
	{func(good *memstore.Store) oncepipe.Store { return mutantFingerprintIgnored{good} }, "S1.13"},
	{func(good *memstore.Store) oncepipe.Store { return mutantFingerprintNull{good} }, "S1.14"},
	{func(good *memstore.Store) oncepipe.Store { return mutantMismatchIsBusy{good} }, "S1.13"},
	{func(good *memstore.Store) oncepipe.Store { return mutantBusyIsCompleted{good} }, "S1.2"},
	{func(good *memstore.Store) oncepipe.Store { return mutantOutageIsNew{good} }, "S1.17"},
	{func(good *memstore.Store) oncepipe.Store { return mutantPanics{good} }, "S1.13"},
	{func(good *memstore.Store) oncepipe.Store { return &mutantLeaverTakesAll{Store: good} }, "S9.6"},
}

// mutantClaimsNotAtomic reads, yields and writes.
type mutantClaimsNotAtomic struct{ *memstore.Store }

func (m mutantClaimsNotAtomic) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	ids := make([]oncepipe.RecordID, len(reqs))
	for i, r := range reqs {
		ids[i] = r.RecordID
	}
	recs, err := m.Lookup(ctx, ids)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Nanosecond) // in a bubble: until all the others have read, too
	absent := slices.DeleteFunc(recs, func(r oncepipe.Record) bool { return r.State != oncepipe.StateAbsent })
	for i, r := range absent {
		ids[i] = r.RecordID
	}
	if _, err := m.Forget(ctx, ids[:len(absent)], true); err != nil {
		return nil, err
	}
	return m.Store.Claim(ctx, reqs)
}

// mutantTakeoversNotAtomic reads that a lease is over, yields and takes over.
type mutantTakeoversNotAtomic struct{ *memory }

func (m mutantTakeoversNotAtomic) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		rec, err := look(ctx, m, r.RecordID)
		if err != nil {
			return nil, err
		}
		over := rec.State == oncepipe.StateClaimed && rec.Lease <= 0
		if over {
			time.Sleep(time.Nanosecond)
		}
		answers, err := m.memory.Claim(ctx, []oncepipe.ClaimRequest{r})
		if over && err == nil && answers[0].Status == oncepipe.ClaimBusy {
			answers[0] = oncepipe.ClaimAnswer{
				Status: oncepipe.ClaimAcquired, Fence: rec.Fence + 1, Attempt: rec.Attempt + 1, Takeovers: rec.Takeovers + 1, Takeover: true,
			}
		}
		return answers, err
	})
}

// mutantOwnerIsFence takes a claim by the same owner's name for a repetition.
type mutantOwnerIsFence struct {
	*memstore.Store
	ids sync.Map // of names
}

func (m *mutantOwnerIsFence) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return m.Store.Claim(ctx, changed(reqs, func(r *oncepipe.ClaimRequest) {
		if r.Owner != "" {
			id, _ := m.ids.LoadOrStore(r.Owner, r.Claim)
			r.Claim = id.(oncepipe.ClaimID)
		}
	}))
}

// mutantClaimIDOfItsOwn doesn't know a repetition.
type mutantClaimIDOfItsOwn struct{ *memstore.Store }

func (m mutantClaimIDOfItsOwn) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return m.Store.Claim(ctx, changed(reqs, func(r *oncepipe.ClaimRequest) { r.Claim = oncepipe.NewClaimID() }))
}

// mutantRepeatedClaimIsBusy tells an owner whose answer was lost to wait for itself.
type mutantRepeatedClaimIsBusy struct{ *memory }

func (m mutantRepeatedClaimIsBusy) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		again := m.owner(r.RecordID) == r.Claim
		answers, err := m.memory.Claim(ctx, []oncepipe.ClaimRequest{r})
		if err == nil && again && answers[0].Status == oncepipe.ClaimAcquired {
			answers[0] = oncepipe.ClaimAnswer{Status: oncepipe.ClaimBusy, Wait: r.Lease}
		}
		return answers, err
	})
}

// mutantRepetitionKeepsLease answers a repetition without a write.
type mutantRepetitionKeepsLease struct{ *memory }

func (m mutantRepetitionKeepsLease) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		rec, err := look(ctx, m, r.RecordID)
		if err == nil && rec.State == oncepipe.StateClaimed && m.owner(r.RecordID) == r.Claim && rec.Lease > 0 {
			r.Lease = rec.Lease
		}
		return m.memory.Claim(ctx, []oncepipe.ClaimRequest{r})
	})
}

// mutantSpentClaimAcquires lets a request that arrives late acquire.
type mutantSpentClaimAcquires struct{ *memstore.Store }

func (m mutantSpentClaimAcquires) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	for i, a := range answers {
		if a.Status == oncepipe.ClaimWaiting && a.Wait == 0 {
			late := reqs[i]
			late.Claim = oncepipe.NewClaimID()
			again, err := m.Store.Claim(ctx, []oncepipe.ClaimRequest{late})
			if err != nil {
				return nil, err
			}
			answers[i] = again[0]
		}
	}
	return answers, err
}

// mutantClientClock judges leases by the clock of the process.
type mutantClientClock struct{ *memstore.Store }

func newMutantClientClock() mutantClientClock {
	return mutantClientClock{memstore.New(memstore.Config{Retention: retention, MaxResult: maxResult, Now: time.Now})}
}

// mutantLeaseIsRetention keeps claims for as long as records.
type mutantLeaseIsRetention struct{ *memstore.Store }

func (m mutantLeaseIsRetention) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return m.Store.Claim(ctx, changed(reqs, func(r *oncepipe.ClaimRequest) {
		if r.Lease > 0 {
			r.Lease = retention
		}
	}))
}

// mutantTakeoverKeepsFence gives the new owner the number of the old one.
type mutantTakeoverKeepsFence struct{ *memstore.Store }

func (m mutantTakeoverKeepsFence) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) { a.Fence -= uint64(a.Takeovers) }), err
}

// mutantTakeoverNotCounted forgets that an owner vanished.
type mutantTakeoverNotCounted struct{ *memstore.Store }

func (m mutantTakeoverNotCounted) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) { a.Takeovers = 0 }), err
}

func (m mutantTakeoverNotCounted) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	recs, err := m.Store.Lookup(ctx, ids)
	return changed(recs, func(r *oncepipe.Record) { r.Takeovers = 0 }), err
}

// mutantTakeoverNotTold lets the new owner believe that it is the first.
type mutantTakeoverNotTold struct{ *memstore.Store }

func (m mutantTakeoverNotTold) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) { a.Takeover = false }), err
}

// mutantFenceStandsStill has one number for all.
type mutantFenceStandsStill struct{ *memstore.Store }

func (m mutantFenceStandsStill) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) { a.Fence = 1 }), err
}

// mutantNoTakeoverIgnored takes over in any case.
type mutantNoTakeoverIgnored struct{ *memstore.Store }

func (m mutantNoTakeoverIgnored) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return m.Store.Claim(ctx, changed(reqs, func(r *oncepipe.ClaimRequest) { r.NoTakeover = false }))
}

// mutantNoTakeoverOfItsOwn takes a repetition after the lease for a takeover.
type mutantNoTakeoverOfItsOwn struct{ *memory }

func (m mutantNoTakeoverOfItsOwn) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		rec, err := look(ctx, m, r.RecordID)
		if err == nil && r.NoTakeover && rec.State == oncepipe.StateClaimed && rec.Lease <= 0 {
			r.Claim = oncepipe.NewClaimID()
		}
		return m.memory.Claim(ctx, []oncepipe.ClaimRequest{r})
	})
}

// mutantLeaseZeroIsDefault makes something of a lease that can't be meant.
type mutantLeaseZeroIsDefault struct{ *memstore.Store }

func (m mutantLeaseZeroIsDefault) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return m.Store.Claim(ctx, changed(reqs, func(r *oncepipe.ClaimRequest) { r.Lease = max(r.Lease, 1) }))
}

// mutantFingerprintIgnored takes any payload for the same.
type mutantFingerprintIgnored struct{ *memstore.Store }

func (m mutantFingerprintIgnored) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return m.Store.Claim(ctx, changed(reqs, func(r *oncepipe.ClaimRequest) { r.Fingerprint = "" }))
}

// mutantFingerprintNull compares an empty fingerprint like any other.
type mutantFingerprintNull struct{ *memstore.Store }

func (m mutantFingerprintNull) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		rec, err := look(ctx, m, r.RecordID)
		if err == nil && rec.State != oncepipe.StateAbsent && rec.Fingerprint != r.Fingerprint {
			return []oncepipe.ClaimAnswer{{Status: oncepipe.ClaimMismatch}}, nil
		}
		return m.Store.Claim(ctx, []oncepipe.ClaimRequest{r})
	})
}

// mutantMismatchIsBusy hides another payload while the key is in flight.
type mutantMismatchIsBusy struct{ *memstore.Store }

func (m mutantMismatchIsBusy) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) {
		if a.Status == oncepipe.ClaimMismatch {
			a.Status = oncepipe.ClaimBusy
		}
	}), err
}

// mutantBusyIsCompleted takes whatever is there for a duplicate.
type mutantBusyIsCompleted struct{ *memstore.Store }

func (m mutantBusyIsCompleted) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) {
		if a.Status == oncepipe.ClaimBusy {
			a.Status = oncepipe.ClaimCompleted
		}
	}), err
}

// mutantOutageIsNew runs the effect when the store can't be asked.
type mutantOutageIsNew struct{ *memstore.Store }

func (m mutantOutageIsNew) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	if ctx.Err() != nil {
		answers = make([]oncepipe.ClaimAnswer, len(reqs))
		return changed(answers, func(a *oncepipe.ClaimAnswer) { a.Status = oncepipe.ClaimAcquired }), nil
	}
	return answers, err
}

// mutantPanics has never met another fingerprint.
type mutantPanics struct{ *memstore.Store }

func (m mutantPanics) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) {
		if a.Status == oncepipe.ClaimMismatch {
			panic("unreachable")
		}
	}), err
}

// mutantLeaverTakesAll makes one request of those that come at the same time, and
// ends it with any of their contexts.
type mutantLeaverTakesAll struct {
	*memstore.Store
	left atomic.Bool
}

func (m *mutantLeaverTakesAll) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	time.Sleep(time.Nanosecond) // in a bubble: until those who leave have left
	if ctx.Err() != nil {
		m.left.Store(true)
	}
	time.Sleep(time.Nanosecond)
	if m.left.Load() {
		return nil, context.Canceled
	}
	return m.Store.Claim(ctx, reqs)
}

var batchMutants = []mutant{
	{func(good *memstore.Store) oncepipe.Store { return mutantOneAnswer{good} }, "S5.2"},
	{func(good *memstore.Store) oncepipe.Store { return mutantSortedAnswers{good} }, "S5.2"},
	{func(good *memstore.Store) oncepipe.Store { return mutantLastWins{good} }, "S5.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantStopsAtRefusal{good} }, "S5.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantKeyOncePerBatch{good} }, "S5.4"},
	{func(good *memstore.Store) oncepipe.Store { return mutantPartOfBatch{good} }, "S5.5"},
	{func(good *memstore.Store) oncepipe.Store { return mutantEmptyStatement{good} }, "S5.1"},
}

// mutantOneAnswer has one answer for a whole batch.
type mutantOneAnswer struct{ *memstore.Store }

func (m mutantOneAnswer) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) { *a = answers[0] }), err
}

// mutantSortedAnswers sorts, so that processes don't lock each other, and
// doesn't undo it.
type mutantSortedAnswers struct{ *memstore.Store }

func (m mutantSortedAnswers) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	reqs = slices.Clone(reqs)
	slices.SortStableFunc(reqs, func(a, b oncepipe.ClaimRequest) int { return strings.Compare(a.Key, b.Key) })
	return m.Store.Claim(ctx, reqs)
}

// mutantLastWins works off a batch from its end.
type mutantLastWins struct{ *memstore.Store }

func (m mutantLastWins) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	reqs = slices.Clone(reqs)
	slices.Reverse(reqs)
	answers, err := m.Store.Claim(ctx, reqs)
	slices.Reverse(answers)
	return answers, err
}

// mutantStopsAtRefusal does nothing behind the first item that is not held.
type mutantStopsAtRefusal struct{ *memstore.Store }

func (m mutantStopsAtRefusal) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	held := make([]bool, len(reqs))
	for i := range reqs {
		one, err := m.Store.Complete(ctx, reqs[i:i+1])
		if err != nil {
			return nil, err
		}
		if held[i] = one[0]; !held[i] {
			break
		}
	}
	return held, nil
}

// mutantKeyOncePerBatch gives all items of a key the answer of its first one.
type mutantKeyOncePerBatch struct{ *memstore.Store }

func (m mutantKeyOncePerBatch) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	known := map[oncepipe.RecordID]oncepipe.ClaimAnswer{}
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		if a, ok := known[r.RecordID]; ok {
			return []oncepipe.ClaimAnswer{a}, nil
		}
		answers, err := m.Store.Claim(ctx, []oncepipe.ClaimRequest{r})
		if err == nil {
			known[r.RecordID] = answers[0]
		}
		return answers, err
	})
}

// mutantPartOfBatch sends as much as fits in a statement and forgets the rest.
type mutantPartOfBatch struct{ *memstore.Store }

func (m mutantPartOfBatch) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	fits := min(len(reqs), 1000)
	held, err := m.Store.Complete(ctx, reqs[:fits])
	for range reqs[fits:] {
		held = append(held, true)
	}
	return held, err
}

// mutantEmptyStatement asks its database about no rows, which is no SQL.
type mutantEmptyStatement struct{ *memstore.Store }

func (m mutantEmptyStatement) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	if len(ids) == 0 {
		return nil, errors.New("syntax error near ')'")
	}
	return m.Store.Lookup(ctx, ids)
}
