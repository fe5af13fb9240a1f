package real

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// Backend is a database that effects are written to.
type Backend struct {
	Name    string
	Workers int // that it is measured with

	open func(context.Context) (*place, error)
}

// conns is the size of every pool, and how many workers there may be.
const conns = 8

// Backends returns SQLite, with files in dir, and PostgreSQL where ONCEPIPE_POSTGRES
// has its address. It warns of what is left out.
func Backends(dir string, warn io.Writer) []Backend {
	all := []Backend{{Name: "SQLite", Workers: 1, open: func(ctx context.Context) (*place, error) { return openSQLite(ctx, dir) }}}
	dsn := os.Getenv("ONCEPIPE_POSTGRES")
	if dsn == "" {
		fmt.Fprintln(warn, "LEFT OUT: PostgreSQL, since ONCEPIPE_POSTGRES is not set; "+
			"go run ./integration/servers -fsync -- COMMAND sets it")
		return all
	}
	return append(all, Backend{Name: "PostgreSQL", Workers: 4, open: func(ctx context.Context) (*place, error) {
		return openPostgres(ctx, dsn)
	}})
}

// effect writes a row for a key and commits.
type effect = func(ctx context.Context, key string) error

// place is an empty database.
type place struct {
	insert effect
	tx     effect // with the record of the key in the same transaction

	// count returns how many rows there are for the sender's keys, and for how many
	// of them.
	count func(ctx context.Context) (rows, distinct int, err error)
	close func() error // and removes everything
}

// The rows of a key may be many: nothing in the table forbids it.
const (
	step    = "effect"
	counted = "SELECT COUNT(*), COUNT(DISTINCT k) FROM effects WHERE k LIKE 'key-%'"
)

func openSQLite(ctx context.Context, dir string) (p *place, err error) {
	own, err := os.MkdirTemp(dir, "oncepipe-real-")
	if err != nil {
		return nil, err
	}
	q := url.Values{"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(own, "real.db")+"?"+q.Encode())
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	end := func() error { return errors.Join(db.Close(), os.RemoveAll(own)) }
	if p, err = fillSQLite(ctx, db); err != nil {
		return nil, errors.Join(err, end())
	}
	p.close = end
	return p, nil
}

func fillSQLite(ctx context.Context, db *sql.DB) (*place, error) {
	if _, err := db.ExecContext(ctx, "CREATE TABLE effects (id INTEGER PRIMARY KEY, k TEXT NOT NULL)"); err != nil {
		return nil, err
	}
	if err := sqlstore.Migrate(ctx, db, sqlstore.Config{}); err != nil {
		return nil, err
	}
	st, err := sqlstore.Open(ctx, db, sqlstore.Config{})
	if err != nil {
		return nil, err
	}
	insert, err := db.PrepareContext(ctx, "INSERT INTO effects (k) VALUES (?)")
	if err != nil {
		return nil, err
	}
	return &place{
		insert: func(ctx context.Context, key string) error {
			_, err := insert.ExecContext(ctx, key)
			return err
		},
		tx: sqlstore.TxDo(st, step, func(ctx context.Context, tx *sql.Tx, key string) error {
			_, err := tx.StmtContext(ctx, insert).ExecContext(ctx, key)
			return err
		}),
		count: func(ctx context.Context) (rows, distinct int, err error) {
			err = db.QueryRowContext(ctx, counted).Scan(&rows, &distinct)
			return rows, distinct, err
		},
	}, nil
}
