// Package servertest gives tests the servers that they need.
//
// The shared ones are started once for a whole run, by the program
// integration/servers, which make race and make test use:
//
//	go run ./integration/servers -- go test ./integration/...
//
// A test finds their addresses with [Postgres], [MySQL] and [Redis], or a place
// of its own on them with [PostgresSchema], [MySQLDatabase] and [RedisPrefix]. A
// test that is hard on a server has one for itself with [Start], which needs no
// program around it.
//
// A test without its server fails, so that nothing is skipped in silence, except
// in two cases: ONCEPIPE_SKIP names the kind, or the run is a -short one.
package servertest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/oncepipe/oncepipe/integration/internal/servers"
)

// Postgres returns the URL of the shared PostgreSQL server.
func Postgres(t testing.TB) string { t.Helper(); return shared(t, servers.Postgres) }

// MySQL returns the DSN, for go-sql-driver, of the shared MariaDB server.
func MySQL(t testing.TB) string { t.Helper(); return shared(t, servers.MySQL) }

// Redis returns the URL of the shared Redis server.
func Redis(t testing.TB) string { t.Helper(); return shared(t, servers.Redis) }

func shared(t testing.TB, kind servers.Kind) string {
	t.Helper()
	Private(t, kind)
	dsn := os.Getenv(kind.Env())
	if dsn == "" {
		t.Fatalf("no %s server: %s is not set. Run the tests with make race, or: "+
			"go run ./integration/servers -- go test ./integration/... (%s=%s does without)",
			kind, kind.Env(), servers.SkipEnv, kind)
	}
	return dsn
}

// Private skips the test where servers of this kind aren't wanted: in a -short
// run and where ONCEPIPE_SKIP names the kind. It is for tests that start their
// own in another way than with [Start].
func Private(t testing.TB, kind servers.Kind) {
	t.Helper()
	skipped, err := servers.Skipped()
	switch {
	case err != nil:
		t.Fatal(err)
	case slices.Contains(skipped, kind):
		t.Skipf("%s names %s", servers.SkipEnv, kind)
	case testing.Short():
		t.Skipf("-short: no %s server", kind)
	}
}

// Start starts a server for this test alone and stops it at the test's end.
func Start(t testing.TB, kind servers.Kind, o servers.Options) *servers.Server {
	t.Helper()
	Private(t, kind)
	s, err := servers.Start(t.Context(), kind, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s:\n%s", kind, s.Log())
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// cleanLimit is for what is done at the end of a test, when its context has
// ended.
const cleanLimit = 30 * time.Second

// PostgresSchema makes an empty schema on the shared server, which is dropped at
// the test's end, and returns a URL whose connections see only it (as
// search_path).
func PostgresSchema(t testing.TB) string {
	t.Helper()
	return SchemaOn(t, Postgres(t))
}

// SchemaOn is PostgresSchema on another server, by its URL.
func SchemaOn(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		t.Fatalf("%q is no URL postgres://…: %v", dsn, err)
	}
	schema := name()
	exec := func(ctx context.Context, query string) {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			return
		}
		if _, err := conn.Exec(ctx, query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	exec(t.Context(), "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
	})
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// MySQLDatabase makes an empty database on the shared server, which is dropped
// at the test's end, and returns its DSN.
func MySQLDatabase(t testing.TB) string {
	t.Helper()
	return DatabaseOn(t, MySQL(t))
}

// DatabaseOn is MySQLDatabase on another server, by its DSN.
func DatabaseOn(t testing.TB, dsn string) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	database := name()
	exec := func(ctx context.Context, query string) {
		db, err := sql.Open("mysql", dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(ctx, query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	exec(t.Context(), "CREATE DATABASE "+database)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		exec(ctx, "DROP DATABASE "+database)
	})
	cfg.DBName = database
	return cfg.FormatDSN()
}

// RedisPrefix returns the URL of the shared Redis server and a prefix for keys
// that no other test has.
func RedisPrefix(t testing.TB) (dsn, prefix string) {
	t.Helper()
	return Redis(t), name() + ":"
}

// name returns one that nobody else has, in letters that need no quotes.
func name() string { return "t" + strings.ToLower(rand.Text()) }
