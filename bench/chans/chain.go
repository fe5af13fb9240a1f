package main

import (
	"context"

	"github.com/oncepipe/oncepipe/chans"
)

func chains() []job {
	const items = 100_000
	const want = items - items/8
	five := chans.Compose5(
		chans.Map(func(v int) int { return v + 1 }),
		chans.Remove(func(v int) bool { return v%8 == 0 }),
		chans.Map(func(v int) int { return v * 2 }),
		chans.Dedupe[int](),
		chans.Map(func(v int) int { return v - 1 }),
	)
	return []job{{
		"chain/5 transducers", items, 1.2,
		func() {
			between(items, want, func(ctx context.Context, to chan<- int, from <-chan int) error {
				return chans.PipeThrough(ctx, to, from, five)
			})
		},
		func() { between(items, want, loop) },
	}}
}

// loop is the five steps in one loop, until from or ctx ends.
func loop(ctx context.Context, to chan<- int, from <-chan int) error {
	last, passed := 0, false
	for {
		v, ok, err := take(ctx, from)
		if !ok {
			return err
		}
		v++
		if v%8 == 0 {
			continue
		}
		v *= 2
		if passed && v == last {
			continue
		}
		last, passed = v, true
		if err := give(ctx, to, v-1); err != nil {
			return err
		}
	}
}
