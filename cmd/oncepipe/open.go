package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/redisstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// place is where a DSN leads.
type place struct {
	driver  string // of database/sql; empty for Redis
	source  string
	dialect sqlstore.Dialect
}

// placeOf reads a DSN. Only where make says so may a file be made that isn't there.
func placeOf(dsn string, make bool) (place, error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "sqlite":
		if rest == "" {
			return place{}, exitWith(exitUsage, "the DSN names no file: sqlite:FILE")
		}
		mode := "rw"
		if make {
			mode = "rwc"
		}
		file := (&url.URL{Path: rest}).EscapedPath()
		return place{"sqlite", "file:" + file + "?mode=" + mode + "&_pragma=busy_timeout(10000)", sqlstore.SQLite}, nil
	case "postgres", "postgresql":
		return place{"pgx", dsn, sqlstore.PostgreSQL}, nil
	case "mysql":
		return place{"mysql", rest, sqlstore.MySQL}, nil
	case "redis", "rediss":
		return place{source: dsn}, nil
	}
	// What follows the scheme may be a password.
	return place{}, exitWith(exitUsage, "the DSN begins with none of sqlite:, postgres:, mysql: and redis:")
}

// open returns the store that dsn leads to, and what closes it.
func open(ctx context.Context, dsn, prefix string, retention time.Duration) (oncepipe.Store, io.Closer, error) {
	p, err := placeOf(dsn, false)
	if err != nil {
		return nil, nil, err
	}
	if p.driver == "" {
		return openRedis(ctx, p.source, prefix, retention)
	}
	db, err := sql.Open(p.driver, p.source)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", p.dialect, err)
	}
	st, err := sqlstore.Open(ctx, db, sqlstore.Config{Dialect: p.dialect, Prefix: prefix, Retention: retention})
	if errors.Is(err, sqlstore.ErrSchema) {
		err = fmt.Errorf("%w; oncepipe migrate makes them", err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return st, closers{st, db}, nil
}

func openRedis(ctx context.Context, dsn, prefix string, retention time.Duration) (oncepipe.Store, io.Closer, error) {
	opts, err := redis.ParseURL(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("open redis: %w", err)
	}
	client := redis.NewClient(opts)
	st, err := redisstore.Open(ctx, client, redisstore.Config{
		Prefix: prefix, Retention: retention,
		AllowEviction: true, // whoever runs the service has been told
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return st, client, nil
}

// closers are closed one after the other.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func (in *invocation) migrate(ctx context.Context) error {
	p, err := placeOf(in.dsn, true)
	if err != nil {
		return err
	}
	if p.driver == "" {
		_, closer, err := openRedis(ctx, p.source, in.prefix, 0) // which is all that Redis needs
		if err != nil {
			return err
		}
		return errors.Join(in.out.migrated(), closer.Close())
	}
	db, err := sql.Open(p.driver, p.source)
	if err != nil {
		return fmt.Errorf("open %s: %w", p.dialect, err)
	}
	err = sqlstore.Migrate(ctx, db, sqlstore.Config{Dialect: p.dialect, Prefix: in.prefix})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return errors.Join(in.out.migrated(), db.Close())
}

func (in *invocation) schema(context.Context) error {
	p, err := placeOf(in.dsn, false)
	if err != nil {
		return err
	}
	if p.driver == "" {
		return errors.New("a store in Redis needs no schema")
	}
	text, err := sqlstore.Schema(p.dialect, in.prefix)
	if err != nil {
		return err
	}
	return in.out.schema(text)
}
