package chans_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/chans"
)

// The examples of this file are those of docs/core-async.md, which shows them as
// they are.

func Example_channel() {
	c := make(chan string, 2) // (chan 2)
	c <- "a"                  // (>! c "a")
	c <- "b"
	close(c)              // (close! c)
	fmt.Println(<-c, <-c) // (<! c)
	v, ok := <-c          // nil there; here ok says that it was the end
	fmt.Printf("%q %v\n", v, ok)
	// Output:
	// a b
	// "" false
}

func Example_goLoop() {
	numbers := make(chan int)
	var loop sync.WaitGroup
	loop.Go(func() { // (go-loop [] (when-some [n (<! numbers)] (println (* n n)) (recur)))
		for n := range numbers {
			fmt.Println(n * n)
		}
	})
	numbers <- 3
	numbers <- 4
	close(numbers)
	loop.Wait()
	// Output:
	// 9
	// 16
}

func Example_goBlock() {
	answer, wait := chans.Go(1, func(to chan<- int) error { // (go (+ 40 2))
		to <- 40 + 2
		return nil
	})
	fmt.Println(<-answer, wait())

	answer, wait = chans.Go(1, func(chan<- int) error { panic("out of cheese") })
	_, ok := <-answer
	fmt.Println(ok, wait())
	// Output:
	// 42 <nil>
	// false panic: out of cheese
}

func Example_timeout() {
	answers := make(chan string)
	select { // (alt! answers ([a] (println a)) (timeout 10) (println "no answer"))
	case a := <-answers:
		fmt.Println(a)
	case <-time.After(10 * time.Millisecond):
		fmt.Println("no answer")
	}
	// Output:
	// no answer
}

func Example_altsOverAList() {
	ctx := context.Background()
	servers := []chan string{make(chan string), make(chan string, 1)}
	servers[1] <- "hello"
	var answer string
	var ops []chans.Op
	for _, c := range servers {
		ops = append(ops, chans.TakeOp(c, &answer))
	}
	i, err := chans.Alts(ctx, chans.Priority, ops...) // (alts! servers :priority true)
	fmt.Println(i, answer, err)
	i, err = chans.Alts(ctx, chans.Default, ops...) // (alts! servers :default nil)
	fmt.Println(i, err)
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	i, err = chans.Alts(soon, chans.Fair, ops...) // (alts! (conj servers (timeout 10)))
	fmt.Println(i, err)
	// Output:
	// 1 hello <nil>
	// -1 <nil>
	// -1 chans: stopped: context deadline exceeded
}

func Example_overflow() {
	prices := chans.Sliding(2, func(p int) { fmt.Println("shed", p) }) // (chan (sliding-buffer 2))
	for p := range 4 {
		_ = prices.Put(p) // never waits; an error would say that it was closed
	}
	prices.Close()
	for p := range prices.C() {
		fmt.Println("price", p)
	}
	fmt.Println(prices.Shed(), "shed")
	// Output:
	// shed 0
	// shed 1
	// price 2
	// price 3
	// 2 shed
}

func Example_promise() {
	ctx := context.Background()
	p := chans.NewPromise[string]() // (promise-chan)
	fmt.Println(p.Deliver("first"), p.Deliver("second"))
	for range 2 {
		fmt.Println(p.Get(ctx)) // (<! p)
	}
	// Output:
	// true false
	// first <nil>
	// first <nil>
}

func Example_transducerOnAChannel() {
	ctx := context.Background()
	odd := func(n int) bool { return n%2 == 1 }
	xf := chans.Compose(chans.Filter(odd), chans.PartitionAll[int](2))
	in, fed := chans.ToChan(ctx, 0, slices.Values([]int{1, 2, 3, 4, 5})) // (to-chan! [1 2 3 4 5])
	out, done := chans.Go(10, func(to chan<- []int) error {              // (chan 10 (comp (filter odd?) (partition-all 2)))
		return chans.PipeThrough(ctx, to, in, xf)
	})
	for group := range out {
		fmt.Println(group)
	}
	fmt.Println(errors.Join(fed(), done()))
	// Output:
	// [1 3]
	// [5]
	// <nil>
}

func Example_exHandler() {
	ctx := context.Background()
	in, _ := chans.ToChan(ctx, 0, slices.Values([]string{"1", "two", "3"}))
	parse := chans.TryMap(strconv.Atoi)
	numbers, err := chans.Transduce(ctx, in,
		chans.Rescue(parse, func(e *chans.ItemError, emit func(int) error) error { // the third argument of chan
			fmt.Println(e)
			return emit(-1) // nothing, to leave it out; an error, to end with it
		}),
		nil, func(list []int, n int) ([]int, error) { return append(list, n), nil })
	fmt.Println(numbers, err)
	// Output:
	// chans: value two: strconv.Atoi: parsing "two": invalid syntax
	// [1 -1 3] <nil>
}

func Example_pipeline() {
	ctx := context.Background()
	ids, fed := chans.ToChan(ctx, 0, slices.Values([]int{1, 2, 3}))
	fetch := func(_ context.Context, id int) (string, error) {
		if id == 2 {
			return "", errors.New("not found")
		}
		return fmt.Sprint("page ", id), nil
	}
	or404 := func(_ context.Context, id int, err error, emit func(string)) error {
		emit(fmt.Sprint("page ", id, ": ", err))
		return nil
	}
	pages, done := chans.Go(0, func(to chan<- string) error { // (pipeline-blocking 4 to (map fetch) ids true or404)
		return chans.Pipeline(ctx, 4, to, ids, chans.RescueFunc(chans.One(fetch), or404))
	})
	for page := range pages {
		fmt.Println(page)
	}
	fmt.Println(errors.Join(fed(), done()))
	// Output:
	// page 1
	// page 2: not found
	// page 3
	// <nil>
}

