package handler

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// charging is a service with two effects: a row, and a charge at the provider.
func charging(newHandler func(db *sql.DB, client *http.Client) Handler) oncetest.Service[Order] {
	return oncetest.Service[Order]{
		Message:   newOrder,
		Schedules: schedules,
		New: func(w *oncetest.World) oncetest.Program[Order] {
			file, pr := newDatabase(w, uniqueOrders), newProvider()
			return oncetest.Program[Order]{
				Start: func(p *oncetest.Process) Handler {
					return newHandler(oncetest.StepDB(p, file), &http.Client{Transport: stepTransport{p, pr}})
				},
				Effects: func(o Order) int { return worst(pr.count(o), file.count("orders", o)) },
			}
		},
	}
}

// worst is the number to judge two effects by: one that is there too often, else
// one that is missing.
func worst(a, b int) int {
	if a > 1 || b > 1 {
		return max(a, b)
	}
	return min(a, b)
}

func Example_chargeInTx() {
	fmt.Println(oncetest.CheckHandler(charging(ChargeInTx)))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: begin, insert orders, POST /charges, its reply is lost, returns an error: Post "https://pay.example/charges": POST /charges: injected failure
	//    2. order-1 comes again: begin, insert orders, POST /charges → 2 effects
}

func Example_chargeInTx_killed() {
	s := charging(ChargeInTx)
	s.Replay = "1:crash-after@3" // one message, and the process is killed after the third step
	fmt.Println(oncetest.CheckHandler(s))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: begin, insert orders, POST /charges, then the process is killed
	//    2. order-1 comes again: begin, insert orders, POST /charges → 2 effects
}

func Example_chargeWithNewKey() {
	fmt.Println(oncetest.CheckHandler(charging(ChargeWithNewKey)))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: begin, insert orders, POST /charges, its reply is lost, returns an error: Post "https://pay.example/charges": POST /charges: injected failure
	//    2. order-1 comes again: begin, insert orders, POST /charges → 2 effects
}

func Example_chargeWithKey() {
	fmt.Println(oncetest.CheckHandler(charging(ChargeWithKey)))
	// Output:
	// <nil>
}

// remembering is a service with a store, and a provider that takes no keys.
func remembering(newHandler func(st oncepipe.Store, client *http.Client) Handler) oncetest.Service[Order] {
	return oncetest.Service[Order]{
		Message: newOrder,
		New: func(*oncetest.World) oncetest.Program[Order] {
			st, pr := memstore.New(memstore.Config{}), newProvider()
			return oncetest.Program[Order]{
				Start: func(p *oncetest.Process) Handler {
					return newHandler(p.Store(st), &http.Client{Transport: stepTransport{p, pr}})
				},
				Effects: pr.count,
			}
		},
	}
}

func Example_chargeOnce() {
	fmt.Println(oncetest.CheckHandler(remembering(ChargeOnce)))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: claim, POST /charges (1 effect), its reply is lost, release, returns an error: Post "https://pay.example/charges": POST /charges: injected failure
	//    2. order-1 comes again: claim, POST /charges → 2 effects
}

func Example_chargeAtMostOnce() {
	fmt.Println(oncetest.CheckHandler(remembering(ChargeAtMostOnce)))
	// Output:
	// <nil>
}

func Example_chargeAtMostOnce_killed() {
	s := remembering(func(store oncepipe.Store, client *http.Client) Handler {
		charge := ChargeAtMostOnce(store, client)
		return func(ctx context.Context, o Order) error {
			err := charge(ctx, o)
			if oncepipe.IsPermanent(err) {
				fmt.Println("dead letter:", err)
			}
			return err
		}
	})
	s.Replay = "1:crash-after@2"
	fmt.Println(oncetest.CheckHandler(s))
	// Output:
	// dead letter: once charge: oncepipe: unknown whether the effect happened
	// <nil>
}
