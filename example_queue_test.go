package oncepipe_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// message is what the client of a broker hands out.
type message struct{ ID, Order string }

func (m message) OrderID() string { return m.Order }

// client stands for that of a broker: what isn't acked comes again.
type client struct {
	ready  chan message
	unread atomic.Int64 // not acked
}

func newClient(messages ...message) *client {
	c := &client{ready: make(chan message, len(messages))}
	c.unread.Store(int64(len(messages)))
	for _, m := range messages {
		c.ready <- m
	}
	return c
}

func (c *client) Next(ctx context.Context) (message, error) {
	select {
	case m, ok := <-c.ready:
		if !ok {
			return m, io.EOF
		}
		return m, nil
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

func (c *client) Ack(context.Context, message) error {
	if c.unread.Add(-1) == 0 {
		close(c.ready)
	}
	return nil
}

func (c *client) Nack(_ context.Context, m message, _ time.Duration) error {
	c.ready <- m
	return nil
}

// A service on a queue of one's own: what the source is told of each message,
// how it stops, where dead letters go, and what can be counted. README.md shows this
// example.
func Example_queue() {
	queue := newClient(message{"m1", "order-1"}, message{"m2", "order-2"}, message{"m3", "order-1"})
	store := memstore.New(memstore.Config{})

	source := oncepipe.SourceFunc[message](func(ctx context.Context) (oncepipe.Delivery[message], error) {
		m, err := queue.Next(ctx) // blocks; io.EOF ends the source, after another error it is asked again
		return oncepipe.Delivery[message]{Value: m, Settle: func(ctx context.Context, s oncepipe.Settlement) error {
			if s.Outcome == oncepipe.Returned { // not finished: it has to come again, not before s.Delay
				return queue.Nack(ctx, m, s.Delay)
			}
			return queue.Ack(ctx, m) // done, duplicate, filtered, shed, or its dead letter is written
		}}, err
	})

	// The first signal ends the source: what it had handed over is finished, or returned after DrainTimeout.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var retries atomic.Int64
	p := oncepipe.New("shop", oncepipe.Config{
		DrainTimeout: 20 * time.Second,
		DeadLetters:  oncepipe.DeadLettersIn(store, nil),
		Observers: []oncepipe.Observer{func(e oncepipe.Event) {
			if e.Kind == oncepipe.EventRetried {
				retries.Add(1)
			}
		}},
	})
	orders := oncepipe.Dedup(oncepipe.From(p, "queue", source), "dedup", message.OrderID, oncepipe.WithStore(store))
	oncepipe.Sink(orders, "ship", func(_ context.Context, m message) error {
		fmt.Println("ship", m.Order)
		return nil
	}, oncepipe.Retry(oncepipe.RetryPolicy{}))

	if err := p.Run(ctx); err != nil { // nil after a signal, too, if everything was settled
		fmt.Println(err)
	}
	s := p.Stats() // may be read at any time; of each stage: depth, running, parked, retried, dead, …
	fmt.Println("admitted", s.Admitted, "done", s.Done, "duplicate", s.Duplicate, "retries", retries.Load())
	// Output:
	// ship order-1
	// ship order-2
	// admitted 3 done 2 duplicate 1 retries 0
}
