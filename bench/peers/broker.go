package main

import (
	"context"
	"errors"
	"io"
	"sync"
)

// broker is a source in memory. It keeps what it has delivered until that is acked,
// and delivers again what comes back.
type broker struct {
	prefetch int // deliveries that may be open at one time; 0: any number

	mu      sync.Mutex
	copies  []msg // go first, whatever is open
	queue   []msg
	open    map[*delivery]bool
	changed chan struct{} // closed, and made anew, at each change
	moves   int           // that were made, for those who wait for one
}

type msg struct {
	Key string
	N   int
}

// delivery is one hand-over of a message. Only the first call of ack or nack counts.
type delivery struct {
	msg
	b *broker
}

func newBroker(messages []msg, prefetch int) *broker {
	return &broker{
		prefetch: prefetch,
		queue:    messages,
		open:     map[*delivery]bool{},
		changed:  make(chan struct{}),
	}
}

// receive waits for a message. It returns io.EOF when all are acked.
func (b *broker) receive(ctx context.Context) (*delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, changed, err := b.next()
		if d != nil || err != nil {
			return d, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// next returns a delivery, or what to wait for.
func (b *broker) next() (*delivery, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := &b.queue
	if len(b.copies) > 0 {
		from = &b.copies
	}
	switch {
	case len(*from) == 0 && len(b.open) == 0:
		return nil, nil, io.EOF
	case len(*from) == 0, from == &b.queue && b.prefetch > 0 && len(b.open) >= b.prefetch:
		return nil, b.changed, nil
	}
	d := &delivery{msg: (*from)[0], b: b}
	*from = (*from)[1:]
	b.open[d] = true
	b.moved()
	return d, nil, nil
}

func (b *broker) moved() {
	b.moves++
	close(b.changed)
	b.changed = make(chan struct{})
}

// copy lets a message be there once more.
func (b *broker) copy(m msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.copies = append(b.copies, m)
	b.moved()
}

func (d *delivery) ack() { d.settle(nil) }

// nack puts the message to the end of the queue.
func (d *delivery) nack() { d.settle(func() { d.b.queue = append(d.b.queue, d.msg) }) }

func (d *delivery) settle(then func()) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if !d.b.open[d] {
		return
	}
	delete(d.b.open, d)
	if then != nil {
		then()
	}
	d.b.moved()
}

// takeBack puts all that is open to the end of the queue, as when a connection is
// lost, and says how many there were.
func (b *broker) takeBack() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.open)
	for d := range b.open {
		b.queue = append(b.queue, d.msg)
	}
	clear(b.open)
	b.moved()
	return n
}

func (b *broker) progress() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moves
}

// over is nil where err is the end of a source or of a context.
func over(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
