package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/ratio"
)

// keys are distinct; they have the length and, unless they are random, the order of
// version 7 UUIDs. Callers at the same time may take them.
type keys struct {
	n      atomic.Uint64 // how many were taken
	from   uint64
	random bool
}

func (k *keys) next() string {
	high := k.from + k.n.Add(1)
	if k.random { // splitmix64: no two numbers become the same
		high *= 0x9e3779b97f4a7c15
		high = (high ^ high>>30) * 0xbf58476d1ce4e5b9
		high = (high ^ high>>27) * 0x94d049bb133111eb
		high ^= high >> 31
	}
	text := strconv.FormatUint(high, 16)
	const form = "00000000-0000-0000-0000-000000000000"
	b := []byte(form)
	at := len("00000000-0000-0000")
	for i := len(text) - 1; i >= 0; i-- {
		at--
		if b[at] == '-' {
			at--
		}
		b[at] = text[i]
	}
	return string(b)
}

func (k *keys) take(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = k.next()
	}
	return all
}

// each does a thing for n keys, one by one.
func each(ctx context.Context, n int, k *keys, do func(context.Context, string) error) func() error {
	return func() error {
		for range n {
			if err := do(ctx, k.next()); err != nil {
				return err
			}
		}
		return nil
	}
}

// inBatches does a thing n times for size keys.
func inBatches(ctx context.Context, n, size int, k *keys, do func(context.Context, []string) error) func() error {
	return func() error {
		for range n {
			if err := do(ctx, k.take(size)); err != nil {
				return err
			}
		}
		return nil
	}
}

// claim claims keys with one call of the store.
func claim(ctx context.Context, st oncepipe.Store, keys []string) ([]oncepipe.ClaimRequest, error) {
	reqs := make([]oncepipe.ClaimRequest, len(keys))
	for i, key := range keys {
		reqs[i] = oncepipe.ClaimRequest{
			RecordID: oncepipe.RecordID{Namespace: step, Key: key}, Claim: oncepipe.NewClaimID(), Lease: time.Hour,
		}
	}
	answers, err := st.Claim(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for i, a := range answers {
		if a.Status != oncepipe.ClaimAcquired {
			return nil, fmt.Errorf("claim of %s: %v", keys[i], a.Status)
		}
	}
	return reqs, nil
}

// complete completes claims with one call of the store.
func complete(ctx context.Context, st oncepipe.Store, claims []oncepipe.ClaimRequest) error {
	dones := make([]oncepipe.Completion, len(claims))
	for i, c := range claims {
		dones[i] = oncepipe.Completion{RecordID: c.RecordID, Claim: c.Claim}
	}
	held, err := st.Complete(ctx, dones)
	if err != nil {
		return err
	}
	if i := slices.Index(held, false); i >= 0 {
		return fmt.Errorf("claim of %s is lost", claims[i].Key)
	}
	return nil
}

// claimed makes a function that claims keys.
func claimed(st oncepipe.Store) func(context.Context, []string) error {
	return func(ctx context.Context, keys []string) error {
		_, err := claim(ctx, st, keys)
		return err
	}
}

// completed makes a function that claims keys and completes them, with one call of
// the store for each.
func completed(st oncepipe.Store) func(context.Context, []string) error {
	return func(ctx context.Context, keys []string) error {
		reqs, err := claim(ctx, st, keys)
		if err != nil {
			return err
		}
		return complete(ctx, st, reqs)
	}
}

// alone is a function for many keys, for one.
func alone(do func(context.Context, []string) error) func(context.Context, string) error {
	return func(ctx context.Context, key string) error { return do(ctx, []string{key}) }
}

// together has n callers do a thing for m keys each, at the same time.
func together(ctx context.Context, n, m int, k *keys, do func(context.Context, string) error) func() error {
	return func() error {
		g, ctx := errgroup.WithContext(ctx)
		for range n {
			g.Go(each(ctx, m, k, do))
		}
		return g.Wait()
	}
}

// rounds is ratio.Rounds of functions that can fail, after a round that doesn't
// count, in which statements are prepared and caches filled.
func rounds(n int, runs ...func() error) ([]ratio.Times, error) {
	var failed error
	plain := make([]func(), len(runs))
	for i, run := range runs {
		plain[i] = func() {
			if failed == nil {
				failed = run()
			}
		}
	}
	ratio.Rounds(1, plain...)
	times := ratio.Rounds(n, plain...)
	return times, failed
}

// median is that of some durations, of which there must be at least one.
func median(of []time.Duration) time.Duration { return quantile(of, 0.5) }

// quantile is the smallest duration that this part of them isn't above.
func quantile(of []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// pause is what a slower commit takes longer.
func pause(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}
