package handler

import (
	"context"
	"fmt"

	"github.com/oncepipe/oncepipe/oncetest"
)

func Example_plain() {
	err := oncetest.CheckHandler(oncetest.Service[Order]{
		Message: func(id, copy int) Order { return Order{ID: fmt.Sprint("order-", id), Cents: 500} },
		New: func(*oncetest.World) oncetest.Program[Order] {
			rows := map[string]int{} // the database: it outlives the process
			return oncetest.Program[Order]{
				Start: func(p *oncetest.Process) func(context.Context, Order) error {
					return Plain(func(ctx context.Context, o Order) error {
						return p.Step(ctx, "insert", func() error { rows[o.ID]++; return nil })
					})
				},
				Effects: func(o Order) int { return rows[o.ID] },
			}
		},
	})
	fmt.Println(err)
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: insert (1 effect), ack
	//    2. order-1 comes again: insert → 2 effects
}

func Example_plain_replay() {
	s := inMemory(Plain)
	s.Replay = "1:copy@1"
	fmt.Println(oncetest.CheckHandler(s))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: stands before "insert"
	//    2. order-1 comes again: insert (1 effect), ack
	//    3. the first run of order-1 goes on: insert → 2 effects
}

// inMemory is the service above with another handler.
func inMemory(newHandler func(insert Insert) Handler) oncetest.Service[Order] {
	return oncetest.Service[Order]{
		Message: newOrder,
		New: func(*oncetest.World) oncetest.Program[Order] {
			rows := map[string]int{}
			return oncetest.Program[Order]{
				Start: func(p *oncetest.Process) Handler {
					return newHandler(func(ctx context.Context, o Order) error {
						return p.Step(ctx, "insert", func() error { rows[o.ID]++; return nil })
					})
				},
				Effects: func(o Order) int { return rows[o.ID] },
			}
		},
	}
}

func newOrder(id, copy int) Order { return Order{ID: fmt.Sprint("order-", id), Cents: 500} }

func Example_checkThenAct() {
	fmt.Println(oncetest.CheckHandler(inMemory(CheckThenAct)))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: stands before "insert"
	//    2. order-1 comes again: insert (1 effect), ack
	//    3. the first run of order-1 goes on: insert → 2 effects
}

func Example_checkAndActLocked() {
	s := inMemory(CheckAndActLocked)
	s.Faults = oncetest.Duplicates | oncetest.Restarts
	fmt.Println(oncetest.CheckHandler(s))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: insert (1 effect), ack
	//    2. the process is restarted
	//    3. order-1 comes again: insert → 2 effects
}

func Example_markFirst() {
	fmt.Println(oncetest.CheckHandler(inMemory(MarkFirst)))
	// Output:
	// lost: order-1 is acknowledged, and its effect is not there
	//    1. order-1 is delivered: stands before "insert"
	//    2. order-1 comes again: ack
}
