package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/proxy"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/pgxstore"
)

// PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and no
// error.
func TestPgxTx_SwallowedErrorIsNotAcknowledged(t *testing.T) {
	for _, mode := range pgxModes {
		l := newPgxLedger(t, withParam(t, servertest.PostgresSchema(t), "default_query_exec_mode", mode), 1, pgxstore.Config{})
		swallow := func(ctx context.Context, tx pgx.Tx, key string) {
			if err := bookPgx(ctx, tx, key); err != nil {
				t.Error(err)
			}
			if _, err := tx.Exec(ctx, "SELECT 1/0"); err == nil {
				t.Error("divided by zero")
			}
		}
		none := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
			swallow(ctx, tx, key)
			return nil
		})
		if err := none(oncepipe.WithKey(t.Context(), "none"), "none"); !errors.Is(err, pgx.ErrTxCommitRollback) {
			t.Errorf("%s: %v", mode, err)
		}
		some := pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (int, error) {
			swallow(ctx, tx, key)
			return 1, nil
		})
		if _, err := some(oncepipe.WithKey(t.Context(), "some"), "some"); err == nil {
			t.Errorf("%s: no error", mode)
		}
		for _, key := range []string{"none", "some"} {
			l.check(t, key, 0, oncepipe.StateAbsent)
			if err := pgxstore.TxDo(l.Store, "book", bookPgx)(oncepipe.WithKey(t.Context(), key), key); err != nil {
				t.Error(err)
			}
			l.check(t, key, 1, oncepipe.StateCompleted)
		}
	}
}

// A constraint that is checked by the commit is the user's error, once.
func TestPgxTx_R54_DeferredConstraint(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 1, pgxstore.Config{})
	pgxExec(t, l.pool, "ALTER TABLE ledger ADD CONSTRAINT one_line UNIQUE (k) DEFERRABLE INITIALLY DEFERRED")
	for _, key := range []string{"none", "some"} {
		runs := 0
		twice := func(ctx context.Context, tx pgx.Tx, key string) error {
			runs++
			return errors.Join(bookPgx(ctx, tx, key), bookPgx(ctx, tx, key))
		}
		ctx := oncepipe.WithKey(t.Context(), key)
		var err error
		if key == "none" {
			err = pgxstore.TxDo(l.Store, "book", twice)(ctx, key)
		} else {
			_, err = pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (int, error) {
				return 1, twice(ctx, tx, key)
			})(ctx, key)
		}
		var said *pgconn.PgError
		if !errors.As(err, &said) || said.Code != "23505" || runs != 1 {
			t.Errorf("%s: %v, %d runs", key, err, runs)
		}
		l.check(t, key, 0, oncepipe.StateAbsent)
	}
}

// A commit whose reply is lost has happened or not, and a caller learns which.
func TestPgxTx_R02_R49_LostCommits(t *testing.T) {
	for _, mode := range []string{"exec", "simple_protocol"} { // the proxy sees each COMMIT
		for _, when := range []proxy.When{proxy.Before, proxy.After} {
			p, dsn := pgxProxied(t)
			l := newPgxLedger(t, withParam(t, dsn, "default_query_exec_mode", mode), 1, pgxstore.Config{})
			runs := 0
			run := func(ctx context.Context, tx pgx.Tx, key string) (int, error) {
				runs++
				return runs, bookPgx(ctx, tx, key)
			}
			effects := map[string]func(context.Context, string) error{
				"none": pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
					_, err := run(ctx, tx, key)
					return err
				}),
				"some": func(ctx context.Context, key string) error {
					got, err := pgxstore.Tx(l.Store, "book", run)(ctx, key)
					if err == nil && got != runs {
						t.Errorf("result %d, want %d", got, runs)
					}
					return err
				},
			}
			for key, do := range effects {
				runs = 0
				ctx := oncepipe.WithKey(t.Context(), key)
				p.Set(proxy.Fault{Match: proxy.Postgres.Commit, When: when, Times: 1})
				err := do(ctx, key)
				p.Set()
				if (err == nil) != (when == proxy.After) {
					t.Errorf("%s, %s, %v: error %v", mode, key, when, err)
				}
				want := 2 // runs
				if when == proxy.After {
					want = 1
				}
				for range 2 {
					if err := do(ctx, key); err != nil || runs != want {
						t.Errorf("%s, %s, %v, again: %v, %d runs", mode, key, when, err, runs)
					}
				}
				l.check(t, key, 1, oncepipe.StateCompleted)
			}
			if n := p.Counts().Before.Cut + p.Counts().After.Cut; n != len(effects) {
				t.Errorf("%d faults", n)
			}
		}
	}
}

