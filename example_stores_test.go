package oncepipe_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// The second pipeline stands for the process after a restart: its guard knows
// nothing, but the store does.
func ExampleWithStore() {
	st := memstore.New(memstore.Config{}) // sqlstore in earnest
	for _, orders := range [][]string{{"order-1", "order-2"}, {"order-2", "order-3"}} {
		p := oncepipe.New("orders", oncepipe.Config{})
		in := oncepipe.FromSeq(p, "in", slices.Values(orders))
		fresh := oncepipe.Dedup(in, "dedup", func(id string) string { return id }, oncepipe.WithStore(st))
		oncepipe.Sink(fresh, "ship", func(_ context.Context, id string) error {
			fmt.Println("ship", id)
			return nil
		})
		runExample(p)
		s := p.Stats()
		fmt.Println(s.Done, "done,", s.Duplicate, "known to the store")
	}
	// Output:
	// ship order-1
	// ship order-2
	// 2 done, 0 known to the store
	// ship order-3
	// 1 done, 1 known to the store
}

// A key that another process has, and that its source can't take back, is waited
// for here, for as long as Wait allows.
func ExampleClaims() {
	ctx := context.Background()
	st := memstore.New(memstore.Config{})
	id := oncepipe.RecordID{Namespace: oncepipe.Key("orders", "dedup"), Key: "order-1"}
	_, err := st.Claim(ctx, []oncepipe.ClaimRequest{{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: time.Hour, Owner: "another process"}})
	if err != nil {
		fmt.Println(err)
	}

	p := oncepipe.New("orders", oncepipe.Config{})
	in := oncepipe.FromSeq(p, "in", slices.Values([]string{"order-1", "order-2"}))
	fresh := oncepipe.Dedup(in, "dedup", func(id string) string { return id }, oncepipe.WithStore(st),
		oncepipe.Claims(oncepipe.ClaimPolicy{Wait: 50 * time.Millisecond, Lease: time.Minute}))
	oncepipe.Sink(fresh, "ship", func(_ context.Context, id string) error {
		fmt.Println("ship", id)
		return nil
	})
	fmt.Println(p.Run(ctx))
	// Output:
	// ship order-2
	// oncepipe: 1 items were not finished and can't be given back; key "order-1" from in: oncepipe: key is claimed by another process
}

// A store that Once uses is named in Config.Stores: its claims are renewed
// together, what is over is pruned, and Stats tells of both.
func ExampleConfig() {
	st := memstore.New(memstore.Config{Retention: 30 * 24 * time.Hour})
	p := oncepipe.New("orders", oncepipe.Config{
		DrainTimeout: 20 * time.Second,
		Stores:       []oncepipe.Store{st},
		PruneEvery:   time.Hour,
	})
	in := oncepipe.FromSeq(p, "in", slices.Values([]string{"order-1", "order-2"}))
	keyed := oncepipe.KeyBy(in, func(id string) string { return id })
	oncepipe.Sink(keyed, "charge", oncepipe.OnceDo(st, "charge", func(_ context.Context, id string) error {
		fmt.Println("charge", id, "-", p.Stats().Stores[0].Held, "claim held")
		return nil
	}))
	runExample(p)
	fmt.Printf("%+v\n", p.Stats().Stores[0])
	// Output:
	// charge order-1 - 1 claim held
	// charge order-2 - 1 claim held
	// {Name:*memstore.Store Held:0 Renewed:0 RenewErrors:0 Pruned:0 PruneErrors:0}
}
