package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/redisstore"
)

// redisClient returns a client that is closed at the end of the test.
func redisClient(t testing.TB, dsn string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(dsn)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// redisStore opens a store whose clock goes on when it is told to. Its keys are
// removed at the end of the test.
func redisStore(t testing.TB, client redis.UniversalClient, cfg redisstore.Config) (st *redisstore.Store, advance func(time.Duration)) {
	t.Helper()
	clock := "{" + cfg.Prefix + "}:clock"
	cfg.Clock = "tonumber(redis.call('GET', '" + clock + "'))"
	if err := client.Set(t.Context(), clock, 1700000000000, 0).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { emptyRedis(t, client, cfg.Prefix) })
	st, err := redisstore.Open(t.Context(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return st, func(d time.Duration) {
		if err := client.IncrBy(context.Background(), clock, d.Milliseconds()).Err(); err != nil {
			t.Error(err)
		}
	}
}

// emptyRedis removes the keys of a prefix, but for those in spared.
func emptyRedis(t testing.TB, client redis.UniversalClient, prefix string, spared ...string) {
	t.Helper()
	ctx := context.Background()
	for scan := client.Scan(ctx, 0, "{"+prefix+"}*", 1000).Iterator(); ; {
		if !scan.Next(ctx) {
			if err := scan.Err(); err != nil {
				t.Error(err)
			}
			return
		}
		if _, name, _ := strings.Cut(scan.Val(), "}:"); slices.Contains(spared, name) {
			continue
		}
		if err := client.Del(ctx, scan.Val()).Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestRedisContract(t *testing.T) {
	const maxResult = 1000
	client := redisClient(t, servertest.Redis(t))
	oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		_, prefix := servertest.RedisPrefix(t)
		st, advance := redisStore(t, client, redisstore.Config{Prefix: prefix, Retention: time.Hour, MaxResult: maxResult})
		check(t, oncetest.StoreEnv{Store: st, Advance: advance, Retention: time.Hour, MaxResult: maxResult})
	})
}

// A cluster of one node refuses scripts whose keys are in several slots, as one
// of many nodes does.
func TestRedisClusterContract(t *testing.T) {
	const maxResult = 1000
	server := servertest.Start(t, servers.Redis, servers.Options{Settings: map[string]string{"cluster-enabled": "yes"}})
	if err := redisClient(t, server.DSN()).ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	waitUntil(t, "the cluster is up", func() bool {
		info, err := client.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		prefix := strings.ToLower(rand.Text())
		st, advance := redisStore(t, client, redisstore.Config{Prefix: prefix, Retention: time.Hour, MaxResult: maxResult})
		check(t, oncetest.StoreEnv{Store: st, Advance: advance, Retention: time.Hour, MaxResult: maxResult})
	})
}

// waitUntil polls for what no event tells.
func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func TestRedisLockstep(t *testing.T) {
	dsn, prefix := servertest.RedisPrefix(t)
	client := redisClient(t, dsn)
	st, advance := redisStore(t, client, redisstore.Config{Prefix: prefix, Retention: lockstepRetention, MaxResult: lockstepMaxResult})
	lockstep(t, st, func() { emptyRedis(t, client, prefix, "clock", "meta") }, advance)
	t.Run("nothing is left behind", func(t *testing.T) {
		forgetAll(t, st)
		keys, err := client.Keys(t.Context(), "{"+prefix+"}*").Result()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(keys)
		if want := []string{"{" + prefix + "}:clock", "{" + prefix + "}:counts", "{" + prefix + "}:meta"}; !slices.Equal(keys, want) {
			t.Errorf("keys %q, want %q", keys, want)
		}
	})
}

// forgetAll removes the records that lockstep left, and one more.
func forgetAll(t *testing.T, st *redisstore.Store) {
	t.Helper()
	req := newRequest("k")
	if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{req}); err != nil {
		t.Fatal(err)
	}
	ids := append([]oncepipe.RecordID{req.RecordID}, lockstepIDs...)
	if _, err := st.Forget(t.Context(), ids, true); err != nil {
		t.Fatal(err)
	}
	counts, err := st.Count(t.Context())
	if err != nil || len(counts) != 0 {
		t.Errorf("counted %v, %v", counts, err)
	}
}

// The server's own clock, without a test's.
func TestRedisServerClock(t *testing.T) {
	dsn, prefix := servertest.RedisPrefix(t)
	client := redisClient(t, dsn)
	t.Cleanup(func() { emptyRedis(t, client, prefix) })
	st, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	const lease = 50 * time.Millisecond
	req := newRequest("k")
	req.Lease = lease
	sent := time.Now()
	if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{req}); err != nil {
		t.Fatal(err)
	}
	for {
		answers, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{newRequest("k")})
		if err != nil {
			t.Fatal(err)
		}
		waited := time.Since(sent)
		if answers[0].Status == oncepipe.ClaimAcquired {
			if waited < lease {
				t.Errorf("taken over after %v", waited)
			}
			return
		}
		if left := answers[0].Wait; left <= 0 || left > lease+5*time.Millisecond || waited > 10*time.Second {
			t.Fatalf("after %v: %+v", waited, answers[0])
		}
	}
}

