package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncepipe/oncepipe"
)

// remembered is the size of a small pipeline's guard.
const remembered = 1_000

func pipelines(s sizes) plan {
	var p plan
	most := s.pipelines[len(s.pipelines)-1]
	for _, n := range s.pipelines {
		p.once = append(p.once, func(m *meter) error { return idle(m, n) })
		p.rounds = append(p.rounds,
			func(m *meter) error { return timed(m, "pipelines/life", n, most/n, 1, whole) },
			func(m *meter) error { return timed(m, "pipelines/item", n, 1, max(s.each, s.items/n), whole) },
			func(m *meter) error { return timed(m, "pipelines/bare", n, 1, max(s.each, s.items/n), bare) },
		)
	}
	return p
}

// small builds a pipeline.
func small(from func(*oncepipe.Pipeline) oncepipe.Stream[int], sink func(context.Context, int) error) *oncepipe.Pipeline {
	p := oncepipe.New("small", oncepipe.Config{})
	fresh := oncepipe.Dedup(from(p), "dedup", strconv.Itoa, oncepipe.WithGuard(oncepipe.Ring(remembered)))
	worked := oncepipe.Stage(fresh, "work", func(_ context.Context, v int) (int, error) { return v, nil },
		oncepipe.Workers(2), oncepipe.Retry(oncepipe.RetryPolicy{}))
	oncepipe.Sink(worked, "sink", sink)
	return p
}

// whole is the life of a small pipeline with some items.
func whole(items int) error {
	p := small(
		func(p *oncepipe.Pipeline) oncepipe.Stream[int] { return oncepipe.FromSeq(p, "numbers", count(items)) },
		func(context.Context, int) error { return nil },
	)
	return finish(p, items)
}

// bare is the same on bare channels, which know no keys and no retries.
func bare(items int) error {
	in, out := make(chan int, oncepipe.DefaultBuffer), make(chan int, oncepipe.DefaultBuffer)
	go func() {
		defer close(in)
		for i := range count(items) {
			in <- i
		}
	}()
	var crew sync.WaitGroup
	for range 2 {
		crew.Go(func() {
			for i := range in {
				out <- i
			}
		})
	}
	go func() {
		crew.Wait()
		close(out)
	}()
	done := 0
	for range out {
		done++
	}
	if done != items {
		return fmt.Errorf("%d of %d items", done, items)
	}
	return nil
}

// timed runs n lives side by side, again and again. The figure is the time of an
// item.
func timed(m *meter, series string, n, times, items int, life func(items int) error) error {
	start := time.Now()
	for range times {
		var all errgroup.Group
		for range n {
			all.Go(func() error { return life(items) })
		}
		if err := all.Wait(); err != nil {
			return err
		}
	}
	m.note(series, n, each(time.Since(start), times*n*items))
	return nil
}

// idle measures what n pipelines have that run and have nothing to do any more.
func idle(m *meter, n int) error {
	routines, before := runtime.NumGoroutine(), memory()
	running, cancel := context.WithCancel(context.Background())
	defer cancel()
	all, ctx := errgroup.WithContext(running)
	done := make(chan struct{}, n)
	for i := range n {
		in := make(chan int, 1)
		in <- i
		p := small(
			func(p *oncepipe.Pipeline) oncepipe.Stream[int] { return oncepipe.FromChan(p, "numbers", in) },
			func(context.Context, int) error { done <- struct{}{}; return nil },
		)
		all.Go(func() error { return p.Run(ctx) })
	}
	for range n {
		select {
		case <-done:
		case <-ctx.Done():
			return all.Wait()
		}
	}
	m.note("pipelines/bytes", n, (memory()-before)/float64(n))
	m.note("pipelines/goroutines", n, float64(runtime.NumGoroutine()-routines)/float64(n))
	cancel()
	return all.Wait()
}
