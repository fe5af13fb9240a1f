package integration

import (
	"database/sql"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// backend is a kind of database for sqlstore.
type backend struct {
	name    string
	dialect sqlstore.Dialect
	place   func(t testing.TB) place // an empty one of the test's own
}

// place is where tables are made.
type place struct {
	driver, dsn string
}

// backends are all that sqlstore knows.
var backends = []backend{
	{"SQLite", sqlstore.SQLite, func(t testing.TB) place { return place{"sqlite", dsn(newFile(t), "busy_timeout(5000)")} }},
	{"PostgreSQL", sqlstore.PostgreSQL, func(t testing.TB) place { return place{"pgx", servertest.PostgresSchema(t)} }},
	{"MariaDB", sqlstore.MySQL, func(t testing.TB) place { return place{"mysql", servertest.MySQLDatabase(t)} }},
}

// servedBackends are those with a server.
func servedBackends() []backend { return backends[1:] }

// forBackends runs test for each, at the same time.
func forBackends(t *testing.T, all []backend, test func(t *testing.T, b backend)) {
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// isolated is p with another level of isolation for every transaction.
func (p place) isolated(t testing.TB, level string) place {
	t.Helper()
	switch p.driver {
	case "pgx":
		u, err := url.Parse(p.dsn)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("default_transaction_isolation", level)
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
		return place{p.driver, u.String()}
	case "mysql":
		cfg, err := mysql.ParseDSN(p.dsn)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Params == nil {
			cfg.Params = map[string]string{}
		}
		cfg.Params["tx_isolation"] = "'" + strings.ToUpper(strings.ReplaceAll(level, " ", "-")) + "'"
		return place{p.driver, cfg.FormatDSN()}
	default:
		t.Fatalf("%s has no levels", p.driver)
		return p
	}
}

// open opens a pool that is closed at the end of the test. conns is 0 for no
// limit.
func (p place) open(t testing.TB, conns int) *sql.DB {
	t.Helper()
	db, err := sql.Open(p.driver, p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(max(conns, 8))
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// clocked makes the table of testClock and returns what puts it forward, through
// connections of its own.
func (p place) clocked(t testing.TB) (advance func(time.Duration)) {
	t.Helper()
	db := p.open(t, 1)
	mustExec(t, db, "CREATE TABLE IF NOT EXISTS test_clock (ms BIGINT NOT NULL)")
	mustExec(t, db, "INSERT INTO test_clock VALUES (1700000000000)")
	return func(d time.Duration) {
		if _, err := db.Exec("UPDATE test_clock SET ms = ms + " + strconv.FormatInt(d.Milliseconds(), 10)); err != nil {
			t.Error(err)
		}
	}
}
