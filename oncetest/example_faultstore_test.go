package oncetest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// The reply to a completion is lost: it is sent again, and the card is not charged
// again.
func ExampleFaultStore() {
	st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), nil)
	st.Next(oncetest.OpComplete, 1, oncetest.StoreFault{FailAfter: errors.New("connection reset")})

	charge := oncepipe.Once(st, "charge", func(_ context.Context, order string) (string, error) {
		fmt.Println("charging", order)
		return "receipt 7", nil
	})
	ctx := oncepipe.WithKey(context.Background(), "order-42")
	for range 2 {
		fmt.Println(charge(ctx, "order-42"))
	}
	fmt.Println("completions sent:", st.Calls(oncetest.OpComplete))
	// Output:
	// charging order-42
	// receipt 7 <nil>
	// receipt 7 <nil>
	// completions sent: 2
}

// The second claim of each key is met by a store that is away.
func ExampleNewFaultStore() {
	claims := map[oncepipe.RecordID]int{}
	st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), func(c oncetest.StoreCall) oncetest.StoreFault {
		if c.Op != oncetest.OpClaim {
			return oncetest.StoreFault{}
		}
		if claims[c.IDs[0]]++; claims[c.IDs[0]] == 2 {
			return oncetest.StoreFault{FailBefore: errors.New("no route to host")}
		}
		return oncetest.StoreFault{}
	})
	for range 3 {
		answers, err := st.Claim(context.Background(), []oncepipe.ClaimRequest{claimOf("k")})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(answers[0].Status)
	}
	// Output:
	// acquired
	// no route to host
	// busy
}

// Every operation is heard, here to write down what a handler does to its store.
func ExampleStepStore() {
	st := oncetest.StepStore(memstore.New(memstore.Config{}), func(_ context.Context, name string, do func() error) error {
		err := do()
		fmt.Println(name, err)
		return err
	})
	book := oncepipe.OnceDo(st, "book", func(context.Context, string) error {
		fmt.Println("booking")
		return nil
	})
	if err := book(oncepipe.WithKey(context.Background(), "order-42"), "order-42"); err != nil {
		fmt.Println(err)
	}
	// Output:
	// claim <nil>
	// booking
	// complete <nil>
}
