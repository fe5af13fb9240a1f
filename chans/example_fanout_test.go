package chans_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oncepipe/oncepipe/chans"
)

// printed prints the values that are in c now, and whether it is closed.
func printed(name string, c <-chan int) {
	for {
		v, ok, err := chans.Poll(c)
		switch {
		case err != nil:
			fmt.Println(name, "is closed")
			return
		case !ok:
			fmt.Println(name, "is open")
			return
		}
		fmt.Println(name, v)
	}
}

func ExampleMult() {
	ctx := context.Background()
	var m chans.Mult[int]
	a, b := make(chan int), make(chan int)
	m.Tap(a, chans.CloseAtEnd)
	m.Tap(b, chans.CloseAtEnd)
	var readers sync.WaitGroup
	sums := [2]int{}
	for i, c := range []chan int{a, b} {
		readers.Go(func() {
			for v := range c {
				sums[i] += v
			}
		})
	}
	fmt.Println(m.Run(ctx, filled(1, 2, 3)))
	readers.Wait()
	fmt.Println(sums)
	// Output:
	// <nil>
	// [6 6]
}

func ExampleMult_TapLossy() {
	var m chans.Mult[int]
	newest := chans.Sliding(1, func(v int) { fmt.Println("shed", v) })
	m.TapLossy(newest, chans.CloseAtEnd)
	fmt.Println(m.Run(context.Background(), filled(1, 2, 3)))
	printed("newest", newest.C())
	// Output:
	// shed 1
	// shed 2
	// <nil>
	// newest 3
	// newest is closed
}

// A tap that can't follow is disconnected.
func ExampleMult_UntapLossy() {
	var m chans.Mult[int]
	var slow *chans.Lossy[int]
	slow = chans.Dropping(2, func(int) {
		m.UntapLossy(slow)
		slow.Close()
	})
	m.TapLossy(slow, chans.CloseAtEnd)
	fmt.Println(m.Run(context.Background(), filled(1, 2, 3, 4)))
	printed("slow", slow.C())
	fmt.Println(m.Discarded(), "discarded")
	// Output:
	// <nil>
	// slow 1
	// slow 2
	// slow is closed
	// 1 discarded
}

// Untap releases the others from a tap that nobody reads.
func ExampleMult_Untap() {
	var m chans.Mult[int]
	stuck, live := make(chan int), make(chan int)
	m.Tap(stuck, chans.CloseAtEnd)
	m.Tap(live, chans.CloseAtEnd)
	_, wait := chans.Go(0, func(chan<- int) error { return m.Run(context.Background(), filled(1, 2)) })
	fmt.Println(<-live)
	if m.Untap(stuck) {
		close(stuck) // nothing is put into it any more
	}
	fmt.Println(<-live)
	fmt.Println(wait())
	// Output:
	// 1
	// 2
	// <nil>
}

func ExampleMult_UntapAll() {
	var m chans.Mult[int]
	closed, kept := make(chan int), make(chan int)
	m.Tap(closed, chans.CloseAtEnd)
	m.Tap(kept, chans.KeepOpen)
	m.UntapAll()
	printed("closed", closed)
	printed("kept", kept)
	// Output:
	// closed is closed
	// kept is open
}

func ExampleMult_Discarded() {
	var m chans.Mult[int]
	fmt.Println(m.Run(context.Background(), filled(1, 2, 3)))
	fmt.Println(m.Discarded())
	// Output:
	// <nil>
	// 3
}

// What not every tap has got comes back.
func ExampleMult_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	var m chans.Mult[int]
	stuck, live := make(chan int), make(chan int)
	m.Tap(stuck, chans.CloseAtEnd)
	m.Tap(live, chans.CloseAtEnd)
	_, wait := chans.Go(0, func(chan<- int) error { return m.Run(ctx, filled(1, 2)) })
	fmt.Println(<-live)
	cancel()
	var left *chans.Unsent[int]
	if errors.As(wait(), &left) {
		fmt.Println(left.Values, left.Err)
	}
	// Output:
	// 1
	// [1] chans: stopped: context canceled
}

func ExampleAtEnd() {
	var m chans.Mult[int]
	ends, stays := make(chan int, 1), make(chan int, 1)
	m.Tap(ends, chans.CloseAtEnd)
	m.Tap(stays, chans.KeepOpen)
	fmt.Println(m.Run(context.Background(), filled(1)))
	printed("ends", ends)
	printed("stays", stays)
	// Output:
	// <nil>
	// ends 1
	// ends is closed
	// stays 1
	// stays is open
}

func ExamplePub() {
	p := &chans.Pub[bool, int]{Topic: func(v int) bool { return v%2 == 0 }}
	odd, even := make(chan int, 9), make(chan int, 9)
	p.Sub(false, odd, chans.CloseAtEnd)
	p.Sub(true, even, chans.CloseAtEnd)
	fmt.Println(p.Run(context.Background(), filled(1, 2, 3, 4)))
	printed("odd", odd)
	printed("even", even)
	// Output:
	// <nil>
	// odd 1
	// odd 3
	// odd is closed
	// even 2
	// even 4
	// even is closed
}

