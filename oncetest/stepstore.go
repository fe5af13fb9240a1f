package oncetest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/oncepipe/oncepipe"
)

// StoreOp names a method of oncepipe.Store.
type StoreOp string

// The methods of a store.
const (
	OpClaim    StoreOp = "claim"
	OpExtend   StoreOp = "extend"
	OpComplete StoreOp = "complete"
	OpRelease  StoreOp = "release"
	OpLookup   StoreOp = "lookup"
	OpResolve  StoreOp = "resolve"
	OpForget   StoreOp = "forget"
	OpList     StoreOp = "list"
	OpCount    StoreOp = "count"
	OpPrune    StoreOp = "prune"
)

// StepStore returns a store that makes every call of st a step: step gets the
// call's context, the name of its StoreOp, and do, which makes it. What step
// returns is the caller's answer: an error, or nil for the answer that the last do
// had. Without do the call is not made; after several it was repeated, as a
// network may; an error after do is a lost reply. step is called by several
// goroutines at once where the store is.
//
// The store is a Retainer. Where st is none it has the longest retention there is,
// which Run never finds too short. Functions that make a transaction (Tx, TxBatch) need the
// store of their database itself: what is between them and it is no store, and
// faults have to be put into its driver.
func StepStore(st oncepipe.Store, step func(ctx context.Context, name string, do func() error) error) oncepipe.Store {
	return &steps{st, func(ctx context.Context, call StoreCall, do func() error) error {
		return step(ctx, string(call.Op), do)
	}}
}

// steps is a store whose calls are made by step.
type steps struct {
	st   oncepipe.Store
	step func(ctx context.Context, call StoreCall, do func() error) error
}

var _ interface {
	oncepipe.Store
	oncepipe.Retainer
} = (*steps)(nil)

// through makes one call inside of a step.
func through[A any](ctx context.Context, s *steps, op StoreOp, ids []oncepipe.RecordID, call func() (A, error)) (A, error) {
	var answer, none A
	last := fmt.Errorf("oncetest: the step of %s ended well and did nothing", op)
	err := s.step(ctx, StoreCall{Op: op, IDs: ids}, func() error {
		answer, last = call()
		return last
	})
	if err != nil {
		return none, err // answer and last are not read: a do that is late may still write them
	}
	return answer, last
}

func idsOf[Q any](reqs []Q, id func(Q) oncepipe.RecordID) []oncepipe.RecordID {
	ids := make([]oncepipe.RecordID, len(reqs))
	for i, r := range reqs {
		ids[i] = id(r)
	}
	return ids
}

// Claim is a step; see oncepipe.Store.
func (s *steps) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	ids := idsOf(reqs, func(r oncepipe.ClaimRequest) oncepipe.RecordID { return r.RecordID })
	return through(ctx, s, OpClaim, ids, func() ([]oncepipe.ClaimAnswer, error) { return s.st.Claim(ctx, reqs) })
}

// Extend is a step; see oncepipe.Store.
func (s *steps) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	ids := idsOf(reqs, func(r oncepipe.Extension) oncepipe.RecordID { return r.RecordID })
	return through(ctx, s, OpExtend, ids, func() ([]bool, error) { return s.st.Extend(ctx, reqs) })
}

// Complete is a step; see oncepipe.Store.
func (s *steps) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	ids := idsOf(reqs, func(r oncepipe.Completion) oncepipe.RecordID { return r.RecordID })
	return through(ctx, s, OpComplete, ids, func() ([]bool, error) { return s.st.Complete(ctx, reqs) })
}

// Release is a step; see oncepipe.Store.
func (s *steps) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	ids := idsOf(reqs, func(r oncepipe.ReleaseRequest) oncepipe.RecordID { return r.RecordID })
	return through(ctx, s, OpRelease, ids, func() ([]bool, error) { return s.st.Release(ctx, reqs) })
}

// Lookup is a step; see oncepipe.Store.
func (s *steps) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	return through(ctx, s, OpLookup, ids, func() ([]oncepipe.Record, error) { return s.st.Lookup(ctx, ids) })
}

// Resolve is a step; see oncepipe.Store.
func (s *steps) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	ids := idsOf(reqs, func(r oncepipe.Resolution) oncepipe.RecordID { return r.RecordID })
	return through(ctx, s, OpResolve, ids, func() ([]bool, error) { return s.st.Resolve(ctx, reqs) })
}

// Forget is a step; see oncepipe.Store.
func (s *steps) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return through(ctx, s, OpForget, ids, func() ([]bool, error) { return s.st.Forget(ctx, ids, force) })
}

// List is a step; see oncepipe.Store.
func (s *steps) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	return through(ctx, s, OpList, nil, func() ([]oncepipe.Record, error) { return s.st.List(ctx, q) })
}

// Count is a step; see oncepipe.Store.
func (s *steps) Count(ctx context.Context) (map[oncepipe.State]int, error) {
	return through(ctx, s, OpCount, nil, func() (map[oncepipe.State]int, error) { return s.st.Count(ctx) })
}

// Prune is a step; see oncepipe.Store.
func (s *steps) Prune(ctx context.Context, limit int) (int, error) {
	return through(ctx, s, OpPrune, nil, func() (int, error) { return s.st.Prune(ctx, limit) })
}

// Retention is that of the store within; the longest where it doesn't say.
func (s *steps) Retention() time.Duration {
	if r, ok := s.st.(oncepipe.Retainer); ok {
		return r.Retention()
	}
	return math.MaxInt64
}
