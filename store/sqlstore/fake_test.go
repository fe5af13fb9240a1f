package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a driver whose statements do nothing but what a test says. The real
// thing is tested in the integration module.
type fake struct {
	exec func(ctx context.Context, query string, args []driver.NamedValue) (int64, error) // nil: changes one row

	mu      sync.Mutex
	execs   []string // the keys of insertions and updates, in their order
	commits int
	undone  int
}

// newFake returns a store on a fake database. Inside a bubble it is closed by the
// end of the test, which is too late: so the test closes it.
func newFake(t *testing.T, cfg Config) (*Store, *fake, func()) {
	t.Helper()
	f := &fake{}
	db := sql.OpenDB(fakeConnector{f})
	st, err := Open(t.Context(), db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return st, f, func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (f *fake) order() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.execs...)
}

func (f *fake) counts() (commits, undone int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits, f.undone
}

type fakeConnector struct{ f *fake }

func (c fakeConnector) Connect(context.Context) (driver.Conn, error) { return fakeConn(c), nil }
func (c fakeConnector) Driver() driver.Driver                        { return nil }

type fakeConn struct{ f *fake }

func (c fakeConn) Prepare(query string) (driver.Stmt, error) { return fakeStmt{c.f, query}, nil }
func (c fakeConn) Close() error                              { return nil }
func (c fakeConn) Begin() (driver.Tx, error)                 { return fakeTx(c), nil }

type fakeTx struct{ f *fake }

func (t fakeTx) Commit() error {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.f.commits++
	return nil
}

func (t fakeTx) Rollback() error {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.f.undone++
	return nil
}

type fakeStmt struct {
	f     *fake
	query string
}

func (s fakeStmt) Close() error  { return nil }
func (s fakeStmt) NumInput() int { return -1 }

func (s fakeStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

func (s fakeStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.f.exec != nil {
		n, err := s.f.exec(ctx, s.query, args)
		if err != nil {
			return nil, err
		}
		return driver.RowsAffected(n), nil
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.execs = append(s.f.execs, keyOf(args))
	return driver.RowsAffected(1), nil
}

// keyOf returns the key of a claim's insertion.
func keyOf(args []driver.NamedValue) string {
	if len(args) > 1 {
		if k, ok := args[1].Value.([]byte); ok {
			return string(k)
		}
	}
	return ""
}

// Query knows the questions that Open asks.
func (s fakeStmt) Query([]driver.Value) (driver.Rows, error) {
	switch {
	case strings.Contains(s.query, "sqlite_master"):
		return &fakeRows{cols: []string{"n"}, rows: [][]driver.Value{{int64(1)}}}, nil
	case strings.Contains(s.query, "meta"):
		rows := &fakeRows{cols: []string{"name", "value"}}
		for _, m := range metaValues {
			rows.rows = append(rows.rows, []driver.Value{m.name, int64(m.value)})
		}
		return rows, nil
	}
	return &fakeRows{cols: make([]string, 14)}, nil
}

type fakeRows struct {
	cols []string
	rows [][]driver.Value
}

func (r *fakeRows) Columns() []string { return r.cols }
func (r *fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// codedError has SQLite's code, in the shape of one of the drivers.
type codedError int

func (e codedError) Error() string { return "coded" }
func (e codedError) Code() int     { return int(e) }

const testLease = 30 * time.Second
