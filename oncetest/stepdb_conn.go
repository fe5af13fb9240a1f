package oncetest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// stepConn is a connection whose work is steps.
type stepConn struct {
	driver.Conn
	p      *Process
	broken bool // a fault came over it; database/sql has a lock for each connection

	lock   chan struct{} // of what is below and of Conn; a channel, as the clock stands still for who waits for a mutex
	closed bool
	tx     driver.Tx // that is open
}

var _ interface {
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
} = (*stepConn)(nil)

// use does something with the connection, unless that is closed.
func (c *stepConn) use(do func() error) error {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	if c.closed {
		return driver.ErrBadConn
	}
	return do()
}

// step makes do a step. It is done by a goroutine of its own, which is the one that ends
// at a kill.
func (c *stepConn) step(ctx context.Context, name string, do func() error) error {
	err, own := driver.ErrBadConn, error(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = c.p.Step(ctx, name, func() error {
			own = c.use(do)
			return own
		})
	}()
	<-ended
	if err != nil && own == nil {
		c.broken = true
	}
	return err
}

// answered is a step with an answer.
func answered[A any](ctx context.Context, c *stepConn, name string, do func() (A, error)) (A, error) {
	var answer, none A
	err := c.step(ctx, name, func() (err error) {
		answer, err = do()
		return err
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}

// BeginTx implements driver.ConnBeginTx.
func (c *stepConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := answered(ctx, c, "begin", func() (tx driver.Tx, err error) {
		if tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts); err == nil {
			c.tx = tx
		}
		return tx, err
	})
	if err != nil {
		return nil, err
	}
	return stepTx{tx, c, ctx}, nil
}

// ExecContext implements driver.ExecerContext. Where the driver has none, or wants
// no such statement, the statement is prepared.
func (c *stepConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	direct, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return answered(ctx, c, stepName(query), func() (driver.Result, error) {
		r, err := direct.ExecContext(ctx, query, args)
		if !errors.Is(err, driver.ErrSkip) {
			return r, err
		}
		return prepared(ctx, c, query, args, func(st contextStmt) (driver.Result, error) {
			return st.ExecContext(ctx, args)
		})
	})
}

// QueryContext implements driver.QueryerContext, as ExecContext does its own.
func (c *stepConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	direct, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return answered(ctx, c, stepName(query), func() (driver.Rows, error) {
		rows, err := direct.QueryContext(ctx, query, args)
		if !errors.Is(err, driver.ErrSkip) {
			return readRows(rows, err)
		}
		return prepared(ctx, c, query, args, func(st contextStmt) (driver.Rows, error) {
			return readRows(st.QueryContext(ctx, args))
		})
	})
}

// prepared does a statement in the step that found it has to be prepared. It
// would be a second step if database/sql did so.
func prepared[A any](ctx context.Context, c *stepConn, query string, args []driver.NamedValue, do func(contextStmt) (A, error)) (a A, err error) {
	st, err := c.prepare(ctx, query)
	if err != nil {
		return a, err
	}
	defer func() {
		if e := st.Close(); err == nil {
			err = e
		}
	}()
	if want := st.NumInput(); want >= 0 && want != len(args) {
		return a, fmt.Errorf("oncetest: the statement expects %d arguments, got %d", want, len(args))
	}
	return do(st)
}

// prepare asks the driver.
func (c *stepConn) prepare(ctx context.Context, query string) (contextStmt, error) {
	st, err := c.prepareAny(ctx, query)
	if err != nil {
		return nil, err
	}
	known, ok := st.(contextStmt)
	if !ok {
		_ = st.Close() // it was not used
		return nil, fmt.Errorf("oncetest: StepDB needs a driver.StmtExecContext and driver.StmtQueryContext, which %T is not", st)
	}
	return known, nil
}

func (c *stepConn) prepareAny(ctx context.Context, query string) (driver.Stmt, error) {
	if p, ok := c.Conn.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	return c.Conn.Prepare(query)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *stepConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	var st contextStmt
	err := c.use(func() (err error) {
		st, err = c.prepare(ctx, query)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stepStmt{st, c, query}, nil
}

// Close implements driver.Conn.
func (c *stepConn) Close() error {
	return c.use(func() error {
		c.closed = true
		if c.tx != nil {
			_ = c.tx.Rollback() // a driver may keep it where statements are open
		}
		return c.Conn.Close()
	})
}

// IsValid implements driver.Validator.
func (c *stepConn) IsValid() bool {
	return !c.broken && c.use(func() error {
		if v, ok := c.Conn.(driver.Validator); ok && !v.IsValid() {
			return driver.ErrBadConn
		}
		return nil
	}) == nil
}

// ResetSession implements driver.SessionResetter.
func (c *stepConn) ResetSession(ctx context.Context) error {
	return c.use(func() error {
		if r, ok := c.Conn.(driver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	})
}

// Ping implements driver.Pinger.
func (c *stepConn) Ping(ctx context.Context) error {
	return c.use(func() error {
		if p, ok := c.Conn.(driver.Pinger); ok {
			return p.Ping(ctx)
		}
		return nil
	})
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *stepConn) CheckNamedValue(v *driver.NamedValue) error {
	return c.use(func() error {
		if n, ok := c.Conn.(driver.NamedValueChecker); ok {
			return n.CheckNamedValue(v)
		}
		return driver.ErrSkip
	})
}
