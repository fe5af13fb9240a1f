package main

import (
	"context"
	"sync"

	"github.com/oncepipe/oncepipe/chans"
)

func increment(_ context.Context, v int) (int, error) { return v + 1, nil }

func pipelines() []job {
	const items, workers = 20_000, 4
	fn := chans.One(increment)
	return []job{{
		"pipeline/4 workers", items, 1.5,
		func() {
			between(items, items, func(ctx context.Context, to chan<- int, from <-chan int) error {
				return chans.Pipeline(ctx, workers, to, from, fn)
			})
		},
		func() {
			between(items, items, func(ctx context.Context, to chan<- int, from <-chan int) error {
				return ordered(ctx, workers, to, from, increment)
			})
		},
	}}
}

// ordered calls fn for n values at a time and puts the results into to in the
// order of the values. It stops at the first error and when ctx ends; all that it
// has started has ended then. It takes no more values ahead than chans does.
func ordered(
	ctx context.Context, n int, to chan<- int, from <-chan int, fn func(context.Context, int) (int, error),
) error {
	type slot struct {
		in, out int
		err     error
		done    chan struct{}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	jobs := make(chan *slot, n)
	order := make(chan *slot, n)
	slots := make([]slot, n+2) // n in order, one in each hand beside it
	for i := range slots {
		slots[i].done = make(chan struct{}, 1)
	}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for s := range jobs {
				s.out, s.err = fn(ctx, s.in)
				s.done <- struct{}{}
			}
		})
	}
	var ended error
	wg.Go(func() {
		defer close(order)
		defer close(jobs)
		for i := 0; ; i++ {
			v, ok, err := take(ctx, from)
			if !ok {
				ended = err
				return
			}
			s := &slots[i%len(slots)]
			s.in = v
			jobs <- s
			order <- s
		}
	})
	var failed error
	for s := range order {
		<-s.done
		if failed != nil {
			continue
		}
		if failed = s.err; failed == nil {
			failed = give(ctx, to, s.out)
		}
		if failed != nil {
			cancel()
		}
	}
	wg.Wait()
	if failed == nil {
		failed = ended
	}
	return failed
}
