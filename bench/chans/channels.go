package main

import (
	"context"
	"fmt"
)

// between runs a job on channels, between a goroutine that makes the items and
// this one, which counts what comes out. The context can be ended, as in
// production.
func between(items, want int, run func(ctx context.Context, to chan<- int, from <-chan int) error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	from, to := make(chan int, buffer), make(chan int, buffer)
	go feed(from, items)
	failed := make(chan error, 1)
	go func() {
		defer close(to)
		failed <- run(ctx, to, from)
	}()
	got := 0
	for range to {
		got++
	}
	if err := <-failed; err != nil {
		panic(err)
	}
	if got != want {
		panic(fmt.Sprintf("%d of %d", got, want))
	}
}

func feed(to chan<- int, items int) {
	defer close(to)
	for i := range items {
		to <- i
	}
}

// take and give are what one writes for a channel and a context once the costs
// are known: a select with two cases takes twice as long as one with a default, and
// is needed only when there is nothing to do but wait.

func take(ctx context.Context, from <-chan int) (v int, ok bool, err error) {
	if ctx.Err() != nil {
		return 0, false, context.Cause(ctx)
	}
	select {
	case v, ok = <-from:
		return v, ok, nil
	default:
	}
	select {
	case v, ok = <-from:
		return v, ok, nil
	case <-ctx.Done():
		return 0, false, context.Cause(ctx)
	}
}

func give(ctx context.Context, to chan<- int, v int) error {
	select {
	case to <- v:
		return nil
	default:
	}
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
