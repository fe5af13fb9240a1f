package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Run checks the graph before anything starts, and says all that is wrong with it.
func ExampleNew() {
	p := oncepipe.New("shop", oncepipe.Config{DrainTimeout: 20 * time.Second})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	oncepipe.Stage(orders, "charge", func(context.Context, string) (string, error) { return "", nil },
		oncepipe.Workers(0))
	fmt.Println(p.Run(context.Background()))
	// Output:
	// oncepipe: pipeline "shop" can't run: stage "charge": Workers(0)
	// a stream that comes from "charge" is never read; end it with Sink or Discard
}

// A source settles what it delivers: here a queue of two messages, of which the
// second can't be handled, and is returned for want of a place for dead letters.
func ExampleFrom() {
	queue := []string{"message-1", "message-2"}
	src := oncepipe.SourceFunc[string](func(context.Context) (oncepipe.Delivery[string], error) {
		if len(queue) == 0 {
			return oncepipe.Delivery[string]{}, io.EOF
		}
		m := queue[0]
		queue = queue[1:]
		return oncepipe.Delivery[string]{Value: m, Key: m, Settle: func(_ context.Context, s oncepipe.Settlement) error {
			fmt.Println(m, s.Outcome) // an ack, or for Returned a nack
			return nil
		}}, nil
	})

	p := oncepipe.New("p", oncepipe.Config{Logger: slog.New(slog.DiscardHandler)}) // and no place for dead letters
	messages := oncepipe.From(p, "queue", src)
	oncepipe.Sink(messages, "handle", func(_ context.Context, m string) error {
		if m == "message-2" {
			return oncepipe.Permanent(errors.New("can't be read"))
		}
		return nil
	})
	runExample(p)
	// Output:
	// message-1 done
	// message-2 returned
}

// A channel can take nothing back: what could not be finished is in Run's error.
func ExampleFromChan() {
	jobs := make(chan string, 2)
	jobs <- "job-1"
	jobs <- "job-2"
	close(jobs)

	p := oncepipe.New("p", oncepipe.Config{DrainTimeout: -1})
	ctx, stop := context.WithCancel(context.Background())
	oncepipe.Sink(oncepipe.FromChan(p, "jobs", jobs), "work", func(ctx context.Context, job string) error {
		if job == "job-1" {
			return nil
		}
		stop()
		<-ctx.Done()
		return ctx.Err()
	})
	err := p.Run(ctx)

	var returned *oncepipe.ReturnedError
	if errors.As(err, &returned) {
		for _, it := range returned.Items {
			fmt.Println("not finished:", it.Value)
		}
	}
	// Output:
	// not finished: job-2
}

func ExampleFromSeq() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2, 3}))
	oncepipe.Sink(numbers, "print", printValue)
	runExample(p)
	// Output:
	// 1
	// 2
	// 3
}

// Every attempt's context says which one it is.
func ExampleInfoFrom_attempt() {
	p := oncepipe.New("shop", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	keyed := oncepipe.KeyBy(orders, func(id string) string { return id })
	oncepipe.Sink(keyed, "charge", func(ctx context.Context, _ string) error {
		info, _ := oncepipe.InfoFrom(ctx)
		fmt.Println(info.Pipeline, info.Stage, info.Key, "attempt", info.Attempt)
		fmt.Println("Idempotency-Key:", info.Token())
		if info.Attempt == 1 {
			return errors.New("no answer")
		}
		return nil
	}, oncepipe.Retry(soon))
	runExample(p)
	// Output:
	// shop charge order-1 attempt 1
	// Idempotency-Key: 2e2816c55da340b92ee457e582404250
	// shop charge order-1 attempt 2
	// Idempotency-Key: 2e2816c55da340b92ee457e582404250
}

// The graph, what it has done, and what happens to its items.
func ExamplePipeline_Describe() {
	p := oncepipe.New("p", oncepipe.Config{})
	words := oncepipe.FromSeq(p, "words", slices.Values([]string{"one", "one"}))
	fresh := oncepipe.Dedup(words, "dedup", func(w string) string { return w })
	oncepipe.Sink(fresh, "print", printValue)
	for _, n := range p.Describe() {
		fmt.Println(n.Kind, n.Name, n.From)
	}
	// Output:
	// source words []
	// dedup dedup [words]
	// sink print [words]
}

// A dead letter that was mended goes back in at the stage that gave it up.
func ExamplePipeline_Inject() {
	buried := make(chan struct{})
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: func(ctx context.Context, l oncepipe.DeadLetter) error {
		defer close(buried)
		return printLetter(ctx, l)
	}})
	orders := make(chan string, 1)
	orders <- "order-1 for nobody"
	oncepipe.Sink(oncepipe.FromChan(p, "orders", orders), "ship", func(_ context.Context, order string) error {
		if order == "order-1 for nobody" {
			return oncepipe.Permanent(errors.New("no address"))
		}
		fmt.Println("shipped:", order)
		close(orders)
		return nil
	})
	go func() {
		<-buried
		if err := p.Inject("ship", "order-1", "order-1 for ann"); err != nil {
			fmt.Println(err)
		}
	}()
	runExample(p)
	// Output:
	// dead letter from ship: order-1 for nobody (permanent, attempts 1): no address
	// shipped: order-1 for ann
}

func ExampleObserver() {
	p := oncepipe.New("p", oncepipe.Config{Observers: []oncepipe.Observer{func(e oncepipe.Event) {
		fmt.Println(e.Kind, e.Stage, e.Key, e.Outcome == oncepipe.Done)
	}}})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1"}))
	oncepipe.Sink(orders, "book", func(ctx context.Context, _ string) error {
		if info, _ := oncepipe.InfoFrom(ctx); info.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	}, oncepipe.Retry(soon))
	runExample(p)
	// Output:
	// failed book  false
	// retried book  false
	// settled orders  true
}
