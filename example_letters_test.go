package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// charge refuses orders for as long as there is no price.
type charge struct{ price int }

func (c *charge) do(_ context.Context, order string) error {
	if c.price == 0 {
		return oncepipe.Permanent(errors.New("no price"))
	}
	fmt.Println("charged", order, c.price)
	return nil
}

// failOrders runs orders through a stage that gives them up, with dead letters
// in st.
func failOrders(st oncepipe.Store, c *charge, orders ...string) {
	p := oncepipe.New("shop", oncepipe.Config{DeadLetters: oncepipe.DeadLettersIn(st, nil)})
	in := oncepipe.KeyBy(oncepipe.FromSeq(p, "orders", slices.Values(orders)), func(id string) string { return id })
	oncepipe.Sink(in, "charge", oncepipe.OnceDo(st, "charge", c.do))
	runExample(p)
}

// printRecord reads a record.
func printRecord(st oncepipe.Store, id oncepipe.RecordID) {
	recs, err := st.Lookup(context.Background(), []oncepipe.RecordID{id})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %s: %v %s %s\n", id.Namespace, id.Key, recs[0].State, recs[0].Payload, recs[0].Reason)
}

// The letter is the record of the step that has the stage's name.
func ExampleDeadLettersIn() {
	st := memstore.New(memstore.Config{})
	failOrders(st, &charge{}, "order-1")
	printRecord(st, oncepipe.RecordID{Namespace: oncepipe.Key("shop", "charge"), Key: "order-1"})
	// Output:
	// shop/charge order-1: failed "order-1" permanent: no price
}

// What a person has to look at: letters, and what nobody knows the end of.
func ExampleRecords() {
	st := memstore.New(memstore.Config{})
	failOrders(st, &charge{}, "order-1", "order-2")
	for _, state := range []oncepipe.State{oncepipe.StateFailed, oncepipe.StateUnknown} {
		for r, err := range oncepipe.Records(context.Background(), st, oncepipe.Query{State: state}) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(r.Namespace, r.Key, r.State)
		}
	}
	// Output:
	// shop/charge order-1 failed
	// shop/charge order-2 failed
}

// Where the pipeline runs in this process, a letter can be injected as well: the
// stage's Once takes the failed record up.
func ExampleRedrive() {
	st := memstore.New(memstore.Config{})
	failOrders(st, &charge{}, "order-1", "order-2")
	ctx := context.Background()
	letters, err := st.List(ctx, oncepipe.Query{State: oncepipe.StateFailed, Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(oncepipe.Redrive(ctx, st, letters))
	fmt.Println(oncepipe.Redrive(ctx, st, letters)) // it is no longer what was looked at
	printRecord(st, letters[0].RecordID)
	// Output:
	// [true] <nil>
	// [false] <nil>
	// shop/charge order-1: waiting "order-1" permanent: no price
}

func ExampleRedriveAll() {
	st := memstore.New(memstore.Config{})
	failOrders(st, &charge{}, "order-1", "order-2")
	redriven, left, err := oncepipe.RedriveAll(context.Background(), st, oncepipe.Key("shop", "charge"))
	fmt.Println(redriven, left, err)
	// Output:
	// 2 0 <nil>
}

// The way back into the pipeline: the source stands beside the one of the stage.
func ExampleRedriven() {
	st := memstore.New(memstore.Config{})
	c := &charge{}
	failOrders(st, c, "order-1")
	c.price = 5

	p := oncepipe.New("shop", oncepipe.Config{DeadLetters: oncepipe.DeadLettersIn(st, nil)})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-2"}))
	again := oncepipe.From(p, "redriven", oncepipe.Redriven(st, oncepipe.Key("shop", "charge"),
		oncepipe.RedrivenConfig[string]{Interval: 10 * time.Millisecond}))
	in := oncepipe.Merge(oncepipe.KeyBy(orders, func(id string) string { return id }), again)
	ctx, cancel := context.WithCancel(context.Background())
	oncepipe.Sink(in, "charge", oncepipe.OnceDo(st, "charge", func(ctx context.Context, order string) error {
		if order == "order-1" {
			defer cancel() // the example is over
			return c.do(ctx, order)
		}
		err := c.do(ctx, order)
		if err == nil { // a person, or the command: oncepipe redrive all
			_, _, err = oncepipe.RedriveAll(ctx, st, "")
		}
		return err
	}))
	if err := p.Run(ctx); err != nil {
		fmt.Println(err)
	}
	printRecord(st, oncepipe.RecordID{Namespace: oncepipe.Key("shop", "charge"), Key: "order-1"})
	// Output:
	// charged order-2 5
	// charged order-1 5
	// shop/charge order-1: completed
}
