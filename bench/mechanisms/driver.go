package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"

	"modernc.org/sqlite"
)

// openDB opens a file for one process. One connection is all that SQLite needs,
// since it has one writer. Nothing here is about power failures, so no commit
// waits for the disk: what was written outlives a SIGKILL all the same.
func openDB(file string) *sql.DB {
	q := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(OFF)"},
		"_txlock": {"immediate"},
	}
	db := sql.OpenDB(connector{new(sqlite.Driver), "file:" + file + "?" + q.Encode()})
	db.SetMaxOpenConns(1)
	return db
}

// connector is SQLite's driver, which hears of effects. So a reply can be lost and
// a process killed right after a commit, whoever commits.
type connector struct {
	sqlite driver.Driver
	dsn    string
}

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	opened, err := c.sqlite.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	able, ok := opened.(ableConn)
	if !ok {
		return nil, fmt.Errorf("connection %T can't do what is needed", opened)
	}
	return &conn{ableConn: able}, nil
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.sqlite }

// ableConn is what SQLite's connections can do.
type ableConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type conn struct {
	ableConn
	inTx   bool
	effect *order // made by the transaction
}

type effectKey struct{}

// ofEffect marks the statement that makes the effect of o.
func ofEffect(ctx context.Context, o *order) context.Context {
	return context.WithValue(ctx, effectKey{}, o)
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.ableConn.ExecContext(ctx, query, args)
	o, ok := ctx.Value(effectKey{}).(*order)
	switch {
	case err != nil || !ok:
		return r, err
	case c.inTx:
		c.effect = o
		return r, nil
	default:
		return r, o.after()
	}
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	begun, err := c.ableConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.inTx, c.effect = true, nil
	return tx{begun, c}, nil
}

type tx struct {
	driver.Tx
	c *conn
}

// Commit implements driver.Tx.
func (t tx) Commit() error {
	t.c.inTx = false
	if err := t.Tx.Commit(); err != nil || t.c.effect == nil {
		return err
	}
	return t.c.effect.after()
}

// Rollback implements driver.Tx.
func (t tx) Rollback() error {
	t.c.inTx = false
	return t.Tx.Rollback()
}
