package oncepipe_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/oncepipe/oncepipe"
)

func ExampleMap() {
	p := oncepipe.New("p", oncepipe.Config{})
	words := oncepipe.FromSeq(p, "words", slices.Values([]string{"one", "two"}))
	upper := oncepipe.Map(words, strings.ToUpper)
	oncepipe.Sink(upper, "print", printValue)
	runExample(p)
	// Output:
	// ONE
	// TWO
}

// A value that can't be read is a dead letter: trying again is of no use.
func ExampleTryMap() {
	p := oncepipe.New("p", oncepipe.Config{DeadLetters: printLetter})
	texts := oncepipe.FromSeq(p, "texts", slices.Values([]string{"x1", "2"}))
	numbers := oncepipe.TryMap(texts, strconv.Atoi)
	oncepipe.Sink(numbers, "print", printValue)
	runExample(p)
	fmt.Println("dead", p.Stats().Dead)
	// Output:
	// dead letter from texts: x1 (rejected, attempts 0): strconv.Atoi: parsing "x1": invalid syntax
	// 2
	// dead 1
}

func ExampleFilter() {
	p := oncepipe.New("p", oncepipe.Config{})
	numbers := oncepipe.FromSeq(p, "numbers", slices.Values([]int{1, 2, 3, 4}))
	even := oncepipe.Filter(numbers, func(n int) bool { return n%2 == 0 })
	oncepipe.Sink(even, "print", printValue)
	runExample(p)
	s := p.Stats()
	fmt.Println("done", s.Done, "filtered", s.Filtered)
	// Output:
	// 2
	// 4
	// done 2 filtered 2
}

// The order is one delivery: it is settled when its lines are. A line's key is
// the order's key and the line's position.
func ExampleFlatMap() {
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"pen ink", "paper"}))
	keyed := oncepipe.KeyBy(orders, func(order string) string { return strings.ReplaceAll(order, " ", "-") })
	lines := oncepipe.FlatMap(keyed, strings.Fields)
	oncepipe.Sink(lines, "pack", func(ctx context.Context, line string) error {
		info, _ := oncepipe.InfoFrom(ctx)
		fmt.Println(line, "has the key", info.Key)
		return nil
	})
	runExample(p)
	s := p.Stats()
	fmt.Println("admitted", s.Admitted, "done", s.Done)
	// Output:
	// pen has the key pen-ink/0
	// ink has the key pen-ink/1
	// paper has the key paper/0
	// admitted 2 done 2
}

func ExampleFlatMapSeq() {
	p := oncepipe.New("p", oncepipe.Config{})
	sizes := oncepipe.FromSeq(p, "sizes", slices.Values([]int{2, 3}))
	counted := oncepipe.FlatMapSeq(sizes, func(n int) iter.Seq[string] {
		return func(yield func(string) bool) {
			for i := range n {
				if !yield(fmt.Sprintf("%d of %d", i+1, n)) {
					return
				}
			}
		}
	})
	oncepipe.Sink(counted, "print", printValue)
	runExample(p)
	// Output:
	// 1 of 2
	// 2 of 2
	// 1 of 3
	// 2 of 3
	// 3 of 3
}

// The key is the identity of the effect: the same for every retry and every
// redelivery, never random, never a clock.
func ExampleKeyBy() {
	type payment struct{ Account, ID string }
	p := oncepipe.New("p", oncepipe.Config{})
	payments := oncepipe.FromSeq(p, "payments", slices.Values([]payment{{"ann", "17"}, {"bob", "17"}}))
	keyed := oncepipe.KeyBy(payments, func(p payment) string { return oncepipe.Key(p.Account, p.ID) })
	oncepipe.Sink(keyed, "book", func(ctx context.Context, p payment) error {
		info, _ := oncepipe.InfoFrom(ctx)
		fmt.Println(info.Key)
		return nil
	})
	runExample(p)
	// Output:
	// ann/17
	// bob/17
}

