package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// retryAfter is the longest backoff, that of a claim which another one holds
// included.
const retryAfter = 5 * time.Millisecond

// serve runs the pipeline of a mechanism until its source has ended.
func serve(ctx context.Context, m mechanism, b oncepipe.BufferPolicy, lease time.Duration, file string, src oncepipe.Source[*order]) (err error) {
	db := openDB(file)
	defer func() { err = errors.Join(err, db.Close()) }()
	cfg := oncepipe.Config{
		// The broker counts them.
		DeadLetters: func(context.Context, oncepipe.DeadLetter) error { return nil },
		PruneEvery:  -1,
		Logger:      slog.New(slog.DiscardHandler),
	}
	s := shop{db: db, lease: lease}
	if m.store { // to open one costs more than many an effect
		if s.store, err = sqlstore.Open(ctx, db, sqlstore.Config{}); err != nil {
			return fmt.Errorf("open the store: %w", err)
		}
		cfg.Stores = []oncepipe.Store{s.store}
	}
	p := oncepipe.New("orders", cfg)
	in := oncepipe.From(p, "broker", src)
	if m.dedup {
		in = oncepipe.Dedup(in, "dedup", func(o *order) string { return o.Key })
	}
	oncepipe.Sink(in, "effect", m.start(s),
		oncepipe.Workers(workers), oncepipe.Buffer(b),
		oncepipe.Retry(oncepipe.RetryPolicy{MaxDelay: retryAfter}))
	return p.Run(ctx)
}
