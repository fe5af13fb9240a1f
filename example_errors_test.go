package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// An error that no retry can mend. The dead letter shows the cause.
func ExamplePermanent() {
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	oncepipe.Sink(orders, "book", func(context.Context, string) error {
		return oncepipe.Permanent(errors.New("unknown product"))
	}, oncepipe.Retry(soon))
	runExample(p)
	// Output:
	// dead letter from book: order-1 (permanent, attempts 1): unknown product
}

func ExampleIsPermanent() {
	err := errors.New("unknown product")
	fmt.Println(oncepipe.IsPermanent(err))
	fmt.Println(oncepipe.IsPermanent(oncepipe.Permanent(err)))
	fmt.Println(oncepipe.IsPermanent(fmt.Errorf("order-1: %w", backoff.Permanent(err))))
	// Output:
	// false
	// true
	// true
}

// The service has said when to come again. That is the delay, in place of the
// backoff.
func ExampleRetryAfter() {
	p := oncepipe.New("p", oncepipe.Config{Observers: []oncepipe.Observer{func(e oncepipe.Event) {
		if e.Kind == oncepipe.EventRetried {
			fmt.Println("again in", e.Delay, "after:", e.Err)
		}
	}}})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	oncepipe.Sink(orders, "call", func(ctx context.Context, _ string) error {
		if info, _ := oncepipe.InfoFrom(ctx); info.Attempt == 1 {
			return oncepipe.RetryAfter(5*time.Millisecond, errors.New("429 Too Many Requests"))
		}
		return nil
	}, oncepipe.Retry(oncepipe.RetryPolicy{}))
	runExample(p)
	// Output:
	// again in 5ms after: 429 Too Many Requests
}

// "Not yet" is no failure: it uses up no attempt.
func ExampleSnooze() {
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	asked := 0
	oncepipe.Sink(orders, "ship", func(ctx context.Context, _ string) error {
		info, _ := oncepipe.InfoFrom(ctx)
		fmt.Println("attempt", info.Attempt)
		if asked++; asked < 3 {
			return oncepipe.Snooze(time.Millisecond)
		}
		return nil
	}, oncepipe.Retry(oncepipe.RetryPolicy{MaxAttempts: 1}))
	runExample(p)
	fmt.Println("snoozed", p.Stats().Stages[0].Snoozed)
	// Output:
	// attempt 1
	// attempt 1
	// attempt 1
	// snoozed 2
}

// The connection broke after the request was sent: it may have been served. Under
// AtMostOnce that is not tried again; a person gets it.
func ExampleUnknown_atMostOnce() {
	store := memstore.New(memstore.Config{})
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	keyed := oncepipe.KeyBy(orders, func(id string) string { return id })
	cfg := oncepipe.OnceConfig[string, struct{}]{AtMostOnce: true}
	oncepipe.Sink(keyed, "pay", oncepipe.DoWith(store, "pay", cfg, func(context.Context, string) error {
		return oncepipe.Unknown(errors.New("connection reset"))
	}), oncepipe.Retry(soon))
	runExample(p)
	// Output:
	// dead letter from pay: order-1 (unknown, attempts 1): once pay: oncepipe: unknown whether the effect happened: connection reset
}

// The connection was refused, so the request was never sent. That may be tried
// again under AtMostOnce too.
func ExampleNotApplied_atMostOnce() {
	store := memstore.New(memstore.Config{})
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	keyed := oncepipe.KeyBy(orders, func(id string) string { return id })
	cfg := oncepipe.OnceConfig[string, struct{}]{AtMostOnce: true}
	oncepipe.Sink(keyed, "pay", oncepipe.DoWith(store, "pay", cfg, func(ctx context.Context, id string) error {
		if info, _ := oncepipe.InfoFrom(ctx); info.Attempt == 1 {
			return oncepipe.NotApplied(errors.New("connection refused"))
		}
		fmt.Println("paid", id)
		return nil
	}), oncepipe.Retry(soon))
	runExample(p)
	// Output:
	// paid order-1
}

// A claim's id is chosen by whoever claims, so that a claim whose reply was lost
// can be repeated.
func ExampleNewClaimID() {
	a, b := oncepipe.NewClaimID(), oncepipe.NewClaimID()
	fmt.Println(len(a.String()), a == b)
	// Output:
	// 32 false
}

func ExampleIsWholeBatch() {
	down := errors.New("connection refused")
	fmt.Println(oncepipe.IsWholeBatch(oncepipe.WholeBatch(down)), oncepipe.IsWholeBatch(down))
	// Output: true false
}
