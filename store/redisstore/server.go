package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrEviction: the server may drop claims when its memory is full. Set its
// maxmemory-policy to noeviction.
var ErrEviction = errors.New("redisstore: the server may drop claims")

// checkServer looks at how the server that has the store's keys is set up.
func (st *Store) checkServer(ctx context.Context) error {
	var server redis.Cmdable = st.client
	if cluster, ok := st.client.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, st.keys.meta)
		if err != nil {
			return fmt.Errorf("look for the node: %w", err)
		}
		server = node
	}
	info, err := answered(server.Info(ctx).Result())
	if err != nil {
		return fmt.Errorf("read info: %w", err)
	}
	if err := st.checkEviction(ctx, server, info); err != nil {
		return err
	}
	if infoField(info, "aof_enabled") != "1" {
		st.cfg.Logger.WarnContext(ctx, "redisstore: the server doesn't say that it keeps an append-only file; without one it forgets claims when it ends")
	}
	return nil
}

// checkEviction refuses policies that may drop keys without a time to live.
func (st *Store) checkEviction(ctx context.Context, server redis.Cmdable, info string) error {
	values, err := answered(server.ConfigGet(ctx, "maxmemory-policy").Result())
	if err != nil {
		return fmt.Errorf("read maxmemory-policy: %w", err)
	}
	policy := values["maxmemory-policy"]
	if policy == "" { // where CONFIG is forbidden
		policy = infoField(info, "maxmemory_policy")
	}
	switch {
	case policy == "noeviction", strings.HasPrefix(policy, "volatile-"):
		return nil
	case policy == "" && st.cfg.RefuseUnknownPolicy:
		return fmt.Errorf("%w: it doesn't tell its maxmemory-policy", ErrEviction)
	case policy == "":
		st.cfg.Logger.WarnContext(ctx, "redisstore: the server doesn't tell its maxmemory-policy; any but noeviction and volatile-… may drop claims")
	case !st.cfg.AllowEviction:
		return fmt.Errorf("%w: maxmemory-policy is %s, want noeviction", ErrEviction, policy)
	default:
		st.cfg.Logger.WarnContext(ctx, "redisstore: the server may drop claims", "maxmemory-policy", policy)
	}
	return nil
}

// answered takes a server's refusal to answer for an empty answer; an outage is
// none.
func answered[A any](answer A, err error) (A, error) {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		var none A
		return none, nil
	}
	return answer, err
}

// infoField returns a value of what INFO says.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
