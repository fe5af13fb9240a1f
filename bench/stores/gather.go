package main

import (
	"context"
	"errors"
	"fmt"
)

// gathering holds many callers with a key each against one caller who brings
// as many keys at once, and against one with a key at a time.
func gathering(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if b.open == nil {
		return nil, nil
	}
	p, err := b.open(ctx, options{batch: s.callers})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	claims, err := gatheredClaims(ctx, b, s, p)
	if err != nil {
		return nil, err
	}
	effects, err := gatheredEffects(ctx, b, s, p)
	return append(claims, effects...), err
}

func gatheredClaims(ctx context.Context, b backend, s scale, p *place) ([]row, error) {
	k := &keys{}
	many := completed(p.store)
	one := alone(many)
	t, err := rounds(
		s.rounds,
		together(ctx, s.callers, s.perCaller, k, one),
		inBatches(ctx, s.perCaller, s.callers, k, many),
		each(ctx, s.callers, k, one),
		each(ctx, s.callers, k, alone(claimed(p.store))),
		each(ctx, s.callers, k, p.bareClaim),
	)
	if err != nil {
		return nil, err
	}
	gathered, direct, single, claim, bare := t[0], t[1], t[2], t[3], t[4]
	items := float64(s.callers * s.perCaller)
	name := fmt.Sprintf("claims of %d callers, rate over ", s.callers)
	return []row{
		atLeast(name+"direct batches", direct.Over(gathered), 0.8).heldIf(b.tx),
		atLeast(name+"one by one", single.Over(gathered)*float64(s.perCaller), 10).heldIf(b.tx),
		reported("claims gathered, a key", micros(median(gathered))/items, "µs"),
		reported("claim of a lone caller, time over a bare insert", claim.Over(bare), ""),
		reported("claim of a lone caller", micros(median(claim))/float64(s.callers), "µs"),
	}, nil
}

func gatheredEffects(ctx context.Context, b backend, s scale, p *place) ([]row, error) {
	k := &keys{from: 1 << 32} // others than those that were claimed
	t, err := rounds(
		s.rounds,
		together(ctx, s.callers, s.perCaller, k, p.shared),
		inBatches(ctx, s.perCaller, s.callers, k, p.singly),
		each(ctx, s.callers, k, p.tx),
		each(ctx, s.callers, k, p.shared),
	)
	if err != nil {
		return nil, err
	}
	gathered, direct, single, lone := t[0], t[1], t[2], t[3]
	items := float64(s.callers * s.perCaller)
	name := fmt.Sprintf("shared Tx of %d callers, rate over ", s.callers)
	return []row{
		atLeast(name+"TxBatch of single inserts", direct.Over(gathered), 0.8).heldIf(b.tx),
		atLeast(name+"Tx one by one", single.Over(gathered)*float64(s.perCaller), 10).heldIf(b.tx),
		reported("shared Tx gathered, an item", micros(median(gathered))/items, "µs"),
		reported("shared Tx of a lone caller, time over Tx", lone.Over(single), ""),
	}, nil
}
