package integration

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// broker is a source that delivers keys until each is settled for good, as a
// message queue does.
type broker struct {
	// settled is called when a key is settled for good, and may refuse.
	settled func(key string, s oncepipe.Settlement) error

	mu     sync.Mutex
	ready  []string
	open   map[string]bool // not settled
	closed bool            // no more will be added
	wake   chan struct{}   // has a token when there is something new
}

func newBroker(settled func(string, oncepipe.Settlement) error) *broker {
	return &broker{settled: settled, open: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// add puts keys behind those that are there.
func (b *broker) add(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		b.open[key] = true
	}
	b.ready = append(b.ready, keys...)
	b.signal()
}

// end says that the source ends once all keys are settled.
func (b *broker) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

// left is how many keys are not settled.
func (b *broker) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

func (b *broker) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Receive implements oncepipe.Source.
func (b *broker) Receive(ctx context.Context) (oncepipe.Delivery[string], error) {
	for {
		key, there, over := b.take()
		switch {
		case there:
			return oncepipe.Delivery[string]{Value: key, Key: key, Settle: func(_ context.Context, s oncepipe.Settlement) error {
				return b.settle(key, s)
			}}, nil
		case over:
			return oncepipe.Delivery[string]{}, io.EOF
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return oncepipe.Delivery[string]{}, ctx.Err()
		}
	}
}

func (b *broker) take() (key string, there, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return "", false, b.closed && len(b.open) == 0
	}
	key, b.ready = b.ready[0], b.ready[1:]
	return key, true, false
}

func (b *broker) settle(key string, s oncepipe.Settlement) error {
	if s.Outcome == oncepipe.Returned {
		// Whoever it was that could not be asked, or is at work: a moment at least.
		time.AfterFunc(max(s.Delay, 10*time.Millisecond), func() { b.again(key) })
		return nil
	}
	if err := b.settled(key, s); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, key)
	b.signal()
	return nil
}

func (b *broker) again(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = append(b.ready, key)
	b.signal()
}
