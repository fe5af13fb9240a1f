package pgxstore

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// Config configures a Store. The zero value is usable.
type Config struct {
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
	// database's default when it is empty; any will do.
	Isolation pgx.TxIsoLevel

	// Clock is the SQL expression for the time in milliseconds that leases,
	// backoffs and retentions are judged by. The database's own clock when it is
	// empty; a test may have one that it can put forward.
	Clock string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,30}$`)

var levels = []pgx.TxIsoLevel{"", pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted}

// check refuses what can't be meant and fills in the defaults.
func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = "oncepipe_"
	}
	if !identifier.MatchString(c.Prefix) {
		return fmt.Errorf("pgxstore: prefix %q is not the beginning of a plain name", c.Prefix)
	}
	if !slices.Contains(levels, c.Isolation) {
		return fmt.Errorf("pgxstore: no isolation level %q", c.Isolation)
	}
	if c.Retention < 0 || c.MaxResult < 0 || c.BusyTimeout < 0 {
		return fmt.Errorf("pgxstore: negative limit: retention %v, result %d, busy timeout %v", c.Retention, c.MaxResult, c.BusyTimeout)
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
	if c.Clock == "" {
		c.Clock = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
	}
	return nil
}

// Store is an oncepipe.Store in PostgreSQL. Tx and its like run effects on it.
type Store struct {
	db   *database
	core *record.Core[pgx.Tx]
}

var _ oncepipe.Store = (*Store)(nil)

// Open returns a Store on pool, whose tables must be there already: see Migrate.
// It holds no connection and runs no goroutine while nobody calls it, so there is
// nothing to close. The caller closes pool after the Store's last use.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := newDatabase(pool, cfg)
	if err := d.checkSchema(ctx); err != nil {
		return nil, err
	}
	return &Store{db: d, core: record.NewCore(d, record.Config{
		Name:  "pgxstore",
		Rules: record.Rules{Retention: cfg.Retention, MaxResult: cfg.MaxResult},
		Busy:  cfg.BusyTimeout,
	})}, nil
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
