package sqlstore

import (
	"context"
	"database/sql"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// values returns the arguments that make a row of r.
func values(r record.Record) []any {
	return []any{
		[]byte(r.Namespace), []byte(r.Key), int64(r.State), r.Claim[:], int64(r.Fence), int64(r.Attempt), int64(r.Takeovers), one(r.TookOver),
		moment(r.Ready), moment(r.Expires), record.Text(r.Owner), []byte(r.Fingerprint), record.Text(r.Reason), r.Payload, one(r.HasResult), r.Result,
	}
}

func moment(t record.Time) any {
	if !t.Set {
		return nil
	}
	return record.Milliseconds(t.In)
}

func distance(n sql.NullInt64) record.Time {
	if !n.Valid {
		return record.Time{}
	}
	return record.In(record.Duration(n.Int64))
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// scanRecords reads all that a SELECT of records found.
func scanRecords(rows *sql.Rows, into []record.Record) ([]record.Record, error) {
	defer rows.Close()
	for rows.Next() {
		var r record.Record
		var ns, key, claim, fp []byte
		var owner, reason sql.NullString
		var ready, expires sql.NullInt64
		err := rows.Scan(&ns, &key, &r.State, &claim, &r.Fence, &r.Attempt, &r.Takeovers, &r.TookOver, &ready, &expires,
			&owner, &fp, &reason, &r.Payload, &r.HasResult, &r.Result)
		if err != nil {
			return nil, err
		}
		if len(claim) == len(r.Claim) { // else it is nobody's
			r.Claim = oncepipe.ClaimID(claim)
		}
		r.ID = record.ID{Namespace: string(ns), Key: string(key)}
		r.Ready, r.Expires = distance(ready), distance(expires)
		r.Owner, r.Fingerprint, r.Reason = owner.String, string(fp), reason.String
		if n := len(into); n > 0 && into[n-1].ID == r.ID { // a key that fills up a statement
			continue
		}
		into = append(into, r)
	}
	return into, rows.Err()
}

// scanIDs reads all that a statement on ids returned.
func scanIDs(rows *sql.Rows) ([]record.ID, error) {
	defer rows.Close()
	var ids []record.ID
	for rows.Next() {
		var ns, key []byte
		if err := rows.Scan(&ns, &key); err != nil {
			return nil, err
		}
		ids = append(ids, record.ID{Namespace: string(ns), Key: string(key)})
	}
	return ids, rows.Err()
}

// runner runs the statements of a store, by itself or in a transaction.
type runner struct {
	db *database
	tx *sql.Tx // nil: each statement is a transaction of its own
}

func (r runner) stmt(ctx context.Context, which statement, size int) *sql.Stmt {
	stmt := r.db.stmts[which][size]
	if r.tx != nil {
		return r.tx.StmtContext(ctx, stmt)
	}
	return stmt
}

func (r runner) exec(ctx context.Context, which statement, size int, args ...any) (int64, error) {
	res, err := r.stmt(ctx, which, size).ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// alike tells whether two new rows differ in nothing but key, claim and
// fingerprint, and same, whether in nothing but the key.
func alike(a, b record.Record) bool {
	return a.Namespace == b.Namespace && a.State == b.State && a.Ready == b.Ready && a.Expires == b.Expires && a.Owner == b.Owner
}

func same(a, b record.Record) bool {
	return a.Claim == b.Claim && a.Fingerprint == b.Fingerprint && alike(a, b)
}

// plain tells whether a new row is one that an insertion makes.
func plain(r record.Record) bool {
	return r.Fence == 1 && r.Attempt == 1 && r.Takeovers == 0 && !r.TookOver && r.Reason == "" && len(r.Payload) == 0 && !r.HasResult
}

// newRows returns the arguments that make new rows of recs, which are alike, or
// the same.
func (d *dialect) newRows(recs []record.Record, same bool) []any {
	args := make([]any, 0, 8*len(recs))
	for i, r := range recs {
		first := i == 0 || d.places == inOrder
		if first {
			args = append(args, []byte(r.Namespace), record.Text(r.Owner), int64(r.State), moment(r.Ready), moment(r.Expires))
		}
		if first || !same {
			args = append(args, r.Claim[:], []byte(r.Fingerprint))
		}
		args = append(args, []byte(r.Key))
	}
	return args
}

// newParts calls f with the rows that one statement inserts, and its size. Two
// of them are like each other.
func newParts(recs []record.Record, like func(a, b record.Record) bool, f func(recs []record.Record, size int) error) error {
	for len(recs) > 0 {
		n := 1
		for n < len(recs) && n < largest && like(recs[0], recs[n]) {
			n++
		}
		n, size := part(n, sizes)
		if err := f(recs[:n], size); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

// insert inserts rows whose keys are new. The ids are those of all, or none where
// some were there.
func (r runner) insert(ctx context.Context, recs []record.Record) ([]record.ID, error) {
	which, like, ofOne := insert, alike, same(recs[0], recs[len(recs)-1])
	if ofOne {
		which, like = insertSame, same
	}
	inserted := 0
	err := newParts(recs, like, func(part []record.Record, size int) error {
		n, err := r.exec(ctx, which, size, r.db.dialect.newRows(part, ofOne)...)
		inserted += int(n)
		return err
	})
	if err != nil || inserted < len(recs) {
		return nil, err
	}
	var rest []record.Record
	for _, rec := range recs {
		if !plain(rec) {
			rest = append(rest, rec)
		}
	}
	return idsOf(recs), r.write(ctx, rest)
}

// insertTelling inserts rows whose keys are new and returns their ids, where the
// database can tell.
func (r runner) insertTelling(ctx context.Context, recs []record.Record) (ids []record.ID, err error) {
	err = newParts(recs, alike, func(part []record.Record, size int) error {
		rows, err := r.stmt(ctx, insertTell, size).QueryContext(ctx, r.db.dialect.newRows(part, false)...)
		if err != nil {
			return err
		}
		some, err := scanIDs(rows)
		ids = append(ids, some...)
		return err
	})
	return ids, err
}

func idsOf(recs []record.Record) []record.ID {
	ids := make([]record.ID, len(recs))
	for i, r := range recs {
		ids[i] = r.ID
	}
	return ids
}

// write writes rows over those that are there.
func (r runner) write(ctx context.Context, recs []record.Record) error {
	for len(recs) > 0 {
		n, size := part(len(recs), r.db.dialect.writeSizes)
		args := make([]any, 0, n*len(columns))
		for _, rec := range recs[:n] {
			args = append(args, values(rec)...)
		}
		if _, err := r.exec(ctx, write, size, args...); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

// inParts calls f with the ids, at most so many at once, as the arguments of a
// statement: the last id is there as often as fills it up.
func inParts(ids []record.ID, most int, f func(size int, args []any) error) error {
	for len(ids) > 0 {
		n := min(len(ids), most)
		size := sizeFor(n)
		args := make([]any, 0, 2<<size)
		for i := range 1 << size {
			id := ids[min(i, n-1)]
			args = append(args, []byte(id.Namespace), []byte(id.Key))
		}
		if err := f(size, args); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// load reads rows, with load or lock.
func (r runner) load(ctx context.Context, which statement, ids []record.ID) (recs []record.Record, err error) {
	err = inParts(ids, largest, func(size int, args []any) error {
		rows, err := r.stmt(ctx, which, size).QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		recs, err = scanRecords(rows, recs)
		return err
	})
	return recs, err
}

func (r runner) remove(ctx context.Context, ids []record.ID) (n int64, err error) {
	most := largest
	if r.db.dialect.removeEach {
		most = 1
	}
	err = inParts(ids, most, func(size int, args []any) error {
		some, err := r.exec(ctx, remove, size, args...)
		n += some
		return err
	})
	return n, err
}
