package oncetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	insertRow  = "INSERT INTO rows (id) VALUES (?)"
	selectRows = "SELECT id FROM rows"
)

// stepping is a process whose steps are told, and judged by the test.
func stepping(judge func(name string, done bool) verdict) (p *Process, told *[]string) {
	told = new([]string)
	p = &Process{order: new(sync.Mutex)}
	p.ask = func(a *act) verdict {
		if p.dead.Load() {
			return verdict{kill: true}
		}
		if !a.done {
			*told = append(*told, a.name)
		}
		v := judge(a.name, a.done)
		p.dead.Store(v.kill)
		v.again = true
		return v
	}
	p.started.Store(true)
	return p, told
}

func well(string, bool) verdict { return verdict{} }

// at gives a step its verdict, before it or when it is done.
func at(name string, done bool, v verdict) func(string, bool) verdict {
	return func(n string, d bool) verdict {
		if n == name && d == done {
			return v
		}
		return verdict{}
	}
}

// insertIn inserts a row in a transaction.
func insertIn(ctx context.Context, db *sql.DB, row string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, insertRow, row); err != nil {
		return err
	}
	return tx.Commit()
}

func TestStepDB_Names(t *testing.T) {
	for query, want := range map[string]string{
		"INSERT INTO Rows(id) VALUES (1) ON CONFLICT DO UPDATE SET id = 2": "insert rows",
		"  update rows SET id = 1":                  "update rows",
		"delete\n\tfrom shop.rows where id = 1":     "delete shop.rows",
		"SELECT count(*) FROM `rows` FOR UPDATE":    "select rows",
		`INSERT INTO "rows" VALUES (1)`:             "insert rows",
		"-- name: Update from it\nSELECT 1":         "select",
		"/* into\n a comment */ REPLACE INTO rows;": "replace rows",
		"BEGIN;":                             "begin",
		"":                                   "statement",
		"SELECT * FROM (SELECT 1 FROM rows)": "select rows",
	} {
		if got := stepName(query); got != want {
			t.Errorf("%q is called %q instead of %q", query, got, want)
		}
	}
}

// fakes are drivers of several habits. All make the same steps.
var fakes = map[string]func() *fakeDB{
	"direct": func() *fakeDB { return &fakeDB{} },
	"ErrSkip": func() *fakeDB {
		return &fakeDB{skips: true}
	},
	"always prepared": func() *fakeDB {
		return &fakeDB{wrap: func(c *fakeConn) driver.Conn {
			return struct {
				driver.Conn
				driver.ConnBeginTx
			}{c, c}
		}}
	},
}

func TestStepDB_StepsInOrder(t *testing.T) {
	for name, newFake := range fakes {
		t.Run(name, func(t *testing.T) {
			fake := newFake()
			p, told := stepping(well)
			db := StepDB(p, fake)
			ctx := t.Context()
			st, err := db.PrepareContext(ctx, insertRow)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.ExecContext(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(st.Close(), db.PingContext(ctx), insertIn(ctx, db, "b")); err != nil {
				t.Fatal(err)
			}
			if got := ids(t, db); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("rows %q", got)
			}
			want := []string{"insert rows", "begin", "insert rows", "commit", "select rows"}
			if !slices.Equal(*told, want) {
				t.Errorf("steps %q instead of %q", *told, want)
			}
			p.cleanups.call()
			if fake.open != 0 || fake.conns != 0 || fake.ever != 1 {
				t.Errorf("left %d statements or rows and %d connections, of %d", fake.open, fake.conns, fake.ever)
			}
		})
	}
}

func ids(t *testing.T, db *sql.DB) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), selectRows)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	return scan(t, rows)
}

