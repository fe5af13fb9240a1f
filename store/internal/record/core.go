package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Config is what a Core needs beside its database.
type Config struct {
	Name string // of the package, for errors
	Rules

	// Busy is how long a transaction that meets others is tried again.
	Busy time.Duration

	// OneWriter: transactions that write wait for each other anyway, so that
	// several at a time are only slower.
	OneWriter bool
}

// Core makes a store of a database.
type Core[N any] struct {
	db      Database[N]
	cfg     Config
	changes *gatherer[change]
	effects *gatherer[*effect[N]]
}

// NewCore returns a Core for db.
func NewCore[N any](db Database[N], cfg Config) *Core[N] {
	c := &Core[N]{db: db, cfg: cfg}
	writer := make(chan struct{}, 1)
	c.changes = &gatherer[change]{writer: writer, commit: c.commit, refused: c.refusedBy}
	if !cfg.OneWriter {
		writer = make(chan struct{}, 1) // claims don't wait for effects
	}
	c.effects = &gatherer[*effect[N]]{writer: writer, commit: c.commitEffects, refused: c.refusedBy}
	return c
}

// txKey marks the contexts of closures that run in a transaction of a Core's.
type txKey struct{ db any }

// InTx returns the context of a closure that runs in a transaction on db, and
// which every Core on that db refuses.
func inTx(ctx context.Context, db any) context.Context {
	return context.WithValue(ctx, txKey{db}, true)
}

// identified is implemented by a Database that shares its pool with others.
type identified interface{ Identity() any }

func (c *Core[N]) identity() any {
	if i, ok := c.db.(identified); ok {
		return i.Identity()
	}
	return c.db
}

// ready refuses calls whose context is over or belongs to a transaction.
func (c *Core[N]) ready(ctx context.Context) error {
	if ctx.Value(txKey{c.identity()}) != nil {
		return oncepipe.ErrInTx
	}
	return ctx.Err()
}

func (c *Core[N]) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", c.cfg.Name, what, err)
}

// refused is wrap for the checks of requests, which say themselves what they refuse.
func (c *Core[N]) refused(err error) error { return fmt.Errorf("%s: %w", c.cfg.Name, err) }

// change is one request of a batch. act may run more than once; every request
// can be repeated, as the contract of oncepipe.Store says.
type change struct {
	id    ID
	claim *oncepipe.ClaimRequest // that may make a new record
	act   func(*Record) (changed bool)
}

// each makes a change of every request and returns the answers in their order.
func each[N, Q, A any](ctx context.Context, c *Core[N], what string, reqs []Q, idOf func(Q) oncepipe.RecordID, act func(*Record, Q) (A, bool)) ([]A, error) {
	if err := c.ready(ctx); err != nil {
		return nil, c.wrap(what, err)
	}
	answers := make([]A, len(reqs))
	changes := make([]change, len(reqs))
	for i, req := range reqs {
		req = own(req)
		changes[i] = change{id: Stored(idOf(req)), act: func(r *Record) (changed bool) {
			answers[i], changed = act(r, req)
			return changed
		}}
		if claim, ok := any(req).(oncepipe.ClaimRequest); ok {
			changes[i].claim = &claim
		}
	}
	if err := c.changes.do(ctx, changes); err != nil {
		return nil, c.wrap(what, err)
	}
	return answers, nil
}

// own copies the bytes of a request: its caller may leave, and use them again,
// while another one is writing them.
func own[Q any](req Q) Q {
	switch r := any(&req).(type) {
	case *oncepipe.Completion:
		r.Result = slices.Clone(r.Result)
	case *oncepipe.ReleaseRequest:
		r.Payload = slices.Clone(r.Payload)
	case *oncepipe.Resolution:
		r.Result = slices.Clone(r.Result)
	}
	return req
}

// group is the changes of one record, in the order in which they came.
type group struct {
	id      ID
	changes []change
}

// act lets the changes act on r.
func (g *group) act(r *Record) (changed bool) {
	for _, ch := range g.changes {
		changed = ch.act(r) || changed
	}
	return changed
}

// commit makes changes, in the order of their ids, so that two processes don't lock each
// other's records crosswise. Where all are claims, those that meet no record are
// one insertion, and those that only look at one take no lock.
func (c *Core[N]) commit(ctx context.Context, changes []change) error {
	groups := grouped(changes)
	fresh := newRecords(groups)
	if len(fresh) < len(groups) {
		return c.patiently(ctx, func() error {
			if len(fresh) == 0 {
				return c.db.Transact(ctx, func(tx Tx[N]) error { return rewrite(ctx, tx, groups) })
			}
			return c.db.TransactWith(ctx, fresh, func(tx Tx[N], inserted []ID) error {
				return rewrite(ctx, tx, begun(groups, inserted))
			})
		})
	}
	open, err := c.introduce(ctx, groups, fresh)
	if err != nil || len(open) == 0 {
		return err
	}
	return c.patiently(ctx, func() error {
		return c.db.Transact(ctx, func(tx Tx[N]) error { return rewrite(ctx, tx, open) })
	})
}

