package sqlstore

import (
	"context"
	"database/sql"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// Tx makes fn happen once for each key: fn's writes and the record that they
// were made are one transaction. The function that it returns is for a stage; the
// key is that of the item, or what oncepipe.WithKey says, and step the durable
// name of what is done.
//
// When the key is complete, fn is not run and the recorded result is returned.
// Results are JSON; those of type struct{} are not recorded. One that is larger
// than Config.MaxResult, or that JSON can't express, is left out and doesn't fail
// the effect. A replay that finds none, or can't decode it, is
// oncepipe.ErrNoResult: never a zero value, and never a second run.
//
// When fn fails, panics or ends its goroutine, nothing has happened. When the
// database says by its code that the transaction met another one (a lock, a
// deadlock, a serialization failure), it is undone and fn is run again, a few
// times and within Config.BusyTimeout; so all that fn does has to be in its
// transaction. A commit that reports an error is looked up before it is believed.
// It is safe to call again after any error.
//
// fn must return the errors that the database gives it, those that it may go on
// after excepted. PostgreSQL refuses to commit what has met one; MariaDB and MySQL
// undo a transaction that meets a deadlock, and take what fn goes on to write as
// something outside of it.
//
// fn must not end its transaction, and must not call the Store or another Tx on
// the same database: that fails at once with oncepipe.ErrInTx if it is done with
// the context that fn is given.
//
// A record that Once left under the same name is honoured: while it is claimed
// or not due, the error is oncepipe.ErrBusy with a Snooze until then, and
// oncepipe.ErrUnknownOutcome when it is unknown.
func Tx[A, B any](st *Store, step string, fn func(context.Context, *sql.Tx, A) (B, error)) func(context.Context, A) (B, error) {
	return TxWith(st, step, oncepipe.TxConfig[A, B]{}, fn)
}

// TxWith is Tx with a configuration.
func TxWith[A, B any](st *Store, step string, cfg oncepipe.TxConfig[A, B], fn func(context.Context, *sql.Tx, A) (B, error)) func(context.Context, A) (B, error) {
	return record.TxFunc(st.core, step, cfg, fn)
}

// TxDo is Tx for effects without a result.
func TxDo[A any](st *Store, step string, fn func(context.Context, *sql.Tx, A) error) func(context.Context, A) error {
	return TxDoWith(st, step, oncepipe.TxConfig[A, struct{}]{}, fn)
}

// TxDoWith is TxWith for effects without a result.
func TxDoWith[A any](st *Store, step string, cfg oncepipe.TxConfig[A, struct{}], fn func(context.Context, *sql.Tx, A) error) func(context.Context, A) error {
	do := TxWith(st, step, cfg, func(ctx context.Context, tx *sql.Tx, a A) (struct{}, error) {
		return struct{}{}, fn(ctx, tx, a)
	})
	return func(ctx context.Context, a A) error {
		_, err := do(ctx, a)
		return err
	}
}

// TxBatch is Tx for many items in one transaction, which is where throughput
// comes from. The function that it returns is for oncepipe.BatchStage, which knows the
// keys of the items; oncepipe.WithKeys names them elsewhere.
//
// fn is called with those items whose keys are new and returns a result for each.
// A key that is there twice is new once. When fn fails nothing has happened, and
// it is called again: for those items that a *oncepipe.BatchError of its has no
// error for, else for each half by itself, until the item that makes it fail
// stands alone. The items' own errors come back as a *oncepipe.BatchError.
func TxBatch[A, B any](st *Store, step string, fn func(context.Context, *sql.Tx, []A) ([]B, error)) func(context.Context, []A) ([]B, error) {
	return TxBatchWith(st, step, oncepipe.TxConfig[A, B]{}, fn)
}

// TxBatchWith is TxBatch with a configuration.
func TxBatchWith[A, B any](st *Store, step string, cfg oncepipe.TxConfig[A, B], fn func(context.Context, *sql.Tx, []A) ([]B, error)) func(context.Context, []A) ([]B, error) {
	return record.TxBatchFunc(st.core, step, cfg, fn)
}

// TxBatchDo is TxBatch for effects without a result, and for oncepipe.BatchSink.
func TxBatchDo[A any](st *Store, step string, fn func(context.Context, *sql.Tx, []A) error) func(context.Context, []A) error {
	return TxBatchDoWith(st, step, oncepipe.TxConfig[A, struct{}]{}, fn)
}

// TxBatchDoWith is TxBatchWith for effects without a result.
func TxBatchDoWith[A any](st *Store, step string, cfg oncepipe.TxConfig[A, struct{}], fn func(context.Context, *sql.Tx, []A) error) func(context.Context, []A) error {
	do := TxBatchWith(st, step, cfg, func(ctx context.Context, tx *sql.Tx, batch []A) ([]struct{}, error) {
		return make([]struct{}, len(batch)), fn(ctx, tx, batch)
	})
	return func(ctx context.Context, batch []A) error {
		_, err := do(ctx, batch)
		return err
	}
}
