package handler

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"modernc.org/sqlite"

	"github.com/oncepipe/oncepipe/oncetest"
)

// database is a SQLite file that all processes of a world share.
type database struct {
	dsn string
	db  *sql.DB // the test's own
}

// newDatabase makes one with the given tables.
func newDatabase(w *oncetest.World, schema string) *database {
	d := &database{dsn: "file:" + w.Dir() + "/shop.db?_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=busy_timeout(0)"}
	d.db = sql.OpenDB(d)
	w.Cleanup(func() { _ = d.db.Close() })
	if _, err := d.db.Exec(schema); err != nil {
		panic(err)
	}
	return d
}

// Connect implements driver.Connector.
func (d *database) Connect(context.Context) (driver.Conn, error) { return d.Driver().Open(d.dsn) }

// Driver implements driver.Connector.
func (d *database) Driver() driver.Driver { return &sqlite.Driver{} }

// count is how many rows of a table an order has.
func (d *database) count(table string, o Order) (n int) {
	row := d.db.QueryRow("SELECT count(*) FROM "+table+" WHERE id = ?", o.ID)
	if err := row.Scan(&n); err != nil {
		panic(err)
	}
	return n
}
