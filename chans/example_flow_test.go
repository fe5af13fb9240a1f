package chans_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe/chans"
)

func ExampleGo() {
	ctx := context.Background()
	words, fed := chans.ToChan(ctx, 0, slices.Values([]string{"a", "b"}))
	upper, done := chans.Go(0, func(to chan<- string) error {
		return chans.PipeThrough(ctx, to, words, chans.Map(strings.ToUpper))
	})
	for word := range upper {
		fmt.Println(word)
	}
	fmt.Println(fed(), done())
	// Output:
	// A
	// B
	// <nil> <nil>
}

func ExampleSend() {
	c := make(chan int, 1)
	fmt.Println(chans.Send(context.Background(), c, 1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(chans.Send(ctx, c, 2))
	// Output:
	// <nil>
	// chans: stopped: context deadline exceeded
}

func ExampleReceive() {
	ctx := context.Background()
	c := make(chan int, 1)
	c <- 1
	close(c)
	fmt.Println(chans.Receive(ctx, c))
	fmt.Println(chans.Receive(ctx, c))
	// Output:
	// 1 <nil>
	// 0 chans: closed
}

func ExampleOffer() {
	c := make(chan int, 1)
	fmt.Println(chans.Offer(c, 1))
	fmt.Println(chans.Offer(c, 2))
	close(c)
	fmt.Println(chans.Offer(c, 3))
	// Output:
	// true <nil>
	// false <nil>
	// false chans: closed
}

func ExamplePoll() {
	c := make(chan int, 1)
	fmt.Println(chans.Poll(c))
	c <- 7
	fmt.Println(chans.Poll(c))
	close(c)
	fmt.Println(chans.Poll(c))
	// Output:
	// 0 false <nil>
	// 7 true <nil>
	// 0 false chans: closed
}

func printInts(c <-chan int) {
	var list []any
	for v := range c {
		list = append(list, v)
	}
	fmt.Println(list...)
}

func ExampleDropping() {
	l := chans.Dropping(2, func(v int) { fmt.Println("shed", v) })
	for v := range 4 {
		if err := l.Put(v); err != nil {
			fmt.Println(err)
		}
	}
	l.Close()
	printInts(l.C())
	// Output:
	// shed 2
	// shed 3
	// 0 1
}

func ExampleSliding() {
	l := chans.Sliding[int](2, nil)
	for v := range 4 {
		if err := l.Put(v); err != nil {
			fmt.Println(err)
		}
	}
	l.Close()
	fmt.Println("shed", l.Shed(), "after close:", l.Put(4))
	printInts(l.C())
	// Output:
	// shed 2 after close: chans: closed
	// 2 3
}

func ExampleNewPromise() {
	ctx := context.Background()
	p := chans.NewPromise[string]()
	early, asked := chans.Go(0, func(to chan<- string) error {
		v, err := p.Get(ctx)
		to <- v
		return err
	})
	fmt.Println(p.Deliver("first"), p.Deliver("second"))
	fmt.Println(<-early, asked())
	fmt.Println(p.Get(ctx))
	// Output:
	// true false
	// first <nil>
	// first <nil>
}

func ExamplePipe() {
	from, fed := chans.ToChan(context.Background(), 0, slices.Values([]int{1, 2, 3}))
	to := make(chan int, 3)
	fmt.Println(chans.Pipe(context.Background(), to, from), fed())
	close(to)
	printInts(to)
	// Output:
	// <nil> <nil>
	// 1 2 3
}

// A consumer that leaves ends the context; the value in hand comes back.
func ExampleUnsent() {
	ctx, leave := context.WithCancel(context.Background())
	from := make(chan int)
	to, wait := chans.Go(0, func(to chan<- int) error { return chans.Pipe(ctx, to, from) })
	from <- 1
	fmt.Println("took", <-to)
	from <- 2
	leave()
	err := wait()
	var back *chans.Unsent[int]
	if errors.As(err, &back) {
		fmt.Println("back:", back.Values, errors.Is(err, context.Canceled))
	}
	// Output:
	// took 1
	// back: [2] true
}

func ExamplePipeThrough() {
	from, fed := chans.ToChan(context.Background(), 0, slices.Values([]string{"1", "2", "x", "4"}))
	to := make(chan []int, 2)
	xf := chans.Compose(chans.TryMap(strconv.Atoi), chans.PartitionAll[int](5))
	fmt.Println(chans.PipeThrough(context.Background(), to, from, xf))
	fmt.Println(<-to, "and left:", <-from, fed())
	// Output:
	// chans: value x: strconv.Atoi: parsing "x": invalid syntax
	// [1 2] and left: 4 <nil>
}

func ExampleTransduce() {
	from, fed := chans.ToChan(context.Background(), 0, slices.Values([]string{"to be", "or not", "to be"}))
	count := func(n map[string]int, word string) (map[string]int, error) {
		n[word]++
		return n, nil
	}
	counts, err := chans.Transduce(context.Background(), from, chans.FlatMap(strings.Fields), map[string]int{}, count)
	fmt.Println(counts, err, fed())
	// Output: map[be:2 not:1 or:1 to:2] <nil> <nil>
}

func ExampleReduce() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	naturals, fed := chans.ToChan(ctx, 0, func(yield func(int) bool) {
		for i := 0; yield(i); i++ {
		}
	})
	sum, err := chans.Reduce(ctx, naturals, 0, func(sum, v int) (int, error) {
		if sum += v; sum > 100 {
			return sum, chans.ErrDone
		}
		return sum, nil
	})
	cancel()
	fmt.Println(sum, err, errors.Is(fed(), context.Canceled))
	// Output: 105 <nil> true
}

func ExampleInto() {
	from, fed := chans.ToChan(context.Background(), 0, slices.Values([]int{2, 3}))
	list, err := chans.Into(context.Background(), []int{1}, from)
	fmt.Println(list, err, fed())
	// Output: [1 2 3] <nil> <nil>
}

func ExampleOntoChan() {
	c := make(chan int, 3)
	fmt.Println(chans.OntoChan(context.Background(), c, slices.Values([]int{1, 2, 3})))
	close(c)
	printInts(c)
	// Output:
	// <nil>
	// 1 2 3
}

func ExampleToChan() {
	from, wait := chans.ToChan(context.Background(), 0, slices.Values([]int{1, 2, 3}))
	printInts(from)
	fmt.Println(wait())
	// Output:
	// 1 2 3
	// <nil>
}

// Results come in the order of the values, two at a time are worked on.
func ExamplePipeline() {
	ctx := context.Background()
	from, _ := chans.ToChan(ctx, 0, slices.Values([]string{"one two", "", "three"}))
	words, wait := chans.Go(0, func(to chan<- string) error {
		return chans.Pipeline(ctx, 2, to, from, func(_ context.Context, line string, emit func(string)) error {
			for word := range strings.FieldsSeq(line) {
				emit(word)
			}
			return nil
		})
	})
	for word := range words {
		fmt.Println(word)
	}
	fmt.Println(wait())
	// Output:
	// one
	// two
	// three
	// <nil>
}

func ExampleOne() {
	ctx := context.Background()
	from, _ := chans.ToChan(ctx, 0, slices.Values([]string{"1", "2", "x", "4"}))
	to := make(chan int, 4)
	parse := func(_ context.Context, s string) (int, error) { return strconv.Atoi(s) }
	err := chans.Pipeline(ctx, 1, to, from, chans.One(parse))
	var bad *chans.ItemError
	if errors.As(err, &bad) {
		fmt.Println("can't read", bad.Value)
	}
	close(to)
	printInts(to)
	for range from { // what the pipeline has left
	}
	// Output:
	// can't read x
	// 1 2
}

func ExampleRescueFunc() {
	ctx := context.Background()
	from, _ := chans.ToChan(ctx, 0, slices.Values([]int{4, 0, 2}))
	to := make(chan int, 3)
	divide := chans.One(func(_ context.Context, v int) (int, error) { return 8 / v, nil })
	fn := chans.RescueFunc(divide, func(_ context.Context, v int, err error, emit func(int)) error {
		fmt.Println(v, "failed:", err)
		emit(-1)
		return nil
	})
	fmt.Println(chans.Pipeline(ctx, 2, to, from, fn))
	close(to)
	printInts(to)
	// Output:
	// 0 failed: panic: runtime error: integer divide by zero
	// <nil>
	// 2 -1 4
}

func ExamplePipelineAsync() {
	ctx := context.Background()
	from, _ := chans.ToChan(ctx, 0, slices.Values([]int{1, 2, 3}))
	to := make(chan string, 9)
	start := func(ctx context.Context, v int) (<-chan string, error) {
		results, _ := chans.ToChan(ctx, 0, slices.Values(slices.Repeat([]string{fmt.Sprint(v)}, v)))
		return results, nil
	}
	fmt.Println(chans.PipelineAsync(ctx, 2, time.Second, to, from, start))
	close(to)
	fmt.Println(chans.Into(ctx, nil, to))
	// Output:
	// <nil>
	// [1 2 2 3 3 3] <nil>
}

func ExampleMerge() {
	ctx := context.Background()
	a, _ := chans.ToChan(ctx, 0, slices.Values([]int{1, 2}))
	b, _ := chans.ToChan(ctx, 0, slices.Values([]int{3, 4}))
	merged, wait := chans.Go(0, func(to chan<- int) error { return chans.Merge(ctx, to, a, b) })
	list, err := chans.Into(ctx, nil, merged)
	slices.Sort(list)
	fmt.Println(list, err, wait())
	// Output: [1 2 3 4] <nil> <nil>
}

func ExampleSplit() {
	ctx := context.Background()
	from, _ := chans.ToChan(ctx, 0, slices.Values([]int{1, 2, 3, 4}))
	evens, odds := make(chan int, 4), make(chan int, 4)
	fmt.Println(chans.Split(ctx, evens, odds, from, even))
	close(evens)
	close(odds)
	printInts(evens)
	printInts(odds)
	// Output:
	// <nil>
	// 2 4
	// 1 3
}

func ExampleZip() {
	ctx := context.Background()
	a, _ := chans.ToChan(ctx, 0, slices.Values([]string{"x", "y"}))
	b, _ := chans.ToChan(ctx, 0, slices.Values([]string{"1", "2"}))
	rows, wait := chans.Go(0, func(to chan<- string) error {
		return chans.Zip(ctx, to, func(row []string) (string, error) { return strings.Join(row, "="), nil }, a, b)
	})
	for row := range rows {
		fmt.Println(row)
	}
	fmt.Println(wait())
	// Output:
	// x=1
	// y=2
	// <nil>
}

// The number of channels is known at run time only.
func ExampleAlts() {
	ctx := context.Background()
	sources := []chan string{make(chan string, 1), make(chan string, 1), make(chan string, 1)}
	sources[1] <- "hello"
	var got string
	var ops []chans.Op
	for _, c := range sources {
		ops = append(ops, chans.TakeOp(c, &got))
	}
	i, err := chans.Alts(ctx, chans.Priority, ops...)
	fmt.Println(i, got, err)
	i, err = chans.Alts(ctx, chans.Default, ops...)
	fmt.Println(i, err)
	// Output:
	// 1 hello <nil>
	// -1 <nil>
}

func ExampleTakeOp() {
	var v int
	var s string
	numbers, words := make(chan int), make(chan string, 1)
	words <- "x"
	i, err := chans.Alts(context.Background(), chans.Fair, chans.TakeOp(numbers, &v), chans.TakeOp(words, &s))
	fmt.Println(i, s, err)
	close(numbers)
	i, err = chans.Alts(context.Background(), chans.Fair, chans.TakeOp(numbers, &v), chans.TakeOp(words, &s))
	fmt.Println(i, err)
	// Output:
	// 1 x <nil>
	// 0 chans: closed
}

func ExamplePutOp() {
	full, free := make(chan int, 1), make(chan int, 1)
	full <- 0
	i, err := chans.Alts(context.Background(), chans.Fair, chans.PutOp(full, 1), chans.PutOp(free, 1))
	fmt.Println(i, <-free, err)
	// Output: 1 1 <nil>
}
