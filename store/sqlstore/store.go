package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Config configures a Store. The zero value is usable.
type Config struct {
	// Dialect is the kind of database. SQLite by default.
	Dialect Dialect

	// Prefix begins the names of the tables. "oncepipe_" when it is empty.
	Prefix string

	// Retention is how long a record is kept after it was completed, failed, or
	// became due again. 7 days when it is 0.
	Retention time.Duration

	// MaxResult is the size in bytes of the largest result that is recorded. A
	// larger one is left out, and its record is completed without a result.
	// 1 MiB when it is 0.
	MaxResult int

	// BusyTimeout is how long a transaction is tried again that met another one's
	// lock, a deadlock or a serialization failure. 10 s when it is 0.
	BusyTimeout time.Duration

	// ErrorCode returns the code that the database gave an error. DriverCode when
	// it is nil, which knows the usual drivers.
	ErrorCode func(error) string

	// Clock is the SQL expression for the time in milliseconds that leases,
	// backoffs and retentions are judged by. The database's own clock when it is
	// empty; a test may have one that it can put forward.
	Clock string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,30}$`)

// check refuses what can't be meant and fills in the defaults.
func (c *Config) check() error {
	if int(c.Dialect) >= len(dialects) {
		return fmt.Errorf("sqlstore: no dialect %d", c.Dialect)
	}
	if c.Prefix == "" {
		c.Prefix = "oncepipe_"
	}
	if !identifier.MatchString(c.Prefix) {
		return fmt.Errorf("sqlstore: prefix %q is not the beginning of a plain name", c.Prefix)
	}
	if c.Retention < 0 || c.MaxResult < 0 || c.BusyTimeout < 0 {
		return fmt.Errorf("sqlstore: negative limit: retention %v, result %d, busy timeout %v", c.Retention, c.MaxResult, c.BusyTimeout)
	}
	if c.Retention == 0 {
		c.Retention = 7 * 24 * time.Hour
	}
	if c.MaxResult == 0 {
		c.MaxResult = 1 << 20
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = 10 * time.Second
	}
	if c.ErrorCode == nil {
		c.ErrorCode = DriverCode
	}
	if c.Clock == "" {
		c.Clock = dialects[c.Dialect].clock
	}
	return nil
}

// Store is an oncepipe.Store in a database. Tx and TxDo run effects on it.
type Store struct {
	db       *sql.DB
	cfg      Config
	dialect  *dialect
	prepared [statements]*sql.Stmt

	writer chan struct{} // holds a token while somebody writes
	queue  queue         // what waits to be written
}

var _ oncepipe.Store = (*Store)(nil)

// Open returns a Store on db, whose tables must be there already: see Migrate.
// It holds no connection and runs no goroutine while nobody calls it. The caller
// closes db after the Store's last use.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	st := &Store{db: db, cfg: cfg, dialect: dialects[cfg.Dialect], writer: make(chan struct{}, 1)}
	if err := st.checkSchema(ctx); err != nil {
		return nil, err
	}
	for i, text := range texts {
		stmt, err := db.PrepareContext(ctx, st.dialect.render(text, cfg.Prefix, cfg.Clock))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sqlstore: prepare statement: %w", err), st.Close())
		}
		st.prepared[i] = stmt
	}
	return st, nil
}

// Close frees the prepared statements. It leaves the database open and need not
// be called where that is closed.
func (st *Store) Close() error {
	var errs []error
	for _, stmt := range st.prepared {
		if stmt != nil {
			errs = append(errs, stmt.Close())
		}
	}
	return errors.Join(errs...)
}

// Retention returns how long records are kept.
func (st *Store) Retention() time.Duration { return st.cfg.Retention }

// again tells whether a transaction that ended with err may be repeated.
func (st *Store) again(err error) bool {
	return err != nil && st.dialect.again(st.cfg.ErrorCode(err))
}

// txKey marks the contexts of closures that run in a transaction on a database.
type txKey struct{ db *sql.DB }

func (st *Store) inTx(ctx context.Context) bool { return ctx.Value(txKey{st.db}) != nil }

func (st *Store) withTx(ctx context.Context) context.Context {
	return context.WithValue(ctx, txKey{st.db}, true)
}
