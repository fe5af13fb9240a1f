package oncetest_test

import (
	"context"
	"fmt"

	"github.com/oncepipe/oncepipe/oncetest"
)

type Order struct{ ID string }

// A handler that remembers in memory what it has done. In a test of your own,
// oncetest.Handler(t, …) is all that is different.
func ExampleCheckHandler() {
	err := oncetest.CheckHandler(oncetest.Service[Order]{
		Message: func(id, copy int) Order { return Order{ID: fmt.Sprint("order-", id)} },
		New: func(w *oncetest.World) oncetest.Program[Order] {
			rows := map[string]int{} // the database
			return oncetest.Program[Order]{
				Start: func(p *oncetest.Process) func(context.Context, Order) error {
					seen := map[string]bool{} // the memory of a process
					return func(ctx context.Context, o Order) error {
						if seen[o.ID] {
							return nil
						}
						seen[o.ID] = true
						return p.Step(ctx, "insert", func() error { rows[o.ID]++; return nil })
					}
				},
				Effects: func(o Order) int { return rows[o.ID] },
			}
		},
	})
	fmt.Println(err)
	// Output:
	// lost: message 1 is acknowledged, and its effect is not there
	//    1. message 1 is delivered: stands before "insert"
	//    2. message 1 comes again: ack
}
