package storetest_test

import (
	"context"
	"errors"
	"sync"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

var writeMutants = []mutant{
	{func(good *memstore.Store) oncepipe.Store { return mutantCompleteWithoutToken{remember(good)} }, "S2.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantReleaseWithoutToken{remember(good)} }, "S2.2"},
	{func(good *memstore.Store) oncepipe.Store { return mutantExtendWithoutToken{remember(good)} }, "S2.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantExtendRevives{good} }, "S2.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantExtendOnlyInTime{good} }, "S2.7"},
	{func(good *memstore.Store) oncepipe.Store { return mutantCompletionAlwaysHeld{good} }, "S2.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantDeletedIsHeld{good} }, "S2.5"},
	{func(good *memstore.Store) oncepipe.Store { return mutantCompletesTwice{good} }, "S2.10"},
	{func(good *memstore.Store) oncepipe.Store { return mutantCompletionNotRepeated{good} }, "S2.10"},
	{func(good *memstore.Store) oncepipe.Store { return mutantReleaseNotRepeated{good} }, "S2.12"},
	{func(good *memstore.Store) oncepipe.Store { return mutantGuardBeforeCommit{good, new(sync.Map)} }, "S2.11"},
	{func(good *memstore.Store) oncepipe.Store { return mutantEmptyResultIsNone{good} }, "S4.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantNoResultIsEmpty{good} }, "S4.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantLargeResultFails{good} }, "S4.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantSharesBytes{good, new(sync.Map)} }, "S4.4"},
	{func(good *memstore.Store) oncepipe.Store { return mutantDelayIgnored{good} }, "S3.2"},
	{func(good *memstore.Store) oncepipe.Store { return mutantSnoozeIsAttempt{good} }, "S3.4"},
	{func(good *memstore.Store) oncepipe.Store { return mutantPayloadLost{good} }, "S3.6"},
	{func(good *memstore.Store) oncepipe.Store { return mutantUnknownIsFailed{good} }, "S3.1"},
}

// mutantCompleteWithoutToken completes for whoever asks.
type mutantCompleteWithoutToken struct{ *memory }

func (m mutantCompleteWithoutToken) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return m.Store.Complete(ctx, changed(reqs, func(c *oncepipe.Completion) { c.Claim = m.owner(c.RecordID) }))
}

// mutantReleaseWithoutToken lets anybody give a claim back.
type mutantReleaseWithoutToken struct{ *memory }

func (m mutantReleaseWithoutToken) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return m.Store.Release(ctx, changed(reqs, func(r *oncepipe.ReleaseRequest) { r.Claim = m.owner(r.RecordID) }))
}

// mutantExtendWithoutToken renews the lease of somebody else.
type mutantExtendWithoutToken struct{ *memory }

func (m mutantExtendWithoutToken) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	return m.Store.Extend(ctx, changed(reqs, func(e *oncepipe.Extension) { e.Claim = m.owner(e.RecordID) }))
}

// mutantExtendRevives gives a claim that was lost back to who had it.
type mutantExtendRevives struct{ *memstore.Store }

func (m mutantExtendRevives) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	return oneByOne(reqs, func(e oncepipe.Extension) ([]bool, error) {
		held, err := m.Store.Extend(ctx, []oncepipe.Extension{e})
		if err != nil || held[0] || e.Claim == (oncepipe.ClaimID{}) {
			return held, err
		}
		return []bool{true}, rewrite(ctx, m.Store, oncepipe.ClaimRequest{RecordID: e.RecordID, Claim: e.Claim, Lease: e.Lease})
	})
}

// mutantExtendOnlyInTime gives up a claim that nobody else wanted.
type mutantExtendOnlyInTime struct{ *memstore.Store }

func (m mutantExtendOnlyInTime) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	return oneByOne(reqs, func(e oncepipe.Extension) ([]bool, error) {
		rec, err := look(ctx, m, e.RecordID)
		if err != nil || rec.Lease <= 0 {
			return []bool{false}, err
		}
		return m.Store.Extend(ctx, []oncepipe.Extension{e})
	})
}

// mutantCompletionAlwaysHeld ignores how many rows were affected.
type mutantCompletionAlwaysHeld struct{ *memstore.Store }

func (m mutantCompletionAlwaysHeld) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	held, err := m.Store.Complete(ctx, reqs)
	return changed(held, func(h *bool) { *h = true }), err
}

// mutantDeletedIsHeld says held of a record that is gone.
type mutantDeletedIsHeld struct{ *memstore.Store }

