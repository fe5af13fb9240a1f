package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// oncePeer is this library.
type oncePeer struct{}

func (oncePeer) module() string { return "github.com/oncepipe/oncepipe" }

func (oncePeer) chains() []chain {
	const does = "key, settlement, retry and counters per item"
	return []chain{
		{"oncepipe", threeHops, does, []int{1, 4}, func(items, workers int) total {
			return onceChain(items, func(s oncepipe.Stream[order]) oncepipe.Stream[order] {
				for _, name := range []string{"first", "second", "third"} {
					s = onceStage(s, name, step, workers)
				}
				return s
			})
		}},
		{"oncepipe", oneHop, does, []int{1, 4}, func(items, workers int) total {
			return onceChain(items, func(s oncepipe.Stream[order]) oncepipe.Stream[order] {
				return onceStage(s, "all", allSteps, workers)
			})
		}},
		{"oncepipe", inline, "key and settlement per item", []int{1}, onceInline},
	}
}

func onceStage(in oncepipe.Stream[order], name string, f func(order) order, workers int) oncepipe.Stream[order] {
	return oncepipe.Stage(in, name,
		func(_ context.Context, o order) (order, error) { return f(o), nil },
		oncepipe.Workers(workers),
		oncepipe.Buffer(oncepipe.Fixed(buffer)),
		oncepipe.Retry(oncepipe.RetryPolicy{}))
}

// onceChain has a consumer with a queue of its own, as the others have.
func onceChain(items int, through func(oncepipe.Stream[order]) oncepipe.Stream[order]) (t total) {
	p := oncepipe.New("bench", oncepipe.Config{})
	s := oncepipe.KeyBy(oncepipe.FromSeq(p, "orders", orders(items)), func(o order) string { return o.ID })
	oncepipe.Sink(through(s), "consumer", func(_ context.Context, o order) error {
		t.add(o)
		return nil
	}, oncepipe.Buffer(oncepipe.Fixed(buffer)))
	if err := p.Run(context.Background()); err != nil {
		panic(err) // nothing fails here
	}
	return t
}

func onceInline(items, _ int) (t total) {
	p := oncepipe.New("bench", oncepipe.Config{})
	s := oncepipe.KeyBy(oncepipe.FromSeq(p, "orders", orders(items)), func(o order) string { return o.ID })
	for range 3 {
		s = oncepipe.Map(s, step)
	}
	oncepipe.Discard(oncepipe.Map(s, func(o order) order {
		t.add(o)
		return o
	}))
	if err := p.Run(context.Background()); err != nil {
		panic(err) // nothing fails here
	}
	return t
}

func (oncePeer) writers() []writer {
	return []writer{
		{
			"oncepipe: Dedup, Retry", "retry: yes, without a worker; ack: yes; dedup: in flight and done", "parks it",
			func(ctx context.Context, j job) error {
				return onceWrite(ctx, j, j.write)
			},
		},
		{
			"oncepipe: Dedup, Retry, OnceWith", "the same; after an unknown end it asks the other side (AtMostOnce, Resolve)", "parks it",
			func(ctx context.Context, j job) error {
				write := func(ctx context.Context, d *delivery) (struct{}, error) {
					return struct{}{}, j.write(ctx, d)
				}
				return onceWrite(ctx, j, discarding(oncepipe.OnceWith(memstore.New(memstore.Config{}), "write",
					oncepipe.OnceConfig[*delivery, struct{}]{
						AtMostOnce: true,
						Resolve: func(ctx context.Context, d *delivery) (struct{}, bool, error) {
							happened, err := j.written(ctx, d)
							return struct{}{}, happened, err
						},
					}, write)))
			},
		},
	}
}

func discarding[A, B any](f func(context.Context, A) (B, error)) func(context.Context, A) error {
	return func(ctx context.Context, v A) error {
		_, err := f(ctx, v)
		return err
	}
}

// onceWrite has no worker that could put an item back: what failed is parked in its
// stage. After the last attempt it goes back to the source, as there is no place for
// dead letters.
func onceWrite(ctx context.Context, j job, write func(context.Context, *delivery) error) error {
	p := oncepipe.New("bench", oncepipe.Config{Logger: slog.New(slog.DiscardHandler)})
	in := oncepipe.Dedup(oncepipe.From(p, "source", onceSource{j.source}), "dedup",
		func(d *delivery) string { return d.Key })
	oncepipe.Sink(in, "write", write,
		oncepipe.Workers(j.workers),
		oncepipe.Buffer(oncepipe.Fixed(j.buffer)),
		oncepipe.Retry(oncepipe.RetryPolicy{
			MaxAttempts: j.attempts,
			Backoff:     func() backoff.BackOff { return backoff.NewConstantBackOff(j.backoff) },
		}))
	return p.Run(ctx)
}

// onceSource makes a source of a broker.
type onceSource struct{ b *broker }

func (s onceSource) Receive(ctx context.Context) (oncepipe.Delivery[*delivery], error) {
	d, err := s.b.receive(ctx)
	if err != nil {
		return oncepipe.Delivery[*delivery]{}, err
	}
	return oncepipe.Delivery[*delivery]{
		Value: d,
		Settle: func(_ context.Context, s oncepipe.Settlement) error {
			switch s.Outcome {
			case oncepipe.Done, oncepipe.Duplicate:
				d.ack()
			case oncepipe.Returned:
				d.nack()
			default:
				return errors.New("no other outcome is expected here")
			}
			return nil
		},
	}, nil
}
