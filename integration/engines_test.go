package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"modernc.org/sqlite"

	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/redisstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// engine is a kind of store that can be opened by a process without a test.
type engine struct {
	name   string
	server servers.Kind // "" for none
	opener
}

type opener interface {
	// create makes the tables in an empty place.
	create(ctx context.Context, dsn string) error
	// open opens the store in a place that was created.
	open(ctx context.Context, dsn string, retention time.Duration, at pointFunc) (*work, error)
}

var engines = []engine{
	{"SQLite", "", sqlOpener{sqlstore.SQLite, func(dsn string) (driver.Connector, error) { return sqlite.NewConnector(dsn) }}},
	{"PostgreSQL", servers.Postgres, sqlOpener{sqlstore.PostgreSQL, pgxConnector}},
	{"pgx", servers.Postgres, pgxOpener{}},
	{"MariaDB", servers.MySQL, sqlOpener{sqlstore.MySQL, mysqlConnector}},
	{"Redis", servers.Redis, redisOpener{}},
}

func engineNamed(name string) (engine, error) {
	for _, e := range engines {
		if e.name == name {
			return e, nil
		}
	}
	return engine{}, fmt.Errorf("no engine %q", name)
}

// forEngines runs test for each, one after the other: they would share two cores.
func forEngines(t *testing.T, all []engine, test func(t *testing.T, e engine)) {
	for _, e := range all {
		t.Run(e.name, func(t *testing.T) { test(t, e) })
	}
}

// shared returns an empty place on the server that all tests share.
func (e engine) shared(t testing.TB) (dsn string) {
	t.Helper()
	switch e.server {
	case servers.Postgres:
		return servertest.PostgresSchema(t)
	case servers.MySQL:
		return servertest.MySQLDatabase(t)
	case servers.Redis:
		dsn, prefix := servertest.RedisPrefix(t)
		return dsn + "#" + prefix
	default:
		return dsnSync(newFile(t), "OFF", "busy_timeout(5000)")
	}
}

// noWait is for readings and writings that are to end when the connection is
// stalled: the driver doesn't end a commit when its context ends.
const noWait = 2 * time.Second

func mysqlConnector(dsn string) (driver.Connector, error) {
	cfg, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = noWait, noWait, noWait
	cfg.Logger = &mysqldriver.NopLogger{} // faults are what we want
	return mysqldriver.NewConnector(cfg)
}

// sqlOpener opens sqlstore.
type sqlOpener struct {
	dialect   sqlstore.Dialect
	connector func(dsn string) (driver.Connector, error)
}

func (o sqlOpener) pool(dsn string, at pointFunc) (*sql.DB, error) {
	c, err := o.connector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(pointConnector{c, at})
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	return db, nil
}

func (o sqlOpener) create(ctx context.Context, dsn string) error {
	db, err := o.pool(dsn, nowhere)
	if err != nil {
		return err
	}
	err = sqlstore.Migrate(ctx, db, sqlstore.Config{Dialect: o.dialect})
	for _, text := range createEffects {
		if err == nil {
			_, err = db.ExecContext(ctx, text)
		}
	}
	return errors.Join(err, db.Close())
}

func (o sqlOpener) open(ctx context.Context, dsn string, retention time.Duration, at pointFunc) (*work, error) {
	db, err := o.pool(dsn, at)
	if err != nil {
		return nil, err
	}
	st, err := sqlstore.Open(ctx, db, sqlstore.Config{Dialect: o.dialect, Retention: retention})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	w := &work{store: st, at: at, close: func() error { return errors.Join(st.Close(), db.Close()) }}
	w.withTx(st, o.dialect)
	w.withEffects(db, o.dialect)
	return w, nil
}

// The table of effects has no constraint that could hide a second one.
var createEffects = []string{
	"CREATE TABLE effects (mode VARCHAR(20), k VARCHAR(100))",
	"CREATE INDEX effects_k ON effects (k)",
}

// insertEffect is the effect of a mode. The driver tells the mode of a
// transaction by its beginning.
func insertEffect(m mode, dialect sqlstore.Dialect) string {
	return insertPrefix(m) + placeholder(dialect) + ")"
}

