package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
)

// One call for three items, and a result for each.
func ExampleBatchStage() {
	p := oncepipe.New("p", oncepipe.Config{})
	names := oncepipe.FromSeq(p, "names", slices.Values([]string{"ada", "bob", "cyd"}))
	greetings := oncepipe.BatchStage(names, "greet", func(_ context.Context, names []string) ([]string, error) {
		fmt.Println("batch of", len(names))
		out := make([]string, len(names))
		for i, name := range names {
			out[i] = "hello " + name
		}
		return out, nil
	}, oncepipe.BatchSize(3), oncepipe.BatchWait(time.Minute))
	oncepipe.Sink(greetings, "print", printValue)
	runExample(p)
	// Output:
	// batch of 3
	// hello ada
	// hello bob
	// hello cyd
}

// A batch that fails as a whole is cut until the item that is to blame stands
// alone. The others are done.
func ExampleBatchSink() {
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	rows := oncepipe.FromSeq(p, "rows", slices.Values([]string{"a", "b", "bad", "c"}))
	oncepipe.BatchSink(rows, "insert", func(_ context.Context, rows []string) error {
		if slices.Contains(rows, "bad") {
			fmt.Println("rolled back:", strings.Join(rows, " "))
			return errors.New("constraint violated")
		}
		fmt.Println("committed:", strings.Join(rows, " "))
		return nil
	}, oncepipe.BatchSize(4), oncepipe.BatchWait(time.Minute))
	runExample(p)
	// Output:
	// rolled back: a b bad c
	// committed: a b
	// rolled back: bad c
	// rolled back: bad
	// dead letter from insert: bad (exhausted, attempts 1): constraint violated
	// committed: c
}

// A function that knows which items failed says so: nothing is cut, and the
// others are done.
func ExampleBatchError() {
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	mails := oncepipe.FromSeq(p, "mails", slices.Values([]string{"ada", "", "cyd"}))
	oncepipe.BatchSink(mails, "send", func(_ context.Context, to []string) error {
		errs := make([]error, len(to))
		for i := range to {
			if to[i] == "" {
				errs[i] = oncepipe.Permanent(errors.New("no address"))
			}
		}
		return &oncepipe.BatchError{Errs: errs}
	}, oncepipe.BatchSize(3), oncepipe.BatchWait(time.Minute))
	runExample(p)
	fmt.Println("done", p.Stats().Done)
	// Output:
	// dead letter from send:  (permanent, attempts 1): no address
	// done 2
}

func ExampleBatchSize() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2, 3, 4, 5}))
	oncepipe.BatchSink(numbers, "print", func(_ context.Context, batch []int) error {
		fmt.Println(batch)
		return nil
	}, oncepipe.BatchSize(2), oncepipe.BatchWait(time.Minute))
	runExample(p)
	// Output:
	// [1 2]
	// [3 4]
	// [5]
}

// The batch doesn't get full, and there is more to come: it runs when its time is
// over.
func ExampleBatchWait() {
	p := oncepipe.New("p", oncepipe.Config{})
	ran := make(chan struct{}, 2)
	numbers := oncepipe.FromSeq(p, "numbers", func(yield func(int) bool) {
		if yield(1) {
			<-ran
			yield(2)
		}
	})
	oncepipe.BatchSink(numbers, "print", func(_ context.Context, batch []int) error {
		fmt.Println(batch)
		ran <- struct{}{}
		return nil
	}, oncepipe.BatchSize(100), oncepipe.BatchWait(100*time.Millisecond))
	runExample(p)
	// Output:
	// [1]
	// [2]
}

// What a batch function can know of its items.
func ExampleBatchFrom() {
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"pen", "ink"}))
	keyed := oncepipe.KeyBy(orders, func(order string) string { return "order-" + order })
	oncepipe.BatchSink(keyed, "book", func(ctx context.Context, orders []string) error {
		for i, info := range oncepipe.BatchFrom(ctx) {
			fmt.Println(orders[i], info.Key, "attempt", info.Attempt)
		}
		return nil
	}, oncepipe.BatchSize(2), oncepipe.BatchWait(time.Minute))
	runExample(p)
	// Output:
	// pen order-pen attempt 1
	// ink order-ink attempt 1
}

// Keys for a function that takes many items, where there is no pipeline.
func ExampleWithKeys() {
	ctx := oncepipe.WithKeys(context.Background(), "order-1", "order-2")
	for _, info := range oncepipe.BatchFrom(ctx) {
		fmt.Println(info.Key)
	}
	// Output:
	// order-1
	// order-2
}

// The records that a store's batch function acts on.
func ExampleBatchStepIDs() {
	ctx := oncepipe.WithKeys(context.Background(), "order-1", "order-2")
	ids, err := oncepipe.BatchStepIDs(ctx, "book")
	if err != nil {
		fmt.Println(err)
	}
	for _, id := range ids {
		fmt.Println(id.Namespace, id.Key)
	}
	_, err = oncepipe.BatchStepIDs(context.Background(), "book")
	fmt.Println(err)
	// Output:
	// book order-1
	// book order-2
	// oncepipe: item has no key
}

// A function that found the result of one of its items recorded says so.
func ExampleReplayedItem() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2, 3}))
	oncepipe.BatchSink(numbers, "book", func(ctx context.Context, batch []int) error {
		oncepipe.ReplayedItem(ctx, 1)
		return nil
	}, oncepipe.BatchSize(3), oncepipe.BatchWait(time.Minute))
	runExample(p)
	s := p.Stats().Stages[0]
	fmt.Println("done", s.Done, "of these replayed", s.Replayed)
	// Output:
	// done 3 of these replayed 1
}

// An outage is nobody's fault: the batch is tried again as it is.
func ExampleWholeBatch() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2, 3, 4}))
	calls := 0
	oncepipe.BatchSink(numbers, "insert", func(_ context.Context, batch []int) error {
		if calls++; calls == 1 {
			return oncepipe.WholeBatch(errors.New("database can't be reached"))
		}
		return nil
	}, oncepipe.BatchSize(4), oncepipe.BatchWait(time.Minute), oncepipe.Retry(soon))
	runExample(p)
	s := p.Stats().Stages[0]
	fmt.Println("done", s.Done, "retried", s.Retried)
	// Output:
	// done 4 retried 4
}
