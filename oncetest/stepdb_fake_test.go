package oncetest

import (
	"context"
	"database/sql/driver"
	"io"
	"slices"
	"strings"
	"sync"
)

// fakeDB is a database with one table of one column, which several processes may
// have open. It knows INSERT and SELECT.
type fakeDB struct {
	skips bool // statements want to be prepared
	wrap  func(*fakeConn) driver.Conn

	mu                sync.Mutex
	rows              []string
	conns, open, ever int // connections; open statements and rows; connections that there were
}

func (d *fakeDB) Driver() driver.Driver { return nil }

func (d *fakeDB) Connect(context.Context) (driver.Conn, error) {
	d.count(func() { d.conns++; d.ever++ })
	c := &fakeConn{db: d}
	if d.wrap != nil {
		return d.wrap(c), nil
	}
	return c, nil
}

func (d *fakeDB) count(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
}

// has counts the rows that are committed.
func (d *fakeDB) has(row string) (n int) {
	d.count(func() {
		for _, r := range d.rows {
			if r == row {
				n++
			}
		}
	})
	return n
}

type fakeConn struct {
	db      *fakeDB
	tx      bool
	pending []string
}

func (c *fakeConn) Close() error {
	c.db.count(func() { c.db.conns-- })
	return nil
}

func (c *fakeConn) Begin() (driver.Tx, error) { panic("old") }

func (c *fakeConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if c.tx {
		panic("a transaction in a transaction")
	}
	c.tx = true
	return c, nil
}

func (c *fakeConn) Commit() error {
	c.db.count(func() { c.db.rows = append(c.db.rows, c.pending...) })
	return c.Rollback()
}

func (c *fakeConn) Rollback() error {
	c.tx, c.pending = false, nil
	return nil
}

func (c *fakeConn) Prepare(query string) (driver.Stmt, error) {
	c.db.count(func() { c.db.open++ })
	return fakeStmt{c, query}, nil
}

func (c *fakeConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.db.skips {
		return nil, driver.ErrSkip
	}
	return c.insert(args)
}

func (c *fakeConn) insert(args []driver.NamedValue) (driver.Result, error) {
	row := args[0].Value.(string)
	if c.tx {
		c.pending = append(c.pending, row)
	} else {
		c.db.count(func() { c.db.rows = append(c.db.rows, row) })
	}
	return driver.RowsAffected(1), nil
}

func (c *fakeConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	if c.db.skips {
		return nil, driver.ErrSkip
	}
	return c.sel()
}

func (c *fakeConn) sel() (rows driver.Rows, err error) {
	c.db.count(func() {
		c.db.open++
		rows = &fakeRows{db: c.db, rows: slices.Concat(c.db.rows, c.pending)}
	})
	return rows, nil
}

type fakeStmt struct {
	c     *fakeConn
	query string
}

func (s fakeStmt) Close() error {
	s.c.db.count(func() { s.c.db.open-- })
	return nil
}

func (s fakeStmt) NumInput() int { return strings.Count(s.query, "?") }

func (s fakeStmt) Exec([]driver.Value) (driver.Result, error) { panic("old") }

func (s fakeStmt) Query([]driver.Value) (driver.Rows, error) { panic("old") }

func (s fakeStmt) ExecContext(_ context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.insert(args)
}

func (s fakeStmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return s.c.sel()
}

// fakeRows has a second set. Its bytes are good until the next
// row, as drivers have it.
type fakeRows struct {
	db   *fakeDB
	rows []string
	buf  [100]byte
	last bool // of the sets
}

func (r *fakeRows) HasNextResultSet() bool { return !r.last }

func (r *fakeRows) NextResultSet() error {
	r.rows, r.last = []string{"second set"}, true
	return nil
}

func (r *fakeRows) Columns() []string { return []string{"id"} }

func (r *fakeRows) Close() error {
	r.db.count(func() { r.db.open-- })
	return nil
}

func (r *fakeRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	dest[0] = r.buf[:copy(r.buf[:], r.rows[0])]
	r.rows = r.rows[1:]
	return nil
}
