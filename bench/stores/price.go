package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// disk reports what one fsync takes, since all else depends on it.
func disk(_ context.Context, b backend, s scale) (rows []row, err error) {
	if b.dir == "" {
		return nil, nil // a server's disk isn't ours to try
	}
	f, err := newSyncedFile(b.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	took, err := sample(s.Single, f.append)
	return []row{reported(aSync, micros(took), "µs")}, err
}

// price holds transactions of the store, one by one, against the same ones by
// hand: begin, insert the effect, commit.
func price(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if b.claimsOnly {
		return nil, nil
	}
	for _, slower := range []time.Duration{0, s.Slower} {
		more, err := priceAt(ctx, b, s, slower)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func priceAt(ctx context.Context, b backend, s scale, slower time.Duration) (rows []row, err error) {
	p, err := b.open(ctx, options{slower: slower})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	n := s.Single
	if slower > 0 {
		n = (n + 3) / 4 // it takes longer
	}
	k := &keys{}
	done := k.next()
	again := func(ctx context.Context, _ string) error { return p.tx(ctx, done) }
	t, err := rounds(s.Rounds, each(ctx, n, k, p.tx), each(ctx, n, k, p.bareTx), each(ctx, n, &keys{}, again))
	if err != nil {
		return nil, err
	}
	tx, bare, known := t[0], t[1], t[2]
	per := func(t []time.Duration) float64 { return micros(median(t)) / float64(n) }
	return []row{
		atLeast(txOverBare(slower), bare.Over(tx), 0.75).heldIf(b.tx),
		reported("Tx one by one"+delayed(slower), per(tx), "µs"),
		reported(bareTransaction+delayed(slower), per(bare), "µs"),
		reported("Tx of a key that is done"+delayed(slower), per(known), "µs"),
	}, nil
}

// batches holds transactions of many items against transactions one by one, and
// against bare transactions with one insertion of the same effects.
func batches(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if b.claimsOnly {
		return nil, nil
	}
	for _, at := range []struct {
		slower time.Duration
		limit  float64
	}{{0, 0.35}, {s.Slower, 0.55}} {
		more, err := batchesAt(ctx, b, s, at.slower, at.limit)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func batchesAt(ctx context.Context, b backend, s scale, slower time.Duration, limit float64) (rows []row, err error) {
	p, err := b.open(ctx, options{sizes: []int{s.Batch}, slower: slower})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	n := (s.Single + 3) / 4
	k := &keys{}
	t, err := rounds(
		s.Rounds,
		each(ctx, n, k, p.tx),
		inBatches(ctx, s.Batches, s.Batch, k, p.many),
		inBatches(ctx, s.Batches, s.Batch, k, p.bareMany),
	)
	if err != nil {
		return nil, err
	}
	one, many, bare := t[0], t[1], t[2]
	items := s.Batches * s.Batch
	return []row{
		atLeast(batchOverTx(s.Batch, slower), one.Over(many)*float64(items)/float64(n), 10).heldIf(b.batch),
		atLeast(batchOverBare(s.Batch, slower), bare.Over(many), limit).heldIf(b.batch),
		reported(fmt.Sprintf("TxBatch of %d%s, an item", s.Batch, delayed(slower)), micros(median(many))/float64(items), "µs"),
	}, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