// hook does something before each command is sent.
type hook struct {
	before func(redis.Cmder)
}

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.before(cmd)
		return next(ctx, cmd)
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.before(cmd)
		}
		return next(ctx, cmds)
	}
}

// A lease runs out, and the key is taken over, between any two commands of the
// former owner's: the new claim stands.
func TestR26_LeaseIsOverBetweenReadAndWrite(t *testing.T) {
	dsn, prefix := servertest.RedisPrefix(t)
	other, advance := redisStore(t, redisClient(t, dsn), redisstore.Config{Prefix: prefix})
	client := redisClient(t, dsn)
	st, _ := redisStore(t, client, redisstore.Config{Prefix: prefix})
	sent, overtaken := 0, func() {}
	client.AddHook(&hook{before: func(redis.Cmder) { sent++; overtaken() }})

	writes := map[string]func(ctx context.Context, req oncepipe.ClaimRequest) (bool, error){
		"extend": func(ctx context.Context, req oncepipe.ClaimRequest) (bool, error) {
			held, err := st.Extend(ctx, []oncepipe.Extension{{RecordID: req.RecordID, Claim: req.Claim, Lease: req.Lease}})
			return slices.Contains(held, true), err
		},
		"complete": func(ctx context.Context, req oncepipe.ClaimRequest) (bool, error) {
			held, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
			return slices.Contains(held, true), err
		},
		"release": func(ctx context.Context, req oncepipe.ClaimRequest) (bool, error) {
			held, err := st.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: req.RecordID, Claim: req.Claim, To: oncepipe.ToWaiting}})
			return slices.Contains(held, true), err
		},
		"forget": func(ctx context.Context, req oncepipe.ClaimRequest) (bool, error) {
			gone, err := st.Forget(ctx, []oncepipe.RecordID{req.RecordID}, false)
			return slices.Contains(gone, true), err
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			req, second := newRequest(name), newRequest(name)
			if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{req}); err != nil {
				t.Fatal(err)
			}
			sent, overtaken = 0, func() {
				advance(2 * req.Lease)
				answers, err := other.Claim(t.Context(), []oncepipe.ClaimRequest{second})
				if err != nil || answers[0].Status != oncepipe.ClaimAcquired || !answers[0].Takeover {
					t.Errorf("the other's claim: %+v, %v", answers, err)
				}
				overtaken = func() {}
			}
			if done, err := write(t.Context(), req); done || err != nil {
				t.Errorf("done: %v, %v", done, err)
			}
			if sent > 2 { // the script's hash, and its text where the server didn't know it
				t.Errorf("%d commands", sent)
			}
			held, err := other.Complete(t.Context(), []oncepipe.Completion{{RecordID: req.RecordID, Claim: second.Claim}})
			if err != nil || !held[0] {
				t.Errorf("the other's completion: %v, %v", held, err)
			}
		})
	}
}

