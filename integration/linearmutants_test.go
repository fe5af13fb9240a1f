package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oncepipe/oncepipe"
)

// Stores that are wrong only while others call at the same time are found out.
func TestLinearizable_Mutants(t *testing.T) {
	for _, wrap := range []func(oncepipe.Store) oncepipe.Store{
		func(st oncepipe.Store) oncepipe.Store { return mutantReadsThenWrites{st} },
		func(st oncepipe.Store) oncepipe.Store { return mutantChecksThenCompletes{st} },
		func(st oncepipe.Store) oncepipe.Store { return mutantReadsLate{st, new(sync.Map)} },
	} {
		t.Run(fmt.Sprintf("%T", wrap(nil)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := inMemory(wrap)
				for n := range uint64(linearHistories) {
					h := newLinearHistory(t.Context(), of, fmt.Sprint("history-", n), n)
					h.run()
					if result, _ := h.check(); result == porcupine.Illegal {
						t.Logf("caught in history %d", n)
						return
					}
				}
				t.Errorf("%d histories, and none is refused", linearHistories)
			})
		})
	}
}

// pause lets the others go on, in a bubble.
func pause() { time.Sleep(time.Microsecond) }

// mutantReadsThenWrites believes what it has read to be still so when it claims.
type mutantReadsThenWrites struct{ oncepipe.Store }

func (m mutantReadsThenWrites) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	ids := each(reqs, func(r oncepipe.ClaimRequest) oncepipe.RecordID { return r.RecordID })
	recs, err := m.Lookup(ctx, ids)
	if err != nil {
		return nil, err
	}
	pause()
	answers, err := m.Store.Claim(ctx, reqs)
	for i, a := range answers {
		if recs[i].State == oncepipe.StateAbsent && a.Status == oncepipe.ClaimBusy {
			answers[i] = oncepipe.ClaimAnswer{Status: oncepipe.ClaimAcquired, Fence: 1, Attempt: 1}
		}
	}
	return answers, err
}

// mutantChecksThenCompletes says held because the claim was when it looked.
type mutantChecksThenCompletes struct{ oncepipe.Store }

func (m mutantChecksThenCompletes) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	recs, err := m.Lookup(ctx, each(reqs, func(r oncepipe.Completion) oncepipe.RecordID { return r.RecordID }))
	if err != nil {
		return nil, err
	}
	checks := make([]oncepipe.Extension, len(reqs)) // which change nothing
	for i, r := range reqs {
		checks[i] = oncepipe.Extension{RecordID: r.RecordID, Claim: r.Claim, Lease: recs[i].Lease}
		if recs[i].Lease <= 0 {
			checks[i].Claim, checks[i].Lease = oncepipe.ClaimID{}, 1
		}
	}
	before, err := m.Extend(ctx, checks)
	if err != nil {
		return nil, err
	}
	pause()
	held, err := m.Store.Complete(ctx, reqs)
	for i := range held {
		held[i] = held[i] || before[i]
	}
	return held, err
}

// mutantReadsLate answers with what it has read the last time, as a replica may.
type mutantReadsLate struct {
	oncepipe.Store
	last *sync.Map
}

func (m mutantReadsLate) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	recs, err := m.Store.Lookup(ctx, ids)
	for i, r := range recs {
		if last, ok := m.last.Swap(r.RecordID, r); ok {
			recs[i] = last.(oncepipe.Record)
		}
	}
	return recs, err
}
