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
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// TestMain also is the worker processes that tests start and kill.
func TestMain(m *testing.M) {
	if raw := os.Getenv(workerEnv); raw != "" {
		if err := runWorker(raw, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
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

// The contract, on one connection and on as many as are wanted.
func TestContract(t *testing.T) {
	forBackends(t, backends, func(t *testing.T, b backend) {
		for _, conns := range []int{1, 0} {
			t.Run(fmt.Sprint("conns=", conns), func(t *testing.T) {
				oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
					obey(t, b.place(t), b.dialect, conns, check)
				})
			})
		}
	})
}

// SQLite, where nothing but the store waits for locks.
func TestContract_WithoutBusyTimeout(t *testing.T) {
	oncetest.StoreRaces(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		obey(t, place{"sqlite", dsn(newFile(t), "busy_timeout(0)")}, sqlstore.SQLite, 0, check)
	})
}

// The races, at the levels of isolation that the servers have.
func TestContract_Isolation(t *testing.T) {
	forBackends(t, servedBackends(), func(t *testing.T, b backend) {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			t.Run(level, func(t *testing.T) {
				oncetest.StoreRaces(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
					obey(t, b.place(t).isolated(t, level), b.dialect, 0, check)
				})
			})
		}
	})
}

// obey checks a rule on a new store.
func obey(t *testing.T, p place, dialect sqlstore.Dialect, conns int, check func(*testing.T, oncetest.StoreEnv)) {
	t.Helper()
	// The clock is written beside the store, by a connection of its own.
	advance := p.clocked(t)
	const maxResult = 1000
	st := openStore(t, p.open(t, conns), sqlstore.Config{
		Dialect: dialect, Retention: time.Hour, MaxResult: maxResult, Clock: testClock,
	})
	check(t, oncetest.StoreEnv{Store: st, Advance: advance, Retention: time.Hour, MaxResult: maxResult})
}
