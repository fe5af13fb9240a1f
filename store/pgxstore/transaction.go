package pgxstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// undoTimeout is how long a rollback may take, whatever the transaction's own
// context says. One that takes longer is left to the server, which rolls back when
// the connection is closed.
const undoTimeout = 5 * time.Second

// transaction is a record.Tx. Round trips are what it costs, so it begins together with its
// first statement, and writes that nothing comes after go together with the commit.
type transaction struct {
	db   *database
	conn *pgxpool.Conn

	tx      pgx.Tx     // nil before the first statement
	waiting *pgx.Batch // statements for the next round trip, or nil
	late    bool       // writes may wait for the commit
	lent    *lent      // what a function has been given, or nil
}

// Transact implements record.Database.
func (d *database) Transact(ctx context.Context, f func(record.Tx[pgx.Tx]) error) error {
	return d.transact(ctx, func(t *transaction) error {
		t.late = true
		return f(t)
	})
}

// TransactWith implements record.Database.
func (d *database) TransactWith(ctx context.Context, first []record.Record, f func(record.Tx[pgx.Tx], []record.ID) error) error {
	return d.transact(ctx, func(t *transaction) error {
		inserted, err := t.Insert(ctx, first)
		if err != nil {
			return err
		}
		return f(t, inserted)
	})
}

func (d *database) transact(ctx context.Context, f func(*transaction) error) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes one that is in a transaction still
	t := &transaction{db: d, conn: conn}
	defer t.end(ctx)
	if err := f(t); err != nil {
		return err
	}
	return t.commit(ctx)
}

// queue adds a statement to the next round trip.
func (t *transaction) queue(text string, args []any) *pgx.QueuedQuery {
	if t.waiting == nil {
		t.waiting = &pgx.Batch{}
		if t.tx == nil {
			t.waiting.BeginTx(pgx.TxOptions{IsoLevel: t.db.cfg.Isolation})
		}
	}
	return t.waiting.Queue(text, args...)
}

// send is a round trip.
func (t *transaction) send(ctx context.Context) error {
	b := t.waiting
	t.waiting = nil
	if t.tx != nil {
		return t.tx.SendBatch(ctx, b).Close()
	}
	results := t.conn.SendBatch(ctx, b)
	t.tx = results.Tx()
	return results.Close()
}

// Insert implements record.Tx. The number of rows tells whether all were new, which
// is what an effect asks: if not, it looks at every record. Claims that are known to be new
// are not looked at any more, so they are worth the price of a list.
func (t *transaction) Insert(ctx context.Context, recs []record.Record) (inserted []record.ID, err error) {
	list := ""
	if recs[0].State == oncepipe.StateClaimed {
		list = returning
	}
	var n int64
	for _, ins := range t.db.sql.insertions(recs) {
		t.queue(ins.text+list, ins.args).Query(func(rows pgx.Rows) error {
			ids, err := scanIDs(rows)
			inserted = append(inserted, ids...)
			n += rows.CommandTag().RowsAffected()
			return err
		})
	}
	if err := t.send(ctx); err != nil {
		return nil, err
	}
	if n == int64(len(recs)) {
		return idsOf(recs), nil
	}
	return inserted, nil
}

// Load implements record.Tx.
func (t *transaction) Load(ctx context.Context, ids []record.ID) (recs []record.Record, err error) {
	t.queue(t.db.sql.lock, columnsOfIDs(ids)).Query(into(&recs, scanRecords))
	err = t.send(ctx)
	return recs, err
}

// Write implements record.Tx.
func (t *transaction) Write(ctx context.Context, recs []record.Record) error {
	return t.change(ctx, t.db.sql.write, columnsOf(recs))
}

// Delete implements record.Tx.
func (t *transaction) Delete(ctx context.Context, ids []record.ID) error {
	return t.change(ctx, t.db.sql.remove, columnsOfIDs(ids))
}

func (t *transaction) change(ctx context.Context, text string, args []any) error {
	t.queue(text, args)
	if t.late {
		return nil
	}
	return t.send(ctx)
}

// Native implements record.Tx. What is written from then on is the function's
// result, and waits for the commit. What was written before must not: the
// record has to be there even where a function ends its transaction by some SQL.
func (t *transaction) Native() pgx.Tx {
	t.late = true
	if t.lent == nil {
		t.lent = &lent{t.tx}
	}
	return t.lent
}

// commit ends the transaction. A context that is over undoes it.
func (t *transaction) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.sendCommit(ctx)
	if err != nil {
		return record.CommitError{Err: err}
	}
	return nil
}

func (t *transaction) sendCommit(ctx context.Context) error {
	switch {
	case t.waiting != nil:
		t.queue("commit", nil).Exec(func(tag pgconn.CommandTag) error {
			if tag.String() != "COMMIT" { // as pgx does it: the transaction had failed
				return pgx.ErrTxCommitRollback
			}
			return nil
		})
		return t.send(ctx)
	case t.tx != nil:
		return t.tx.Commit(ctx)
	}
	return nil // nothing has begun
}

// end undoes what is not committed, and takes back what was lent.
func (t *transaction) end(ctx context.Context) {
	if t.lent != nil {
		t.lent.Tx = closedTx
	}
	if t.tx == nil || t.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	// pgx closes a connection whose rollback fails, and then it is undone as well.
	_ = t.tx.Rollback(ctx)
}

// lent is a transaction in the hands of a function of the user's: he can't
// commit it without the store, nor use it when it is over and its connection
// is somebody else's.
type lent struct{ pgx.Tx }

var (
	errCommit   = errors.New("pgxstore: the store commits this transaction, not the function that is given it")
	errRollback = errors.New("pgxstore: return an error to undo this transaction; the store does it")
)

func (l *lent) Commit(context.Context) error { return errCommit }

// Rollback does nothing but refuse, so that a deferred one, as one writes it where
// one has begun a transaction, does no harm.
func (l *lent) Rollback(context.Context) error {
	if l.Tx == closedTx {
		return pgx.ErrTxClosed
	}
	return errRollback
}

// closedTx answers everything with pgx.ErrTxClosed.
var closedTx = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()
