package main

import (
	"context"

	"github.com/sourcegraph/conc/pool"
	"github.com/sourcegraph/conc/stream"
)

// concPeer is sourcegraph/conc: pools of goroutines, and a stream that keeps order.
type concPeer struct{}

func (concPeer) module() string { return "github.com/sourcegraph/conc" }

func (concPeer) chains() []chain {
	return []chain{
		{"conc pool", oneHop, "panics reach the caller; the hop to a worker has no buffer", []int{1, 4}, concPool},
		{"conc stream", oneHop, "the same, and the results keep their order", []int{1, 4}, concStream},
	}
}

func concPool(items, workers int) (t total) {
	out := make(chan order, buffer)
	go func() {
		defer close(out)
		p := pool.New().WithMaxGoroutines(workers)
		for o := range orders(items) {
			p.Go(func() { out <- allSteps(o) })
		}
		p.Wait()
	}()
	for o := range out {
		t.add(o)
	}
	return t
}

func concStream(items, workers int) (t total) {
	s := stream.New().WithMaxGoroutines(workers)
	for o := range orders(items) {
		s.Go(func() stream.Callback {
			o := allSteps(o)
			return func() { t.add(o) }
		})
	}
	s.Wait()
	return t
}

func (concPeer) writers() []writer {
	return []writer{{"conc pool", "none; retry: a loop in the task; ack: by hand", "", concWrite}}
}

func concWrite(ctx context.Context, j job) error {
	p := pool.New().WithMaxGoroutines(j.workers)
	var submit func(d *delivery)
	submit = func(d *delivery) {
		p.Go(func() {
			if j.requeue {
				j.try(ctx, d, submit)
			} else {
				j.settle(ctx, d)
			}
		})
	}
	err := j.feed(ctx, submit)
	p.Wait()
	return err
}
