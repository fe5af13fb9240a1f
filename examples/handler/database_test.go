package handler

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/oncepipe/oncepipe/oncetest"
)

// inDatabase is a service whose effects are the rows of a table.
func inDatabase(schema, table string, newHandler func(db *sql.DB) Handler) oncetest.Service[Order] {
	return oncetest.Service[Order]{
		Message:   newOrder,
		Schedules: schedules,
		New: func(w *oncetest.World) oncetest.Program[Order] {
			file := newDatabase(w, schema)
			return oncetest.Program[Order]{
				Start:   func(p *oncetest.Process) Handler { return newHandler(oncetest.StepDB(p, file)) },
				Effects: func(o Order) int { return file.count(table, o) },
			}
		},
	}
}

func Example_selectThenInsert() {
	s := inDatabase("CREATE TABLE orders (id TEXT, cents INTEGER)", "orders", SelectThenInsert)
	s.Faults = oncetest.TwoProcesses
	fmt.Println(oncetest.CheckHandler(s))
	// Output:
	// twice: order-1 has 2 effects
	//    1. order-1 is delivered: select orders, stands before "insert orders"
	//    2. order-1 comes again to process 2: select orders, insert orders (1 effect), ack
	//    3. the first run of order-1 goes on: insert orders → 2 effects
}

const uniqueOrders = "CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER)"

func Example_insertUnique() {
	fmt.Println(oncetest.CheckHandler(inDatabase(uniqueOrders, "orders", InsertUnique)))
	// Output:
	// <nil>
}

func TestInsertUnique(t *testing.T) {
	oncetest.Handler(t, inDatabase(uniqueOrders, "orders", InsertUnique))
}

const ledger = "CREATE TABLE done (id TEXT PRIMARY KEY); CREATE TABLE ledger (id TEXT, cents INTEGER)"

func Example_markBeside() {
	fmt.Println(oncetest.CheckHandler(inDatabase(ledger, "ledger", MarkBeside)))
	// Output:
	// lost: order-1 is acknowledged, and its effect is not there
	//    1. order-1 is delivered: insert done, its reply is lost, returns an error: insert done: injected failure
	//    2. order-1 comes again: insert done, ack
}

func Example_markWithin() {
	fmt.Println(oncetest.CheckHandler(inDatabase(ledger, "ledger", MarkWithin)))
	// Output:
	// <nil>
}