// The store's own commits: an error is an outage, and the request can be repeated.
func TestPgx_R01_LostRepliesOfTheStore(t *testing.T) {
	for _, when := range []proxy.When{proxy.Before, proxy.After} {
		p, dsn := pgxProxied(t)
		l := newPgxLedger(t, dsn, 1, pgxstore.Config{})
		ctx := t.Context()
		req := newRequest("k")
		done := []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim, Result: []byte("r"), HasResult: true}}
		cut := func(skip int32, call func() error) {
			t.Helper()
			var seen atomic.Int32
			p.Set(proxy.Fault{Match: func(b []byte) bool {
				return proxy.Postgres.Statement(b) && seen.Add(1) > skip
			}, When: when, Times: 1})
			err := call()
			p.Set()
			if err == nil {
				t.Error("no error")
			}
		}
		cut(0, func() error { _, err := l.Claim(ctx, []oncepipe.ClaimRequest{req}); return err })
		answers, err := l.Claim(ctx, []oncepipe.ClaimRequest{req})
		if err != nil || answers[0].Status != oncepipe.ClaimAcquired || answers[0].Attempt != 1 || answers[0].Takeover {
			t.Errorf("claim, repeated: %+v, %v", answers, err)
		}
		for skip := range int32(2) { // at the look, and at the write with its commit
			cut(skip, func() error { _, err := l.Complete(ctx, done); return err })
		}
		if held, err := l.Complete(ctx, done); err != nil || !held[0] {
			t.Errorf("complete, repeated: %v, %v", held, err)
		}
	}
}

func TestPgxTx_R61_TransactionThatMetAnotherIsRunAgain(t *testing.T) {
	for _, at := range []string{"statement", "commit"} {
		l := newPgxLedger(t, servertest.PostgresSchema(t), 2, pgxstore.Config{Isolation: pgx.Serializable})
		pgxExec(t, l.pool, "CREATE TABLE counters (name text PRIMARY KEY, n int)")
		pgxExec(t, l.pool, "INSERT INTO counters VALUES ('a', 0), ('b', 0)")
		// Another one writes what this one has read, and reads what this one writes.
		written := map[string]string{"statement": "a", "commit": "b"}[at]
		runs := 0
		do := pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (int, error) {
			runs++
			var n int
			if err := tx.QueryRow(ctx, "SELECT n FROM counters WHERE name = 'a'").Scan(&n); err != nil {
				return 0, err
			}
			if runs == 1 {
				err := pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(other pgx.Tx) error {
					var b int
					err := other.QueryRow(ctx, "SELECT n FROM counters WHERE name = 'b'").Scan(&b)
					_, upErr := other.Exec(ctx, "UPDATE counters SET n = 10 WHERE name = 'a'")
					return errors.Join(err, upErr)
				})
				if err != nil {
					return 0, err
				}
			}
			_, err := tx.Exec(ctx, "UPDATE counters SET n = $1 WHERE name = $2", n+1, written)
			return n + 1, errors.Join(err, bookPgx(ctx, tx, key))
		})
		if got, err := do(oncepipe.WithKey(t.Context(), "k"), "k"); err != nil || got != 11 || runs != 2 {
			t.Errorf("%s: %d, %v, %d runs", at, got, err, runs)
		}
		l.check(t, "k", 1, oncepipe.StateCompleted)
	}
}

// Codes decide whether a function is run again, not texts.
func TestPgxTx_R56_Codes(t *testing.T) {
	l := simplePgxLedger(t)
	for _, c := range []struct {
		err  error
		runs int
	}{
		{fmt.Errorf("insert: %w", &pgconn.PgError{Code: "40001"}), 10},
		{&pgconn.PgError{Code: "40P01"}, 10},
		{&pgconn.PgError{Code: "55P03"}, 10},
		{&pgconn.PgError{Code: "23505"}, 1},
		{oncepipe.Permanent(&pgconn.PgError{Code: "40001"}), 1},
		{errors.New("could not serialize access (SQLSTATE 40001)"), 1},
	} {
		runs := 0
		do := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
			runs++
			return errors.Join(bookPgx(ctx, tx, key), c.err)
		})
		if err := do(oncepipe.WithKey(t.Context(), "k"), "k"); !errors.Is(err, c.err) || runs != c.runs {
			t.Errorf("%v: %v, %d runs, want %d", c.err, err, runs, c.runs)
		}
		l.check(t, "k", 0, oncepipe.StateAbsent)
	}
}
