package integration

import (
	"context"
	"database/sql/driver"
	"strings"
)

// pointConnector is a driver whose commits are heard, those of effects.
type pointConnector struct {
	driver.Connector
	at pointFunc
}

func (c pointConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &pointConn{usualConn: conn.(usualConn), at: c.at}, nil
}

// usualConn is what the connections of all drivers can do.
type usualConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
}

type pointConn struct {
	usualConn
	at   pointFunc
	mode mode // whose effect is in the transaction
}

// IsValid implements driver.Validator.
func (c *pointConn) IsValid() bool {
	v, ok := c.usualConn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *pointConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	for _, m := range txModes {
		if strings.HasPrefix(query, insertPrefix(m)) {
			c.mode = m
		}
	}
	return c.usualConn.ExecContext(ctx, query, args)
}

func (c *pointConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.mode = ""
	tx, err := c.usualConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return pointTx{tx, c}, nil
}

type pointTx struct {
	driver.Tx
	c *pointConn
}

func (t pointTx) Commit() error {
	t.c.at(t.c.mode, beforeCommit)
	err := t.Tx.Commit()
	if err == nil {
		t.c.at(t.c.mode, afterCommit)
	}
	return err
}
