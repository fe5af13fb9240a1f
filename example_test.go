package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// Four deliveries of two orders, and a payment service that is down at first:
// each order is charged once. README.md shows this example.
func Example() {
	deliveries := slices.Values([]string{"order-1", "order-2", "order-1", "order-1"})
	store := memstore.New(memstore.Config{}) // sqlstore keeps its records beyond the process
	charged := map[string]int{}

	p := oncepipe.New("shop", oncepipe.Config{DeadLetters: oncepipe.DeadLettersIn(store, nil)}) // what is given up
	orders := oncepipe.FromSeq(p, "orders", deliveries)
	fresh := oncepipe.Dedup(orders, "dedup", func(id string) string { return id })
	charge := func(ctx context.Context, id string) (string, error) {
		info, _ := oncepipe.InfoFrom(ctx) // hand info.Token() on to a service that takes idempotency keys
		if info.Attempt == 1 {
			return "", errors.New("the payment service is down")
		}
		return "receipt for " + id, nil
	}
	receipts := oncepipe.Stage(fresh, "charge", oncepipe.Once(store, "charge", charge),
		oncepipe.Workers(8),
		oncepipe.Buffer(oncepipe.Fixed(64)),
		oncepipe.Retry(oncepipe.RetryPolicy{MaxAttempts: 8}))
	oncepipe.Sink(receipts, "file", func(_ context.Context, receipt string) error {
		charged[receipt]++ // a stage has one worker unless it says otherwise
		return nil
	})

	if err := p.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	s := p.Stats()
	fmt.Println(charged)
	fmt.Println("admitted", s.Admitted, "done", s.Done, "duplicate", s.Duplicate, "conserved", s.Conserved())
	// Output:
	// map[receipt for order-1:1 receipt for order-2:1]
	// admitted 4 done 2 duplicate 2 conserved true
}

// runExample runs a pipeline to its end.
func runExample(p *oncepipe.Pipeline) {
	if err := p.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
}

// printValue is a handler.
func printValue[T any](_ context.Context, v T) error {
	fmt.Println(v)
	return nil
}

// printLetter is a place for dead letters.
func printLetter(_ context.Context, l oncepipe.DeadLetter) error {
	fmt.Printf("dead letter from %s: %v (%s, attempts %d): %v\n", l.Stage, l.Value, l.Reason, l.Attempts, l.Err)
	return nil
}