// A value without a topic is discarded instead of ending Run.
func ExamplePub_Run() {
	p := &chans.Pub[int, int]{
		Topic: func(v int) int { return 6 / v },
		Rescue: func(e *chans.ItemError) error {
			fmt.Println(e)
			return nil
		},
	}
	threes := make(chan int, 9)
	p.Sub(3, threes, chans.CloseAtEnd)
	fmt.Println(p.Run(context.Background(), filled(0, 2, 1)))
	printed("threes", threes)
	fmt.Println(p.Discarded(), "discarded")
	// Output:
	// chans: value 0: panic: runtime error: integer divide by zero
	// <nil>
	// threes 2
	// threes is closed
	// 2 discarded
}

// A topic's last value for whoever looks, which holds up nobody.
func ExamplePub_SubLossy() {
	p := &chans.Pub[bool, int]{Topic: func(v int) bool { return v < 0 }}
	newest := chans.Sliding[int](1, nil)
	p.SubLossy(false, newest, chans.CloseAtEnd)
	fmt.Println(p.Run(context.Background(), filled(1, -2, 3)))
	printed("newest", newest.C())
	fmt.Println(newest.Shed(), "shed")
	fmt.Println(p.UnsubLossy(false, newest), "as Run has ended")
	// Output:
	// <nil>
	// newest 3
	// newest is closed
	// 1 shed
	// false as Run has ended
}

func ExamplePub_Unsub() {
	p := &chans.Pub[string, int]{Topic: func(int) string { return "all" }}
	c := make(chan int, 1)
	p.Sub("all", c, chans.CloseAtEnd)
	fmt.Println(p.Topics(), p.Unsub("all", c), p.Topics())
	printed("c", c)
	// Output:
	// 1 true 0
	// c is open
}

func ExamplePub_UnsubTopic() {
	p := &chans.Pub[string, int]{Topic: func(int) string { return "all" }}
	one, two := make(chan int), make(chan int)
	p.Sub("a", one, chans.CloseAtEnd)
	p.Sub("a", two, chans.CloseAtEnd)
	p.Sub("b", two, chans.CloseAtEnd)
	p.UnsubTopic("a")
	printed("one", one)
	printed("two", two)
	p.UnsubAll()
	printed("two", two)
	// Output:
	// one is closed
	// two is open
	// two is closed
}

// mix runs a Mix and returns what it puts together.
func mix(m *chans.Mix[int]) (from <-chan int, end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	from, wait := chans.Go(0, func(to chan<- int) error { return m.Run(ctx, to) })
	return from, func() error {
		cancel()
		return wait()
	}
}

func ExampleMix() {
	var m chans.Mix[int]
	from, end := mix(&m)
	m.Admix(filled(1, 2))
	fmt.Println(<-from, <-from)
	m.Admix(filled(3))
	fmt.Println(<-from)
	fmt.Println(end())
	// Output:
	// 1 2
	// 3
	// chans: stopped: context canceled
}

func ExampleMix_Toggle() {
	var m chans.Mix[int]
	a := make(chan int)
	from, end := mix(&m)
	m.Toggle(chans.Mute, true, a)
	a <- 1 // is not heard
	m.Toggle(chans.Mute, false, a)
	a <- 2
	fmt.Println(<-from, m.Discarded())
	m.Toggle(chans.Pause, true, a)
	fmt.Println(chans.Offer(a, 3)) // nobody takes it
	fmt.Println(end())
	// Output:
	// 2 1
	// false <nil>
	// chans: stopped: context canceled
}

func ExampleMix_SoloMode() {
	var m chans.Mix[int]
	a, b := make(chan int), make(chan int)
	from, end := mix(&m)
	m.Admix(a, b)
	m.SoloMode(chans.Pause)
	m.Toggle(chans.Solo, true, a)
	a <- 1
	fmt.Println(<-from)
	fmt.Println(chans.Offer(b, 2))
	m.SoloMode(chans.Mute)
	b <- 3 // is not heard
	fmt.Println(end(), m.Discarded())
	// Output:
	// 1
	// false <nil>
	// chans: stopped: context canceled 1
}

func ExampleMix_Unmix() {
	var m chans.Mix[int]
	a, b := filled(1), filled(2)
	m.Admix(a, b)
	fmt.Println(m.Unmix(a), m.Unmix(a))
	from, end := mix(&m)
	fmt.Println(<-from, len(a))
	m.UnmixAll()
	fmt.Println(end())
	// Output:
	// true false
	// 2 1
	// chans: stopped: context canceled
}

// An input that is added with its switches.
func ExampleSwitch() {
	var m chans.Mix[int]
	loud, quiet := make(chan int, 1), make(chan int, 1)
	loud <- 1
	quiet <- 2
	m.Admix(quiet)
	m.Toggle(chans.Solo|chans.Mute, true, loud) // a solo is heard, muted or not
	from, end := mix(&m)
	fmt.Println(<-from)
	fmt.Println(end())
	// Output:
	// 1
	// chans: stopped: context canceled
}
