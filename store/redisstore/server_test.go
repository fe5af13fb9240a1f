package redisstore

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestR68_EvictionIsRefused(t *testing.T) {
	const unknown = "doesn't tell"
	for name, c := range map[string]struct {
		config, info func([]string) string
		cfg          Config
		err          error
		warning      string
	}{
		"noeviction":                    {config: policy("noeviction")},
		"only what has a time to live":  {config: policy("volatile-lru")},
		"allkeys-lru":                   {config: policy("allkeys-lru"), err: ErrEviction},
		"allkeys-random":                {config: policy("allkeys-random"), err: ErrEviction},
		"one that nobody knows":         {config: policy("newest-first"), err: ErrEviction},
		"allowed":                       {config: policy("allkeys-lfu"), cfg: Config{AllowEviction: true}, warning: "allkeys-lfu"},
		"CONFIG is forbidden":           {config: reply(forbidden)},
		"INFO tells":                    {config: reply(forbidden), info: text("maxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"), err: ErrEviction},
		"CONFIG has no such value":      {config: reply(bulk()), info: text("maxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"), err: ErrEviction},
		"nobody tells":                  {config: reply(forbidden), info: text("aof_enabled:1\r\n"), warning: unknown},
		"nobody tells, refused":         {config: reply(forbidden), info: text("aof_enabled:1\r\n"), cfg: Config{RefuseUnknownPolicy: true}, err: ErrEviction},
		"no append-only file":           {info: text("aof_enabled:0\r\n"), warning: "append-only"},
		"INFO is forbidden":             {info: reply(forbidden), warning: "append-only"},
		"neither CONFIG nor INFO":       {config: reply(forbidden), info: reply(forbidden), warning: unknown},
		"it hangs up at CONFIG":         {config: reply(""), err: errAny},
		"it hangs up at INFO":           {info: reply(""), err: errAny},
		"allowed, but it doesn't tell":  {config: reply(forbidden), info: text("aof_enabled:1\r\n"), cfg: Config{AllowEviction: true}, warning: unknown},
		"refused unless it tells, does": {config: policy("noeviction"), cfg: Config{RefuseUnknownPolicy: true}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			if c.config != nil {
				f.on("config", c.config)
			}
			if c.info != nil {
				f.on("info", c.info)
			}
			var log bytes.Buffer
			c.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			st, err := Open(t.Context(), f.client(), c.cfg)
			switch {
			case c.err == nil && err != nil, c.err == errAny && err == nil, c.err == ErrEviction && !errors.Is(err, ErrEviction):
				t.Errorf("error %v, want %v", err, c.err)
			case c.err == errAny && errors.Is(err, ErrEviction):
				t.Errorf("an outage is taken for a policy: %v", err)
			case (err == nil) != (st != nil):
				t.Errorf("store %v, error %v", st, err)
			}
			if c.warning == "" && c.err == nil && log.Len() > 0 || !strings.Contains(log.String(), c.warning) {
				t.Errorf("warnings %q, want %q", log.String(), c.warning)
			}
		})
	}
}

var errAny = errors.New("any error but ErrEviction")

func TestOpenRefusesKeysOfAnotherVersion(t *testing.T) {
	for _, found := range [][]string{{"schema", "2", "keys", "1"}, {"schema", "1", "keys", "2"}, {"schema", "1"}, {"schema", "one", "keys", "1"}} {
		f := newFake(t)
		f.on("evalsha", reply(bulk(found...)))
		if _, err := Open(t.Context(), f.client(), Config{}); !errors.Is(err, ErrSchema) {
			t.Errorf("%q: %v", found, err)
		}
	}
}

func TestOpenRefusesWhatCantBeMeant(t *testing.T) {
	f := newFake(t)
	for _, cfg := range []Config{
		{Prefix: "a{b}"},
		{Prefix: "a b"},
		{Prefix: strings.Repeat("p", 101)},
		{Retention: -1},
		{MaxResult: -1},
	} {
		if _, err := Open(t.Context(), f.client(), cfg); err == nil {
			t.Errorf("%+v accepted", cfg)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": f.listener.Addr().String()}})
	defer ring.Close()
	if _, err := Open(t.Context(), ring, Config{}); err == nil || !strings.Contains(err.Error(), "Ring") {
		t.Errorf("ring: %v", err)
	}
}
