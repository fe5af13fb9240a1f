package oncepipe_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
)

func ExampleDedup() {
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1", "order-2", "order-1"}))
	fresh := oncepipe.Dedup(orders, "dedup", func(id string) string { return id })
	oncepipe.Sink(fresh, "book", printValue)
	runExample(p)
	s := p.Stats()
	fmt.Println("done", s.Done, "duplicate", s.Duplicate)
	// Output:
	// order-1
	// order-2
	// done 2 duplicate 1
}

// A key that comes again with another payload is not a duplicate but a mistake
// of its sender: it goes to a person.
func ExampleDedupFingerprint() {
	type order struct {
		ID     string
		Amount int
	}
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]order{{"order-1", 10}, {"order-1", 99}}))
	fresh := oncepipe.DedupFingerprint(orders, "dedup",
		func(o order) string { return o.ID },
		func(o order) string { return fmt.Sprint(o.Amount) })
	oncepipe.Discard(fresh)
	runExample(p)
	// Output:
	// dead letter from dedup: {order-1 99} (mismatch, attempts 0): oncepipe: key is known with another payload
}

// A guard may outlive a pipeline; the next one knows the keys of the first.
func ExampleWithGuard() {
	guard := oncepipe.LRU(1000)
	for range 2 {
		p := oncepipe.New("p", oncepipe.Config{})
		orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
		fresh := oncepipe.Dedup(orders, "dedup", func(id string) string { return id }, oncepipe.WithGuard(guard))
		oncepipe.Discard(fresh)
		runExample(p)
		s := p.Stats()
		fmt.Println("done", s.Done, "duplicate", s.Duplicate)
	}
	// Output:
	// done 1 duplicate 0
	// done 0 duplicate 1
}

// One copy may wait for the first one. The next finds no place and is returned
// to its source, which may send it again after a second.
func ExampleJoinLimit() {
	p := oncepipe.New("p", oncepipe.Config{})
	copies, returned := 0, make(chan struct{})
	orders := oncepipe.From(p, "orders", oncepipe.SourceFunc[string](func(ctx context.Context) (oncepipe.Delivery[string], error) {
		if copies == 3 {
			<-ctx.Done()
			return oncepipe.Delivery[string]{}, ctx.Err()
		}
		copies++
		return oncepipe.Delivery[string]{Value: "order-1", Settle: func(_ context.Context, s oncepipe.Settlement) error {
			if s.Outcome == oncepipe.Returned {
				fmt.Println(s.Outcome, s.Delay)
				close(returned)
			}
			return nil
		}}, nil
	}))
	fresh := oncepipe.Dedup(orders, "dedup", func(id string) string { return id }, oncepipe.JoinLimit(1, 100, time.Second))
	ctx, stop := context.WithCancel(context.Background())
	oncepipe.Sink(fresh, "book", func(context.Context, string) error {
		<-returned // all copies have come
		stop()
		return nil
	})
	if err := p.Run(ctx); err != nil {
		fmt.Println(err)
	}
	s := p.Stats()
	fmt.Println("done", s.Done, "duplicate", s.Duplicate, "returned", s.Returned)
	// Output:
	// returned 1s
	// done 1 duplicate 1 returned 1
}
