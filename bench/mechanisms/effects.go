package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// tables are where effects are. None has a constraint but where it is the mechanism.
var tables = []string{
	"CREATE TABLE charges (token TEXT UNIQUE, k TEXT NOT NULL)", // the provider's; a token that it knows is no new charge
	"CREATE TABLE ledger (k TEXT NOT NULL)",
	"CREATE INDEX ledger_k ON ledger (k)",
	"CREATE TABLE marks (k TEXT PRIMARY KEY)",
	"CREATE TABLE bookings (k TEXT PRIMARY KEY)",
}

func makeTables(ctx context.Context, db *sql.DB) error {
	for _, text := range tables {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	return sqlstore.Migrate(ctx, db, sqlstore.Config{})
}

// effectsOf counts the effects of each key.
func effectsOf(ctx context.Context, db *sql.DB) (_ map[string]int, err error) {
	rows, err := db.QueryContext(ctx, `SELECT k, count(*) FROM
		(SELECT k FROM charges UNION ALL SELECT k FROM ledger UNION ALL SELECT k FROM bookings) GROUP BY k`)
	if err != nil {
		return nil, fmt.Errorf("count the effects: %w", err)
	}
	defer rows.Close()
	effects := map[string]int{}
	for rows.Next() {
		var key string
		var n int
		if err := rows.Scan(&key, &n); err != nil {
			return nil, fmt.Errorf("count the effects: %w", err)
		}
		effects[key] = n
	}
	return effects, rows.Err()
}

// executor is a pool or a transaction.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// make runs the statement that is the effect of o.
func (o *order) make(ctx context.Context, x executor, query string, args ...any) error {
	if err := o.before(ctx); err != nil {
		return err
	}
	_, err := x.ExecContext(ofEffect(ctx, o), query, args...)
	return err
}

// charge is an effect outside: at a provider who takes a token, "" for none.
func charge(ctx context.Context, db *sql.DB, o *order, token string) error {
	return o.make(ctx, db, "INSERT INTO charges (token, k) VALUES (?, ?) ON CONFLICT DO NOTHING",
		sql.NullString{String: token, Valid: token != ""}, o.Key)
}

// book is an effect in the database, by a transaction or by itself.
func book(ctx context.Context, x executor, o *order) error {
	return o.make(ctx, x, "INSERT INTO ledger (k) VALUES (?)", o.Key)
}

// primaryKey is SQLite's code for a key that is there.
const primaryKey = "1555"

func bookUnique(ctx context.Context, db *sql.DB, o *order) error {
	err := o.make(ctx, db, "INSERT INTO bookings (k) VALUES (?)", o.Key)
	if sqlstore.DriverCode(err) == primaryKey {
		return nil
	}
	return err
}

func isBooked(ctx context.Context, x interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, o *order,
) (there bool, err error) {
	err = x.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM ledger WHERE k = ?)", o.Key).Scan(&there)
	return there, err
}

// inTx runs f in a transaction. f may say that there is nothing to commit.
func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) (commit bool, err error)) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	commit, err := f(tx)
	if err == nil && commit {
		return tx.Commit()
	}
	if undo := tx.Rollback(); err == nil {
		err = undo
	}
	return err
}

func bookMarked(ctx context.Context, db *sql.DB, o *order) error {
	return inTx(ctx, db, func(tx *sql.Tx) (bool, error) {
		r, err := tx.ExecContext(ctx, "INSERT INTO marks (k) VALUES (?) ON CONFLICT DO NOTHING", o.Key)
		if err != nil {
			return false, err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return false, err
		}
		return true, book(ctx, tx, o)
	})
}

// bookReadCommitted has its select in a transaction of its own: as at READ
// COMMITTED, others may insert before its next statement.
func bookReadCommitted(ctx context.Context, db *sql.DB, o *order) error {
	if there, err := isBooked(ctx, db, o); err != nil || there {
		return err
	}
	return book(ctx, db, o)
}

func bookSerializable(ctx context.Context, db *sql.DB, o *order) error {
	return inTx(ctx, db, func(tx *sql.Tx) (bool, error) {
		there, err := isBooked(ctx, tx, o)
		if err != nil || there {
			return false, err
		}
		return true, book(ctx, tx, o)
	})
}
