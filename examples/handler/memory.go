package handler

import (
	"context"
	"sync"
)

// Insert books an order: a row in a database.
type Insert func(ctx context.Context, o Order) error

// Plain trusts that an order comes once.
func Plain(insert Insert) Handler {
	return func(ctx context.Context, o Order) error { return insert(ctx, o) }
}

// CheckThenAct remembers in memory what it has done.
func CheckThenAct(insert Insert) Handler {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(ctx context.Context, o Order) error {
		mu.Lock()
		done := seen[o.ID]
		mu.Unlock()
		if done {
			return nil
		}
		if err := insert(ctx, o); err != nil {
			return err
		}
		mu.Lock()
		seen[o.ID] = true
		mu.Unlock()
		return nil
	}
}

// CheckAndActLocked does the same, one order at a time.
func CheckAndActLocked(insert Insert) Handler {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(ctx context.Context, o Order) error {
		mu.Lock()
		defer mu.Unlock()
		if seen[o.ID] {
			return nil
		}
		if err := insert(ctx, o); err != nil {
			return err
		}
		seen[o.ID] = true
		return nil
	}
}

// MarkFirst leaves no time between looking and marking.
func MarkFirst(insert Insert) Handler {
	var seen sync.Map
	return func(ctx context.Context, o Order) error {
		if _, marked := seen.LoadOrStore(o.ID, true); marked {
			return nil
		}
		return insert(ctx, o)
	}
}