// scan reads one set of rows.
func scan(t *testing.T, rows *sql.Rows) (all []string) {
	t.Helper()
	for rows.Next() {
		var id sql.RawBytes
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		all = append(all, string(id))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestStepDB_RowsAreClosedInTheStep(t *testing.T) {
	for name, newFake := range fakes {
		t.Run(name, func(t *testing.T) {
			fake := newFake()
			p, _ := stepping(well)
			defer p.cleanups.call()
			db := StepDB(p, fake)
			if err := errors.Join(insertIn(t.Context(), db, "a"), insertIn(t.Context(), db, "bb")); err != nil {
				t.Fatal(err)
			}
			before := fake.open
			st, err := db.Prepare(selectRows)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			rows, err := st.Query()
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			if n := fake.open - before; n != 1 {
				t.Errorf("%d open instead of the statement", n)
			}
			var sets [][]string
			for more := true; more; more = rows.NextResultSet() {
				sets = append(sets, scan(t, rows))
			}
			if want := [][]string{{"a", "bb"}, {"second set"}}; !reflect.DeepEqual(sets, want) {
				t.Errorf("read %q instead of %q", sets, want)
			}
		})
	}
}

func TestStepDB_Faults(t *testing.T) {
	for name, c := range map[string]struct {
		step string
		done bool
		rows int // which are there afterwards
	}{
		"begin fails":              {"begin", false, 0},
		"begin's reply is lost":    {"begin", true, 0},
		"insert fails":             {"insert rows", false, 0},
		"insert's reply is lost":   {"insert rows", true, 0},
		"commit fails":             {"commit", false, 0},
		"commit's reply is lost":   {"commit", true, 1},
		"nothing of its name does": {"nothing", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeDB{}
			failed := false
			p, _ := stepping(func(name string, done bool) verdict {
				if name == c.step && done == c.done && !failed {
					failed = true
					return verdict{err: ErrInjected}
				}
				return verdict{}
			})
			db := StepDB(p, fake)
			db.SetMaxOpenConns(1)
			err := insertIn(t.Context(), db, "a")
			if failed != errors.Is(err, ErrInjected) || !failed && err != nil {
				t.Errorf("the error is %v", err)
			}
			if n := fake.has("a"); n != c.rows {
				t.Errorf("%d rows instead of %d", n, c.rows)
			}
			if err := insertIn(t.Context(), db, "b"); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			if failed != (fake.ever == 2) {
				t.Errorf("%d connections were used", fake.ever)
			}
			p.cleanups.call()
			if fake.conns != 0 {
				t.Errorf("%d connections are left open", fake.conns)
			}
		})
	}
}

func TestStepDB_Kill(t *testing.T) {
	for name, c := range map[string]struct {
		step string
		done bool
		rows int
	}{
		"before begin":  {"begin", false, 0},
		"after begin":   {"begin", true, 0},
		"before insert": {"insert rows", false, 0},
		"after insert":  {"insert rows", true, 0},
		"before commit": {"commit", false, 0},
		"after commit":  {"commit", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeDB{}
				p, told := stepping(at(c.step, c.done, verdict{kill: true}))
				db := StepDB(p, fake)
				if err := insertIn(t.Context(), db, "a"); !errors.Is(err, driver.ErrBadConn) {
					t.Errorf("the error is %v", err)
				}
				steps := len(*told)
				if err := insertIn(t.Context(), db, "b"); err == nil {
					t.Error("a process that is dead goes on")
				}
				if len(*told) != steps || fake.ever != 1 {
					t.Errorf("steps %q of a process that is dead, on %d connections", *told, fake.ever)
				}
				p.cleanups.call()
				if n := fake.has("a"); n != c.rows || fake.has("b") != 0 {
					t.Errorf("rows %q", fake.rows)
				}
				if fake.conns != 0 {
					t.Errorf("%d connections are left open", fake.conns)
				}
			})
		})
	}
}

func TestStepDB_ConnectionsEndWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeDB{}
		p, _ := stepping(well)
		db := StepDB(p, fake)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(insertRow, "a"); err != nil {
			t.Fatal(err)
		}
		st, err := tx.Prepare(insertRow)
		if err != nil {
			t.Fatal(err)
		}
		p.cleanups.call()
		if fake.conns != 0 {
			t.Errorf("%d connections are left open", fake.conns)
		}
		_, direct := tx.Exec(insertRow, "b")
		_, kept := st.Exec("b")
		for _, err := range []error{direct, kept, tx.Commit()} {
			if !errors.Is(err, driver.ErrBadConn) {
				t.Errorf("the error is %v", err)
			}
		}
		if len(fake.rows) != 0 {
			t.Errorf("rows %q", fake.rows)
		}
	})
}

