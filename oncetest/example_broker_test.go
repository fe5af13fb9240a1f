package oncetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

// A broker that delivers every message twice, and takes one back that is held for
// longer than half a minute. In a test, the bubble is that of synctest.Test(t, …).
func ExampleBroker() {
	synctest.Test(new(testing.T), func(*testing.T) {
		b := oncetest.NewBroker(oncetest.BrokerConfig[string]{
			Key:        func(order string) string { return order },
			Hold:       30 * time.Second,
			Duplicates: 1,
		})
		b.Send("order-1", "order-2")
		b.Close()

		p := oncepipe.New("shop", oncepipe.Config{})
		orders := oncepipe.Dedup(oncepipe.From(p, "orders", b), "dedup", func(order string) string { return order })
		charged, open := map[string]int{}, false
		oncepipe.Sink(orders, "charge", func(_ context.Context, order string) error {
			time.Sleep(time.Second) // of the bubble: meanwhile the copies come
			if order == "order-2" && !open {
				open = true
				return oncepipe.RetryAfter(time.Hour, errors.New("bank is closed")) // too long to hold it
			}
			charged[order]++
			return nil
		}, oncepipe.Retry(oncepipe.RetryPolicy{}))

		fmt.Println("Run:", p.Run(context.Background()))
		fmt.Println("Check:", b.Check())
		fmt.Println("charged:", charged)
		for _, order := range []string{"order-1", "order-2"} {
			fmt.Println(order, b.Outcomes(order))
		}
	})
	// Output:
	// Run: <nil>
	// Check: <nil>
	// charged: map[order-1:1 order-2:1]
	// order-1 [done duplicate]
	// order-2 [returned returned done duplicate]
}

// A delivery that its consumer forgets is blamed, at the end.
func ExampleBroker_Check() {
	b := oncetest.NewBroker(oncetest.BrokerConfig[string]{})
	b.Send("order-1", "order-2")
	ctx := context.Background()
	for range 2 {
		d, err := b.Receive(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		if d.Value == "order-1" {
			fmt.Println("settle:", d.Settle(ctx, oncepipe.Settlement{Outcome: oncepipe.Done}))
		}
	}
	fmt.Println(b.Check())
	// Output:
	// settle: <nil>
	// oncetest: broker: delivery 2 (message 2, key "", attempt 1) was never settled
}
