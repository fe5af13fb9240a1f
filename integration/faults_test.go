package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"testing"

	"modernc.org/sqlite"
)

// faults are put between database/sql and the driver. Each function may be nil.
type faults struct {
	mu     sync.Mutex
	before func() error // called in place of a commit; where it fails, the commit doesn't happen
	after  func() error // called when a commit has happened
	commit int          // how many have
}

// set changes the functions while the database is in use.
func (f *faults) set(before, after func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *faults) commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commit
}

// openFaulty is openDB with faults.
func openFaulty(t testing.TB, dsn string, conns int) (*sql.DB, *faults) {
	t.Helper()
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	f := &faults{}
	db := sql.OpenDB(faultyConnector{c, f})
	db.SetMaxOpenConns(conns)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, f
}

type faultyConnector struct {
	driver.Connector
	f *faults
}

func (c faultyConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyConn{fullConn: conn.(fullConn), f: c.f}, nil
}

// fullConn is what the driver's connections can do.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type faultyConn struct {
	fullConn
	f    *faults
	inTx bool
}

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.inTx = true
	return faultyTx{tx, c}, nil
}

func (c *faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return faultyStmt{stmt.(fullStmt), c}, nil
}

// around puts f's functions before and after a commit; undo is what is done in
// its place.
func (f *faults) around(commit, undo func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		if err := f.before(); err != nil {
			if undo := undo(); undo != nil {
				return undo
			}
			return err
		}
	}
	if err := commit(); err != nil {
		return err
	}
	f.commit++
	if f.after != nil {
		return f.after()
	}
	return nil
}

type faultyTx struct {
	driver.Tx
	c *faultyConn
}

func (t faultyTx) Commit() error {
	t.c.inTx = false
	return t.c.f.around(t.Tx.Commit, t.Tx.Rollback)
}

func (t faultyTx) Rollback() error {
	t.c.inTx = false
	return t.Tx.Rollback()
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// faultyStmt is a commit, too, where it writes outside of a transaction.
type faultyStmt struct {
	fullStmt
	c *faultyConn
}

func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	if s.c.inTx {
		return s.fullStmt.ExecContext(ctx, args)
	}
	err = s.c.f.around(func() (err error) {
		res, err = s.fullStmt.ExecContext(ctx, args)
		return err
	}, func() error { return nil })
	return res, err
}

// sqliteError has a code as the driver's errors have.
type sqliteError int

func (e sqliteError) Error() string { return fmt.Sprintf("fault with code %d", int(e)) }
func (e sqliteError) Code() int     { return int(e) }

// The codes that the tests use.
const (
	codeBusy         sqliteError = 5
	codeBusySnapshot sqliteError = 517
	codeIO           sqliteError = 10
)

// times returns err n times, and then nil.
func times(n int, err error) func() error {
	return func() error {
		if n == 0 {
			return nil
		}
		n--
		return err
	}
}
