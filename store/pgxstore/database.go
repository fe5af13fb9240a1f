package pgxstore

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// database is a record.Database on a pool.
type database struct {
	pool *pgxpool.Pool
	cfg  Config
	sql  statements
}

func newDatabase(pool *pgxpool.Pool, cfg Config) *database {
	return &database{pool: pool, cfg: cfg, sql: cfg.statements()}
}

// Identity is the pool's: a call on any store of it, from within a transaction
// on it, might wait for itself.
func (d *database) Identity() any { return d.pool }

// serialization_failure, deadlock_detected, lock_not_available
var metAnother = []string{"40001", "40P01", "55P03"}

// Refused implements record.Database.
func (d *database) Refused(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) || errors.Is(err, pgx.ErrTxCommitRollback)
}

// Again implements record.Database.
func (d *database) Again(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && slices.Contains(metAnother, said.Code)
}

// maxRounds is how often Introduce looks again for records that were there and
// are not, because others forget or prune them at the same time.
const maxRounds = 10

var errComesAndGoes = errors.New("record comes and goes")

// Introduce implements record.Database. Insertion and look are one transaction
// and one round trip.
func (d *database) Introduce(ctx context.Context, recs []record.Record) (known []record.Record, err error) {
	for range maxRounds {
		inserted, found, err := d.introduce(ctx, recs)
		if err != nil {
			return nil, err
		}
		there := make(map[record.ID]bool, len(recs))
		for _, id := range inserted {
			there[id] = true
		}
		for _, r := range found {
			if !there[r.ID] {
				there[r.ID] = true
				known = append(known, r)
			}
		}
		var missing []record.Record
		for _, r := range recs {
			if !there[r.ID] {
				missing = append(missing, r)
			}
		}
		if recs = missing; len(recs) == 0 {
			return known, nil
		}
	}
	return nil, errComesAndGoes
}

// introduce inserts what is new, and then reads all.
func (d *database) introduce(ctx context.Context, recs []record.Record) (inserted []record.ID, found []record.Record, err error) {
	b := &pgx.Batch{}
	for _, ins := range d.sql.insertions(recs) {
		b.Queue(ins.text+returning, ins.args...).Query(func(rows pgx.Rows) error {
			ids, err := scanIDs(rows)
			inserted = append(inserted, ids...)
			return err
		})
	}
	b.Queue(d.sql.load, columnsOfIDs(idsOf(recs))...).Query(into(&found, scanRecords))
	err = d.pool.SendBatch(ctx, b).Close()
	return inserted, found, err
}

// into makes a function for a batch out of one that reads rows.
func into[T any](dst *[]T, scan func(pgx.Rows) ([]T, error)) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*dst, err = scan(rows)
		return err
	}
}

// query reads outside of a transaction.
func query[T any](ctx context.Context, d *database, scan func(pgx.Rows) ([]T, error), text string, args ...any) ([]T, error) {
	rows, err := d.pool.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return scan(rows)
}

// Read implements record.Database.
func (d *database) Read(ctx context.Context, ids []record.ID) ([]record.Record, error) {
	return query(ctx, d, scanRecords, d.sql.load, columnsOfIDs(ids)...)
}

// Prune implements record.Database.
func (d *database) Prune(ctx context.Context, limit int) (int, error) {
	tag, err := d.pool.Exec(ctx, d.sql.prune, limit)
	return int(tag.RowsAffected()), err
}

// list reads the records of a query.
func (d *database) list(ctx context.Context, q oncepipe.Query, after record.ID, limit int) ([]record.Record, error) {
	if q.Namespace == "" {
		return query(ctx, d, scanRecords, d.sql.list, int16(q.State), []byte(after.Namespace), []byte(after.Key), limit)
	}
	ns := oncepipe.StorageKey(q.Namespace)
	switch {
	case after.Namespace > ns:
		return nil, nil
	case after.Namespace < ns:
		after.Key = ""
	}
	return query(ctx, d, scanRecords, d.sql.listIn, int16(q.State), []byte(ns), []byte(after.Key), limit)
}

// count counts the records by state.
func (d *database) count(ctx context.Context) (map[oncepipe.State]int, error) {
	rows, err := d.pool.Query(ctx, d.sql.count)
	if err != nil {
		return nil, err
	}
	n := map[oncepipe.State]int{}
	var state int16
	var records int
	_, err = pgx.ForEachRow(rows, []any{&state, &records}, func() error {
		n[oncepipe.State(state)] = records
		return nil
	})
	return n, err
}
