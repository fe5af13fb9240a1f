package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// killService is one whose effects are lines of a table in an SQLite file.
func killService(
	start func(p *oncetest.Process, st *sqlstore.Store, db *sql.DB) func(ctx context.Context, key string) error,
) oncetest.KillService[string] {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	return oncetest.KillService[string]{
		Messages: 1, Pairs: 2, Moments: 2, // a process takes half a second with -race
		Timeout: 30 * time.Second, // for busy machines
		Message: func(id, _ int) string { return fmt.Sprint("order-", id) },
		New: func(w *oncetest.World) oncetest.Program[string] {
			ctx := context.Background()
			file := filepath.Join(w.Dir(), "test.db")
			_, there := os.Stat(file)
			db, err := sql.Open("sqlite", dsn(file, "busy_timeout(5000)"))
			must(err)
			w.Cleanup(func() { must(db.Close()) })
			if there != nil {
				_, err = db.Exec("CREATE TABLE ledger (k TEXT, note TEXT)")
				must(err)
				must(sqlstore.Migrate(ctx, db, sqlstore.Config{}))
			}
			return oncetest.Program[string]{
				Start: func(p *oncetest.Process) func(context.Context, string) error {
					st, err := sqlstore.Open(ctx, db, sqlstore.Config{})
					must(err)
					p.Cleanup(func() { must(st.Close()) })
					handle := start(p, st, db)
					return func(ctx context.Context, key string) error {
						return handle(oncepipe.WithKey(ctx, key), key)
					}
				},
				Effects: func(key string) (n int) {
					must(db.QueryRow("SELECT count(*) FROM ledger WHERE k = ?", key).Scan(&n))
					return n
				},
			}
		},
	}
}

// Effect and record are one transaction: killed anywhere, there is one of each.
func TestKillHandler_TxDo(t *testing.T) {
	t.Parallel()
	s := killService(func(p *oncetest.Process, st *sqlstore.Store, _ *sql.DB) func(context.Context, string) error {
		do := sqlstore.TxDo(st, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
			return p.Step(ctx, "insert", func() error { return book(ctx, tx, key) })
		})
		return func(ctx context.Context, key string) error {
			return p.Step(ctx, "transaction", func() error { return do(ctx, key) })
		}
	})
	oncetest.Kill(t, s)
}

// onceKilled is an effect beside its record.
func onceKilled(cfg oncepipe.OnceConfig[string, struct{}]) oncetest.KillService[string] {
	return killService(func(p *oncetest.Process, st *sqlstore.Store, db *sql.DB) func(context.Context, string) error {
		return oncepipe.DoWith(p.Store(st), "book", cfg, func(ctx context.Context, key string) error {
			return p.Step(ctx, "insert", func() error {
				_, err := db.ExecContext(ctx, "INSERT INTO ledger (k) VALUES (?)", key)
				return err
			})
		})
	})
}

// killLease is so long that no run takes as long, on a busy machine either, and
// so short that many can be waited for.
const killLease = 500 * time.Millisecond

// Effect and record are two: killed between them, somebody is asked. There is
// never a second effect.
func TestKillHandler_AtMostOnce(t *testing.T) {
	t.Parallel()
	s := onceKilled(oncepipe.OnceConfig[string, struct{}]{AtMostOnce: true, Lease: killLease})
	oncetest.Kill(t, s)
}

// The default acts again where nobody knows: the check can fail.
func TestKillHandler_AtLeastOnceIsBlamed(t *testing.T) {
	s := onceKilled(oncepipe.OnceConfig[string, struct{}]{Lease: killLease})
	s.Test = t.Name()
	err := oncetest.CheckKill(s)
	var f *oncetest.Failure
	if !errors.As(err, &f) || f.Blame != oncetest.Twice {
		t.Errorf("want %q, got %v", oncetest.Twice, err)
	}
	t.Log(err)
}
