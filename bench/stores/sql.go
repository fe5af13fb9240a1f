package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// conns is the size of every pool.
const conns = 8

// The tables for what is done by hand and, effects, for what is done once.
var tables = []string{
	"CREATE TABLE effects (k VARCHAR(64) NOT NULL PRIMARY KEY, account BIGINT NOT NULL, amount BIGINT NOT NULL)",
	"CREATE TABLE claims (k VARCHAR(64) NOT NULL PRIMARY KEY, claim VARCHAR(64) NOT NULL, lease BIGINT NOT NULL)",
}

func sqliteIn(dir string) backend {
	return backend{name: "SQLite", dir: dir, tx: true, batch: true, open: func(ctx context.Context, o options) (*place, error) {
		own, err := os.MkdirTemp(dir, "oncepipe-bench-")
		if err != nil {
			return nil, err
		}
		remove := func() error { return os.RemoveAll(own) }
		q := url.Values{"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"}}
		db, err := sql.Open("sqlite", "file:"+filepath.Join(own, "bench.db")+"?"+q.Encode())
		if err != nil {
			return nil, errors.Join(err, remove())
		}
		return newSQLPlace(ctx, db, sqlstore.SQLite, o, remove)
	}}
}

func postgresOn(dsn string) backend {
	return backend{name: "PostgreSQL by sqlstore", open: func(ctx context.Context, o options) (*place, error) {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		drop, err := newSchema(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return newSQLPlace(ctx, stdlib.OpenDB(*cfg), sqlstore.PostgreSQL, o, drop)
	}}
}

func mysqlOn(dsn string) backend {
	return backend{name: "MariaDB", tx: true, open: func(ctx context.Context, o options) (*place, error) {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		drop, err := newDatabase(ctx, cfg)
		if err != nil {
			return nil, err
		}
		c, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, errors.Join(err, drop())
		}
		return newSQLPlace(ctx, sql.OpenDB(c), sqlstore.MySQL, o, drop)
	}}
}

// newDatabase makes a database and puts it into cfg.
func newDatabase(ctx context.Context, cfg *mysql.Config) (drop func() error, err error) {
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	var flush int
	if err := db.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit").Scan(&flush); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if flush != 1 {
		return nil, errors.Join(fmt.Errorf("%w: innodb_flush_log_at_trx_commit is %d", errNoFsync, flush), db.Close())
	}
	name := newName()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	cfg.DBName = name
	return func() error {
		_, err := db.Exec("DROP DATABASE " + name)
		return errors.Join(err, db.Close())
	}, nil
}

// errNoFsync: times on such a database say nothing of a durable one's.
var errNoFsync = errors.New("the server doesn't wait for the disk at each commit (integration/servers -fsync starts one that does)")

// newSQLPlace makes a place of a pool. drop removes it when the pool is closed.
func newSQLPlace(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, o options, drop func() error) (*place, error) {
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	end := func() error { return errors.Join(db.Close(), drop()) }
	p, err := fillSQLPlace(ctx, db, dialect, o)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	p.close = end
	return p, nil
}

func fillSQLPlace(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, o options) (*place, error) {
	for _, text := range tables {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return nil, err
		}
	}
	cfg := sqlstore.Config{Dialect: dialect}
	if err := sqlstore.Migrate(ctx, db, cfg); err != nil {
		return nil, err
	}
	st, err := sqlstore.Open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Retention = time.Millisecond
	short, err := sqlstore.Open(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	e := &sqlEffects{db: db, slower: o.slower, effects: map[int]*sql.Stmt{}}
	insertion := func(table string, rows int) (*sql.Stmt, error) {
		return db.PrepareContext(ctx, "INSERT INTO "+table+" VALUES "+values(dialect, rows))
	}
	if e.claim, err = insertion("claims", 1); err != nil {
		return nil, err
	}
	for _, size := range append([]int{1}, o.sizes...) {
		if e.effects[size], err = insertion("effects", size); err != nil {
			return nil, err
		}
	}
	return &place{
		store:     st,
		tx:        keyed(sqlstore.TxDo(st, step, e.writeOne)),
		shared:    keyed(sqlstore.TxDoWith(st, step, oncepipe.TxConfig[string, struct{}]{Shared: true}, e.writeShared)),
		many:      keyedAll(sqlstore.TxBatchDo(st, step, e.writeMany)),
		singly:    keyedAll(sqlstore.TxBatchDo(st, step, e.writeSingly)),
		bareTx:    func(ctx context.Context, key string) error { return bare(ctx, e, key, e.writeOne) },
		bareMany:  func(ctx context.Context, keys []string) error { return bare(ctx, e, keys, e.writeMany) },
		bareClaim: e.writeClaim,
		overdue: keyedAll(sqlstore.TxBatchDo(short, step, func(context.Context, *sql.Tx, []string) error {
			return nil
		})),
	}, nil
}

// values are placeholders for n rows of three columns.
func values(dialect sqlstore.Dialect, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		if dialect == sqlstore.PostgreSQL {
			b.WriteString("($" + strconv.Itoa(3*i+1) + ", $" + strconv.Itoa(3*i+2) + ", $" + strconv.Itoa(3*i+3) + ")")
		} else {
			b.WriteString("(?, ?, ?)")
		}
	}
	return b.String()
}

// sqlEffects writes effects.
type sqlEffects struct {
	db     *sql.DB
	slower time.Duration

	claim   *sql.Stmt
	effects map[int]*sql.Stmt // by the number of rows
}

// bare runs write in a transaction that has nothing else.
func bare[A any](ctx context.Context, e *sqlEffects, a A, write func(context.Context, *sql.Tx, A) error) error {
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := write(ctx, tx, a); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (e *sqlEffects) writeShared(ctx context.Context, tx *sql.Tx, key string) error {
	account, amount := effect(len(key))
	_, err := tx.StmtContext(ctx, e.effects[1]).ExecContext(ctx, key, account, amount)
	return err
}

func (e *sqlEffects) writeOne(ctx context.Context, tx *sql.Tx, key string) error {
	err := e.writeShared(ctx, tx, key)
	pause(e.slower)
	return err
}

func (e *sqlEffects) writeSingly(ctx context.Context, tx *sql.Tx, keys []string) error {
	for _, key := range keys {
		if err := e.writeShared(ctx, tx, key); err != nil {
			return err
		}
	}
	return nil
}

func (e *sqlEffects) writeMany(ctx context.Context, tx *sql.Tx, keys []string) error {
	stmt := e.effects[len(keys)]
	if stmt == nil {
		return fmt.Errorf("nothing is prepared for %d rows", len(keys))
	}
	args := make([]any, 0, 3*len(keys))
	for i, key := range keys {
		account, amount := effect(i)
		args = append(args, key, account, amount)
	}
	_, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	pause(e.slower)
	return err
}

// writeClaim is a claim by hand: one statement, committed by itself.
func (e *sqlEffects) writeClaim(ctx context.Context, key string) error {
	id := oncepipe.NewClaimID()
	_, err := e.claim.ExecContext(ctx, key, id.String(), time.Now().Add(time.Hour).UnixMilli())
	return err
}

// keyed names the key of a function's item.
func keyed(do func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, key string) error { return do(oncepipe.WithKey(ctx, key), key) }
}

// keyedAll names the keys of a function's items.
func keyedAll(do func(context.Context, []string) error) func(context.Context, []string) error {
	return func(ctx context.Context, keys []string) error { return do(oncepipe.WithKeys(ctx, keys...), keys) }
}
