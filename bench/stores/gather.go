package main

import (
	"context"
	"errors"
)

// gathering holds many callers with a key each against one caller who brings
// as many keys at once, and against one with a key at a time.
func gathering(ctx context.Context, b backend, s scale) (rows []row, err error) {
	if b.claimsOnly {
		return nil, nil
	}
	p, err := b.open(ctx, options{sizes: []int{s.Callers}})
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
		s.Rounds,
		together(ctx, s.Callers, s.PerCaller, k, one),
		inBatches(ctx, s.PerCaller, s.Callers, k, many),
		each(ctx, s.Callers, k, one),
		each(ctx, s.Callers, k, alone(claimed(p.store))),
		each(ctx, s.Callers, k, p.bareClaim),
	)
	if err != nil {
		return nil, err
	}
	gathered, direct, single, claim, bare := t[0], t[1], t[2], t[3], t[4]
	items := float64(s.Callers * s.PerCaller)
	return []row{
		atLeast(claimsOverBatches(s.Callers), direct.Over(gathered), 0.8).heldIf(b.tx),
		atLeast(claimsOverSingle(s.Callers), single.Over(gathered)*float64(s.PerCaller), 10).heldIf(b.tx),
		reported("claims gathered, a key", micros(median(gathered))/items, "µs"),
		reported("claim of a lone caller, time over a bare insert", claim.Over(bare), ""),
		reported("claim of a lone caller", micros(median(claim))/float64(s.Callers), "µs"),
	}, nil
}

func gatheredEffects(ctx context.Context, b backend, s scale, p *place) ([]row, error) {
	k := &keys{from: 1 << 32} // others than those that were claimed
	t, err := rounds(
		s.Rounds,
		together(ctx, s.Callers, s.PerCaller, k, p.shared),
		inBatches(ctx, s.PerCaller, s.Callers, k, p.singly),
		each(ctx, s.Callers, k, p.tx),
		each(ctx, s.Callers, k, p.shared),
	)
	if err != nil {
		return nil, err
	}
	gathered, direct, single, lone := t[0], t[1], t[2], t[3]
	items := float64(s.Callers * s.PerCaller)
	return []row{
		atLeast(sharedOverBatch(s.Callers), direct.Over(gathered), 0.8).heldIf(b.tx),
		atLeast(sharedOverTx(s.Callers), single.Over(gathered)*float64(s.PerCaller), 10).heldIf(b.tx),
		reported("shared Tx gathered, an item", micros(median(gathered))/items, "µs"),
		reported("shared Tx of a lone caller, time over Tx", lone.Over(single), ""),
	}, nil
}
