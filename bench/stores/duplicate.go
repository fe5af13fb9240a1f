package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/oncepipe/oncepipe"
)

// asked is a store that counts its calls.
type asked struct {
	oncepipe.Store
	claims, others atomic.Int64
}

func (a *asked) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	a.claims.Add(1)
	return a.Store.Claim(ctx, reqs)
}

func (a *asked) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	a.others.Add(1)
	return a.Store.Extend(ctx, reqs)
}

func (a *asked) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	a.others.Add(1)
	return a.Store.Complete(ctx, reqs)
}

func (a *asked) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	a.others.Add(1)
	return a.Store.Release(ctx, reqs)
}

// deliver runs a pipeline whose items are these keys.
func deliver(ctx context.Context, keys iter.Seq[string], opts ...oncepipe.Option) (oncepipe.Stats, error) {
	p := oncepipe.New("bench", oncepipe.Config{})
	s := oncepipe.FromSeq(p, "keys", keys)
	if len(opts) > 0 {
		s = oncepipe.Dedup(s, step, func(key string) string { return key }, opts...)
	}
	oncepipe.Discard(s)
	err := p.Run(ctx)
	return p.Stats(), err
}

// over yields n keys of these, again and again.
func over(of []string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			if !yield(of[i%len(of)]) {
				return
			}
		}
	}
}

// guarded is what a duplicate costs that Dedup's guard knows, although there is a
// store behind it. The guard doesn't depend on the store, so one is enough.
func guarded(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if b.dir == "" {
		return nil, nil
	}
	p, err := b.open(ctx, options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	const few = 64
	known := (&keys{}).take(few)
	st := &asked{Store: p.store}
	g := oncepipe.Ring(oncepipe.DefaultGuard)
	if stats, err := deliver(ctx, over(known, few), oncepipe.WithStore(st), oncepipe.WithGuard(g)); err != nil || stats.Done != few {
		return nil, errors.Join(err, fmt.Errorf("%d of %d keys are done", stats.Done, few))
	}
	st.claims.Store(0)
	st.others.Store(0)
	t, err := rounds(
		s.Rounds,
		func() error {
			stats, err := deliver(ctx, over(known, s.Copies), oncepipe.WithStore(st), oncepipe.WithGuard(g))
			if err == nil && stats.Duplicate != int64(s.Copies) {
				err = fmt.Errorf("%d of %d copies are duplicates", stats.Duplicate, s.Copies)
			}
			return err
		},
		func() error {
			_, err := deliver(ctx, over(known, s.Copies))
			return err
		},
	)
	if err != nil {
		return nil, err
	}
	nanos := func(m float64) float64 { return m * 1000 / float64(s.Copies) }
	return []row{
		atMost("a duplicate that the guard knows, more than an item without Dedup", nanos(micros(median(t[0].Minus(t[1])))), "ns", 200),
		reported("a duplicate that the guard knows, with its source", nanos(micros(median(t[0]))), "ns"),
		atMost("calls of the store for all of them", float64(st.claims.Load()+st.others.Load()), "", 0),
	}, nil
}

// duplicates is how often the server is asked for keys that only the store knows.
func duplicates(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if b.trips == nil {
		return nil, nil
	}
	c, err := b.trips(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	stored := (&keys{}).take(s.Stored)
	ask := func() (*asked, oncepipe.Stats, error) {
		st := &asked{Store: c.store}
		stats, err := deliver(ctx, over(stored, len(stored)), oncepipe.WithStore(st))
		return st, stats, err
	}
	// They become known; the second time statements are prepared on all connections.
	for range 2 {
		if _, _, err := ask(); err != nil {
			return nil, err
		}
	}
	before := c.trips()
	st, stats, err := ask()
	trips := c.trips() - before
	switch {
	case err != nil:
		return nil, err
	case stats.Duplicate != int64(len(stored)):
		return nil, fmt.Errorf("%d of %d keys are duplicates", stats.Duplicate, len(stored))
	}
	calls := float64(st.claims.Load())
	return []row{
		atMost("round trips for a batch of duplicates that only the store knows", float64(trips)/calls, "", 1),
		atMost("other calls of the store for them", float64(st.others.Load()), "", 0),
		reported("keys in a batch", float64(len(stored))/calls, ""),
	}, nil
}