func (m mutantDeletedIsHeld) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return oneByOne(reqs, func(c oncepipe.Completion) ([]bool, error) {
		held, err := m.Store.Complete(ctx, []oncepipe.Completion{c})
		if rec, _ := look(ctx, m, c.RecordID); err == nil && rec.State == oncepipe.StateAbsent {
			held[0] = true
		}
		return held, err
	})
}

// mutantCompletesTwice lets the second completion win.
type mutantCompletesTwice struct{ *memstore.Store }

func (m mutantCompletesTwice) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return oneByOne(reqs, func(c oncepipe.Completion) ([]bool, error) {
		before, err := look(ctx, m, c.RecordID)
		if err != nil {
			return nil, err
		}
		held, err := m.Store.Complete(ctx, []oncepipe.Completion{c})
		if err != nil || !held[0] || before.State != oncepipe.StateCompleted {
			return held, err
		}
		if err := rewrite(ctx, m, oncepipe.ClaimRequest{RecordID: c.RecordID, Claim: c.Claim, Lease: 1}); err != nil {
			return nil, err
		}
		return m.Store.Complete(ctx, []oncepipe.Completion{c})
	})
}

// mutantCompletionNotRepeated tells an owner whose answer was lost that its
// claim was, too.
type mutantCompletionNotRepeated struct{ *memstore.Store }

func (m mutantCompletionNotRepeated) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return oneByOne(reqs, func(c oncepipe.Completion) ([]bool, error) {
		rec, err := look(ctx, m, c.RecordID)
		if err != nil || rec.State != oncepipe.StateClaimed {
			return []bool{false}, err
		}
		return m.Store.Complete(ctx, []oncepipe.Completion{c})
	})
}

// mutantReleaseNotRepeated is the same for releases.
type mutantReleaseNotRepeated struct{ *memstore.Store }

func (m mutantReleaseNotRepeated) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return oneByOne(reqs, func(r oncepipe.ReleaseRequest) ([]bool, error) {
		rec, err := look(ctx, m, r.RecordID)
		if err == nil && rec.State != oncepipe.StateClaimed {
			return []bool{false}, nil
		}
		return m.Store.Release(ctx, []oncepipe.ReleaseRequest{r})
	})
}

// mutantGuardBeforeCommit answers claims from a guard, which a completion fills
// before it is written.
type mutantGuardBeforeCommit struct {
	*memstore.Store
	done *sync.Map
}

func (m mutantGuardBeforeCommit) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	for _, c := range reqs {
		m.done.Store(c.RecordID, c)
	}
	held, err := m.Store.Complete(ctx, reqs)
	for i, h := range held {
		if !h {
			m.done.Delete(reqs[i].RecordID)
		}
	}
	return held, err
}

func (m mutantGuardBeforeCommit) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		answers, err := m.Store.Claim(ctx, []oncepipe.ClaimRequest{r})
		if cached, ok := m.done.Load(r.RecordID); ok && err == nil && answers[0].Status == oncepipe.ClaimBusy {
			c := cached.(oncepipe.Completion)
			answers[0] = oncepipe.ClaimAnswer{Status: oncepipe.ClaimCompleted, Result: c.Result, HasResult: c.HasResult}
		}
		return answers, err
	})
}

// mutantEmptyResultIsNone can't tell an empty result from none.
type mutantEmptyResultIsNone struct{ *memstore.Store }

func (m mutantEmptyResultIsNone) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return m.Store.Complete(ctx, changed(reqs, func(c *oncepipe.Completion) { c.HasResult = len(c.Result) > 0 }))
}

// mutantNoResultIsEmpty is the reverse.
type mutantNoResultIsEmpty struct{ *memstore.Store }

func (m mutantNoResultIsEmpty) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return m.Store.Complete(ctx, changed(reqs, func(c *oncepipe.Completion) { c.HasResult = true }))
}

// mutantLargeResultFails doesn't record an effect whose result is too large.
type mutantLargeResultFails struct{ *memstore.Store }

func (m mutantLargeResultFails) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	for _, c := range reqs {
		if len(c.Result) > maxResult {
			return nil, errors.New("result too large for its column")
		}
	}
	return m.Store.Complete(ctx, reqs)
}

// mutantSharesBytes keeps a result of the caller's, who may write to it.
type mutantSharesBytes struct {
	*memstore.Store
	results *sync.Map
}

func (m mutantSharesBytes) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	for _, c := range reqs {
		m.results.LoadOrStore(c.Claim, c.Result)
	}
	return m.Store.Complete(ctx, reqs)
}

