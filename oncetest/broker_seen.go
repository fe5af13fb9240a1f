package oncetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
)

// BrokerDelivery is one delivery by a Broker and what became of it.
type BrokerDelivery[M any] struct {
	Number  int // from 1, of all deliveries
	Message int // from 1, in the order of Send; a copy has a number of its own
	Attempt int // from 1, of the deliveries of this message
	Value   M
	Key     string
	At      time.Time

	Calls      int // of Settle
	Settled    bool
	Expired    bool                // it ran out, before it was settled
	Late       bool                // a settlement came when it had run out
	Settlement oncepipe.Settlement // if it is settled or late
	SettledAt  time.Time

	message  *brokerMessage[M]
	asked    oncepipe.Outcome // by the last call
	answered bool             // a call was answered nil
}

// String names the delivery.
func (d *BrokerDelivery[M]) String() string {
	return fmt.Sprintf("delivery %d (message %d, key %q, attempt %d)", d.Number, d.Message, d.Key, d.Attempt)
}

// Deliveries returns all that was delivered, in order, as it is now.
func (b *Broker[M]) Deliveries() []BrokerDelivery[M] {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(time.Now())
	list := make([]BrokerDelivery[M], len(b.deliveries))
	for i, d := range b.deliveries {
		list[i] = *d
	}
	return list
}

// Outcomes returns how the deliveries of a key were settled, those of several
// messages included, in the order in which they were delivered. Those that are
// not settled, or were too late, are left out.
func (b *Broker[M]) Outcomes(key string) []oncepipe.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []oncepipe.Outcome
	for _, d := range b.deliveries {
		if d.Settled && d.Key == key {
			list = append(list, d.Settlement.Outcome)
		}
	}
	return list
}

// Count returns how many deliveries were settled as o, in time.
func (b *Broker[M]) Count(o oncepipe.Outcome) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.deliveries {
		if d.Settled && d.Settlement.Outcome == o {
			n++
		}
	}
	return n
}

// Left returns how many messages are not settled for good: those to be delivered
// and those that are out, copies included.
func (b *Broker[M]) Left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(time.Now())
	return b.left
}

// Unsettled returns how many deliveries are out: neither settled nor run out.
func (b *Broker[M]) Unsettled() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(time.Now())
	return b.open
}

// DeadLetters returns the messages that the broker gave up, because of
// MaxDeliveries or MaxRedelivery.
func (b *Broker[M]) DeadLetters() []M {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(time.Now())
	return slices.Clone(b.dead)
}

// Check returns what its consumers did wrong: a delivery settled again after a
// settlement was taken, or with another outcome after an error, on a context that
// had ended, without an outcome, with a negative delay; and a delivery that is
// out. So it is called at the end, when Run has returned. That a delivery ran out
// is nobody's fault.
func (b *Broker[M]) Check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(time.Now())
	errs := slices.Clone(b.broken)
	for _, d := range b.deliveries {
		if !d.Settled && !d.Expired {
			errs = append(errs, fmt.Errorf("%v was never settled", d))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("oncetest: broker: %w", err)
	}
	return nil
}
