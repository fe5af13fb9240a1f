package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// database is a record.Database on a *sql.DB.
type database struct {
	pool    *sql.DB
	cfg     Config
	dialect *dialect
	stmts   prepared
}

// Identity is the pool's: a call on any store of it, from within a transaction
// on it, might wait for itself.
func (d *database) Identity() any { return d.pool }

func (d *database) alone() runner { return runner{db: d} }

// Again implements record.Database.
func (d *database) Again(err error) bool {
	return err != nil && d.dialect.again(d.cfg.ErrorCode(err))
}

// Refused implements record.Database.
func (d *database) Refused(err error) bool { return d.cfg.ErrorCode(err) != "" }

// transact runs f in a transaction, which is undone when f fails, panics or ends
// its goroutine. An error of f's is returned as it is.
func (d *database) transact(ctx context.Context, f func(*sql.Tx) error) (err error) {
	tx, err := d.pool.BeginTx(ctx, &sql.TxOptions{Isolation: d.cfg.Isolation})
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if !open {
			return
		}
		// One that is over, because its context is, is as good as rolled back; so is
		// one whose connection is gone.
		if undo := tx.Rollback(); undo != nil && err == nil && !errors.Is(undo, sql.ErrTxDone) {
			err = fmt.Errorf("roll back: %w", undo)
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	open = false
	if err := d.commit(ctx, tx); err != nil {
		return record.CommitError{Err: err}
	}
	return nil
}

// commit returns when ctx ends, also where the driver doesn't: then the
// connection is left to the driver's own time limits.
func (d *database) commit(ctx context.Context, tx *sql.Tx) error {
	if !d.dialect.slowCommit {
		return tx.Commit()
	}
	done := make(chan error, 1)
	go func() { done <- tx.Commit() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *database) begin(ctx context.Context, f func(transaction) error) error {
	return d.transact(ctx, func(tx *sql.Tx) error { return f(transaction{runner{d, tx}}) })
}

// Transact implements record.Database.
func (d *database) Transact(ctx context.Context, f func(record.Tx[*sql.Tx]) error) error {
	return d.begin(ctx, func(tx transaction) error {
		if d.dialect.writeFirst != "" {
			if _, err := tx.exec(ctx, writeFirst, 0); err != nil {
				return err
			}
		}
		return f(tx)
	})
}

// TransactWith implements record.Database.
func (d *database) TransactWith(ctx context.Context, first []record.Record, f func(record.Tx[*sql.Tx], []record.ID) error) error {
	return d.begin(ctx, func(tx transaction) error {
		inserted, err := tx.Insert(ctx, first)
		if err != nil {
			return err
		}
		return f(tx, inserted)
	})
}

// maxRounds is how often Introduce looks again for records that were there and
// are not, because others forget or prune them at the same time.
const maxRounds = 10

// Introduce implements record.Database. It doesn't matter that it may be several
// transactions: whoever repeats a claim gets the same answer.
func (d *database) Introduce(ctx context.Context, recs []record.Record) (known []record.Record, err error) {
	missing, insert := recs, d.insertMissing
	switch {
	case len(recs) == 1:
		insert = d.insertOne
	case d.dialect.returning != "":
		insert = func(ctx context.Context, recs []record.Record) ([]record.Record, error) {
			ids, err := d.alone().insertTelling(ctx, recs)
			return without(recs, ids), err
		}
	default: // an insertion wouldn't tell which were new
		if known, err = d.alone().load(ctx, load, idsOf(recs)); err != nil {
			return nil, err
		}
		missing = without(recs, idsOf(known))
	}
	for range maxRounds {
		if missing, err = insert(ctx, missing); err != nil || len(missing) == 0 {
			return known, err
		}
		found, err := d.alone().load(ctx, load, idsOf(missing))
		if err != nil {
			return nil, err
		}
		known = append(known, found...)
		if missing = without(missing, idsOf(found)); len(missing) == 0 {
			return known, nil
		}
	}
	return nil, errComesAndGoes
}

var errComesAndGoes = errors.New("record comes and goes")

// insertOne inserts a row and returns it if it was there.
func (d *database) insertOne(ctx context.Context, recs []record.Record) (there []record.Record, err error) {
	ids, err := d.alone().insert(ctx, recs)
	return without(recs, ids), err
}

// insertMissing inserts rows that were not there a moment ago and returns those
// that are now: by whom is in the claims.
func (d *database) insertMissing(ctx context.Context, recs []record.Record) (there []record.Record, err error) {
	if len(recs) == 0 {
		return nil, nil
	}
	ids, err := d.alone().insert(ctx, recs)
	if err != nil || len(ids) == len(recs) {
		return nil, err
	}
	found, err := d.alone().load(ctx, load, idsOf(recs))
	if err != nil {
		return nil, err
	}
	claims := make(map[record.ID]oncepipe.ClaimID, len(found))
	for _, f := range found {
		claims[f.ID] = f.Claim
	}
	for _, rec := range recs {
		if claims[rec.ID] != rec.Claim {
			there = append(there, rec)
		}
	}
	return there, nil
}

// without returns the records that have none of these ids.
func without(recs []record.Record, ids []record.ID) []record.Record {
	if len(ids) == 0 {
		return recs
	}
	if len(ids) == len(recs) {
		return nil
	}
	gone := make(map[record.ID]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	var left []record.Record
	for _, r := range recs {
		if !gone[r.ID] {
			left = append(left, r)
		}
	}
	return left
}

// Read implements record.Database.
func (d *database) Read(ctx context.Context, ids []record.ID) ([]record.Record, error) {
	return d.alone().load(ctx, load, ids)
}

// Prune implements record.Database.
func (d *database) Prune(ctx context.Context, limit int) (pruned int, err error) {
	if d.dialect.prune != "" {
		n, err := d.alone().exec(ctx, prune, 0, limit)
		return int(n), err
	}
	err = d.begin(ctx, func(tx transaction) error {
		rows, err := tx.stmt(ctx, overdue, 0).QueryContext(ctx, limit)
		if err != nil {
			return err
		}
		ids, err := scanIDs(rows)
		if err != nil {
			return err
		}
		slices.SortFunc(ids, record.CompareIDs)
		n, err := tx.remove(ctx, ids)
		pruned = int(n)
		return err
	})
	return pruned, err
}

// list reads the records of a query.
func (d *database) list(ctx context.Context, q oncepipe.Query, after record.ID, limit int) ([]record.Record, error) {
	which, args := list, []any{int64(q.State), []byte(after.Namespace), []byte(after.Namespace), []byte(after.Key), limit}
	if q.Namespace != "" {
		ns := oncepipe.StorageKey(q.Namespace)
		switch {
		case after.Namespace > ns:
			return nil, nil
		case after.Namespace < ns:
			after.Key = ""
		}
		which, args = listIn, []any{int64(q.State), []byte(ns), []byte(after.Key), limit}
	}
	rows, err := d.stmts[which][0].QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	return scanRecords(rows, nil)
}

// count counts the records by state.
func (d *database) count(ctx context.Context) (map[oncepipe.State]int, error) {
	rows, err := d.stmts[count][0].QueryContext(ctx)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	n := map[oncepipe.State]int{}
	for rows.Next() {
		var state oncepipe.State
		var records int
		if err := rows.Scan(&state, &records); err != nil {
			return nil, err
		}
		n[state] = records
	}
	return n, rows.Err()
}

// transaction is a record.Tx.
type transaction struct{ runner }

// Native implements record.Tx.
func (t transaction) Native() *sql.Tx { return t.tx }

// Insert implements record.Tx.
func (t transaction) Insert(ctx context.Context, recs []record.Record) ([]record.ID, error) {
	return t.insert(ctx, recs)
}

// Load implements record.Tx.
func (t transaction) Load(ctx context.Context, ids []record.ID) ([]record.Record, error) {
	return t.load(ctx, lock, ids)
}

// Write implements record.Tx.
func (t transaction) Write(ctx context.Context, recs []record.Record) error {
	return t.write(ctx, recs)
}

// Delete implements record.Tx.
func (t transaction) Delete(ctx context.Context, ids []record.ID) error {
	_, err := t.remove(ctx, ids)
	return err
}
