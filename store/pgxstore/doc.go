// Package pgxstore keeps the records of oncepipe in PostgreSQL, through a
// *pgxpool.Pool of the caller's, and runs effects in the same transaction as the
// record that says they happened. PostgreSQL 12 or later will do.
//
// Tx and TxDo are what the package is for: where the effect is a write to the
// same database, one transaction holds it and its record, and there is nothing
// left to go wrong between them. The Store is an oncepipe.Store as well, for
// effects that are outside:
//
//	pool, err := pgxpool.New(ctx, url)
//	…
//	err = pgxstore.Migrate(ctx, pool, pgxstore.Config{})
//	…
//	st, err := pgxstore.Open(ctx, pool, pgxstore.Config{})
//	…
//	book := pgxstore.TxDo(st, "book", func(ctx context.Context, tx pgx.Tx, o Order) error {
//		_, err := tx.Exec(ctx, "INSERT INTO bookings (id, amount) VALUES ($1, $2)", o.ID, o.Amount)
//		return err
//	})
//	oncepipe.Sink(orders, "book", book)
//
// sqlstore does the same for PostgreSQL through database/sql. The tables are the
// same, and both may work on them at the same time.
//
// # Round trips
//
// They are what a short transaction costs. A batch of claims is one, however many
// it holds and whether their keys are new or not. A batch of completions, releases
// or extensions is two. The record of an effect is written by the round trip that
// begins its transaction, and its result by the one that commits: an effect of one
// statement is three, as it would be without a record. Once more as many are
// needed on a new connection, and after an error, to prepare statements.
//
// # The transaction of an effect
//
// It is one of pgx's, with all that these can do: batches, COPY, large objects,
// nested transactions. Only its Commit fails, since the store commits; and every
// method fails with pgx.ErrTxClosed when the function is over.
//
// In PostgreSQL a statement that fails spoils its transaction. A function that
// goes on all the same, and returns nil, has not acted: the error is
// pgx.ErrTxCommitRollback. Put what may fail into a nested transaction.
//
// A store never waits for a connection while it holds one, so that a pool of one
// is enough. A function of the user's that acquires another one may wait for
// itself there.
//
// Any isolation level will do. At repeatable read and serializable, transactions
// that meet others are repeated, those of effects with their functions: see Tx.
//
// # Poolers
//
// A pooler that gives a connection to a transaction (PgBouncer's pool_mode
// transaction) must know prepared statements, as PgBouncer does from 1.21 on with
// max_prepared_statements, or pgx must not use them: set
// default_query_exec_mode=exec in the URL, or ConnConfig.DefaultQueryExecMode to
// pgx.QueryExecModeExec or pgx.QueryExecModeSimpleProtocol. The store works with
// every mode. A mode that describes statements at each use takes a round trip more.
package pgxstore
