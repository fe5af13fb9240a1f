package main

import (
	"context"
	"sync"

	"github.com/panjf2000/ants/v2"
)

// antsPeer is panjf2000/ants: a pool of goroutines.
type antsPeer struct{}

func (antsPeer) module() string { return "github.com/panjf2000/ants/v2" }

func (antsPeer) chains() []chain {
	return []chain{{"ants pool", oneHop, "panics are caught; the hop to a worker has no buffer", []int{1, 4}, antsChain}}
}

func antsChain(items, workers int) (t total) {
	out := make(chan order, buffer)
	p, err := ants.NewPoolWithFuncGeneric(workers, func(o order) { out <- allSteps(o) })
	if err != nil {
		panic(err) // the size is good
	}
	defer p.Release()
	go func() {
		for o := range orders(items) {
			if err := p.Invoke(o); err != nil {
				panic(err) // the pool is not closed here
			}
		}
	}()
	for range items {
		t.add(<-out)
	}
	return t
}

func (antsPeer) writers() []writer {
	return []writer{{"ants pool", "none; retry: a loop in the task; ack: by hand", "", antsWrite}}
}

func antsWrite(ctx context.Context, j job) error {
	var running sync.WaitGroup
	var submit func(d *delivery)
	p, err := ants.NewPoolWithFuncGeneric(j.workers, func(d *delivery) {
		defer running.Done()
		if j.requeue {
			j.try(ctx, d, submit)
		} else {
			j.settle(ctx, d)
		}
	})
	if err != nil {
		return err
	}
	submit = func(d *delivery) {
		running.Add(1)
		if err := p.Invoke(d); err != nil {
			running.Done()
			d.nack()
		}
	}
	fed := j.feed(ctx, submit)
	running.Wait()
	p.Release()
	return fed
}