// The movements of an account are booked one after the other, those of different
// accounts side by side.
func ExamplePartitionBy() {
	type movement struct {
		Account string
		Amount  int
	}
	p := oncepipe.New("p", oncepipe.Config{})
	movements := oncepipe.FromSeq(p, "movements", slices.Values([]movement{
		{"ann", 10}, {"bob", 20}, {"ann", 11}, {"bob", 21}, {"ann", 12},
	}))
	byAccount := oncepipe.PartitionBy(movements, func(m movement) string { return m.Account })
	booked := map[string]*[]int{"ann": {}, "bob": {}}
	oncepipe.Sink(byAccount, "book", func(_ context.Context, m movement) error {
		list := booked[m.Account] // no lock: nobody else is at this account
		*list = append(*list, m.Amount)
		return nil
	}, oncepipe.Workers(4), oncepipe.PerPartition())
	runExample(p)
	fmt.Println(*booked["ann"], *booked["bob"])
	// Output:
	// [10 11 12] [20 21]
}

// Both streams have to be read. A full one holds up the other.
func ExampleSplit() {
	p := oncepipe.New("p", oncepipe.Config{})
	amounts := oncepipe.FromSeq(p, "amounts", slices.Values([]int{5, 5000, 7}))
	large, small := oncepipe.Split(amounts, func(n int) bool { return n > 1000 })
	var toCheck, toPay []int
	oncepipe.Sink(large, "check", func(_ context.Context, n int) error { toCheck = append(toCheck, n); return nil })
	oncepipe.Sink(small, "pay", func(_ context.Context, n int) error { toPay = append(toPay, n); return nil })
	runExample(p)
	fmt.Println("check", toCheck, "pay", toPay)
	// Output:
	// check [5000] pay [5 7]
}

func ExampleRoute() {
	type event struct{ Type, ID string }
	p := oncepipe.New("p", oncepipe.Config{})
	events := oncepipe.FromSeq(p, "events", slices.Values([]event{{"push", "a"}, {"star", "b"}, {"issue", "c"}, {"push", "d"}}))
	streams, rest := oncepipe.Route(events, func(e event) string { return e.Type }, "push", "issue")
	var pushes, issues []string
	oncepipe.Sink(streams[0], "pushes", func(_ context.Context, e event) error { pushes = append(pushes, e.ID); return nil })
	oncepipe.Sink(streams[1], "issues", func(_ context.Context, e event) error { issues = append(issues, e.ID); return nil })
	oncepipe.Discard(rest)
	runExample(p)
	fmt.Println("pushes", pushes, "issues", issues)
	// Output:
	// pushes [a d] issues [c]
}

// The delivery is settled when all branches are.
func ExampleBroadcast() {
	p := oncepipe.New("p", oncepipe.Config{})
	orders := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1", "order-2"}))
	branches := oncepipe.Broadcast(orders, 2)
	var mailed, shipped []string
	oncepipe.Sink(branches[0], "mail", func(_ context.Context, id string) error { mailed = append(mailed, id); return nil })
	oncepipe.Sink(branches[1], "ship", func(_ context.Context, id string) error { shipped = append(shipped, id); return nil })
	runExample(p)
	fmt.Println("mailed", mailed, "shipped", shipped, "done", p.Stats().Done)
	// Output:
	// mailed [order-1 order-2] shipped [order-1 order-2] done 2
}

func ExampleMerge() {
	p := oncepipe.New("p", oncepipe.Config{})
	web := oncepipe.FromSeq(p, "web", slices.Values([]string{"web-1", "web-2"}))
	phone := oncepipe.FromSeq(p, "phone", slices.Values([]string{"phone-1"}))
	orders := oncepipe.Merge(web, phone)
	var all []string
	oncepipe.Sink(orders, "collect", func(_ context.Context, id string) error { all = append(all, id); return nil })
	runExample(p)
	slices.Sort(all) // each source is in order; between them there is none
	fmt.Println(all)
	// Output:
	// [phone-1 web-1 web-2]
}

// A stream has to be read by somebody. Discard settles what comes as done.
func ExampleDiscard() {
	p := oncepipe.New("p", oncepipe.Config{})
	words := oncepipe.FromSeq(p, "words", slices.Values([]string{"one", "two"}))
	oncepipe.Discard(words)
	runExample(p)
	fmt.Println("done", p.Stats().Done)
	// Output:
	// done 2
}
