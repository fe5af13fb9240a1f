package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/oncepipe/oncepipe/store/redisstore"
)

func redisOn(dsn string) backend {
	return backend{name: "Redis", trips: func(ctx context.Context) (*counted, error) {
		cfg, err := redis.ParseURL(dsn)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(cfg)
		prefix := newName()
		end := func() error { return errors.Join(dropPrefix(client, prefix), client.Close()) }
		st, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: prefix})
		if err != nil {
			return nil, errors.Join(err, end())
		}
		var h tripHook
		client.AddHook(&h)
		return &counted{store: st, trips: h.n.Load, close: end}, nil
	}}
}

// dropPrefix removes the keys of a store.
func dropPrefix(client *redis.Client, prefix string) error {
	ctx := context.Background()
	found := client.Scan(ctx, 0, "{"+prefix+"}*", 1000).Iterator()
	for found.Next(ctx) {
		if err := client.Unlink(ctx, found.Val()).Err(); err != nil {
			return err
		}
	}
	return found.Err()
}

// tripHook counts round trips.
type tripHook struct{ n atomic.Int64 }

func (h *tripHook) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

func (h *tripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h *tripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmds)
	}
}
