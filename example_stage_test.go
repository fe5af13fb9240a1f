package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
)

// soon is a policy for examples. The zero RetryPolicy is one for services.
var soon = oncepipe.RetryPolicy{
	MaxAttempts: 3,
	Backoff:     func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) },
}

func ExampleStage() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2, 3}))
	squares := oncepipe.Stage(numbers, "square", func(_ context.Context, n int) (int, error) { return n * n, nil })
	oncepipe.Sink(squares, "print", printValue)
	runExample(p)
	// Output:
	// 1
	// 4
	// 9
}

// What is given up comes out of the second stream, in place of a dead letter.
func ExampleTryStage() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2}))
	halves, failed := oncepipe.TryStage(numbers, "halve", func(_ context.Context, n int) (int, error) {
		if n%2 == 1 {
			return 0, errors.New("odd")
		}
		return n / 2, nil
	}, oncepipe.Retry(soon))
	results := oncepipe.Merge(
		oncepipe.Map(halves, func(n int) string { return fmt.Sprint("half: ", n) }),
		oncepipe.Map(failed, func(f oncepipe.Failed[int]) string {
			return fmt.Sprintf("%d failed %d times: %v", f.Value, f.Attempts, f.Err)
		}))
	oncepipe.Sink(results, "print", printValue)
	runExample(p)
	fmt.Println("done", p.Stats().Done)
	// Unordered output:
	// half: 1
	// 1 failed 3 times: oncepipe: attempts used up (3): odd
	// done 2
}

func ExampleSink() {
	p := oncepipe.New("p", oncepipe.Config{})
	words := oncepipe.FromSeq(p, "words", slices.Values([]string{"one", "two"}))
	oncepipe.Sink(words, "print", func(_ context.Context, word string) error {
		fmt.Println(word)
		return nil
	})
	runExample(p)
	// Output:
	// one
	// two
}

// Two workers are inside the handler at the same time.
func ExampleWorkers() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2}))
	var inside atomic.Int32
	both := make(chan struct{})
	oncepipe.Sink(numbers, "meet", func(context.Context, int) error {
		if inside.Add(1) == 2 {
			close(both)
		}
		<-both
		return nil
	}, oncepipe.Workers(2))
	runExample(p)
	fmt.Println("done", p.Stats().Done)
	// Output:
	// done 2
}

func ExampleBuffer() {
	p := oncepipe.New("p", oncepipe.Config{})
	words := oncepipe.FromSeq(p, "words", slices.Values([]string{"one", "two"}))
	oncepipe.Sink(words, "print", printValue, oncepipe.Buffer(oncepipe.Fixed(64)))
	runExample(p)
	fmt.Println("capacity", p.Stats().Stages[0].Capacity)
	// Output:
	// one
	// two
	// capacity 64
}

// Without places, an item is handed over from goroutine to goroutine.
func ExampleFixed() {
	p := oncepipe.New("p", oncepipe.Config{})
	words := oncepipe.FromSeq(p, "words", slices.Values([]string{"one", "two"}))
	oncepipe.Sink(words, "print", printValue, oncepipe.Buffer(oncepipe.Fixed(0)))
	runExample(p)
	// Output:
	// one
	// two
}

// The worker waits until all values have come: it has one, and two are in the
// buffer. Those that come after them are shed, counted and settled.
func ExampleDropping() {
	p := oncepipe.New("p", oncepipe.Config{})
	begun, sent := make(chan struct{}), make(chan struct{})
	numbers := oncepipe.FromSeq(p, "numbers", func(yield func(int) bool) {
		defer close(sent)
		for n := range 6 {
			if !yield(n) {
				return
			}
			if n == 0 {
				<-begun
			}
		}
	})
	oncepipe.Sink(numbers, "print", func(ctx context.Context, n int) error {
		if n == 0 {
			close(begun)
			<-sent
		}
		return printValue(ctx, n)
	}, oncepipe.Buffer(oncepipe.Dropping(2)))
	runExample(p)
	s := p.Stats()
	fmt.Println("done", s.Done, "shed", s.Shed)
	// Output:
	// 0
	// 1
	// 2
	// done 3 shed 3
}

// As with Dropping, but the oldest in the buffer make room for the newest.
func ExampleSliding() {
	p := oncepipe.New("p", oncepipe.Config{})
	begun, sent := make(chan struct{}), make(chan struct{})
	numbers := oncepipe.FromSeq(p, "numbers", func(yield func(int) bool) {
		defer close(sent)
		for n := range 6 {
			if !yield(n) {
				return
			}
			if n == 0 {
				<-begun
			}
		}
	})
	oncepipe.Sink(numbers, "print", func(ctx context.Context, n int) error {
		if n == 0 {
			close(begun)
			<-sent
		}
		return printValue(ctx, n)
	}, oncepipe.Buffer(oncepipe.Sliding(2)))
	runExample(p)
	s := p.Stats()
	fmt.Println("done", s.Done, "shed", s.Shed)
	// Output:
	// 0
	// 4
	// 5
	// done 3 shed 3
}

