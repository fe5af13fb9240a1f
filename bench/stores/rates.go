package main

import (
	"context"
	"errors"
	"time"

	"github.com/oncepipe/oncepipe"
)

const (
	rateGroup = "rates"
	perSecond = "/s"
)

// rates is how many claims, completions and effects there are in a second, one by
// one and many at a time, beside the same by hand and what the disk can do.
func rates(ctx context.Context, b backend, s scale) (rows []row, err error) {
	f, err := newSyncedFile(b.disk)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	p, err := b.open(ctx, options{sizes: s.Together})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()

	var all meters
	byHand := &keys{from: 1 << 32}
	runs := []func() error{
		all.add(aSync, 1).run(s.Single, f.append),
		all.add(inCalls(insertByHand, 1), 1).run(s.Single, func() error { return p.bareClaim(ctx, byHand.next()) }),
		claimRates(ctx, &all, p.store, 1, s.Single),
	}
	for _, size := range s.Together {
		runs = append(runs, claimRates(ctx, &all, p.store, size, s.Batches))
	}
	if !b.claimsOnly {
		runs = append(runs, effectRates(ctx, &all, p, s)...)
	}
	if _, err := rounds(s.Rounds, runs...); err != nil {
		return nil, err
	}
	return all.rows(), nil
}

// claimRates is a run of calls that claim size keys each, and of as many that
// complete them.
func claimRates(ctx context.Context, all *meters, st oncepipe.Store, size, calls int) func() error {
	k := &keys{from: uint64(size) << 40}
	var held [][]oncepipe.ClaimRequest
	claims := all.add(inCalls(aClaim, size), size).run(calls, func() error {
		reqs, err := claim(ctx, st, k.take(size))
		held = append(held, reqs)
		return err
	})
	completions := all.add(inCalls(aCompletion, size), size).run(calls, func() error {
		reqs := held[0]
		held = held[1:]
		return complete(ctx, st, reqs)
	})
	return func() error {
		if err := claims(); err != nil {
			return err
		}
		return completions()
	}
}

// effectRates are runs of transactions of the store, and of the same by hand.
func effectRates(ctx context.Context, all *meters, p *place, s scale) []func() error {
	k := &keys{}
	runs := []func() error{
		all.add(inCalls(anEffect, 1), 1).run(s.Single, func() error { return p.tx(ctx, k.next()) }),
		all.add(inCalls(effectByHand, 1), 1).run(s.Single, func() error { return p.bareTx(ctx, k.next()) }),
	}
	for _, size := range s.Together {
		runs = append(runs,
			all.add(inCalls(anEffect, size), size).run(s.Batches, func() error { return p.many(ctx, k.take(size)) }),
			all.add(inCalls(effectByHand, size), size).run(s.Batches, func() error { return p.bareMany(ctx, k.take(size)) }))
	}
	return runs
}

// meter is what calls took, round by round.
type meter struct {
	name   string
	items  int // of a call
	rounds [][]time.Duration
}

// run makes a round of n calls.
func (m *meter) run(n int, call func() error) func() error {
	return func() error {
		took := make([]time.Duration, n)
		for i := range took {
			begun := time.Now()
			if err := call(); err != nil {
				return err
			}
			took[i] = time.Since(begun)
		}
		m.rounds = append(m.rounds, took)
		return nil
	}
}

// row is the median of the rounds' rates, and what a call took. The first round
// doesn't count.
func (m *meter) row() row {
	var calls, items []time.Duration // an item's share, round by round
	for _, took := range m.rounds[1:] {
		var sum time.Duration
		for _, d := range took {
			sum += d
		}
		calls = append(calls, took...)
		items = append(items, sum/time.Duration(len(took)*m.items))
	}
	r := reported(m.name, float64(time.Second)/float64(median(items)), perSecond)
	r.P50, r.P99 = micros(median(calls)), micros(quantile(calls, 0.99))
	return r
}

type meters []*meter

func (all *meters) add(name string, items int) *meter {
	m := &meter{name: name, items: items}
	*all = append(*all, m)
	return m
}

func (all *meters) rows() (rows []row) {
	for _, m := range *all {
		rows = append(rows, m.row())
	}
	return rows
}
