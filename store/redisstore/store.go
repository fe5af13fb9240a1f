package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/oncepipe/oncepipe"
)

// Config configures a Store. The zero value is usable.
type Config struct {
	// Prefix begins the names of the store's keys, in braces: see Redis Cluster
	// above. Letters, digits and any of _.:/- are allowed. "oncepipe" when it is
	// empty.
	Prefix string

	// Retention is how long a record is kept after it was completed, failed, or
	// became due again. 7 days when it is 0.
	Retention time.Duration

	// MaxResult is the size in bytes of the largest result that is recorded. A
	// larger one is left out, and its record is completed without a result.
	// 1 MiB when it is 0.
	MaxResult int

	// AllowEviction makes Open warn, and not fail, where the server's
	// maxmemory-policy lets it drop claims.
	AllowEviction bool

	// RefuseUnknownPolicy makes Open fail with ErrEviction where the server tells
	// its maxmemory-policy neither by CONFIG nor by INFO, as some managed ones
	// don't. Else Open warns.
	RefuseUnknownPolicy bool

	// Logger gets the warnings of Open. slog.Default() when it is nil.
	Logger *slog.Logger

	// Clock is the Lua expression for the time in milliseconds that leases,
	// backoffs and retentions are judged by. The server's own clock when it is
	// empty; a test may have one that it can put forward.
	Clock string
}

const serverClock = "(function() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end)()"

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,100}$`)

// check refuses what can't be meant and fills in the defaults.
func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = "oncepipe"
	}
	if !prefixForm.MatchString(c.Prefix) {
		return fmt.Errorf("redisstore: prefix %.100q is not a plain name", c.Prefix)
	}
	if c.Retention < 0 || c.MaxResult < 0 {
		return fmt.Errorf("redisstore: negative limit: retention %v, result %d", c.Retention, c.MaxResult)
	}
	if c.Retention == 0 {
		c.Retention = 7 * 24 * time.Hour
	}
	if c.MaxResult == 0 {
		c.MaxResult = 1 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == "" {
		c.Clock = serverClock
	}
	return nil
}

// Store is an oncepipe.Store in Redis.
type Store struct {
	client  redis.UniversalClient
	cfg     Config
	keys    keys
	scripts scripts
}

var _ oncepipe.Store = (*Store)(nil)

// Open returns a Store on client, after a look at how the server is set up and
// at the version of the keys that are there. The error is ErrEviction when the
// server may drop claims, and ErrSchema when the keys are those of another
// release. Keys need not be there yet: Open begins them, and several processes
// may do so at once.
//
// The Store runs no goroutine while nobody calls it. The caller closes client
// after the Store's last use.
func Open(ctx context.Context, client redis.UniversalClient, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, errors.New("redisstore: a redis.Ring forgets claims when one of its servers is down")
	}
	st := &Store{client: client, cfg: cfg, keys: newKeys(cfg.Prefix), scripts: newScripts(cfg.Clock)}
	if err := st.checkServer(ctx); err != nil {
		return nil, fmt.Errorf("redisstore: open: %w", err)
	}
	if err := st.checkSchema(ctx); err != nil {
		return nil, fmt.Errorf("redisstore: open: %w", err)
	}
	return st, nil
}

// Retention returns how long records are kept.
func (st *Store) Retention() time.Duration { return st.cfg.Retention }