func Example_mult() {
	ctx := context.Background()
	source, fed := chans.ToChan(ctx, 0, slices.Values([]string{"a", "b", "c"}))
	var m chans.Mult[string] // (mult source)
	log, audit := make(chan string, 3), make(chan string, 3)
	screen := chans.Sliding[string](1, nil)
	m.Tap(log, chans.CloseAtEnd) // (tap m log)
	m.Tap(audit, chans.KeepOpen) // (tap m audit false)
	m.TapLossy(screen, chans.CloseAtEnd)
	fmt.Println(errors.Join(m.Run(ctx, source), fed()))
	for v := range log {
		fmt.Println("log", v)
	}
	fmt.Println("screen", <-screen.C(), "after", screen.Shed(), "shed")
	fmt.Println("audit", len(audit))
	// Output:
	// <nil>
	// log a
	// log b
	// log c
	// screen c after 2 shed
	// audit 3
}

func Example_untap() {
	ctx := context.Background()
	source := make(chan int)
	live, stuck := make(chan int), make(chan int)
	var m chans.Mult[int]
	m.Tap(live, chans.CloseAtEnd)
	m.Tap(stuck, chans.CloseAtEnd)
	var group sync.WaitGroup
	group.Go(func() { _ = m.Run(ctx, source) })
	source <- 1
	fmt.Println(<-live)
	m.Untap(stuck) // nobody has read it: Run stops waiting for it
	source <- 2
	fmt.Println(<-live)
	close(source)
	group.Wait()
	// Output:
	// 1
	// 2
}

func Example_pubSub() {
	ctx := context.Background()
	events, fed := chans.ToChan(ctx, 0, slices.Values([]string{"cat:tom", "dog:rex", "cat:kit", "cow:elsie"}))
	p := chans.Pub[string, string]{ // (pub events kind (fn [_] 10))
		Topic:  func(event string) string { return event[:3] },
		Buffer: func(string) int { return 10 },
	}
	cats, dogs := make(chan string, 4), make(chan string, 4)
	p.Sub("cat", cats, chans.CloseAtEnd) // (sub p "cat" cats)
	p.Sub("dog", dogs, chans.CloseAtEnd)
	fmt.Println(errors.Join(p.Run(ctx, events), fed()))
	for cat := range cats {
		fmt.Println(cat)
	}
	fmt.Println(<-dogs)
	fmt.Println("for nobody:", p.Discarded())
	// Output:
	// <nil>
	// cat:tom
	// cat:kit
	// dog:rex
	// for nobody: 1
}

func Example_mix() {
	ctx, stop := context.WithCancel(context.Background())
	music, alerts := make(chan string), make(chan string)
	var m chans.Mix[string]            // (mix to)
	m.Admix(music)                     // (admix m music)
	m.SoloMode(chans.Pause)            // (solo-mode m :pause)
	m.Toggle(chans.Solo, true, alerts) // (toggle m {alerts {:solo true}})
	out, wait := chans.Go(0, func(to chan<- string) error { return m.Run(ctx, to) })
	go func() { music <- "la la la" }() // waits as long as alerts is solo
	alerts <- "the kettle boils"
	fmt.Println(<-out)
	m.Toggle(chans.Solo, false, alerts)
	fmt.Println(<-out)
	stop()
	fmt.Println(wait())
	// Output:
	// the kettle boils
	// la la la
	// chans: stopped: context canceled
}

func Example_requeueByHand() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	jobs := make(chan string, 1)
	jobs <- "a"
	failed := <-jobs // the worker's job fails,
	jobs <- "b"      // and the producer is quicker than the worker
	fmt.Println(chans.Send(ctx, jobs, failed))
	close(jobs) // or the producer has nothing more
	_, err := chans.Offer(jobs, failed)
	fmt.Println(err)
	// Output:
	// chans: stopped: context deadline exceeded
	// chans: closed
}

func Example_retry() {
	jobs := make(chan string, 2)
	jobs <- "a"
	jobs <- "b"
	close(jobs)

	p := oncepipe.New("retry", oncepipe.Config{})
	work := func(ctx context.Context, job string) error {
		if info, _ := oncepipe.InfoFrom(ctx); info.Attempt < 3 {
			return errors.New("not yet")
		}
		fmt.Println(job, "is done")
		return nil
	}
	oncepipe.Sink(oncepipe.FromChan(p, "jobs", jobs), "work", work,
		oncepipe.Buffer(oncepipe.Fixed(1)),
		oncepipe.Retry(oncepipe.RetryPolicy{
			Slots:   2, // inside the stage: running or waiting for their next attempt
			Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) },
		}))
	fmt.Println(p.Run(context.Background()))
	fmt.Println(p.Stats().Done, "done,", p.Stats().Stages[0].Retried, "retries")
	// Unordered output:
	// a is done
	// b is done
	// <nil>
	// 2 done, 4 retries
}

func Example_distinct() {
	calls := 0
	book := chans.TryMap(func(order string) (string, error) {
		if calls++; calls == 1 {
			return "", errors.New("the database is down")
		}
		return order + " is booked", nil
	})
	id := func(order string) string { return order }
	xf := chans.Compose(chans.Distinct(id, 10_000), book) // (comp (distinct) (map book))
	orders := slices.Values([]string{"order-1", "order-1", "order-1"})
	for booked, err := range chans.Seq(xf, orders) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(booked)
	}
	// Output:
	// chans: value order-1: the database is down
	// order-1 is booked
}