func placeholder(dialect sqlstore.Dialect) string {
	if dialect == sqlstore.PostgreSQL {
		return "$1"
	}
	return "?"
}

func insertPrefix(m mode) string {
	return "INSERT INTO effects (mode, k) VALUES ('" + string(m) + "', "
}

// withTx adds the modes that are in a transaction.
func (w *work) withTx(st *sqlstore.Store, dialect sqlstore.Dialect) {
	exec := func(ctx context.Context, tx *sql.Tx, query, key string) error {
		_, err := tx.ExecContext(ctx, query, key)
		return err
	}
	w.tx = heard(w.at, inTx, sqlstore.TxDo(st, string(inTx), oneEffect(w.at, dialect, exec)))
	w.batch = heard(w.at, inTxBatch, sqlstore.TxBatchDo(st, string(inTxBatch), manyEffects(w.at, dialect, exec)))
}

func heard[A any](at pointFunc, m mode, do func(context.Context, A) error) func(context.Context, A) error {
	return func(ctx context.Context, a A) error {
		at(m, beforeClaim)
		return do(ctx, a)
	}
}

// oneEffect is what inTx does in its transaction, of type T.
func oneEffect[T any](at pointFunc, dialect sqlstore.Dialect, exec func(ctx context.Context, tx T, query, key string) error) func(context.Context, T, string) error {
	query := insertEffect(inTx, dialect)
	return func(ctx context.Context, tx T, key string) error {
		at(inTx, afterClaim)
		err := exec(ctx, tx, query, key)
		at(inTx, inEffect)
		return err
	}
}

// manyEffects is what inTxBatch does in its transaction.
func manyEffects[T any](at pointFunc, dialect sqlstore.Dialect, exec func(ctx context.Context, tx T, query, key string) error) func(context.Context, T, []string) error {
	query := insertEffect(inTxBatch, dialect)
	return func(ctx context.Context, tx T, keys []string) error {
		at(inTxBatch, afterClaim)
		for i, key := range keys {
			if err := exec(ctx, tx, query, key); err != nil {
				return err
			}
			if i == len(keys)/2 {
				at(inTxBatch, inEffect)
			}
		}
		return nil
	}
}

// withEffects adds what looks at effects, and makes one without a record.
func (w *work) withEffects(db *sql.DB, dialect sqlstore.Dialect) {
	w.booked = func(ctx context.Context) (map[mode]map[string]int, error) { return booked(ctx, db) }
	w.bookedOf = func(ctx context.Context, m mode, key string) (n int, err error) {
		query := "SELECT count(*) FROM effects WHERE mode = '" + string(m) + "' AND k = " + placeholder(dialect)
		return n, db.QueryRowContext(ctx, query, key).Scan(&n)
	}
	w.bareEffect = func(ctx context.Context, key string) error {
		_, err := db.ExecContext(ctx, insertEffect(inTx, dialect), key)
		return err
	}
}

// booked reads how many effects each key has.
func booked(ctx context.Context, db *sql.DB) (map[mode]map[string]int, error) {
	rows, err := db.QueryContext(ctx, "SELECT mode, k, count(*) FROM effects GROUP BY mode, k")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[mode]map[string]int{inTx: {}, inTxBatch: {}}
	for rows.Next() {
		var m mode
		var key string
		var n int
		if err := rows.Scan(&m, &key, &n); err != nil {
			return nil, err
		}
		all[m][key] = n
	}
	return all, rows.Err()
}

// redisOpener opens redisstore. The DSN has the prefix of its keys as its
// fragment.
type redisOpener struct{}

func (redisOpener) create(context.Context, string) error { return nil }

func (redisOpener) open(ctx context.Context, dsn string, retention time.Duration, at pointFunc) (*work, error) {
	dsn, prefix, _ := strings.Cut(dsn, "#")
	opts, err := redis.ParseURL(dsn)
	if err != nil {
		return nil, err
	}
	opts.ReadTimeout, opts.WriteTimeout = noWait, noWait
	client := redis.NewClient(opts)
	st, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: prefix, Retention: retention})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &work{store: st, at: at, close: client.Close}, nil
}
