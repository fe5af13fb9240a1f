package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// mechanism is a way to make an effect once that people use or propose.
type mechanism struct {
	name   string
	holds  bool // under every fault, which main checks
	window int  // the broker drops what is among the last so many keys that it was sent
	store  bool // it works on one
	dedup  bool // a guard in memory stands before the buffer
	start  func(s shop) handle
}

// handle is what a sink does with an order.
type handle = func(ctx context.Context, o *order) error

// shop is what a process has.
type shop struct {
	db    *sql.DB
	store *sqlstore.Store // nil if the mechanism doesn't work on one
	lease time.Duration
}

var mechanisms = []mechanism{
	{name: "nothing", start: charged(func(*order) string { return "" })},
	{name: "random token for each attempt", start: charged(func(*order) string { return rand.Text() })},
	{name: "key and nanoTime as token", start: charged(func(o *order) string { return fmt.Sprint(o.Key, "-", time.Now().UnixNano()) })},
	{name: "set in memory, check, then act", start: markAfter},
	{name: "set in memory, marked before", start: markBefore},
	{name: "window at the broker, 100 keys", window: 100, start: charged(func(*order) string { return "" })},
	{name: "window at the broker, all keys", window: math.MaxInt, start: charged(func(*order) string { return "" })},
	{name: "unique constraint", holds: true, start: onDB(bookUnique)},
	{name: "ON CONFLICT in the transaction", holds: true, start: onDB(bookMarked)},
	{name: "select, then insert, READ COMMITTED", start: onDB(bookReadCommitted)},
	{name: "select, then insert, SERIALIZABLE", holds: true, start: onDB(bookSerializable)},
	{name: "Tx", holds: true, store: true, start: bookTx},
	{name: "Once", store: true, start: onceWith(oncepipe.OnceConfig[*order, struct{}]{}, noToken)},
	{name: "Once, its token for the provider", holds: true, store: true, start: onceWith(oncepipe.OnceConfig[*order, struct{}]{}, infoToken)},
	{name: "Once, AtMostOnce", store: true, start: onceWith(oncepipe.OnceConfig[*order, struct{}]{AtMostOnce: true}, noToken)},
	{name: "Dedup, then Tx", holds: true, store: true, dedup: true, start: bookTx},
}

func charged(token func(o *order) string) func(s shop) handle {
	return func(s shop) handle {
		return func(ctx context.Context, o *order) error { return charge(ctx, s.db, o, token(o)) }
	}
}

func onDB(f func(ctx context.Context, db *sql.DB, o *order) error) func(s shop) handle {
	return func(s shop) handle {
		return func(ctx context.Context, o *order) error { return f(ctx, s.db, o) }
	}
}

// set is the atom: what a process remembers.
type set struct {
	mu sync.Mutex
	m  map[string]bool
}

func (s *set) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[key]
}

// add reports whether key is new.
func (s *set) add(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.m[key]
	s.m[key] = true
	return !known
}

func markAfter(s shop) handle {
	done := set{m: map[string]bool{}}
	return func(ctx context.Context, o *order) error {
		if done.has(o.Key) {
			return nil
		}
		if err := charge(ctx, s.db, o, ""); err != nil {
			return err
		}
		done.add(o.Key)
		return nil
	}
}

func markBefore(s shop) handle {
	begun := set{m: map[string]bool{}}
	return func(ctx context.Context, o *order) error {
		if !begun.add(o.Key) {
			return nil
		}
		return charge(ctx, s.db, o, "")
	}
}

func bookTx(s shop) handle {
	return sqlstore.TxDo(s.store, "book", func(ctx context.Context, tx *sql.Tx, o *order) error {
		return book(ctx, tx, o)
	})
}

// lease is what a killed process holds a key for. It is long enough for a busy
// machine, and all that Once waits for after a kill.
const lease = 500 * time.Millisecond

func onceWith(cfg oncepipe.OnceConfig[*order, struct{}], token func(ctx context.Context) string) func(s shop) handle {
	return func(s shop) handle {
		cfg := cfg
		cfg.Lease = s.lease
		return oncepipe.DoWith(s.store, "charge", cfg, func(ctx context.Context, o *order) error {
			return charge(ctx, s.db, o, token(ctx))
		})
	}
}

func noToken(context.Context) string { return "" }

func infoToken(ctx context.Context) string {
	info, _ := oncepipe.InfoFrom(ctx)
	return info.Token()
}
