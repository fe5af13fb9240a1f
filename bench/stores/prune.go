package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pruning is how long claims take beside the removal of many records.
func pruning(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if !b.tx {
		return nil, nil
	}
	p, err := b.open(ctx, options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	const portion = 1000
	old := &keys{from: 1 << 32}
	left := s.Overdue
	for ; left > 0; left -= portion {
		if err := p.overdue(ctx, old.take(min(left, portion))); err != nil {
			return nil, fmt.Errorf("make records: %w", err)
		}
	}
	k := &keys{}
	before, err := waits(ctx, p, k, func(n int) bool { return n < s.Before })
	if err != nil {
		return nil, err
	}

	pruned := make(chan error, 1)
	begun := time.Now()
	var took time.Duration
	go func() {
		n, err := p.store.Prune(ctx, s.Overdue)
		if err == nil && n != s.Overdue {
			err = fmt.Errorf("pruned %d records of %d", n, s.Overdue)
		}
		took = time.Since(begun)
		pruned <- err
		close(pruned)
	}()
	beside, err := waits(ctx, p, k, func(n int) bool { return n == 0 || len(pruned) == 0 })
	if err := errors.Join(<-pruned, err); err != nil {
		return nil, err
	}
	return append(
		tails(beside, b.batch),
		reported("median of a claim beside it", millis(median(beside)), "ms"),
		reported("longest claim before", millis(quantile(before, 1)), "ms"),
		reported("median of a claim before", millis(median(before)), "ms"),
		reported(fmt.Sprintf("%d records pruned, in a second", s.Overdue), float64(s.Overdue)/took.Seconds(), ""),
		reported("claims beside it, in a second", float64(len(beside))/took.Seconds(), ""),
	), nil
}

// tails are the longest claim and p99.9, which the limit is for. Of a thousand
// claims or fewer that is the longest one, and isn't shown for another figure.
func tails(took []time.Duration, held bool) []row {
	const limit, enough = 50, 1000
	longest := millis(quantile(took, 1))
	if len(took) <= enough {
		return []row{atMost(pruneLongest, longest, "ms", limit).heldIf(held)}
	}
	return []row{
		reported(pruneLongest, longest, "ms"),
		atMost(pruneTail, millis(quantile(took, 0.999)), "ms", limit).heldIf(held),
	}
}

// waits claims key by key for as long as more says so, and returns how long each
// claim took.
func waits(ctx context.Context, p *place, k *keys, more func(n int) bool) (took []time.Duration, err error) {
	one := alone(claimed(p.store))
	for more(len(took)) {
		begun := time.Now()
		if err := one(ctx, k.next()); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}
