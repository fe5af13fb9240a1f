package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// A key that comes again gets the result that was recorded for it.
func ExampleOnce() {
	store := memstore.New(memstore.Config{})
	p := oncepipe.New("shop", oncepipe.Config{})
	orders := oncepipe.KeyBy(
		oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1", "order-1"})),
		func(id string) string { return id })
	receipts := oncepipe.Stage(orders, "charge", oncepipe.Once(store, "charge", func(_ context.Context, id string) (string, error) {
		fmt.Println("charging", id)
		return "receipt 1 for " + id, nil
	}))
	oncepipe.Sink(receipts, "print", printValue)
	runExample(p)
	// Output:
	// charging order-1
	// receipt 1 for order-1
	// receipt 1 for order-1
}

// Steps of one handler: what is done is not done again when a later step fails.
func ExampleOnceDo() {
	store := memstore.New(memstore.Config{})
	tries := 0
	charge := oncepipe.OnceDo(store, "charge", func(_ context.Context, id string) error {
		fmt.Println("charging", id)
		return nil
	})
	mail := oncepipe.OnceDo(store, "mail", func(_ context.Context, id string) error {
		if tries++; tries == 1 {
			return errors.New("mail server is down")
		}
		fmt.Println("mailing", id)
		return nil
	})

	p := oncepipe.New("shop", oncepipe.Config{})
	orders := oncepipe.KeyBy(
		oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"})),
		func(id string) string { return id })
	oncepipe.Sink(orders, "handle", func(ctx context.Context, id string) error {
		if err := charge(ctx, id); err != nil {
			return err
		}
		return mail(ctx, id)
	}, oncepipe.Retry(soon))
	runExample(p)
	// Output:
	// charging order-1
	// mailing order-1
}

// A payment whose answer never came is looked up, not made again.
func ExampleOnceWith() {
	store := memstore.New(memstore.Config{})
	pay := oncepipe.OnceWith(store, "pay", oncepipe.OnceConfig[int, string]{
		AtMostOnce: true,
		Resolve: func(ctx context.Context, cents int) (string, bool, error) {
			info, _ := oncepipe.InfoFrom(ctx)
			fmt.Println("looking up", info.Key)
			return "payment 17", true, nil
		},
	}, func(_ context.Context, cents int) (string, error) {
		fmt.Println("paying", cents)
		return "", errors.New("connection lost")
	})

	ctx := oncepipe.WithKey(context.Background(), "order-1")
	fmt.Println(pay(ctx, 1999))
	fmt.Println(pay(ctx, 1999))
	// Output:
	// paying 1999
	// looking up order-1
	// payment 17 <nil>
	// payment 17 <nil>
}

// The same key with another payload is an error.
func ExampleDoWith() {
	store := memstore.New(memstore.Config{})
	pay := oncepipe.DoWith(store, "pay", oncepipe.OnceConfig[int, struct{}]{
		Fingerprint: func(cents int) string { return fmt.Sprint(cents) },
	}, func(_ context.Context, cents int) error {
		fmt.Println("paying", cents)
		return nil
	})

	ctx := oncepipe.WithKey(context.Background(), "order-1")
	fmt.Println(pay(ctx, 1999))
	fmt.Println(pay(ctx, 1999))
	fmt.Println(pay(ctx, 2999))
	// Output:
	// paying 1999
	// <nil>
	// <nil>
	// once pay: oncepipe: key is known with another payload
}

// Without a pipeline: an HTTP handler that honours Idempotency-Key.
func ExampleWithKey() {
	charge := oncepipe.Once(memstore.New(memstore.Config{}), "charge", func(_ context.Context, item string) (string, error) {
		fmt.Println("charging for", item)
		return "receipt 1", nil
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := oncepipe.WithKey(r.Context(), r.Header.Get("Idempotency-Key"))
		receipt, err := charge(ctx, r.URL.Query().Get("item"))
		switch {
		case errors.Is(err, oncepipe.ErrBusy): // the first request is at it
			http.Error(w, err.Error(), http.StatusConflict)
		case errors.Is(err, oncepipe.ErrNoKey):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			fmt.Fprint(w, receipt)
		}
	})

	for _, key := range []string{"a1", "a1", ""} {
		r := httptest.NewRequest(http.MethodPost, "/charge?item=tea", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// charging for tea
	// 200
	// 200
	// 400
}

// The token goes to a service that takes idempotency keys. It is the same for
// every run of a step, and another one for another step.
func ExampleInfoFrom() {
	store := memstore.New(memstore.Config{})
	show := func(ctx context.Context, _ string) error {
		info, _ := oncepipe.InfoFrom(ctx)
		fmt.Println(info.Step, info.Key, info.Attempt, info.Token())
		if info.Attempt == 1 {
			return errors.New("no answer")
		}
		return nil
	}
	charge, refund := oncepipe.OnceDo(store, "charge", show), oncepipe.OnceDo(store, "refund", show)

	ctx := oncepipe.WithKey(context.Background(), "order-1")
	_, _, _ = charge(ctx, ""), charge(ctx, ""), refund(ctx, "")
	// Output:
	// charge order-1 1 7bc73090c621377fe5d1c511f2e834ff
	// charge order-1 2 7bc73090c621377fe5d1c511f2e834ff
	// refund order-1 1 ae9512b68bec623cad368085a58d282a
}

// What Once acts on: the record of a step, for looking it up.
func ExampleStepID() {
	store := memstore.New(memstore.Config{})
	ctx := oncepipe.WithKey(context.Background(), "order-1")
	charge := oncepipe.OnceDo(store, "charge", func(context.Context, string) error { return oncepipe.Permanent(errors.New("card expired")) })
	_ = charge(ctx, "tea")

	id, _ := oncepipe.StepID(ctx, "charge")
	records, _ := store.Lookup(ctx, []oncepipe.RecordID{id})
	fmt.Println(id.Namespace, id.Key, records[0].State, records[0].Reason)
	// Output:
	// charge order-1 failed card expired
}

// A function of your own that remembers results says when it returned one.
func ExampleReplayed() {
	known := map[string]string{}
	p := oncepipe.New("shop", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1", "order-1"}))
	oncepipe.Discard(oncepipe.Stage(orders, "charge", func(ctx context.Context, id string) (string, error) {
		if receipt, ok := known[id]; ok {
			oncepipe.Replayed(ctx)
			return receipt, nil
		}
		known[id] = "receipt for " + id
		return known[id], nil
	}))
	runExample(p)
	s := p.Stats().Stages[0]
	fmt.Println("done", s.Done, "of which replayed", s.Replayed)
	// Output:
	// done 2 of which replayed 1
}
