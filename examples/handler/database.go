package handler

import (
	"context"
	"database/sql"
)

// SelectThenInsert looks whether the row is there.
func SelectThenInsert(db *sql.DB) Handler {
	return func(ctx context.Context, o Order) error {
		var n int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM orders WHERE id = ?", o.ID).Scan(&n)
		if err != nil || n > 0 {
			return err
		}
		_, err = db.ExecContext(ctx, "INSERT INTO orders (id, cents) VALUES (?, ?)", o.ID, o.Cents)
		return err
	}
}

// InsertUnique leaves it to the database: orders.id is the primary key.
func InsertUnique(db *sql.DB) Handler {
	return func(ctx context.Context, o Order) error {
		_, err := db.ExecContext(ctx, "INSERT INTO orders (id, cents) VALUES (?, ?) ON CONFLICT DO NOTHING", o.ID, o.Cents)
		return err
	}
}

// MarkBeside has an effect without a key of its own, and a mark with one. These
// are two statements.
func MarkBeside(db *sql.DB) Handler {
	return func(ctx context.Context, o Order) error {
		r, err := db.ExecContext(ctx, "INSERT INTO done (id) VALUES (?) ON CONFLICT DO NOTHING", o.ID)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = db.ExecContext(ctx, "INSERT INTO ledger (id, cents) VALUES (?, ?)", o.ID, o.Cents)
		return err
	}
}

// MarkWithin has both in one transaction.
func MarkWithin(db *sql.DB) Handler {
	return func(ctx context.Context, o Order) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		r, err := tx.ExecContext(ctx, "INSERT INTO done (id) VALUES (?) ON CONFLICT DO NOTHING", o.ID)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO ledger (id, cents) VALUES (?, ?)", o.ID, o.Cents); err != nil {
			return err
		}
		return tx.Commit()
	}
}