// newRecords returns the records that claims make if there are none.
func newRecords(groups []group) []Record {
	var recs []Record
	for _, g := range groups {
		if g.changes[0].claim != nil {
			recs = append(recs, ClaimNew(*g.changes[0].claim))
		}
	}
	return recs
}

// begun answers the claims that made a record, and what only looks at it behind
// them, and returns what is left to be done.
func begun(groups []group, inserted []ID) (open []group) {
	for _, g := range groups {
		if len(inserted) == 0 || inserted[0] != g.id {
			open = append(open, g)
			continue
		}
		inserted = inserted[1:]
		r := Record{ID: g.id}
		g.changes[0].act(&r)
		if rest := (group{g.id, g.changes[1:]}); rest.act(&r) {
			open = append(open, rest)
		}
	}
	return open
}

func grouped(changes []change) []group {
	sorted := changes
	if len(changes) > 1 {
		sorted = slices.Clone(changes)
		slices.SortStableFunc(sorted, func(a, b change) int { return CompareIDs(a.id, b.id) })
	}
	groups := make([]group, 0, len(sorted))
	for i := 0; i < len(sorted); {
		n := i + 1
		for n < len(sorted) && sorted[n].id == sorted[i].id {
			n++
		}
		groups = append(groups, group{sorted[i].id, sorted[i:n]})
		i = n
	}
	return groups
}

// CompareIDs orders ids by namespace and key, byte by byte.
func CompareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key))
}

// introduce answers claims that meet no record, or one that they don't change,
// and returns what is left to be done.
func (c *Core[N]) introduce(ctx context.Context, groups []group, fresh []Record) (open []group, err error) {
	var known []Record
	err = c.patiently(ctx, func() (err error) {
		known, err = c.db.Introduce(ctx, fresh)
		return err
	})
	if err != nil {
		return nil, err
	}
	there := byID(known)
	for _, g := range groups {
		r, old := there[g.id]
		if old && g.act(&r) {
			open = append(open, g)
		} else if !old {
			open = append(open, begun([]group{g}, []ID{g.id})...)
		}
	}
	return open, nil
}

func byID(recs []Record) map[ID]Record {
	m := make(map[ID]Record, len(recs))
	for _, r := range recs {
		m[r.ID] = r
	}
	return m
}

// errComesAndGoes makes a transaction be repeated in which a record appeared
// that was not there a moment ago.
var errComesAndGoes = errors.New("record comes and goes")

// rewrite loads the records of groups, lets the changes act, and writes what has
// changed.
func rewrite[N any](ctx context.Context, tx Tx[N], groups []group) error {
	if len(groups) == 0 {
		return nil
	}
	ids := make([]ID, len(groups))
	for i, g := range groups {
		ids[i] = g.id
	}
	loaded, err := tx.Load(ctx, ids)
	if err != nil {
		return err
	}
	there := byID(loaded)
	var inserts, writes []Record
	var deletes []ID
	for _, g := range groups {
		r, old := there[g.id]
		r.ID = g.id
		if !g.act(&r) {
			continue
		}
		switch absent := r.State == oncepipe.StateAbsent; {
		case old && absent:
			deletes = append(deletes, g.id)
		case old:
			writes = append(writes, r)
		case !absent:
			inserts = append(inserts, r)
		}
	}
	if len(inserts) > 0 {
		inserted, err := tx.Insert(ctx, inserts)
		if err != nil {
			return err
		}
		if len(inserted) < len(inserts) {
			return errComesAndGoes
		}
	}
	if len(writes) > 0 {
		if err := tx.Write(ctx, writes); err != nil {
			return err
		}
	}
	if len(deletes) > 0 {
		return tx.Delete(ctx, deletes)
	}
	return nil
}

// patiently repeats what met other transactions.
func (c *Core[N]) patiently(ctx context.Context, do func() error) error {
	return Patiently(ctx, c.cfg.Busy, func() (bool, error) {
		err := do()
		return c.again(err), err
	})
}

// refusedBy tells whether the fault may be that of one of several callers.
func (c *Core[N]) refusedBy(err error) bool { return c.db.Refused(err) && !c.again(err) }

func (c *Core[N]) again(err error) bool {
	return err != nil && (errors.Is(err, errComesAndGoes) || c.db.Again(err))
}
