package chans_test

import (
	"context"
	"sync"
	"testing"

	"github.com/oncepipe/oncepipe/chans"
)

// A first look at the costs; bench/chans has the limits.

func feed(b *testing.B, c chan<- int) {
	for i := range b.N {
		c <- i
	}
	close(c)
}

func drain[T any](c <-chan T) {
	for range c {
	}
}

// rawOrdered is an ordered job with n workers as one writes it by hand.
func rawOrdered(n int, out chan<- int, in <-chan int, fn func(int) int) {
	type job struct {
		v      int
		result chan int
	}
	jobs := make(chan job, n)
	order := make(chan chan int, n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for j := range jobs {
				j.result <- fn(j.v)
			}
		})
	}
	wg.Go(func() {
		for v := range in {
			j := job{v, make(chan int, 1)}
			order <- j.result
			jobs <- j
		}
		close(jobs)
		close(order)
	})
	for r := range order {
		out <- <-r
	}
	wg.Wait()
}

// rawPooled is rawOrdered with result channels that are used again.
func rawPooled(n int, out chan<- int, in <-chan int, fn func(int) int) {
	type job struct {
		v      int
		result chan int
	}
	jobs := make(chan job, n)
	order := make(chan chan int, n)
	pool := make(chan chan int, 2*n+2)
	for range cap(pool) {
		pool <- make(chan int, 1)
	}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for j := range jobs {
				j.result <- fn(j.v)
			}
		})
	}
	wg.Go(func() {
		for v := range in {
			j := job{v, <-pool}
			order <- j.result
			jobs <- j
		}
		close(jobs)
		close(order)
	})
	for r := range order {
		out <- <-r
		pool <- r
	}
	wg.Wait()
}

func BenchmarkPipeline4(b *testing.B) {
	run := func(b *testing.B, job func(out chan<- int, in <-chan int)) {
		in, out := make(chan int, 64), make(chan int, 64)
		go feed(b, in)
		go func() {
			defer close(out)
			job(out, in)
		}()
		drain(out)
	}
	b.Run("raw", func(b *testing.B) {
		run(b, func(out chan<- int, in <-chan int) {
			rawOrdered(4, out, in, func(v int) int { return v + 1 })
		})
	})
	b.Run("rawPooled", func(b *testing.B) {
		run(b, func(out chan<- int, in <-chan int) {
			rawPooled(4, out, in, func(v int) int { return v + 1 })
		})
	})
	b.Run("chans", func(b *testing.B) {
		run(b, func(out chan<- int, in <-chan int) {
			err := chans.Pipeline(context.Background(), 4, out, in, func(_ context.Context, v int, emit func(int)) error {
				emit(v + 1)
				return nil
			})
			if err != nil {
				b.Error(err)
			}
		})
	})
}

func BenchmarkChain5(b *testing.B) {
	run := func(b *testing.B, job func(out chan<- int, in <-chan int)) {
		in, out := make(chan int, 64), make(chan int, 64)
		go feed(b, in)
		go func() {
			defer close(out)
			job(out, in)
		}()
		drain(out)
	}
	b.Run("loop", func(b *testing.B) {
		run(b, func(out chan<- int, in <-chan int) {
			last, passed := 0, false
			for v := range in {
				v++
				if v%8 == 0 {
					continue
				}
				v *= 2
				if passed && v == last {
					continue
				}
				last, passed = v, true
				out <- v - 1
			}
		})
	})
	xf := chans.Compose5(
		chans.Map(func(v int) int { return v + 1 }),
		chans.Remove(func(v int) bool { return v%8 == 0 }),
		chans.Map(func(v int) int { return v * 2 }),
		chans.Dedupe[int](),
		chans.Map(func(v int) int { return v - 1 }),
	)
	b.Run("chans", func(b *testing.B) {
		run(b, func(out chan<- int, in <-chan int) {
			if err := chans.PipeThrough(context.Background(), out, in, xf); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("chansCancel", func(b *testing.B) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		run(b, func(out chan<- int, in <-chan int) {
			if err := chans.PipeThrough(ctx, out, in, xf); err != nil {
				b.Error(err)
			}
		})
	})
}

func BenchmarkPut(b *testing.B) {
	b.Run("buffered", func(b *testing.B) {
		c := make(chan int, 64)
		go drain(c)
		feed(b, c)
	})
	for name, l := range map[string]*chans.Lossy[int]{
		"dropping": chans.Dropping[int](64, nil),
		"sliding":  chans.Sliding[int](64, nil),
	} {
		b.Run(name, func(b *testing.B) {
			go drain(l.C())
			for i := range b.N {
				_ = l.Put(i)
			}
		})
	}
}

// Without a reader: a buffer that is taken by its writer, and ones that overflow.
func BenchmarkPutAlone(b *testing.B) {
	b.Run("buffered", func(b *testing.B) {
		c := make(chan int, 64)
		for i := range b.N {
			if len(c) == cap(c) {
				for len(c) > 0 {
					<-c
				}
			}
			c <- i
		}
	})
	b.Run("dropping", func(b *testing.B) {
		l := chans.Dropping[int](64, nil)
		for i := range b.N {
			_ = l.Put(i)
		}
	})
	b.Run("sliding", func(b *testing.B) {
		l := chans.Sliding[int](64, nil)
		for i := range b.N {
			_ = l.Put(i)
		}
	})
	b.Run("roomy", func(b *testing.B) {
		l := chans.Sliding[int](64, nil)
		for i := range b.N {
			if len(l.C()) == cap(l.C()) {
				for len(l.C()) > 0 {
					<-l.C()
				}
			}
			_ = l.Put(i)
		}
	})
}
