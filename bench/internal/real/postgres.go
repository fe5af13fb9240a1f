package real

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe/store/pgxstore"
)

func openPostgres(ctx context.Context, dsn string) (*place, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	drop, err := newSchema(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	end := func() error {
		pool.Close()
		return drop()
	}
	p, err := fillPostgres(ctx, pool)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	p.close = end
	return p, nil
}

// newSchema makes a schema and puts it into cfg.
func newSchema(ctx context.Context, cfg *pgx.ConnConfig) (drop func() error, err error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	end := func() error { return conn.Close(context.Background()) }
	var random [6]byte
	rand.Read(random[:]) // never fails
	name := "real_" + hex.EncodeToString(random[:])
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return nil, errors.Join(err, end())
	}
	cfg.RuntimeParams["search_path"] = name
	return func() error {
		_, err := conn.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE")
		return errors.Join(err, end())
	}, nil
}

func fillPostgres(ctx context.Context, pool *pgxpool.Pool) (*place, error) {
	if _, err := pool.Exec(ctx, "CREATE TABLE effects (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, k TEXT NOT NULL)"); err != nil {
		return nil, err
	}
	if err := pgxstore.Migrate(ctx, pool, pgxstore.Config{}); err != nil {
		return nil, err
	}
	st, err := pgxstore.Open(ctx, pool, pgxstore.Config{})
	if err != nil {
		return nil, err
	}
	const insert = "INSERT INTO effects (k) VALUES ($1)"
	return &place{
		insert: func(ctx context.Context, key string) error {
			_, err := pool.Exec(ctx, insert, key)
			return err
		},
		tx: pgxstore.TxDo(st, step, func(ctx context.Context, tx pgx.Tx, key string) error {
			_, err := tx.Exec(ctx, insert, key)
			return err
		}),
		count: func(ctx context.Context) (rows, distinct int, err error) {
			err = pool.QueryRow(ctx, counted).Scan(&rows, &distinct)
			return rows, distinct, err
		},
	}, nil
}
