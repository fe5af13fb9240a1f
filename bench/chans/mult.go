package main

import (
	"context"
	"sync"

	"github.com/oncepipe/oncepipe/chans"
)

const taps = 4

func mults() []job {
	const items = 20_000
	mult := func(ctx context.Context, to [taps]chan int, from <-chan int) error {
		var m chans.Mult[int]
		for _, c := range to {
			m.Tap(c, chans.CloseAtEnd)
		}
		return m.Run(ctx, from)
	}
	return []job{
		{
			"mult/4 taps", items, 1.5,
			func() { fan(items, buffer, mult) },
			func() { fan(items, buffer, fanOut) },
		},
		{
			"mult/4 taps unbuffered", items, 1.5,
			func() { fan(items, 0, mult) },
			func() { fan(items, 0, fanOut) },
		},
	}
}

// fanOut puts every value into all channels until from or ctx ends, and closes
// them.
func fanOut(ctx context.Context, to [taps]chan int, from <-chan int) error {
	defer func() {
		for _, c := range to {
			close(c)
		}
	}()
	for {
		v, ok, err := take(ctx, from)
		if !ok {
			return err
		}
		for _, c := range to {
			if err := give(ctx, c, v); err != nil {
				return err
			}
		}
	}
}

// fan runs job with a reader for each channel.
func fan(items, room int, job func(context.Context, [taps]chan int, <-chan int) error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	from := make(chan int, buffer)
	go feed(from, items)
	var to [taps]chan int
	var got [taps]int
	var wg sync.WaitGroup
	for i := range to {
		to[i] = make(chan int, room)
		wg.Go(func() {
			n := 0
			for range to[i] {
				n++
			}
			got[i] = n
		})
	}
	if err := job(ctx, to, from); err != nil {
		panic(err)
	}
	wg.Wait()
	for _, n := range got {
		expect(n, items)
	}
}
