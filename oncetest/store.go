package oncetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest/internal/storetest"
)

// StoreEnv is an empty store and what the rules need to know of it.
type StoreEnv struct {
	Store oncepipe.Store

	// Advance lets the store's clock go on by d: leases, backoffs and retentions
	// are judged by it. It may be called from several goroutines.
	Advance func(d time.Duration)

	// Retention is what the store was made with; at least an hour.
	Retention time.Duration

	// MaxResult is the size in bytes of the largest result that the store
	// records, or 0 when it takes any size.
	MaxResult int
}

// Store checks every rule of docs/store-contract.md in a subtest of its own, which
// bears the rule's number and name. with makes a new store for the rule and calls
// check in the goroutine that it was called in itself, so it can put a synctest
// bubble around both:
//
//	oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
//		synctest.Test(t, func(t *testing.T) {
//			st := memstore.New(memstore.Config{Retention: time.Hour})
//			check(t, oncetest.StoreEnv{Store: st, Advance: time.Sleep, Retention: time.Hour})
//		})
//	})
//
// A panic of the store in a call is a failure of that rule alone. A store that
// never answers is ended by go test's own time limit.
func Store(t *testing.T, with func(t *testing.T, check func(t *testing.T, env StoreEnv))) {
	t.Helper()
	storeRules(t, storetest.Rules(), with)
}

// StoreRaces is Store for the rules that are about several callers at once. A
// store whose database has levels of isolation should pass them at each.
func StoreRaces(t *testing.T, with func(t *testing.T, check func(t *testing.T, env StoreEnv))) {
	t.Helper()
	storeRules(t, storetest.Races(), with)
}

var errUnchecked = errors.New("with did not call check: nothing was checked")

func storeRules(t *testing.T, rules []storetest.Rule, with func(*testing.T, func(*testing.T, StoreEnv))) {
	t.Helper()
	for _, rule := range rules {
		t.Run(rule.String(), func(t *testing.T) {
			checked := false
			with(t, func(t *testing.T, env StoreEnv) {
				t.Helper()
				checked = true
				rule.Check(t, storetest.Env(env))
			})
			if !checked {
				t.Error(errUnchecked)
			}
		})
	}
}

// CheckStore is Store for other frameworks: it returns all that is wrong, joined,
// each error beginning with the number and the name of its rule, and nil for a
// store that keeps them all. with makes a new store for one rule, calls check, and
// cleans up. What it returns, or panics with, is an error of that rule, too.
func CheckStore(with func(check func(env StoreEnv)) error) error {
	var errs []error
	for _, rule := range storetest.Rules() {
		if err := checkStore(rule, with); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func checkStore(rule storetest.Rule, with func(check func(env StoreEnv)) error) error {
	checked := false
	var found []error
	err := recovered(func() error {
		return with(func(env StoreEnv) {
			checked = true
			found = append(found, rule.Err(storetest.Env(env)))
		})
	})
	if err == nil && !checked {
		err = errUnchecked
	}
	if err != nil {
		found = append(found, fmt.Errorf("%v: %w", rule, err))
	}
	return errors.Join(found...)
}

// recovered calls f and makes an error of its panic.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}