func (m mutantSharesBytes) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	return changed(answers, func(a *oncepipe.ClaimAnswer) {
		m.results.Range(func(_, kept any) bool {
			if len(a.Result) > 0 && len(kept.([]byte)) == len(a.Result) {
				a.Result = kept.([]byte)
			}
			return true
		})
	}), err
}

// mutantDelayIgnored has what waits at once.
type mutantDelayIgnored struct{ *memstore.Store }

func (m mutantDelayIgnored) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return m.Store.Release(ctx, changed(reqs, func(r *oncepipe.ReleaseRequest) { r.Delay = 0 }))
}

// mutantSnoozeIsAttempt counts what was no attempt.
type mutantSnoozeIsAttempt struct{ *memstore.Store }

func (m mutantSnoozeIsAttempt) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return m.Store.Release(ctx, changed(reqs, func(r *oncepipe.ReleaseRequest) { r.Uncounted = false }))
}

// mutantPayloadLost keeps no dead letters.
type mutantPayloadLost struct{ *memstore.Store }

func (m mutantPayloadLost) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return m.Store.Release(ctx, changed(reqs, func(r *oncepipe.ReleaseRequest) { r.Payload = nil }))
}

// mutantUnknownIsFailed lets what may have happened be done again.
type mutantUnknownIsFailed struct{ *memstore.Store }

func (m mutantUnknownIsFailed) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return m.Store.Release(ctx, changed(reqs, func(r *oncepipe.ReleaseRequest) {
		if r.To == oncepipe.ToUnknown {
			r.To = oncepipe.ToFailed
		}
	}))
}

var handMutants = []mutant{
	{func(good *memstore.Store) oncepipe.Store { return mutantResolveWithoutFence{good} }, "S3.10"},
	{func(good *memstore.Store) oncepipe.Store { return mutantResolveOfAnyState{good} }, "S3.11"},
	{func(good *memstore.Store) oncepipe.Store { return mutantResolvedByOwner{remember(good)} }, "S3.8"},
	{func(good *memstore.Store) oncepipe.Store { return mutantForgetsLive{good} }, "S3.14"},
	{func(good *memstore.Store) oncepipe.Store { return mutantForgetsNothing{good} }, "S3.13"},
}

// mutantResolveWithoutFence settles whatever is there by now.
type mutantResolveWithoutFence struct{ *memstore.Store }

func (m mutantResolveWithoutFence) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	return oneByOne(reqs, func(r oncepipe.Resolution) ([]bool, error) {
		rec, err := look(ctx, m, r.RecordID)
		if err != nil {
			return nil, err
		}
		r.Fence = rec.Fence
		return m.Store.Resolve(ctx, []oncepipe.Resolution{r})
	})
}

// mutantResolveOfAnyState settles what needs no settling.
type mutantResolveOfAnyState struct{ *memstore.Store }

func (m mutantResolveOfAnyState) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	return oneByOne(reqs, func(r oncepipe.Resolution) ([]bool, error) {
		done, err := m.Store.Resolve(ctx, []oncepipe.Resolution{r})
		if err != nil || done[0] {
			return done, err
		}
		claim := oncepipe.NewClaimID()
		if err := rewrite(ctx, m, oncepipe.ClaimRequest{RecordID: r.RecordID, Claim: claim, Lease: 1}); err != nil {
			return nil, err
		}
		return m.Complete(ctx, []oncepipe.Completion{{RecordID: r.RecordID, Claim: claim}})
	})
}

// mutantResolvedByOwner leaves a say to who had the claim before a person
// settled it.
type mutantResolvedByOwner struct{ *memory }

func (m mutantResolvedByOwner) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return oneByOne(reqs, func(c oncepipe.Completion) ([]bool, error) {
		rec, err := look(ctx, m, c.RecordID)
		if err == nil && rec.State == oncepipe.StateCompleted && m.owner(c.RecordID) == c.Claim {
			return []bool{true}, nil
		}
		return m.Store.Complete(ctx, []oncepipe.Completion{c})
	})
}

// mutantForgetsLive needs no force.
type mutantForgetsLive struct{ *memstore.Store }

func (m mutantForgetsLive) Forget(ctx context.Context, ids []oncepipe.RecordID, _ bool) ([]bool, error) {
	return m.Store.Forget(ctx, ids, true)
}

// mutantForgetsNothing says that it did.
type mutantForgetsNothing struct{ *memstore.Store }

func (m mutantForgetsNothing) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return changed(make([]bool, len(ids)), func(gone *bool) { *gone = true }), ctx.Err()
}
