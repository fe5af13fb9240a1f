package record_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// errAgain is what the database says when a transaction met another one.
var errAgain = errors.New("try again")

// fakeDB is a database in memory. Its transactions come one after the other, and
// between the statements of a Core's commit those of others may come.
type fakeDB struct {
	// Hooks of tests; each may be nil. They are called before the lock is taken.
	introduce func(ctx context.Context, recs []record.Record) error
	begin     func(ctx context.Context) error
	commit    func() (before, after error) // errors instead of, and after, a commit

	lock    chan struct{} // a token: durably blocking in a bubble, as a mutex is not
	rows    map[record.ID]entry
	effects []string // written by transactions

	mu      sync.Mutex
	commits int
	undone  int
	order   []string // of the keys that were introduced
}

// entry is a row; its moments are times.
type entry struct {
	record.Record
	ready, expires time.Time
}

func newFakeDB() *fakeDB {
	return &fakeDB{lock: make(chan struct{}, 1), rows: map[record.ID]entry{}}
}

func (d *fakeDB) counts() (commits, undone int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.commits, d.undone
}

func (d *fakeDB) introduced() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.order)
}

func moment(t record.Time) time.Time {
	if !t.Set {
		return time.Time{}
	}
	return time.Now().Add(t.In)
}

func distance(t time.Time) record.Time {
	if t.IsZero() {
		return record.Time{}
	}
	return record.In(time.Until(t))
}

func (e entry) record() record.Record {
	r := e.Record
	r.Ready, r.Expires = distance(e.ready), distance(e.expires)
	return r
}

func (d *fakeDB) find(ids []record.ID) (found []record.Record) {
	for _, id := range ids {
		if e, ok := d.rows[id]; ok {
			found = append(found, e.record())
		}
	}
	return found
}

func (d *fakeDB) insert(recs []record.Record) (inserted []record.ID) {
	for _, r := range recs {
		if _, there := d.rows[r.ID]; !there {
			d.put(r)
			inserted = append(inserted, r.ID)
		}
	}
	return inserted
}

func (d *fakeDB) put(r record.Record) {
	d.rows[r.ID] = entry{r, moment(r.Ready), moment(r.Expires)}
}

func (d *fakeDB) Introduce(ctx context.Context, recs []record.Record) (known []record.Record, err error) {
	if d.introduce != nil {
		if err := d.introduce(ctx, recs); err != nil {
			return nil, err
		}
	}
	d.lock <- struct{}{}
	defer func() { <-d.lock }()
	inserted := d.insert(recs)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commits++
	for _, r := range recs {
		d.order = append(d.order, r.Key)
		if !slices.Contains(inserted, r.ID) {
			known = append(known, d.find([]record.ID{r.ID})...)
		}
	}
	return known, nil
}

func (d *fakeDB) Transact(ctx context.Context, f func(record.Tx[*fakeTx]) error) error {
	return d.TransactWith(ctx, nil, func(tx record.Tx[*fakeTx], _ []record.ID) error { return f(tx) })
}

func (d *fakeDB) TransactWith(ctx context.Context, first []record.Record, f func(record.Tx[*fakeTx], []record.ID) error) error {
	if d.begin != nil {
		if err := d.begin(ctx); err != nil {
			return err
		}
	}
	d.lock <- struct{}{}
	defer func() { <-d.lock }()
	rows, effects := maps.Clone(d.rows), slices.Clone(d.effects)
	open := true
	undo := func() {
		d.rows, d.effects = rows, effects
		d.mu.Lock()
		d.undone++
		d.mu.Unlock()
	}
	defer func() {
		if open {
			undo()
		}
	}()
	tx := &fakeTx{d}
	if err := f(tx, d.insert(first)); err != nil {
		return err
	}
	open = false
	if d.commit != nil {
		before, after := d.commit()
		if before != nil {
			undo()
			return record.CommitError{Err: before}
		}
		if after != nil {
			return record.CommitError{Err: after}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commits++
	return ctx.Err()
}

func (d *fakeDB) Read(ctx context.Context, ids []record.ID) ([]record.Record, error) {
	d.lock <- struct{}{}
	defer func() { <-d.lock }()
	return d.find(ids), ctx.Err()
}

func (d *fakeDB) Prune(_ context.Context, limit int) (pruned int, err error) {
	d.lock <- struct{}{}
	defer func() { <-d.lock }()
	for id, e := range d.rows {
		if pruned < limit && !e.expires.IsZero() && !e.expires.After(time.Now()) {
			delete(d.rows, id)
			pruned++
		}
	}
	return pruned, nil
}

// errRefused is what the database says when it won't do something.
var errRefused = errors.New("refused")

func (d *fakeDB) Refused(err error) bool {
	return errors.Is(err, errRefused) || errors.Is(err, errAgain)
}

func (d *fakeDB) Again(err error) bool { return errors.Is(err, errAgain) }

// fakeTx is a transaction. Its user writes effects.
type fakeTx struct{ d *fakeDB }

func (t *fakeTx) write(effect string) { t.d.effects = append(t.d.effects, effect) }

func (t *fakeTx) Insert(_ context.Context, recs []record.Record) ([]record.ID, error) {
	return t.d.insert(recs), nil
}

func (t *fakeTx) Load(_ context.Context, ids []record.ID) ([]record.Record, error) {
	return t.d.find(ids), nil
}

func (t *fakeTx) Write(_ context.Context, recs []record.Record) error {
	for _, r := range recs {
		if _, there := t.d.rows[r.ID]; !there {
			return errors.New("written over nothing")
		}
		t.d.put(r)
	}
	return nil
}

func (t *fakeTx) Delete(_ context.Context, ids []record.ID) error {
	for _, id := range ids {
		delete(t.d.rows, id)
	}
	return nil
}

func (t *fakeTx) Native() *fakeTx { return t }

// store is a whole oncepipe.Store on a fakeDB.
type store struct {
	*record.Core[*fakeTx]
	d *fakeDB
}

var _ oncepipe.Store = store{}

const retention = time.Hour

func newStore(d *fakeDB, oneWriter bool) store {
	return store{record.NewCore(d, record.Config{
		Name: "fake", Rules: record.Rules{Retention: retention, MaxResult: 1000}, Busy: 10 * time.Second, OneWriter: oneWriter,
	}), d}
}

func (s store) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	return s.Core.List(ctx, q, func(_ context.Context, after record.ID, limit int) (found []record.Record, err error) {
		s.d.lock <- struct{}{}
		defer func() { <-s.d.lock }()
		ids := slices.SortedFunc(maps.Keys(s.d.rows), record.CompareIDs)
		for _, id := range ids {
			in := q.Namespace == "" || id.Namespace == oncepipe.StorageKey(q.Namespace)
			if in && s.d.rows[id].State == q.State && record.CompareIDs(id, after) > 0 && len(found) < limit {
				found = append(found, s.d.rows[id].record())
			}
		}
		return found, nil
	})
}

func (s store) Count(ctx context.Context) (map[oncepipe.State]int, error) {
	return s.Core.Count(ctx, func(context.Context) (map[oncepipe.State]int, error) {
		n := map[oncepipe.State]int{}
		for _, e := range s.d.rows {
			n[e.State]++
		}
		return n, nil
	})
}
