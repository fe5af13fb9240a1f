package main

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// buffer is the size of every channel.
const buffer = 64

func workers(s sizes) plan {
	var p plan
	for _, n := range s.workers {
		p.rounds = append(p.rounds,
			func(m *meter) error {
				ours, bare, err := pair(n, s.items, func() {})
				m.note("workers/trivial", n, each(ours, s.items))
				m.note("workers/bare", n, each(bare, s.items))
				return err
			},
			func(m *meter) error { return waiting(m, "workers/100µs", n, s.waits, 100*time.Microsecond) },
			func(m *meter) error { return waiting(m, "workers/1ms", n, s.waits, time.Millisecond) },
		)
	}
	return p
}

// waiting measures n workers, each of which waits as often as waits says.
func waiting(m *meter, series string, n, waits int, d time.Duration) error {
	ours, bare, err := pair(n, n*waits, func() { time.Sleep(d) })
	m.note(series, n, each(ours, waits))
	m.note(series+"-over", n, float64(ours)/float64(bare))
	return err
}

// pair is the time that n workers take for the items, and that of n goroutines
// at a bare channel.
func pair(n, items int, work func()) (ours, bare time.Duration, err error) {
	start := time.Now()
	if err := staged(n, items, work); err != nil {
		return 0, 0, err
	}
	ours = time.Since(start)
	runtime.GC()
	start = time.Now()
	if err := byHand(n, items, work); err != nil {
		return 0, 0, err
	}
	return ours, time.Since(start), nil
}

func staged(n, items int, work func()) error {
	p := oncepipe.New("workers", oncepipe.Config{})
	oncepipe.Sink(oncepipe.FromSeq(p, "numbers", count(items)), "work",
		func(context.Context, int) error { work(); return nil },
		oncepipe.Workers(n), oncepipe.Buffer(oncepipe.Fixed(buffer)), oncepipe.Retry(oncepipe.RetryPolicy{}))
	return finish(p, items)
}

func byHand(n, items int, work func()) error {
	ch := make(chan int, buffer)
	go func() {
		defer close(ch)
		for i := range count(items) {
			ch <- i
		}
	}()
	done := make([]int, n)
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			mine := 0
			for range ch {
				work()
				mine++
			}
			done[w] = mine
		})
	}
	wg.Wait()
	sum := 0
	for _, mine := range done {
		sum += mine
	}
	if sum != items {
		return fmt.Errorf("%d of %d items", sum, items)
	}
	return nil
}

func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}
