package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// growth is what claims take as the table grows, of keys that come in order
// and of those that don't.
func growth(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if !b.tx || len(s.Sizes) == 0 {
		return nil, nil
	}
	for _, order := range []string{"time-ordered", "random"} {
		p, err := b.open(ctx, options{})
		if err != nil {
			return nil, err
		}
		more, err := grow(ctx, b, s, p, order)
		if err := errors.Join(err, p.close()); err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func grow(ctx context.Context, b backend, s scale, p *place, order string) (rows []row, err error) {
	k := &keys{random: order == "random"}
	many := claimed(p.store)
	one := alone(many)
	var first, last time.Duration
	for i, size := range s.Sizes {
		for left := size - int(k.n.Load()); left > 0; left -= s.Batch {
			if err := many(ctx, k.take(min(left, s.Batch))); err != nil {
				return nil, err
			}
		}
		single, err := sample(s.Samples, func() error { return one(ctx, k.next()) })
		if err != nil {
			return nil, err
		}
		batch, err := sample((s.Samples+3)/4, func() error { return many(ctx, k.take(s.Batch)) })
		if err != nil {
			return nil, err
		}
		if last = single; i == 0 {
			first = single
		}
		name := fmt.Sprintf("%s, %d records, ", order, size)
		rows = append(rows,
			reported(name+"claim one by one", micros(single), "µs"),
			reported(name+fmt.Sprintf("claim in batches of %d, a key", s.Batch), micros(batch)/float64(s.Batch), "µs"))
	}
	name := fmt.Sprintf("%s, one by one at %d, time over that at %d", order, s.Sizes[len(s.Sizes)-1], s.Sizes[0])
	held := order == "time-ordered" && b.batch
	return append(rows, atMost(name, float64(last)/float64(first), "", 2).heldIf(held)), nil
}

// sample is the median time of n calls.
func sample(n int, do func() error) (time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		begun := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took[i] = time.Since(begun)
	}
	return median(took), nil
}