// The end of the process waits for a statement, also for one that waits for the clock.
func TestStepDB_EndWaitsForTheStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		fake := &fakeDB{}
		fake.wrap = func(c *fakeConn) driver.Conn { return slowConn{c, slow} }
		p, _ := stepping(well)
		db := StepDB(p, fake)
		ended := make(chan error)
		go func() {
			_, err := db.Exec(insertRow, "a")
			ended <- err
		}()
		<-slow
		began := time.Now()
		p.cleanups.call()
		if d := time.Since(began); d != time.Second || fake.has("a") != 1 || fake.conns != 0 {
			t.Errorf("after %v there are %q, and %d connections", d, fake.rows, fake.conns)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A connection that comes when its process has ended is closed at once.
func TestStepDB_LateConnection(t *testing.T) {
	fake := &fakeDB{}
	p, _ := stepping(well)
	late := &stepConnector{Connector: fake, p: p}
	late.close()
	if _, err := late.Connect(t.Context()); !errors.Is(err, driver.ErrBadConn) || fake.ever != 1 || fake.conns != 0 {
		t.Errorf("%v, %d connections of %d are open", err, fake.conns, fake.ever)
	}
}

type slowConn struct {
	*fakeConn
	slow chan struct{}
}

func (c slowConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	close(c.slow)
	time.Sleep(time.Second)
	return c.fakeConn.ExecContext(ctx, query, args)
}

func TestStepDB_CountsArguments(t *testing.T) {
	p, _ := stepping(well)
	defer p.cleanups.call()
	db := StepDB(p, &fakeDB{skips: true})
	if _, err := db.Exec(insertRow, "a", "b"); err == nil || !strings.Contains(err.Error(), "expects 1 arguments, got 2") {
		t.Errorf("the error is %v", err)
	}
}

// able is a connection with all that a driver may have.
type able struct {
	*fakeConn
	told *[]string
}

func (c able) Ping(context.Context) error {
	*c.told = append(*c.told, "ping")
	return nil
}

func (c able) ResetSession(context.Context) error {
	*c.told = append(*c.told, "reset")
	return nil
}

func (c able) IsValid() bool { return !slices.Contains(*c.told, "ping") }

func (c able) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := v.Value.(complex128); ok {
		v.Value = fmt.Sprint(n)
		return nil
	}
	return driver.ErrSkip
}

func TestStepDB_Forwards(t *testing.T) {
	told := []string{}
	fake := &fakeDB{}
	fake.wrap = func(c *fakeConn) driver.Conn { return able{c, &told} }
	p, _ := stepping(well)
	defer p.cleanups.call()
	db := StepDB(p, fake)
	for range 2 {
		if _, err := db.Exec(insertRow, 1i); err != nil {
			t.Fatal(err)
		}
	}
	st, err := db.Prepare(insertRow)
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Exec(1i)
	if err := errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	if n := fake.has("(0+1i)"); n != 3 {
		t.Errorf("rows %q", fake.rows)
	}
	if !slices.Contains(told, "reset") {
		t.Errorf("the driver heard %q", told)
	}
	if err := db.Ping(); err != nil || !slices.Contains(told, "ping") {
		t.Errorf("the driver heard %q, %v", told, err)
	}
	if fake.conns != 0 {
		t.Error("a connection that its driver calls invalid is kept")
	}
}

func TestStepDB_OldDrivers(t *testing.T) {
	p, _ := stepping(well)
	defer p.cleanups.call()
	fake := &fakeDB{wrap: func(c *fakeConn) driver.Conn { return struct{ driver.Conn }{c} }}
	if err := StepDB(p, fake).Ping(); err == nil || !strings.Contains(err.Error(), "driver.ConnBeginTx") {
		t.Errorf("the error is %v", err)
	}
	fake.wrap = func(c *fakeConn) driver.Conn { return oldStmts{c} }
	for _, do := range []func(db *sql.DB) error{
		func(db *sql.DB) error { _, err := db.Prepare(insertRow); return err },
		func(db *sql.DB) error { fake.skips = true; _, err := db.Exec(insertRow, "a"); return err },
	} {
		if err := do(StepDB(p, fake)); err == nil || !strings.Contains(err.Error(), "driver.StmtExecContext") {
			t.Errorf("the error is %v", err)
		}
	}
	p.cleanups.call()
	if fake.conns != 0 || fake.open != 0 {
		t.Errorf("left %d connections and %d statements", fake.conns, fake.open)
	}
}

type oldStmts struct{ *fakeConn }

func (c oldStmts) Prepare(query string) (driver.Stmt, error) {
	st, err := c.fakeConn.Prepare(query)
	return struct{ driver.Stmt }{st}, err
}
