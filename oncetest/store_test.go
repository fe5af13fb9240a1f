package oncetest_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// fakeClock is the clock of a store that no bubble is around.
type fakeClock struct{ past atomic.Int64 }

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.past.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.past.Add(int64(d)) }

// withMemstore is for CheckStore: stores that wrong made worse.
func withMemstore(wrong func(*memstore.Store) oncepipe.Store) func(func(oncetest.StoreEnv)) error {
	return func(check func(oncetest.StoreEnv)) error {
		var c fakeClock
		st := memstore.New(memstore.Config{Retention: time.Hour, MaxResult: 1000, Now: c.now})
		check(oncetest.StoreEnv{Store: wrong(st), Advance: c.advance, Retention: time.Hour, MaxResult: 1000})
		return nil
	}
}

// rulesIn are the numbers of the rules that err is about.
func rulesIn(err error) []string {
	if err == nil {
		return nil
	}
	var numbers []string
	for _, m := range regexp.MustCompile(`(?m)^(S[0-9]+\.[0-9]+) `).FindAllStringSubmatch(err.Error(), -1) {
		numbers = append(numbers, m[1])
	}
	return slices.Compact(numbers)
}

func TestCheckStore_Good(t *testing.T) {
	if err := oncetest.CheckStore(withMemstore(func(st *memstore.Store) oncepipe.Store { return st })); err != nil {
		t.Error(err)
	}
}

// panicking is a store that panics when it is pruned.
type panicking struct{ *memstore.Store }

func (panicking) Prune(context.Context, int) (int, error) { panic("no pruning here") }

// A panic is a failure of the rules that met it, in whatever goroutine, and of no
// other.
func TestCheckStore_Panic(t *testing.T) {
	err := oncetest.CheckStore(withMemstore(func(st *memstore.Store) oncepipe.Store { return panicking{st} }))
	want := []string{"S3.7", "S7.1", "S7.2", "S7.3", "S7.4", "S7.5", "S8.3", "S9.4"}
	if got := rulesIn(err); !slices.Equal(got, want) {
		t.Errorf("blamed %q, want %q", got, want)
	}
	if text := err.Error(); !strings.Contains(text, "no pruning here") || !strings.Contains(text, "panicking.Prune") {
		t.Errorf("the panic and its place are not told:\n%s", text)
	}
}

func TestCheckStore_With(t *testing.T) {
	good := withMemstore(func(st *memstore.Store) oncepipe.Store { return st })
	errSetup := errors.New("no database")
	all := len(rulesIn(oncetest.CheckStore(func(func(oncetest.StoreEnv)) error { return errSetup })))
	for _, c := range []struct {
		name string
		with func(func(oncetest.StoreEnv)) error
		want string
	}{
		{"error", func(func(oncetest.StoreEnv)) error { return errSetup }, "no database"},
		{"error of the cleaning", func(check func(oncetest.StoreEnv)) error { return errors.Join(good(check), errSetup) }, "no database"},
		{"panic", func(func(oncetest.StoreEnv)) error { panic("no server") }, "no server"},
		{"no check", func(func(oncetest.StoreEnv)) error { return nil }, "nothing was checked"},
		{"no store", func(check func(oncetest.StoreEnv)) error { check(oncetest.StoreEnv{}); return nil }, "no Store"},
		{"no clock", func(check func(oncetest.StoreEnv)) error {
			return good(func(env oncetest.StoreEnv) { env.Advance = nil; check(env) })
		}, "no Advance"},
		{"short retention", func(check func(oncetest.StoreEnv)) error {
			return good(func(env oncetest.StoreEnv) { env.Retention = time.Minute; check(env) })
		}, "Retention of 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := oncetest.CheckStore(c.with)
			if got := rulesIn(err); len(got) != all || !slices.Contains(got, "S1.1") {
				t.Errorf("blamed %q", got)
			}
			if err == nil || strings.Count(err.Error(), c.want) != all {
				t.Errorf("want %q for each rule, got %v", c.want, err)
			}
		})
	}
	if err := oncetest.CheckStore(func(func(oncetest.StoreEnv)) error { return errSetup }); !errors.Is(err, errSetup) {
		t.Errorf("the error is not wrapped: %v", err)
	}
}

func TestStoreRaces(t *testing.T) {
	rules := 0
	oncetest.StoreRaces(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		if rules++; !strings.Contains(t.Name(), "/S9.") {
			t.Errorf("%s is about one caller", t.Name())
		}
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New(memstore.Config{Retention: time.Hour})
			check(t, oncetest.StoreEnv{Store: st, Advance: time.Sleep, Retention: time.Hour})
		})
	})
	if rules == 0 {
		t.Error("no rule")
	}
}
