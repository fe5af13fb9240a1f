package integration

import (
	"context"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/oncepipe/oncepipe/store/pgxstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// pgxOpener opens pgxstore, whose tables are those of sqlstore.
type pgxOpener struct{}

func (pgxOpener) create(ctx context.Context, dsn string) error {
	return sqlOpener{sqlstore.PostgreSQL, pgxConnector}.create(ctx, dsn)
}

func (pgxOpener) open(ctx context.Context, dsn string, retention time.Duration, at pointFunc) (*work, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 16
	cfg.ConnConfig.Tracer = pointTracer{at}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	st, err := pgxstore.Open(ctx, pool, pgxstore.Config{Retention: retention})
	if err != nil {
		pool.Close()
		return nil, err
	}
	exec := func(ctx context.Context, tx pgx.Tx, query, key string) error {
		_, err := tx.Exec(ctx, query, key)
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	w := &work{store: st, at: at, close: func() error {
		err := db.Close()
		pool.Close()
		return err
	}}
	w.tx = heard(at, inTx, pgxstore.TxDo(st, string(inTx), oneEffect(at, sqlstore.PostgreSQL, exec)))
	w.batch = heard(at, inTxBatch, pgxstore.TxBatchDo(st, string(inTxBatch), manyEffects(at, sqlstore.PostgreSQL, exec)))
	w.withEffects(db, sqlstore.PostgreSQL)
	return w, nil
}

// pointTracer hears the commits of effects, as pointConnector does.
type pointTracer struct{ at pointFunc }

// modeData is where a connection remembers whose effect is in its transaction.
const modeData = "mode of the effect"

type commitKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (t pointTracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	custom := conn.PgConn().CustomData()
	for _, m := range txModes {
		if strings.HasPrefix(data.SQL, insertPrefix(m)) {
			custom[modeData] = m
		}
	}
	m, ok := custom[modeData].(mode)
	if !ok || data.SQL != "commit" {
		return ctx
	}
	delete(custom, modeData)
	t.at(m, beforeCommit)
	return context.WithValue(ctx, commitKey{}, m)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t pointTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if m, ok := ctx.Value(commitKey{}).(mode); ok && data.Err == nil {
		t.at(m, afterCommit)
	}
}

func pgxConnector(dsn string) (driver.Connector, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*cfg), nil
}
