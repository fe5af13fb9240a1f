package main

import (
	"context"
	"sync"
)

// rawPeer is what one writes by hand on bare channels.
type rawPeer struct{}

func (rawPeer) module() string { return "" }

func (rawPeer) chains() []chain {
	through := func(steps ...func(order) order) func(items, workers int) total {
		return func(items, workers int) total { return rawChain(items, workers, steps) }
	}
	return []chain{
		{"raw channels", threeHops, "nothing", []int{1, 4}, through(step, step, step)},
		{"raw channels", oneHop, "nothing", []int{1, 4}, through(allSteps)},
	}
}

func rawChain(items, workers int, steps []func(order) order) (t total) {
	in := make(chan order, buffer)
	go func(first chan<- order) {
		defer close(first)
		for o := range orders(items) {
			first <- o
		}
	}(in)
	for _, f := range steps {
		in = rawStage(in, workers, f)
	}
	for o := range in {
		t.add(o)
	}
	return t
}

func rawStage(in <-chan order, workers int, f func(order) order) chan order {
	out := make(chan order, buffer)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for o := range in {
				out <- f(o)
			}
		})
	}
	go func() {
		running.Wait()
		close(out)
	}()
	return out
}

func (rawPeer) writers() []writer {
	return []writer{
		{
			"raw channels", "retry: a loop in the worker; ack: by hand; dedup: none", "",
			func(ctx context.Context, j job) error {
				return rawWrite(ctx, j, func(*delivery) bool { return true })
			},
		},
		{
			"raw channels, set of keys", "the same; dedup: a map at the source, marked before the write", "",
			func(ctx context.Context, j job) error {
				seen := map[string]bool{}
				return rawWrite(ctx, j, func(d *delivery) bool {
					fresh := !seen[d.Key]
					seen[d.Key] = true
					return fresh
				})
			},
		},
	}
}

// rawWrite writes what is fresh and acks the rest.
func rawWrite(ctx context.Context, j job, fresh func(*delivery) bool) error {
	if j.requeue {
		return rawRequeue(ctx, j, fresh)
	}
	in := make(chan *delivery, j.buffer)
	var running sync.WaitGroup
	for range j.workers {
		running.Go(func() {
			for d := range in {
				j.settle(ctx, d)
			}
		})
	}
	err := j.feed(ctx, func(d *delivery) {
		if fresh(d) {
			in <- d
		} else {
			d.ack()
		}
	})
	close(in)
	running.Wait()
	return err
}

// rawRequeue is rawWrite with workers who send what failed into their own channel.
func rawRequeue(ctx context.Context, j job, fresh func(*delivery) bool) error {
	in, over := make(chan *delivery, j.buffer), make(chan struct{})
	send := func(d *delivery) {
		select {
		case in <- d:
		case <-ctx.Done():
			d.nack()
		}
	}
	var running sync.WaitGroup
	for range j.workers {
		running.Go(func() {
			for {
				select {
				case d := <-in:
					j.try(ctx, d, send)
				case <-over:
					return
				}
			}
		})
	}
	err := j.feed(ctx, func(d *delivery) {
		if fresh(d) {
			send(d)
		} else {
			d.ack()
		}
	})
	close(over)
	running.Wait()
	return err
}