// Where memory is full, what needs memory fails whole, and Prune makes room.
func TestRedisMemoryIsFull(t *testing.T) {
	const keys = 100
	client := redisClient(t, servertest.Start(t, servers.Redis, servers.Options{}).DSN())
	st, advance := redisStore(t, client, redisstore.Config{Prefix: "full", Retention: time.Hour})
	claims := make([]oncepipe.ClaimRequest, keys)
	completions := make([]oncepipe.Completion, keys)
	for i := range claims {
		claims[i] = newRequest(fmt.Sprint(i))
		completions[i] = oncepipe.Completion{RecordID: claims[i].RecordID, Claim: claims[i].Claim}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := st.Claim(t.Context(), claims)
	must(err)
	_, err = st.Complete(t.Context(), completions[:keys-1])
	must(err)
	advance(2 * time.Hour)
	must(client.ConfigSet(t.Context(), "maxmemory", "1").Err())

	if answers, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{newRequest("0"), newRequest("new")}); err == nil || answers != nil {
		t.Errorf("claim: %v, %v", answers, err)
	}
	if held, err := st.Complete(t.Context(), completions); err == nil || held != nil {
		t.Errorf("complete: %v, %v", held, err)
	}
	if n, err := st.Prune(t.Context(), 2*keys); n != keys-1 || err != nil {
		t.Errorf("prune: %d, %v", n, err)
	}
	counts, err := st.Count(t.Context())
	must(err)
	if len(counts) != 1 || counts[oncepipe.StateClaimed] != 1 {
		t.Errorf("counts %v", counts)
	}
	must(client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	held, err := st.Complete(t.Context(), completions[keys-1:])
	if err != nil || !held[0] {
		t.Errorf("complete: %v, %v", held, err)
	}
}

// Open at a real server that is set up in a wrong way.
func TestR68_OpenAtRealServers(t *testing.T) {
	client := redisClient(t, servertest.Start(t, servers.Redis, servers.Options{Settings: map[string]string{
		"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru",
	}}).DSN())
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{}); !errors.Is(err, redisstore.ErrEviction) {
		t.Errorf("allkeys-lru: %v", err)
	}
	for _, policy := range []string{"noeviction", "volatile-lru", "volatile-ttl"} {
		if err := client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := redisstore.Open(t.Context(), client, redisstore.Config{}); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}
	if err := client.HSet(t.Context(), "{oncepipe}:meta", "schema", redisstore.KeyVersion+1).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{}); !errors.Is(err, redisstore.ErrSchema) {
		t.Errorf("keys of another version: %v", err)
	}
}

// What was acknowledged is there after a kill of the server, and an outage is an
// error. The scripts are gone from the server's memory and are sent again.
func TestRedisKilled(t *testing.T) {
	server := servertest.Start(t, servers.Redis, servers.Options{Fsync: true})
	client := redisClient(t, server.DSN())
	st, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	req, completed := newRequest("claimed"), newRequest("completed")
	if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{req, completed}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Complete(t.Context(), []oncepipe.Completion{{RecordID: completed.RecordID, Claim: completed.Claim}}); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	var down net.Error
	if answers, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{newRequest("completed")}); err == nil || answers != nil {
		t.Errorf("claim while the server is down: %v, %v", answers, err)
	} else if !errors.As(err, &down) || !strings.HasPrefix(err.Error(), "redisstore: claim: ") {
		t.Errorf("error %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{newRequest("claimed"), newRequest("completed"), req})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []oncepipe.ClaimStatus{oncepipe.ClaimBusy, oncepipe.ClaimCompleted, oncepipe.ClaimAcquired} {
		if answers[i].Status != want {
			t.Errorf("answer %d: %v, want %v", i, answers[i].Status, want)
		}
	}
}
