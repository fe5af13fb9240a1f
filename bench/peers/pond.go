package main

import (
	"context"
	"errors"

	"github.com/alitto/pond/v2"
)

// pondPeer is alitto/pond: a pool of workers with a queue.
type pondPeer struct{}

func (pondPeer) module() string { return "github.com/alitto/pond/v2" }

func (pondPeer) chains() []chain {
	return []chain{{"pond pool", oneHop, "panics are caught; counters", []int{1, 4}, pondChain}}
}

func pondChain(items, workers int) (t total) {
	out := make(chan order, buffer)
	go func() {
		defer close(out)
		p := pond.NewPool(workers, pond.WithQueueSize(buffer))
		for o := range orders(items) {
			if err := p.Go(func() { out <- allSteps(o) }); err != nil {
				panic(err) // the pool is not stopped here
			}
		}
		p.StopAndWait()
	}()
	for o := range out {
		t.add(o)
	}
	return t
}

func (pondPeer) writers() []writer {
	return []writer{{"pond pool", "none; retry: a loop in the task; ack: by hand", "", pondWrite}}
}

func pondWrite(ctx context.Context, j job) error {
	p := pond.NewPool(j.workers, pond.WithQueueSize(j.buffer))
	var submit func(d *delivery)
	submit = func(d *delivery) {
		err := p.Go(func() {
			if j.requeue {
				j.try(ctx, d, submit)
			} else {
				j.settle(ctx, d)
			}
		})
		if err != nil {
			d.nack()
		}
	}
	err := j.feed(ctx, submit)
	return errors.Join(err, p.Stop().Wait())
}
