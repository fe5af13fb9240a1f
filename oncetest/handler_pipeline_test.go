package oncetest_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

func orderID(o order) string { return o.ID }

// piped is a service that is a whole pipeline, with a store that outlives it.
func piped(faults oncetest.Faults, build func(p *oncetest.Process, in oncepipe.Stream[order], st oncepipe.Store, effects *table)) oncetest.Service[order] {
	return oncetest.Service[order]{
		Faults:  faults,
		Message: newOrder,
		New: func(*oncetest.World) oncetest.Program[order] {
			effects, st := &table{}, memstore.New(memstore.Config{})
			return oncetest.Program[order]{
				Effects: effects.of,
				Start: func(p *oncetest.Process) func(context.Context, order) error {
					return oncetest.Pipeline(p, orderID, func(src oncepipe.Source[order]) *oncepipe.Pipeline {
						st := p.Store(st)
						pipe := oncepipe.New("orders", oncepipe.Config{Stores: []oncepipe.Store{st}, Logger: slog.New(slog.DiscardHandler)})
						build(p, oncepipe.From(pipe, "source", src), st, effects)
						return pipe
					})
				},
			}
		},
	}
}

func plainSink(p *oncetest.Process, effects *table) func(context.Context, order) error {
	return func(ctx context.Context, o order) error {
		return write(ctx, p, effects, row{order: o.ID})
	}
}

func TestHandler_Pipelines(t *testing.T) {
	t.Run("bad/nothing but retries", func(t *testing.T) {
		mustBlame(t, oncetest.Twice, piped(0, func(p *oncetest.Process, in oncepipe.Stream[order], _ oncepipe.Store, effects *table) {
			oncepipe.Sink(in, "write", plainSink(p, effects), oncepipe.Retry(oncepipe.RetryPolicy{}))
		}))
	})
	t.Run("bad/Dedup in memory, and a restart", func(t *testing.T) {
		mustBlame(t, oncetest.Twice, piped(0, func(p *oncetest.Process, in oncepipe.Stream[order], _ oncepipe.Store, effects *table) {
			fresh := oncepipe.Dedup(in, "dedup", orderID)
			oncepipe.Sink(fresh, "write", plainSink(p, effects))
		}))
	})
	t.Run("good/Dedup in memory, in one process where nothing fails", func(t *testing.T) {
		clean(t, 5, piped(oncetest.Duplicates|oncetest.Overflow, func(p *oncetest.Process, in oncepipe.Stream[order], _ oncepipe.Store, effects *table) {
			fresh := oncepipe.Dedup(in, "dedup", orderID)
			oncepipe.Sink(fresh, "write", func(ctx context.Context, o order) error {
				defer p.Enter(ctx)()
				return write(ctx, p, effects, row{order: o.ID})
			}, oncepipe.Workers(4))
		}))
	})
	t.Run("good/Dedup and Once, at most once", func(t *testing.T) {
		clean(t, 5, piped(0, func(p *oncetest.Process, in oncepipe.Stream[order], st oncepipe.Store, effects *table) {
			fresh := oncepipe.Dedup(in, "dedup", orderID)
			oncepipe.Sink(fresh, "write", oncepipe.DoWith(st, "write", oncepipe.OnceConfig[order, struct{}]{AtMostOnce: true}, func(ctx context.Context, o order) error {
				defer p.Enter(ctx)()
				return write(ctx, p, effects, row{order: o.ID})
			}), oncepipe.Workers(2), oncepipe.Retry(oncepipe.RetryPolicy{MaxAttempts: 5}))
		}))
	})
	t.Run("good/Dedup with a store, and a provider that takes keys", func(t *testing.T) {
		clean(t, 5, piped(0, func(p *oncetest.Process, in oncepipe.Stream[order], st oncepipe.Store, effects *table) {
			fresh := oncepipe.Dedup(in, "dedup", orderID, oncepipe.WithStore(st))
			oncepipe.Sink(fresh, "write", func(ctx context.Context, o order) error {
				defer p.Enter(ctx)()
				return charge(ctx, p, effects, o.ID, o)
			}, oncepipe.Retry(oncepipe.RetryPolicy{}))
		}))
	})
}
