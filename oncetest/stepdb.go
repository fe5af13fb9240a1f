package oncetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// StepDB opens a database for a process, so that handlers can be tested as they
// are: it makes the work on c's connections steps of p. A step is the begin of a transaction,
// each statement and query, prepared or not, and the commit. Stories call them "begin",
// "commit", and the others by verb and table: "insert orders". To connect, to prepare and
// to roll back are no steps.
//
// The rows of a query are read within its step, so a query returns what
// Rows.Err would say elsewhere, and Rows.ColumnTypes knows no more than names. A connection
// that a fault came over is not used again, as with a network that fails.
//
// A kill ends the step, and what database/sql called is answered with
// driver.ErrBadConn: database/sql would keep its locks if its goroutine ended, as it does in
// Step. So the handler may go on, but no later step is done. When the process ends, of
// itself or by a kill, its connections are closed, which rolls back what was not
// committed; those that are closed answer driver.ErrBadConn. c itself stays open,
// for the next process.
//
// It serves any driver whose connections are a driver.ConnBeginTx and whose statements
// are a driver.StmtExecContext and a driver.StmtQueryContext; an error says so where one isn't.
// The connection that sql.Conn.Raw shows is StepDB's, not the driver's.
//
// A server is outside of the bubble: see Service.RealTime. SQLite works in it, with
// journal_mode(wal), so that one process reads while another writes, and with
// busy_timeout(0): its own waits for a lock would keep the fake clock from going on.
// The directory examples/handler has all of that in use.
func StepDB(p *Process, c driver.Connector) *sql.DB {
	s := &stepConnector{Connector: c, p: p}
	db := sql.OpenDB(s)
	p.locks = true // database/sql holds its own across a statement
	p.Cleanup(func() {
		_ = db.Close() // a connection in use is closed below
		s.close()
	})
	return db
}

// stepConnector knows the connections of its process.
type stepConnector struct {
	driver.Connector
	p *Process

	mu     sync.Mutex
	closed bool
	conns  []*stepConn
}

// Connect implements driver.Connector.
func (c *stepConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.p.dead.Load() {
		return nil, driver.ErrBadConn
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := conn.(driver.ConnBeginTx); !ok {
		_ = conn.Close() // it was not used
		return nil, fmt.Errorf("oncetest: StepDB needs a driver.ConnBeginTx, which %T is not", conn)
	}
	s := &stepConn{Conn: conn, p: c.p, lock: make(chan struct{}, 1)}
	if !c.add(s) {
		_ = s.Close() // as the process has ended meanwhile
		return nil, driver.ErrBadConn
	}
	return s, nil
}

// add reports whether the process is still there.
func (c *stepConnector) add(s *stepConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.conns = append(c.conns, s)
	return true
}

func (c *stepConnector) close() {
	c.mu.Lock()
	c.closed = true
	conns := c.conns
	c.mu.Unlock()
	for _, s := range conns {
		_ = s.Close() // most of them are closed
	}
}

var (
	comments     = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)
	verb         = regexp.MustCompile(`\w+`)
	tableOfQuery = regexp.MustCompile("\\b(?:into|from|update)\\s+[\"`\\[]?(\\w[\\w.]*)")
)

// stepName is what stories call a statement: its verb and its table.
func stepName(query string) string {
	query = strings.ToLower(comments.ReplaceAllString(query, " "))
	name := verb.FindString(query)
	if m := tableOfQuery.FindStringSubmatch(query); m != nil {
		name += " " + m[1]
	}
	if name == "" {
		return "statement"
	}
	return name
}
