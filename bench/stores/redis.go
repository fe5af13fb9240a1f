package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/redisstore"
)

func redisOn(dsn string) backend {
	return backend{name: "Redis", claimsOnly: true, open: func(ctx context.Context, _ options) (*place, error) {
		return newRedisPlace(ctx, dsn)
	}, trips: func(ctx context.Context) (*counted, error) {
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

// newRedisPlace makes a place whose claim by hand is a SET of a key that must not
// be there yet.
func newRedisPlace(ctx context.Context, dsn string) (*place, error) {
	cfg, err := redis.ParseURL(dsn)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(cfg)
	prefix := newName()
	end := func() error { return errors.Join(dropPrefix(client, prefix), client.Close()) }
	if err := waitsForDisk(ctx, client); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	st, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: prefix})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	byHand := func(ctx context.Context, key string) error {
		id := oncepipe.NewClaimID()
		return client.SetArgs(ctx, "{"+prefix+"}:hand:"+key, id.String(), redis.SetArgs{Mode: "NX", TTL: time.Hour}).Err()
	}
	return &place{store: st, bareClaim: byHand, close: end}, nil
}

// waitsForDisk returns errNoFsync where the server answers before it has synced.
func waitsForDisk(ctx context.Context, client *redis.Client) error {
	set, err := client.ConfigGet(ctx, "append*").Result()
	if err != nil {
		return err
	}
	if set["appendonly"] != "yes" || set["appendfsync"] != "always" {
		return fmt.Errorf("%w: appendonly is %s, appendfsync is %s", errNoFsync, set["appendonly"], set["appendfsync"])
	}
	return nil
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
