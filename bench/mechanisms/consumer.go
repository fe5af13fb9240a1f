package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/oncepipe/oncepipe"
)

// consumer is what a process has of the broker. It is a source, and the desk where
// orders report.
type consumer struct {
	b     *broker
	quota int  // deliveries that it gets; negative: no limit
	doom  doom // of the process

	// Under the broker's lock.
	out     map[int]*entry // deliveries that are neither settled nor over
	fresh   int            // messages that it got first
	filling int            // what is left of the burst
}

// doom is when a process is killed: as its n-th message has its effect, or some
// time after the first one came. The zero value lets it live.
type doom struct {
	nth   int
	do    directive
	after time.Duration
}

func (b *broker) consumer(quota int, d doom) *consumer {
	return &consumer{b: b, quota: quota, doom: d, out: map[int]*entry{}}
}

var _ oncepipe.Source[*order] = (*consumer)(nil)

// Receive implements oncepipe.Source.
func (c *consumer) Receive(ctx context.Context) (oncepipe.Delivery[*order], error) {
	for {
		o, changed := c.take()
		switch {
		case o != nil:
			return delivered(o, func(_ context.Context, s oncepipe.Settlement) error {
				c.b.settle(c, o.Delivery, s)
				return nil
			}), nil
		case changed == nil:
			return oncepipe.Delivery[*order]{}, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return oncepipe.Delivery[*order]{}, fmt.Errorf("broker: receive: %w", ctx.Err())
		}
	}
}

func delivered(o *order, settle func(context.Context, oncepipe.Settlement) error) oncepipe.Delivery[*order] {
	return oncepipe.Delivery[*order]{Value: o, Key: o.Key, Settle: settle}
}

// take makes a delivery. Without one it returns what to wait for, or nothing at
// the end.
func (c *consumer) take() (o *order, changed <-chan struct{}) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 || c.quota == 0 {
		return nil, nil
	}
	if b.absent == 0 && c.mayTake() {
		for i, e := range b.ready {
			if e.not != c {
				b.ready = append(b.ready[:i:i], b.ready[i+1:]...)
				return c.deliver(e), nil
			}
		}
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return nil, b.changed
}

// mayTake holds a consumer to its prefetch, or makes it take bursts, each after
// all of the one before is settled.
func (c *consumer) mayTake() bool {
	if c.b.fault.come != sentBehind {
		return len(c.out) < prefetch
	}
	if c.filling == 0 {
		if len(c.out) > 0 {
			return false
		}
		c.filling = burst
	}
	return true
}

func (c *consumer) deliver(e *entry) *order {
	b := c.b
	if b.begun.IsZero() {
		b.begun = time.Now()
	}
	b.next++
	c.quota--
	c.filling--
	c.out[b.next] = e
	e.attempts++
	o := &order{Key: e.message.key, Delivery: b.next, desk: c}
	first := e.attempts == 1
	switch do := b.fault.do; {
	case do == meet && e.message.hit:
		o.Do = meet
	case first && do != "" && do != meet && e.message.hit:
		b.faults++
		o.Do = do
	}
	if first {
		if c.fresh++; c.fresh == c.doom.nth {
			o.Do = c.doom.do
		}
	}
	return o
}

// meet implements desk.
func (c *consumer) meet(ctx context.Context, delivery int) {
	over := c.b.arrive(c, delivery)
	if over == nil || c.b.fault.patience == 0 {
		return
	}
	patience := time.NewTimer(c.b.fault.patience)
	defer patience.Stop()
	select {
	case <-over:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// close gives back what the process had.
func (c *consumer) close() {
	c.b.change(func() {
		for delivery, e := range c.out {
			delete(c.out, delivery)
			c.b.again(e)
		}
	})
}
