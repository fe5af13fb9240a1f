package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/pgxstore"
)

func pgxOn(dsn string) backend {
	return backend{
		name: "PostgreSQL", tx: true, batch: true,
		open: func(ctx context.Context, o options) (*place, error) {
			pool, end, err := newPool(ctx, dsn, nil)
			if err != nil {
				return nil, err
			}
			p, err := newPgxPlace(ctx, pool, o)
			if err != nil {
				return nil, errors.Join(err, end())
			}
			p.close = end
			return p, nil
		},
		trips: func(ctx context.Context) (*counted, error) {
			var t tripTracer
			pool, end, err := newPool(ctx, dsn, &t)
			if err != nil {
				return nil, err
			}
			st, err := openPgxStore(ctx, pool, pgxstore.Config{})
			if err != nil {
				return nil, errors.Join(err, end())
			}
			return &counted{store: st, trips: t.n.Load, close: end}, nil
		},
	}
}

// newSchema makes a schema and puts it into cfg.
func newSchema(ctx context.Context, cfg *pgx.ConnConfig) (drop func() error, err error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	end := func() error { return conn.Close(context.Background()) }
	var fsync, commit string
	err = conn.QueryRow(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit)
	if err == nil && (fsync != "on" || commit == "off") {
		err = fmt.Errorf("%w: fsync is %s, synchronous_commit is %s", errNoFsync, fsync, commit)
	}
	name := newName()
	if err == nil {
		_, err = conn.Exec(ctx, "CREATE SCHEMA "+name)
	}
	if err != nil {
		return nil, errors.Join(err, end())
	}
	cfg.RuntimeParams["search_path"] = name
	return func() error {
		_, err := conn.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE")
		return errors.Join(err, end())
	}, nil
}

// newPool opens a pool on a schema of its own, which end drops.
func newPool(ctx context.Context, dsn string, tracer pgx.QueryTracer) (pool *pgxpool.Pool, end func() error, err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	drop, err := newSchema(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = conns
	cfg.ConnConfig.Tracer = tracer
	pool, err = pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	return pool, func() error {
		pool.Close()
		return drop()
	}, nil
}

func openPgxStore(ctx context.Context, pool *pgxpool.Pool, cfg pgxstore.Config) (*pgxstore.Store, error) {
	if err := pgxstore.Migrate(ctx, pool, cfg); err != nil {
		return nil, err
	}
	return pgxstore.Open(ctx, pool, cfg)
}

func newPgxPlace(ctx context.Context, pool *pgxpool.Pool, o options) (*place, error) {
	for _, text := range tables {
		if _, err := pool.Exec(ctx, text); err != nil {
			return nil, err
		}
	}
	st, err := openPgxStore(ctx, pool, pgxstore.Config{})
	if err != nil {
		return nil, err
	}
	short, err := openPgxStore(ctx, pool, pgxstore.Config{Retention: time.Millisecond})
	if err != nil {
		return nil, err
	}
	e := &pgxEffects{pool: pool, slower: o.slower}
	return &place{
		store:     st,
		tx:        keyed(pgxstore.TxDo(st, step, e.writeOne)),
		shared:    keyed(pgxstore.TxDoWith(st, step, oncepipe.TxConfig[string, struct{}]{Shared: true}, e.writeShared)),
		many:      keyedAll(pgxstore.TxBatchDo(st, step, e.writeMany)),
		singly:    keyedAll(pgxstore.TxBatchDo(st, step, e.writeSingly)),
		bareTx:    func(ctx context.Context, key string) error { return barePgx(ctx, e, key, e.writeOne) },
		bareMany:  func(ctx context.Context, keys []string) error { return barePgx(ctx, e, keys, e.writeMany) },
		bareClaim: e.writeClaim,
		overdue: keyedAll(pgxstore.TxBatchDo(short, step, func(context.Context, pgx.Tx, []string) error {
			return nil
		})),
	}, nil
}

// pgxEffects writes effects. Pgx prepares its statements when it first meets them.
type pgxEffects struct {
	pool   *pgxpool.Pool
	slower time.Duration
}

// barePgx runs write in a transaction that has nothing else.
func barePgx[A any](ctx context.Context, e *pgxEffects, a A, write func(context.Context, pgx.Tx, A) error) error {
	tx, err := e.pool.Begin(ctx)
	if err != nil {
		return err
	}
	if err := write(ctx, tx, a); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

func (e *pgxEffects) writeShared(ctx context.Context, tx pgx.Tx, key string) error {
	account, amount := effect(len(key))
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2, $3)", key, account, amount)
	return err
}

func (e *pgxEffects) writeOne(ctx context.Context, tx pgx.Tx, key string) error {
	err := e.writeShared(ctx, tx, key)
	pause(e.slower)
	return err
}

func (e *pgxEffects) writeSingly(ctx context.Context, tx pgx.Tx, keys []string) error {
	for _, key := range keys {
		if err := e.writeShared(ctx, tx, key); err != nil {
			return err
		}
	}
	return nil
}

func (e *pgxEffects) writeMany(ctx context.Context, tx pgx.Tx, keys []string) error {
	accounts, amounts := make([]int64, len(keys)), make([]int64, len(keys))
	for i := range keys {
		accounts[i], amounts[i] = effect(i)
	}
	_, err := tx.Exec(ctx, "INSERT INTO effects SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])",
		keys, accounts, amounts)
	pause(e.slower)
	return err
}

// writeClaim is a claim by hand: one statement, committed by itself.
func (e *pgxEffects) writeClaim(ctx context.Context, key string) error {
	id := oncepipe.NewClaimID()
	_, err := e.pool.Exec(ctx, "INSERT INTO claims VALUES ($1, $2, $3)",
		key, id.String(), time.Now().Add(time.Hour).UnixMilli())
	return err
}

// tripTracer counts round trips: queries, batches and preparations.
type tripTracer struct{ n atomic.Int64 }

func (t *tripTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.n.Add(1)
	return ctx
}

func (t *tripTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.n.Add(1)
	return ctx
}

func (t *tripTracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	t.n.Add(1)
	return ctx
}

func (*tripTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*tripTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*tripTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*tripTracer) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}