// A failed item is parked for its backoff, without a worker, and run again with
// the same key.
func ExampleRetry() {
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	keyed := oncepipe.KeyBy(orders, func(id string) string { return id })
	oncepipe.Sink(keyed, "book", func(ctx context.Context, _ string) error {
		info, _ := oncepipe.InfoFrom(ctx)
		fmt.Println("key", info.Key, "attempt", info.Attempt)
		if info.Attempt < 3 {
			return errors.New("the database is down")
		}
		return nil
	}, oncepipe.Retry(oncepipe.RetryPolicy{
		MaxAttempts: 8,
		Backoff: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Millisecond))
		},
	}))
	runExample(p)
	// Output:
	// key order-1 attempt 1
	// key order-1 attempt 2
	// key order-1 attempt 3
}

func ExampleTimeout() {
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	pages := oncepipe.FromSeq(p, "pages", slices.Values([]string{"slow page"}))
	oncepipe.Sink(pages, "fetch", func(ctx context.Context, _ string) error {
		<-ctx.Done() // a handler has to heed its context
		return ctx.Err()
	}, oncepipe.Timeout(time.Millisecond))
	runExample(p)
	// Output:
	// dead letter from fetch: slow page (exhausted, attempts 1): oncepipe: time limit of the attempt is over: context deadline exceeded
}

// turnstile counts who passes. golang.org/x/time/rate.Limiter has the same method.
type turnstile struct{ passed atomic.Int32 }

func (l *turnstile) Wait(context.Context) error {
	l.passed.Add(1)
	return nil
}

// Every attempt is asked, retries too.
func ExampleLimit() {
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	var limiter turnstile
	oncepipe.Sink(orders, "call", func(ctx context.Context, _ string) error {
		if info, _ := oncepipe.InfoFrom(ctx); info.Attempt == 1 {
			return errors.New("refused")
		}
		return nil
	}, oncepipe.Limit(&limiter), oncepipe.Retry(soon))
	runExample(p)
	fmt.Println("asked", limiter.passed.Load(), "times")
	// Output:
	// asked 2 times
}

// Each waits for the one behind it, so that the first is the last to be done. It
// comes out first.
func ExampleOrdered() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{4, 3, 2, 1}))
	var done [5]chan struct{}
	for n := range done {
		done[n] = make(chan struct{})
	}
	close(done[0])
	waited := oncepipe.Stage(numbers, "wait", func(_ context.Context, n int) (int, error) {
		<-done[n-1]
		close(done[n])
		return n, nil
	}, oncepipe.Workers(4), oncepipe.Ordered())
	oncepipe.Sink(waited, "print", printValue)
	runExample(p)
	// Output:
	// 4
	// 3
	// 2
	// 1
}

// The first item of ann has to wait for a retry, and the second one waits for it.
// That of bob does not.
func ExamplePerPartition() {
	p := oncepipe.New("p", oncepipe.Config{})
	items := oncepipe.FromSeq(p, "items", slices.Values([]string{"ann 1", "ann 2", "bob 1"}))
	byName := oncepipe.PartitionBy(items, func(s string) string { return s[:3] })
	bobDone := make(chan struct{})
	oncepipe.Sink(byName, "handle", func(ctx context.Context, s string) error {
		info, _ := oncepipe.InfoFrom(ctx)
		switch {
		case s == "ann 1" && info.Attempt == 1:
			return errors.New("not yet")
		case s == "ann 1":
			<-bobDone
		}
		fmt.Println(s)
		if s == "bob 1" {
			close(bobDone)
		}
		return nil
	}, oncepipe.Workers(2), oncepipe.PerPartition(), oncepipe.Retry(soon))
	runExample(p)
	// Output:
	// bob 1
	// ann 1
	// ann 2
}

// The records of a stage are kept under the name of the pipeline, or under one
// that stays when the pipeline is renamed.
func ExampleNamespace() {
	p := oncepipe.New("shop-v2", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	keyed := oncepipe.KeyBy(orders, func(id string) string { return id })
	oncepipe.Sink(keyed, "charge", func(ctx context.Context, _ string) error {
		id, err := oncepipe.StepID(ctx, "charge")
		fmt.Println(id.Namespace, id.Key, err)
		return err
	}, oncepipe.Namespace("shop"))
	runExample(p)
	// Output:
	// shop/charge order-1 <nil>
}
