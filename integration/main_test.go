// Package integration tests oncepipe against real databases.
package integration

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest/storetest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// TestMain also is the process that TestR62_KillsInTheMiddleOfTransactions
// kills.
func TestMain(m *testing.M) {
	if file := os.Getenv(crashFile); file != "" {
		crashChild(file)
		return
	}
	goleak.VerifyTestMain(m)
}

// dsn is the usual way to open a file. Without a busy_timeout the store has to
// deal with locks all by itself. Without fsync only a power failure could lose
// something, and no test has one.
func dsn(file string, pragmas ...string) string {
	return dsnSync(file, "OFF", pragmas...)
}

// dsnSync is dsn with fsync, where its price counts.
func dsnSync(file, synchronous string, pragmas ...string) string {
	q := url.Values{"_pragma": append(pragmas, "journal_mode(WAL)", "synchronous("+synchronous+")")}
	return "file:" + file + "?" + q.Encode()
}

// newFile returns the name of a database file that isn't there yet.
func newFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "test.db")
}

// openDB opens a database that is closed at the end of the test. conns is 0 for
// no limit.
func openDB(t testing.TB, dsn string, conns int) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(conns)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// openStore makes the tables where they are missing and opens a store.
func openStore(t testing.TB, db *sql.DB, cfg sqlstore.Config) *sqlstore.Store {
	t.Helper()
	if err := sqlstore.Migrate(context.Background(), db, cfg); err != nil {
		t.Fatal(err)
	}
	st, err := sqlstore.Open(context.Background(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// testClock is a clock for Config.Clock that goes on when it is told to.
const testClock = "(SELECT ms FROM test_clock)"

// newClock makes the table of testClock and returns what puts it forward.
func newClock(t testing.TB, db *sql.DB) (advance func(time.Duration)) {
	t.Helper()
	mustExec(t, db, "CREATE TABLE IF NOT EXISTS test_clock (ms INTEGER NOT NULL)")
	mustExec(t, db, "INSERT INTO test_clock VALUES (1700000000000)")
	return func(d time.Duration) {
		if _, err := db.Exec("UPDATE test_clock SET ms = ms + ?", d.Milliseconds()); err != nil {
			t.Error(err)
		}
	}
}

func mustExec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func count(t testing.TB, db *sql.DB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// stateOf returns the state of the record of a step without a pipeline.
func stateOf(t testing.TB, st oncepipe.Store, step, key string) oncepipe.State {
	t.Helper()
	recs, err := st.Lookup(context.Background(), []oncepipe.RecordID{{Namespace: step, Key: key}})
	if err != nil {
		t.Fatal(err)
	}
	return recs[0].State
}

func newRequest(key string) oncepipe.ClaimRequest {
	return oncepipe.ClaimRequest{
		RecordID: oncepipe.RecordID{Namespace: "step", Key: key}, Claim: oncepipe.NewClaimID(), Lease: 30 * time.Second,
	}
}

// The contract, on one connection that doesn't wait for locks and on as many as
// are wanted that do.
func TestContract(t *testing.T) {
	for pragma, conns := range map[string]int{"busy_timeout(0)": 1, "busy_timeout(5000)": 0} {
		t.Run(fmt.Sprintf("conns=%d,%s", conns, pragma), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, rule storetest.Rule) {
				// The clock is written beside the store, by connections that have to wait
				// for locks in any case.
				file := newFile(t)
				advance := newClock(t, openDB(t, dsn(file, "busy_timeout(10000)"), 1))
				const maxResult = 1000
				st := openStore(t, openDB(t, dsn(file, pragma), conns), sqlstore.Config{
					Retention: time.Hour, MaxResult: maxResult, Clock: testClock,
				})
				rule(t, storetest.Env{Store: st, Advance: advance, Retention: time.Hour, MaxResult: maxResult})
			})
		})
	}
}
