package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

func (watermillPeer) writers() []writer {
	subscribed := func(middlewares ...func(job) message.HandlerMiddleware) func(context.Context, job) error {
		return func(ctx context.Context, j job) error {
			return watermillWrite(ctx, j, middlewares)
		}
	}
	return []writer{
		{
			"watermill: gochannel, Retry", "retry: yes; ack: yes, Publish waits for it, one at a time; dedup: none", "nacks it",
			watermillBus,
		},
		{
			"watermill: Retry", "retry: yes; ack: yes, by a Subscriber of the source; dedup: none", "nacks it",
			subscribed(watermillRetry),
		},
		{
			"watermill: Deduplicator, Retry", "the same; dedup: yes, marked before the write", "nacks it",
			subscribed(watermillDedup, watermillRetry),
		},
		{
			"watermill: Retry, Deduplicator", "the same in the other order", "nacks it",
			subscribed(watermillRetry, watermillDedup),
		},
	}
}

// watermillRetry leaves it to the nack, where failed items are to go back.
func watermillRetry(j job) message.HandlerMiddleware {
	if j.requeue {
		return func(h message.HandlerFunc) message.HandlerFunc { return h }
	}
	return middleware.Retry{
		MaxRetries:      j.attempts - 1,
		InitialInterval: j.backoff,
		MaxInterval:     j.backoff,
		Multiplier:      1,
	}.Middleware
}

func watermillDedup(job) message.HandlerMiddleware {
	return (&middleware.Deduplicator{
		KeyFactory: middleware.NewMessageHasherFromMetadataField("key"),
		Timeout:    time.Minute,
	}).Middleware
}

type deliveryKey struct{}

func watermillDelivery(ctx context.Context, d *delivery) *message.Message {
	m := message.NewMessage(watermill.NewUUID(), nil)
	m.Metadata.Set("key", d.Key)
	m.SetContext(context.WithValue(ctx, deliveryKey{}, d))
	return m
}

func watermillHandler(j job) message.NoPublishHandlerFunc {
	return func(m *message.Message) error {
		return j.write(m.Context(), m.Context().Value(deliveryKey{}).(*delivery))
	}
}

// watermillWrite subscribes to the source.
func watermillWrite(ctx context.Context, j job, middlewares []func(job) message.HandlerMiddleware) error {
	router := watermillRouter()
	for _, m := range middlewares {
		router.AddMiddleware(m(j))
	}
	router.AddConsumerHandler("write", "source", watermillSource{j}, watermillHandler(j))
	return router.Run(ctx)
}

// watermillSource makes a Subscriber of a source.
type watermillSource struct{ j job }

func (watermillSource) Close() error { return nil }

// Subscribe returns a channel that is closed when the source is at its end or ctx ends.
func (s watermillSource) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message, s.j.buffer)
	go func() {
		defer close(out)
		var open sync.WaitGroup
		// The only error is ctx's, and ctx is the router's.
		_ = s.j.feed(ctx, func(d *delivery) {
			m := watermillDelivery(ctx, d)
			out <- m
			open.Go(func() {
				select {
				case <-m.Acked():
					d.ack()
				case <-m.Nacked():
					d.nack()
				}
			})
		})
		open.Wait()
	}()
	return out, nil
}

// watermillBus publishes what the source delivers on a bus in memory, and acks when
// Publish says that it is acked there.
func watermillBus(ctx context.Context, j job) error {
	bus := gochannel.NewGoChannel(gochannel.Config{
		OutputChannelBuffer:            int64(j.buffer),
		BlockPublishUntilSubscriberAck: true,
		PreserveContext:                true,
	}, watermill.NopLogger{})
	router := watermillRouter()
	router.AddMiddleware(watermillRetry(j))
	router.AddConsumerHandler("write", "writes", bus, watermillHandler(j))
	running := watermillRun(ctx, router)
	err := j.feed(ctx, func(d *delivery) {
		if err := bus.Publish("writes", watermillDelivery(ctx, d)); err != nil {
			d.nack()
		} else {
			d.ack()
		}
	})
	return errors.Join(err, bus.Close(), router.Close(), <-running)
}
