package storetest_test

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

var retentionMutants = []mutant{
	{func(good *memstore.Store) oncepipe.Store { return mutantPrunesLive{remember(good)} }, "S7.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantPrunesReused{remember(good)} }, "S7.2"},
	{func(good *memstore.Store) oncepipe.Store { return mutantPrunesUnknown{remember(good)} }, "S7.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantPrunesWithoutLimit{good} }, "S7.5"},
	{func(good *memstore.Store) oncepipe.Store { return mutantPrunesNothing{good} }, "S7.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantDuplicateExtendsRetention{good} }, "S7.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantOverdueIsNew{good} }, "S7.4"},
}

// prunesAlso is Prune with the records that are bad, too.
func prunesAlso(ctx context.Context, m *memory, limit int, bad func(oncepipe.Record) bool) (int, error) {
	n, err := m.Store.Prune(ctx, limit)
	if err != nil {
		return 0, err
	}
	for _, id := range m.ids() {
		rec, err := look(ctx, m, id)
		if err != nil {
			return 0, err
		}
		if n >= limit || !bad(rec) {
			continue
		}
		if _, err := m.Forget(ctx, []oncepipe.RecordID{id}, true); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// mutantPrunesLive removes claims that run.
type mutantPrunesLive struct{ *memory }

func (m mutantPrunesLive) Prune(ctx context.Context, limit int) (int, error) {
	return prunesAlso(ctx, m.memory, limit, func(r oncepipe.Record) bool { return r.State == oncepipe.StateClaimed && r.Lease > 0 })
}

// mutantPrunesReused goes by a retention that a later claim has ended.
type mutantPrunesReused struct{ *memory }

func (m mutantPrunesReused) Prune(ctx context.Context, limit int) (int, error) {
	return prunesAlso(ctx, m.memory, limit, func(r oncepipe.Record) bool { return r.State == oncepipe.StateClaimed && r.Attempt > 1 })
}

// mutantPrunesUnknown removes what waits for a person.
type mutantPrunesUnknown struct{ *memory }

func (m mutantPrunesUnknown) Prune(ctx context.Context, limit int) (int, error) {
	return prunesAlso(ctx, m.memory, limit, func(r oncepipe.Record) bool { return r.State == oncepipe.StateUnknown })
}

// mutantPrunesWithoutLimit holds its locks for as long as it takes.
type mutantPrunesWithoutLimit struct{ *memstore.Store }

func (m mutantPrunesWithoutLimit) Prune(ctx context.Context, _ int) (int, error) {
	return m.Store.Prune(ctx, 1000)
}

// mutantPrunesNothing grows.
type mutantPrunesNothing struct{ *memstore.Store }

func (m mutantPrunesNothing) Prune(ctx context.Context, _ int) (int, error) { return 0, ctx.Err() }

// mutantDuplicateExtendsRetention keeps a record that is asked for.
type mutantDuplicateExtendsRetention struct{ *memstore.Store }

func (m mutantDuplicateExtendsRetention) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	for i, a := range answers {
		if a.Status != oncepipe.ClaimCompleted {
			continue
		}
		if err := rewrite(ctx, m.Store, reqs[i]); err != nil {
			return nil, err
		}
		again := oncepipe.Completion{RecordID: reqs[i].RecordID, Claim: reqs[i].Claim, Result: a.Result, HasResult: a.HasResult}
		if _, err := m.Complete(ctx, []oncepipe.Completion{again}); err != nil {
			return nil, err
		}
	}
	return answers, err
}

// mutantOverdueIsNew takes a record that Prune has not come to yet for none.
type mutantOverdueIsNew struct{ *memstore.Store }

func (m mutantOverdueIsNew) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return claimEach(ctx, m.Store, reqs, func(r oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		rec, err := look(ctx, m, r.RecordID)
		if err != nil {
			return nil, err
		}
		if rec.State == oncepipe.StateCompleted && rec.Retention <= 0 {
			if _, err := m.Forget(ctx, []oncepipe.RecordID{r.RecordID}, false); err != nil {
				return nil, err
			}
		}
		return m.Store.Claim(ctx, []oncepipe.ClaimRequest{r})
	})
}

var keyMutants = []mutant{
	{func(good *memstore.Store) oncepipe.Store {
		return mutantKeysFolded{keyed{good, func(id *oncepipe.RecordID) { id.Key = strings.ToLower(id.Key) }}}
	}, "S6.1"},
	{func(good *memstore.Store) oncepipe.Store {
		return mutantKeysTrimmed{keyed{good, func(id *oncepipe.RecordID) { id.Key = strings.TrimRight(id.Key, " ") }}}
	}, "S6.1"},
	{func(good *memstore.Store) oncepipe.Store {
		return mutantKeysTruncated{keyed{good, func(id *oncepipe.RecordID) { id.Key = id.Key[:min(len(id.Key), 255)] }}}
	}, "S6.1"},
	{func(good *memstore.Store) oncepipe.Store {
		return mutantKeysEndAtNUL{keyed{good, func(id *oncepipe.RecordID) { id.Key, _, _ = strings.Cut(id.Key, "\x00"); id.Key += "x" }}}
	}, "S6.1"},
	{func(good *memstore.Store) oncepipe.Store {
		return mutantKeysMadeUTF8{keyed{good, func(id *oncepipe.RecordID) { id.Key = strings.ToValidUTF8(id.Key, "\ufffd") }}}
	}, "S6.1"},
	{func(good *memstore.Store) oncepipe.Store {
		return mutantNamespaceIgnored{keyed{good, func(id *oncepipe.RecordID) { id.Namespace = "" }}}
	}, "S6.2"},
	{func(good *memstore.Store) oncepipe.Store {
		return mutantNamespaceRunTogether{keyed{good, func(id *oncepipe.RecordID) { id.Namespace, id.Key = "", id.Namespace+id.Key }}}
	}, "S6.3"},
}

type (
	mutantKeysFolded           struct{ keyed } // a collation without case
	mutantKeysTrimmed          struct{ keyed } // a CHAR column
	mutantKeysTruncated        struct{ keyed } // a VARCHAR(255)
	mutantKeysEndAtNUL         struct{ keyed } // C's strings
	mutantKeysMadeUTF8         struct{ keyed } // a driver's conversion
	mutantNamespaceIgnored     struct{ keyed } // a unique index on the key alone
	mutantNamespaceRunTogether struct{ keyed } // no separator between them
)

// keyed is a store to which some ids are the same.
type keyed struct {
	*memstore.Store
	change func(*oncepipe.RecordID)
}

func (k keyed) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return k.Store.Claim(ctx, changed(reqs, func(r *oncepipe.ClaimRequest) {
		if r.Key != "" {
			k.change(&r.RecordID)
		}
	}))
}

