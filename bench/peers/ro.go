package main

import (
	"context"

	"github.com/samber/ro"
)

// roPeer is samber/ro: ReactiveX.
type roPeer struct{}

func (roPeer) module() string { return "github.com/samber/ro" }

func (roPeer) chains() []chain {
	return []chain{
		{"ro ObserveOn", threeHops, "a context per item; keeps order; one goroutine a stage", []int{1}, func(items, _ int) total {
			return roTotal(ro.Pipe7(
				roOrders(items),
				ro.ObserveOn[order](buffer), ro.Map(step),
				ro.ObserveOn[order](buffer), ro.Map(step),
				ro.ObserveOn[order](buffer), ro.Map(step),
				ro.ObserveOn[order](buffer),
			))
		}},
		{"ro", inline, "a context per item", []int{1}, func(items, _ int) total {
			return roTotal(ro.Pipe3(roOrders(items), ro.Map(step), ro.Map(step), ro.Map(step)))
		}},
	}
}

// roOrders is unsafe in ro's word, as ro's own sources are: one goroutine sends.
func roOrders(items int) ro.Observable[order] {
	return ro.NewUnsafeObservable(func(to ro.Observer[order]) ro.Teardown {
		for o := range orders(items) {
			to.Next(o)
		}
		to.Complete()
		return nil
	})
}

func roTotal(s ro.Observable[order]) (t total) {
	s.Subscribe(ro.OnNext(t.add)).Wait()
	return t
}

func (roPeer) writers() []writer {
	return []writer{
		{
			"ro: RetryWithConfig", "retry: yes, for each item's own observable, one at a time; ack: by hand; dedup: none", "",
			func(ctx context.Context, j job) error { return roWrite(ctx, j, roDeliveries(ctx, j)) },
		},
		{
			"ro: DistinctBy, RetryWithConfig", "the same; dedup: DistinctBy, without end; it drops and can't ack", "",
			func(ctx context.Context, j job) error {
				return roWrite(ctx, j, ro.Pipe1(roDeliveries(ctx, j),
					ro.DistinctBy(func(d *delivery) string { return d.Key })))
			},
		},
	}
}

func roDeliveries(ctx context.Context, j job) ro.Observable[*delivery] {
	return ro.NewUnsafeObservable(func(to ro.Observer[*delivery]) ro.Teardown {
		if err := j.feed(ctx, to.Next); err != nil {
			to.Error(err)
		} else {
			to.Complete()
		}
		return nil
	})
}

// roWrite gives each delivery an observable of its own: an error ends what it is
// raised in, and Retry subscribes to all of that again.
func roWrite(ctx context.Context, j job, deliveries ro.Observable[*delivery]) error {
	if j.requeue {
		return cannot("no queue to put an item back into")
	}
	written := ro.Pipe1(deliveries, ro.MergeMap(func(d *delivery) ro.Observable[*delivery] {
		return ro.Pipe2(
			ro.Defer(func() ro.Observable[*delivery] {
				if err := j.write(ctx, d); err != nil {
					return ro.Throw[*delivery](err)
				}
				return ro.Just(d)
			}),
			ro.RetryWithConfig[*delivery](ro.RetryConfig{MaxRetries: uint64(j.attempts - 1), Delay: j.backoff}),
			ro.Catch(func(error) ro.Observable[*delivery] {
				d.nack()
				return ro.Empty[*delivery]()
			}),
		)
	}))
	var failed error
	written.SubscribeWithContext(ctx, ro.NewObserver(
		func(d *delivery) { d.ack() },
		func(err error) { failed = err },
		func() {},
	)).Wait()
	return failed
}
