package handler

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// BookInTx needs no table of marks: the store has one, in the same database.
func BookInTx(store *sqlstore.Store) Handler {
	book := sqlstore.TxDo(store, "book", insertIntoLedger)
	return func(ctx context.Context, o Order) error { return book(oncepipe.WithKey(ctx, o.Key()), o) }
}

func insertIntoLedger(ctx context.Context, tx *sql.Tx, o Order) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id, cents) VALUES (?, ?)", o.ID, o.Cents)
	return err
}

// Pipeline books the orders of a source.
func Pipeline(store *sqlstore.Store, src oncepipe.Source[Order], log *slog.Logger) *oncepipe.Pipeline {
	p := oncepipe.New("shop", oncepipe.Config{Logger: log})
	orders := oncepipe.From(p, "orders", src)
	fresh := oncepipe.Dedup(orders, "dedup", Order.Key)
	oncepipe.Sink(fresh, "book", sqlstore.TxDo(store, "book", insertIntoLedger),
		oncepipe.Retry(oncepipe.RetryPolicy{MaxAttempts: 4}))
	return p
}
