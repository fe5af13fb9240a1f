package oncetest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// myStore stands for a store of your own. It looks at no limit when it prunes.
type myStore struct{ *memstore.Store }

func (s myStore) Prune(ctx context.Context, _ int) (int, error) {
	return s.Store.Prune(ctx, 1_000_000)
}

// A store is checked where no *testing.T is. Its clock is one that the checks can
// put forward.
func ExampleCheckStore() {
	err := oncetest.CheckStore(func(check func(oncetest.StoreEnv)) error {
		var now atomic.Int64
		st := myStore{memstore.New(memstore.Config{
			Retention: time.Hour,
			Now:       func() time.Time { return time.Unix(0, now.Load()) },
		})}
		check(oncetest.StoreEnv{
			Store:     st,
			Advance:   func(d time.Duration) { now.Add(int64(d)) },
			Retention: time.Hour,
		})
		return nil
	})
	fmt.Println(err)
	// Output:
	// S7.5 prune removes at most its limit: prune(0): 25, want 0
}

// The same with go test. A store that goes by time.Now is put into a synctest
// bubble, where time is fake; one with a server gets a clock that the test writes.
func ExampleStore() {
	TestMyStore := func(t *testing.T) {
		oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New(memstore.Config{Retention: time.Hour})
				check(t, oncetest.StoreEnv{Store: st, Advance: time.Sleep, Retention: time.Hour})
			})
		})
	}
	_ = TestMyStore
}

// Only the rules about several callers at once, at each level of isolation.
func ExampleStoreRaces() {
	open := func(t *testing.T, level string) oncetest.StoreEnv {
		t.Logf("a database at %s", level)
		var now atomic.Int64
		st := memstore.New(memstore.Config{Retention: time.Hour, Now: func() time.Time { return time.Unix(0, now.Load()) }})
		return oncetest.StoreEnv{Store: st, Advance: func(d time.Duration) { now.Add(int64(d)) }, Retention: time.Hour}
	}
	TestIsolation := func(t *testing.T) {
		for _, level := range []string{"read committed", "serializable"} {
			t.Run(level, func(t *testing.T) {
				oncetest.StoreRaces(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
					check(t, open(t, level))
				})
			})
		}
	}
	_ = TestIsolation
}

var _ oncepipe.Store = myStore{}
