package chans_test

import (
	"context"
	"sync"
	"testing"

	"github.com/oncepipe/oncepipe/chans"
)

// fannedOut are four readers of what job puts into their channels.
func fannedOut(b *testing.B, room int, job func(from <-chan int, to [4]chan int)) {
	from := make(chan int, 64)
	var to [4]chan int
	var wg sync.WaitGroup
	for i := range to {
		to[i] = make(chan int, room)
		wg.Go(func() { drain(to[i]) })
	}
	go feed(b, from)
	job(from, to)
	wg.Wait()
}

func BenchmarkMult4(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		fannedOut(b, 64, func(from <-chan int, to [4]chan int) {
			for v := range from {
				for _, c := range to {
					select {
					case c <- v:
					default:
						c <- v
					}
				}
			}
			for _, c := range to {
				close(c)
			}
		})
	})
	b.Run("chans", func(b *testing.B) {
		fannedOut(b, 64, func(from <-chan int, to [4]chan int) {
			var m chans.Mult[int]
			for _, c := range to {
				m.Tap(c, chans.CloseAtEnd)
			}
			if err := m.Run(context.Background(), from); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("lossy", func(b *testing.B) {
		fannedOut(b, 64, func(from <-chan int, to [4]chan int) {
			var m chans.Mult[int]
			for _, c := range to {
				l := chans.Dropping[int](64, nil)
				go drain(l.C())
				m.TapLossy(l, chans.CloseAtEnd)
				close(c)
			}
			if err := m.Run(context.Background(), from); err != nil {
				b.Error(err)
			}
		})
	})
}
