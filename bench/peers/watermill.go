package main

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// watermillPeer is ThreeDotsLabs/watermill: messages, handlers, middlewares.
type watermillPeer struct{}

func (watermillPeer) module() string { return "github.com/ThreeDotsLabs/watermill" }

func (watermillPeer) chains() []chain {
	does := "gochannel and Router: ack, context, metadata and bytes per message, a new message and goroutines for each step; the source keeps " +
		strconv.Itoa(watermillWindow) + " on their way, since Publish doesn't wait"
	return []chain{
		{"watermill", threeHops, does, []int{0}, func(items, _ int) total {
			return watermillChain(items, step, step, step)
		}},
		{"watermill", oneHop, does, []int{0}, func(items, _ int) total {
			return watermillChain(items, allSteps)
		}},
	}
}

// watermillWindow is how many messages may be on their way. Of 16, 32, 64, 128 and 256
// none was faster than a buffer's 64, and 256 was slower.
const watermillWindow = buffer

func watermillChain(items int, steps ...func(order) order) (t total) {
	bus := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: buffer}, watermill.NopLogger{})
	router := watermillRouter()
	topic := "orders"
	for i, f := range steps {
		to := "step " + strconv.Itoa(i)
		router.AddHandler(to, topic, bus, to, bus, watermillStep(f))
		topic = to
	}
	out, window := make(chan order, buffer), make(chan struct{}, watermillWindow)
	router.AddConsumerHandler("consumer", topic, bus, func(m *message.Message) error {
		out <- watermillOrder(m)
		return nil
	})
	running := watermillRun(context.Background(), router)
	go func() {
		for o := range orders(items) {
			window <- struct{}{}
			if err := bus.Publish("orders", watermillMessage(o)); err != nil {
				panic(err) // the bus is not closed here
			}
		}
	}()
	for range items {
		t.add(<-out)
		<-window
	}
	if err := errors.Join(router.Close(), <-running, bus.Close()); err != nil {
		panic(err) // all messages are acked
	}
	return t
}

func watermillRouter() *message.Router {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		panic(err) // the configuration is good
	}
	return router
}

// watermillRun returns when the router runs; the channel tells how it ended.
func watermillRun(ctx context.Context, router *message.Router) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	return ended
}

func watermillStep(f func(order) order) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{watermillMessage(f(watermillOrder(m)))}, nil
	}
}

// watermillMessage has the shortest payload there is for an order, and its ID.
func watermillMessage(o order) *message.Message {
	return message.NewMessage(o.ID, binary.BigEndian.AppendUint64(nil, uint64(o.N)))
}

func watermillOrder(m *message.Message) order {
	return order{ID: m.UUID, N: int(binary.BigEndian.Uint64(m.Payload))}
}
