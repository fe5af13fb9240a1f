package oncepipe

import (
	"context"
	"time"
)

// Source hands over deliveries. The pipeline calls Receive from one goroutine,
// one call after the other, and only while Run runs.
//
// Receive blocks until there is a delivery. It returns io.EOF when there will
// be no more, and an error that wraps ctx.Err() when ctx ends: then the
// pipeline drains, and what was not received stays with the source. Any other
// error is taken as an outage: it is logged and Receive is called again after a
// backoff, unless it is marked with Permanent, which ends the source, makes the
// pipeline drain, and is returned by Run.
//
// A source may also implement HoldLimiter and RedeliveryLimiter.
type Source[T any] interface {
	Receive(ctx context.Context) (Delivery[T], error)
}

// SourceFunc makes a Source of a function.
type SourceFunc[T any] func(ctx context.Context) (Delivery[T], error)

// Receive calls f.
func (f SourceFunc[T]) Receive(ctx context.Context) (Delivery[T], error) { return f(ctx) }

// Delivery is one hand-over of a value by a source.
type Delivery[T any] struct {
	Value T

	// Key is the identity of the effect, where the source knows it. KeyBy and
	// Dedup can set it later.
	Key string

	// Settle is told once what became of the delivery. It is called from any
	// goroutine, outside of locks, on a context that the shutdown does not cancel
	// and that ends after Config.SettleTimeout. An error means that the source
	// didn't take it: Settle is called again, after a backoff; no handler is ever
	// run again for it.
	//
	// Without Settle the delivery can't be given back: when its outcome is
	// Returned, Run's error lists its value.
	Settle func(ctx context.Context, s Settlement) error
}

// HoldLimiter is implemented by sources that take a delivery away when it is
// not settled in time. An item whose backoff would end later is returned with
// that backoff as its delay.
type HoldLimiter interface {
	HoldLimit() time.Duration
}

// RedeliveryLimiter is implemented by sources that know for how long after its
// first delivery a message may come again. A store has to remember keys for
// longer than that.
type RedeliveryLimiter interface {
	MaxRedelivery() time.Duration
}
