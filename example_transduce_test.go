package oncepipe_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/chans"
)

// Steps that have a memory: neighbours of one customer become one mail. No order
// is acked before its mail is sent.
func ExampleTransduce() {
	type order struct{ customer, what string }
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]order{
		{"ada", "tea"}, {"ada", "cup"}, {"bob", "mug"}, {"ada", "pot"},
	}))
	mails := oncepipe.Transduce(orders, "mails", chans.Compose(
		chans.PartitionBy(func(o order) string { return o.customer }),
		chans.Map(func(group []order) string {
			text := group[0].customer + ":"
			for _, o := range group {
				text += " " + o.what
			}
			return text
		}),
	))
	oncepipe.Sink(mails, "send", printValue)
	runExample(p)
	fmt.Println("done", p.Stats().Done)
	// Output:
	// ada: tea cup
	// bob: mug
	// ada: pot
	// done 4
}

// Batches as a stream: groups of at most three, each filled for at most a second.
// A group is one item for the stages behind it. Where a single item may spoil a
// batch, BatchStage is the better choice: each keeps its own outcome.
func ExampleTransduce_batch() {
	p := oncepipe.New("p", oncepipe.Config{})
	letters := oncepipe.FromSeq(p, "letters", strings.SplitSeq("a b c d e", " "))
	batches := oncepipe.Transduce(letters, "batch", chans.PartitionAll[string](3), oncepipe.BatchWait(time.Second))
	oncepipe.Sink(batches, "print", func(_ context.Context, batch []string) error {
		fmt.Println(batch)
		return nil
	})
	runExample(p)
	// Output:
	// [a b c]
	// [d e]
}

// Distinct on a stream is Dedup with a guard of as many keys. What failed counts as
// not seen, and a copy of what is under way waits for its end.
func ExampleDedup_distinct() {
	p := oncepipe.New("p", oncepipe.Config{})
	words := oncepipe.FromSeq(p, "words", slices.Values([]string{"a", "b", "a", "c", "b"}))
	distinct := oncepipe.Dedup(words, "distinct", strings.ToLower, oncepipe.WithGuard(oncepipe.Ring(100)))
	oncepipe.Sink(distinct, "print", printValue)
	runExample(p)
	s := p.Stats()
	fmt.Println("done", s.Done, "duplicate", s.Duplicate)
	// Output:
	// a
	// b
	// c
	// done 3 duplicate 2
}

// Who has enough ends the pipeline; what was not seen goes back to the source.
func ExampleTransduce_take() {
	p := oncepipe.New("p", oncepipe.Config{})
	queue := make(chan int) // not buffered: nothing is taken that isn't seen
	go func() {
		for i := 1; i <= 3; i++ {
			queue <- i
		}
	}()
	three := oncepipe.Transduce(oncepipe.FromChan(p, "queue", queue), "three", chans.Take[int](3))
	oncepipe.Sink(three, "print", printValue)
	runExample(p)
	fmt.Println("done", p.Stats().Done)
	// Output:
	// 1
	// 2
	// 3
	// done 3
}
