package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
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

	// Isolation is the isolation level of transactions, those of Tx included. The
	// database's default when it is 0; any will do.
	Isolation sql.IsolationLevel

	// ErrorCode returns the code that the database gave an error. DriverCode when
	// it is nil, which knows the usual drivers.
	ErrorCode func(error) string

	// Clock is the SQL expression for the time in milliseconds that leases,
	// backoffs and retentions are judged by. The database's own clock when it is
	// empty; a test may have one that it can put forward. It must not contain a
	// question mark.
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

// Store is an oncepipe.Store in a database. Tx and its like run effects on it.
type Store struct {
	db   *database
	core *record.Core[*sql.Tx]
}

var _ oncepipe.Store = (*Store)(nil)

// Open returns a Store on db, whose tables must be there already: see Migrate.
// It holds no connection and runs no goroutine while nobody calls it. The caller
// closes db after the Store's last use.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &database{pool: db, cfg: cfg, dialect: dialects[cfg.Dialect]}
	if err := d.checkSchema(ctx); err != nil {
		return nil, err
	}
	st := &Store{db: d, core: record.NewCore(d, record.Config{
		Name:      "sqlstore",
		Rules:     record.Rules{Retention: cfg.Retention, MaxResult: cfg.MaxResult},
		Busy:      cfg.BusyTimeout,
		OneWriter: d.dialect.oneWriter,
	})}
	if err := d.stmts.prepare(ctx, db, d.dialect, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlstore: %w", err), st.Close())
	}
	return st, nil
}

// Close frees the prepared statements. It leaves the database open and need not
// be called where that is closed.
func (st *Store) Close() error {
	var errs []error
	for _, kind := range st.db.stmts {
		for _, stmt := range kind {
			if stmt != nil {
				errs = append(errs, stmt.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// Retention returns how long records are kept.
func (st *Store) Retention() time.Duration { return st.core.Retention() }

// Claim implements oncepipe.Store.
func (st *Store) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return st.core.Claim(ctx, reqs)
}

// Extend implements oncepipe.Store.
func (st *Store) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	return st.core.Extend(ctx, reqs)
}

// Complete implements oncepipe.Store.
func (st *Store) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return st.core.Complete(ctx, reqs)
}

// Release implements oncepipe.Store.
func (st *Store) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	return st.core.Release(ctx, reqs)
}

// Lookup implements oncepipe.Store.
func (st *Store) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	return st.core.Lookup(ctx, ids)
}

// Resolve implements oncepipe.Store.
func (st *Store) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	return st.core.Resolve(ctx, reqs)
}

// Forget implements oncepipe.Store.
func (st *Store) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return st.core.Forget(ctx, ids, force)
}

// List implements oncepipe.Store.
func (st *Store) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	return st.core.List(ctx, q, func(ctx context.Context, after record.ID, limit int) ([]record.Record, error) {
		return st.db.list(ctx, q, after, limit)
	})
}

// Count implements oncepipe.Store.
func (st *Store) Count(ctx context.Context) (map[oncepipe.State]int, error) {
	return st.core.Count(ctx, st.db.count)
}

// Prune implements oncepipe.Store. Whatever the limit, it goes by small
// transactions, and lets others in between.
func (st *Store) Prune(ctx context.Context, limit int) (int, error) {
	return st.core.Prune(ctx, limit)
}