func (k keyed) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	return k.Store.Extend(ctx, changed(reqs, func(r *oncepipe.Extension) { k.change(&r.RecordID) }))
}

func (k keyed) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return k.Store.Complete(ctx, changed(reqs, func(r *oncepipe.Completion) { k.change(&r.RecordID) }))
}

func (k keyed) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return k.Store.Release(ctx, changed(reqs, func(r *oncepipe.ReleaseRequest) { k.change(&r.RecordID) }))
}

func (k keyed) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	return k.Store.Resolve(ctx, changed(reqs, func(r *oncepipe.Resolution) { k.change(&r.RecordID) }))
}

func (k keyed) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	recs, err := k.Store.Lookup(ctx, changed(ids, k.change))
	for i := range recs {
		recs[i].RecordID = ids[i]
	}
	return recs, err
}

func (k keyed) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return k.Store.Forget(ctx, changed(ids, k.change), force)
}

var listMutants = []mutant{
	{func(good *memstore.Store) oncepipe.Store { return mutantListsOtherStates{good} }, "S8.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantListsUnordered{good} }, "S8.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantListMissesPages{good} }, "S8.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantListsAllNamespaces{good} }, "S8.1"},
	{func(good *memstore.Store) oncepipe.Store { return mutantListsHashesAsKeys{good} }, "S8.4"},
	{func(good *memstore.Store) oncepipe.Store { return mutantListsWithoutPayload{good} }, "S8.2"},
	{func(good *memstore.Store) oncepipe.Store { return mutantListKeepsWhatLeft{remember(good)} }, "S8.3"},
	{func(good *memstore.Store) oncepipe.Store { return mutantCountsNoClaims{good} }, "S8.6"},
	{func(good *memstore.Store) oncepipe.Store { return mutantListsNoneOfMany{good} }, "S8.5"},
}

