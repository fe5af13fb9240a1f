package oncetest

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"io"
)

// stepTx is a transaction whose commit is a step.
type stepTx struct {
	driver.Tx
	c   *stepConn
	ctx context.Context
}

// Commit implements driver.Tx.
func (t stepTx) Commit() error {
	return t.c.step(t.ctx, "commit", func() error { return t.end(t.Tx.Commit) })
}

// Rollback implements driver.Tx.
func (t stepTx) Rollback() error { return t.c.use(func() error { return t.end(t.Tx.Rollback) }) }

func (t stepTx) end(do func() error) error {
	err := do()
	if err == nil {
		t.c.tx = nil
	}
	return err
}

type contextStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// stepStmt is a prepared statement whose use is a step.
type stepStmt struct {
	contextStmt
	c     *stepConn
	query string
}

// ExecContext implements driver.StmtExecContext.
func (s stepStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return answered(ctx, s.c, stepName(s.query), func() (driver.Result, error) {
		return s.contextStmt.ExecContext(ctx, args)
	})
}

// QueryContext implements driver.StmtQueryContext.
func (s stepStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return answered(ctx, s.c, stepName(s.query), func() (driver.Rows, error) {
		return readRows(s.contextStmt.QueryContext(ctx, args))
	})
}

// Close implements driver.Stmt.
func (s stepStmt) Close() error { return s.c.use(s.contextStmt.Close) }

// CheckNamedValue implements driver.NamedValueChecker. A connection's is for
// statements that have none.
func (s stepStmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.contextStmt.(driver.NamedValueChecker); ok {
		return s.c.use(func() error { return n.CheckNamedValue(v) })
	}
	return s.c.CheckNamedValue(v)
}

// ColumnConverter implements driver.ColumnConverter, which old drivers have.
func (s stepStmt) ColumnConverter(i int) driver.ValueConverter {
	if c, ok := s.contextStmt.(interface {
		ColumnConverter(i int) driver.ValueConverter
	}); ok {
		return c.ColumnConverter(i)
	}
	return driver.DefaultParameterConverter
}

// rowsRead are rows that were read: no statement stays open behind them.
type rowsRead struct{ sets []rowSet } // the first is the current one

type rowSet struct {
	columns []string
	rows    [][]driver.Value
}

var _ driver.RowsNextResultSet = (*rowsRead)(nil)

// readRows reads and closes what a query answers.
func readRows(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	all := &rowsRead{}
	err = all.read(rows)
	if e := rows.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (r *rowsRead) read(rows driver.Rows) error {
	for {
		set, err := readSet(rows)
		if err != nil {
			return err
		}
		r.sets = append(r.sets, set)
		more, ok := rows.(driver.RowsNextResultSet)
		if !ok || !more.HasNextResultSet() {
			return nil
		}
		switch err := more.NextResultSet(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func readSet(rows driver.Rows) (rowSet, error) {
	set := rowSet{columns: rows.Columns()}
	for {
		row := make([]driver.Value, len(set.columns))
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return set, nil
		case err != nil:
			return set, err
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = bytes.Clone(b)
			}
		}
		set.rows = append(set.rows, row)
	}
}

// Columns implements driver.Rows.
func (r *rowsRead) Columns() []string { return r.sets[0].columns }

// Close implements driver.Rows.
func (r *rowsRead) Close() error { return nil }

// Next implements driver.Rows.
func (r *rowsRead) Next(dest []driver.Value) error {
	set := &r.sets[0]
	if len(set.rows) == 0 {
		return io.EOF
	}
	copy(dest, set.rows[0])
	set.rows = set.rows[1:]
	return nil
}

// HasNextResultSet implements driver.RowsNextResultSet.
func (r *rowsRead) HasNextResultSet() bool { return len(r.sets) > 1 }

// NextResultSet implements driver.RowsNextResultSet.
func (r *rowsRead) NextResultSet() error {
	if !r.HasNextResultSet() {
		return io.EOF
	}
	r.sets = r.sets[1:]
	return nil
}
