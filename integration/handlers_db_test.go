package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// bench is a SQLite file whose connections serve one schedule after the other: to
// open them takes longer than most schedules.
type bench struct {
	driver *sqlite.Driver
	dsn    string
	ledger *usual // looks on, beside all processes

	mu   sync.Mutex
	idle []*keptConn
}

// usual is a connection that is used by itself, by one goroutine at a time.
type usual struct {
	*keptConn
	mu sync.Mutex
}

// benchTables have no constraint but where it is the mechanism.
var benchTables = []string{
	"CREATE TABLE effects (k TEXT)",
	"CREATE INDEX effects_k ON effects (k)",
	"CREATE TABLE marks (k TEXT PRIMARY KEY)",
	"CREATE TABLE rows (k TEXT PRIMARY KEY)",
}

// newBench makes the file. Its clock, test_now(), is that of the bubble that asks.
func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{driver: new(sqlite.Driver), dsn: dsn(newFile(t), "busy_timeout(0)")}
	b.driver.MustRegisterScalarFunction("test_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMilli(), nil
	})
	db := sql.OpenDB(b)
	for _, text := range benchTables {
		mustExec(t, db, text)
	}
	if err := sqlstore.Migrate(t.Context(), db, benchConfig); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := b.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.ledger = &usual{keptConn: conn.(*keptConn)}
	t.Cleanup(func() {
		for _, c := range append(b.idle, b.ledger.keptConn) {
			if err := c.usualConn.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

// benchConfig is that of the stores. Who meets a lock soon says so.
var benchConfig = sqlstore.Config{Clock: "test_now()", BusyTimeout: 30 * time.Millisecond}

// Connect implements driver.Connector.
func (b *bench) Connect(context.Context) (driver.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := len(b.idle) - 1; last >= 0 {
		c := b.idle[last]
		b.idle = b.idle[:last]
		return c, nil
	}
	conn, err := b.driver.Open(b.dsn)
	if err != nil {
		return nil, err
	}
	return &keptConn{conn.(usualConn), b, map[string]driver.Stmt{}}, nil
}

// Driver implements driver.Connector.
func (b *bench) Driver() driver.Driver { return b.driver }

// clear empties the tables, for the next schedule.
func (b *bench) clear() {
	for _, table := range []string{"effects", "marks", "rows", "oncepipe_records"} {
		if err := b.ledger.exec("DELETE FROM " + table); err != nil {
			panic(err)
		}
	}
}

// rows counts those of a key in a table.
func (b *bench) rows(table, key string) int {
	n, err := b.ledger.number("SELECT count(*) FROM "+table+" WHERE k = ?", key)
	if err != nil {
		panic(err)
	}
	return n
}

func (u *usual) exec(query string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	st, err := u.PrepareContext(context.Background(), query)
	if err != nil {
		return err
	}
	_, err = st.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return err
}

func (u *usual) number(query, key string) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	st, err := u.PrepareContext(context.Background(), query)
	if err != nil {
		return 0, err
	}
	args := []driver.NamedValue{{Ordinal: 1, Value: key}}
	rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), args)
	if err != nil {
		return 0, err
	}
	row := make([]driver.Value, 1)
	if err := errors.Join(rows.Next(row), rows.Close()); err != nil {
		return 0, err
	}
	return int(row[0].(int64)), nil
}

// keptConn is a connection of a bench, with its prepared statements. To close it
// is to give it back.
type keptConn struct {
	usualConn
	bench *bench
	stmts map[string]driver.Stmt
}

func (c *keptConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if st := c.stmts[query]; st != nil {
		return keptStmt{st}, nil
	}
	st, err := c.usualConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = st
	return keptStmt{st}, nil
}

func (c *keptConn) Close() error {
	// There may be no transaction, which is an error and as good.
	_, _ = c.usualConn.ExecContext(context.Background(), "ROLLBACK", nil)
	c.bench.mu.Lock()
	defer c.bench.mu.Unlock()
	c.bench.idle = append(c.bench.idle, c)
	return nil
}

// keptStmt stays prepared.
type keptStmt struct{ driver.Stmt }

func (keptStmt) Close() error { return nil }

func (s keptStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s keptStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
