package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

func TestContract(t *testing.T) {
	oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		synctest.Test(t, func(t *testing.T) {
			const maxResult = 1000
			check(t, oncetest.StoreEnv{
				Store:     memstore.New(memstore.Config{Retention: time.Hour, MaxResult: maxResult}),
				Advance:   time.Sleep,
				Retention: time.Hour,
				MaxResult: maxResult,
			})
		})
	})
}

func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Config{})
		if got := st.Retention(); got != 7*24*time.Hour {
			t.Errorf("retention %v", got)
		}
		id := oncepipe.RecordID{Key: "k"}
		claim := oncepipe.NewClaimID()
		if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{{RecordID: id, Claim: claim, Lease: time.Second}}); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Complete(t.Context(), []oncepipe.Completion{{RecordID: id, Claim: claim}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7*24*time.Hour - 1)
		if n, err := st.Prune(t.Context(), 1); n != 0 || err != nil {
			t.Errorf("pruned %d, %v before the retention is over", n, err)
		}
		time.Sleep(time.Nanosecond)
		if n, err := st.Prune(t.Context(), 1); n != 1 || err != nil || st.Len() != 0 {
			t.Errorf("pruned %d, %v; %d left", n, err, st.Len())
		}
	})
}

func ExampleStore() {
	ctx := oncepipe.WithKey(context.Background(), "order-42")
	st := memstore.New(memstore.Config{})
	id, _ := oncepipe.StepID(ctx, "charge")

	mine := oncepipe.ClaimRequest{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: time.Minute}
	theirs := mine
	theirs.Claim = oncepipe.NewClaimID()

	answers, _ := st.Claim(ctx, []oncepipe.ClaimRequest{mine, theirs})
	fmt.Println(answers[0].Status, answers[1].Status)

	st.Complete(ctx, []oncepipe.Completion{{RecordID: id, Claim: mine.Claim, Result: []byte("receipt 7"), HasResult: true}})
	answers, _ = st.Claim(ctx, []oncepipe.ClaimRequest{theirs})
	fmt.Printf("%v: %s\n", answers[0].Status, answers[0].Result)
	// Output:
	// acquired busy
	// completed: receipt 7
}