func byID(a, b oncepipe.Record) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key))
}

// mutantListsOtherStates shows unknown records among the failed ones.
type mutantListsOtherStates struct{ *memstore.Store }

func (m mutantListsOtherStates) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	recs, err := m.Store.List(ctx, q)
	if err != nil || q.State != oncepipe.StateFailed {
		return recs, err
	}
	q.State = oncepipe.StateUnknown
	others, err := m.Store.List(ctx, q)
	recs = append(recs, others...)
	slices.SortFunc(recs, byID)
	if q.Limit > 0 {
		recs = recs[:min(len(recs), q.Limit)]
	}
	return recs, err
}

// mutantListsUnordered has its pages in order, and what is on them not.
type mutantListsUnordered struct{ *memstore.Store }

func (m mutantListsUnordered) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	recs, err := m.Store.List(ctx, q)
	slices.Reverse(recs)
	return recs, err
}

// mutantListMissesPages begins a page one record too late.
type mutantListMissesPages struct{ *memstore.Store }

func (m mutantListMissesPages) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	if q.After == (oncepipe.RecordID{}) {
		return m.Store.List(ctx, q)
	}
	if q.Limit > 0 {
		q.Limit++
	}
	recs, err := m.Store.List(ctx, q)
	return recs[min(len(recs), 1):], err
}

// mutantListsAllNamespaces takes no notice of the one that is asked for.
type mutantListsAllNamespaces struct{ *memstore.Store }

func (m mutantListsAllNamespaces) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	q.Namespace = ""
	return m.Store.List(ctx, q)
}

// mutantListsHashesAsKeys returns ids under which nothing is found.
type mutantListsHashesAsKeys struct{ *memstore.Store }

func (m mutantListsHashesAsKeys) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	recs, err := m.Store.List(ctx, q)
	return changed(recs, func(r *oncepipe.Record) { r.Stored = false }), err
}

// mutantListsWithoutPayload leaves a redrive with nothing.
type mutantListsWithoutPayload struct{ *memstore.Store }

func (m mutantListsWithoutPayload) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	recs, err := m.Store.List(ctx, q)
	return changed(recs, func(r *oncepipe.Record) { r.Payload = nil }), err
}

// mutantListKeepsWhatLeft has an index of failed records that a claim doesn't
// take them out of.
type mutantListKeepsWhatLeft struct{ *memory }

func (m mutantListKeepsWhatLeft) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	recs, err := m.Store.List(ctx, q)
	if err != nil || q.State != oncepipe.StateFailed {
		return recs, err
	}
	all, err := m.Lookup(ctx, m.ids())
	for _, r := range all {
		if r.State == oncepipe.StateClaimed && len(r.Payload) > 0 {
			recs = append(recs, r)
		}
	}
	return recs, err
}

// mutantCountsNoClaims counts what can be listed.
type mutantCountsNoClaims struct{ *memstore.Store }

func (m mutantCountsNoClaims) Count(ctx context.Context) (map[oncepipe.State]int, error) {
	n, err := m.Store.Count(ctx)
	delete(n, oncepipe.StateClaimed)
	return n, err
}

// mutantListsNoneOfMany lets people think that nothing is claimed.
type mutantListsNoneOfMany struct{ *memstore.Store }

func (m mutantListsNoneOfMany) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	recs, err := m.Store.List(ctx, q)
	if err != nil && ctx.Err() == nil {
		return nil, nil
	}
	return recs, err
}
