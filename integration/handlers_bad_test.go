package integration

import (
	"context"
	"database/sql"

	"github.com/oncepipe/oncepipe/oncetest"
)

// Handlers that don't hold on SQLite, and what they do.
var badHandlers = []struct {
	name    string
	program benchProgram
	blame   oncetest.Blame
}{
	{"select in one transaction, insert in the next", inTable("effects", selectThenInsert), oncetest.Twice},
	{"effect outside of the transaction", onProviderInTx(chargeInTx), oncetest.Twice},
	{"commit error ignored", inTable("effects", ignoreCommit), oncetest.Lost},
	{"effect committed, mark in a second transaction", inTable("effects", insertThenMark), oncetest.Twice},
	{"mark committed, effect in a second transaction", inTable("effects", markThenInsert), oncetest.Lost},
	{"answer before the work", inTable("rows", answerFirst), oncetest.Lost},
}

// selectThenInsert is what a transaction at READ COMMITTED comes to: others may
// insert between its two statements.
func selectThenInsert(_ *oncetest.Process, db *sql.DB) handle {
	return func(ctx context.Context, o order) error {
		if there, err := isThere(ctx, db, "effects", o); err != nil || there {
			return err
		}
		_, err := db.ExecContext(ctx, "INSERT INTO effects (k) VALUES (?)", o.ID)
		return err
	}
}

func isThere(ctx context.Context, db *sql.DB, table string, o order) (bool, error) {
	var n int
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" WHERE k = ?", o.ID).Scan(&n)
	return n > 0, err
}

// onProviderInTx is a program whose effects are charges, beside a database.
func onProviderInTx(start func(p *oncetest.Process, db *sql.DB, pr *provider) handle) benchProgram {
	return func(w *oncetest.World, b *bench) oncetest.Program[order] {
		return atProvider(func(p *oncetest.Process, pr *provider) handle { return start(p, oncetest.StepDB(p, b), pr) })(w, b)
	}
}

func chargeInTx(p *oncetest.Process, db *sql.DB, pr *provider) handle {
	return func(ctx context.Context, o order) error {
		return marking(ctx, db, o, func(*sql.Tx) error { return pr.charge(ctx, p, "", o.ID) }, (*sql.Tx).Commit)
	}
}

func ignoreCommit(_ *oncetest.Process, db *sql.DB) handle {
	return func(ctx context.Context, o order) error {
		book := func(tx *sql.Tx) error { return bookOrder(ctx, tx, o) }
		return marking(ctx, db, o, book, func(tx *sql.Tx) error {
			_ = tx.Commit()
			return nil
		})
	}
}

// marking makes an effect and its mark in one transaction, which commit ends.
func marking(ctx context.Context, db *sql.DB, o order, effect, commit func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it may be over
	r, err := tx.ExecContext(ctx, "INSERT INTO marks (k) VALUES (?) ON CONFLICT DO NOTHING", o.ID)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return err
	}
	if err := effect(tx); err != nil {
		return err
	}
	return commit(tx)
}

func insertThenMark(_ *oncetest.Process, db *sql.DB) handle {
	return func(ctx context.Context, o order) error {
		if there, err := isThere(ctx, db, "marks", o); err != nil || there {
			return err
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO effects (k) VALUES (?)", o.ID); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, "INSERT INTO marks (k) VALUES (?) ON CONFLICT DO NOTHING", o.ID)
		return err
	}
}

func markThenInsert(_ *oncetest.Process, db *sql.DB) handle {
	return func(ctx context.Context, o order) error {
		r, err := db.ExecContext(ctx, "INSERT INTO marks (k) VALUES (?) ON CONFLICT DO NOTHING", o.ID)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = db.ExecContext(ctx, "INSERT INTO effects (k) VALUES (?)", o.ID)
		return err
	}
}

// answerFirst is a webhook that says 200 and then works.
func answerFirst(p *oncetest.Process, db *sql.DB) handle {
	work := insertRow(p, db)
	return func(ctx context.Context, o order) error {
		if err := p.Ack(ctx); err != nil {
			return err
		}
		return work(ctx, o)
	}
}
