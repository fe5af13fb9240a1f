package oncetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// BrokerConfig says what a Broker does. With the zero value it delivers each
// message in the order of Send, and again when it is returned.
type BrokerConfig[M any] struct {
	// Key returns a message's key. nil: deliveries have none.
	Key func(m M) string

	// Copy makes the value of a delivery. nil: the deliveries of a message share
	// what it points to.
	Copy func(m M) M

	// Hold is the visibility time-out: a delivery that is not settled for so long
	// has run out, and its message comes again. 0: none.
	Hold time.Duration

	// LateError is the answer to the settlement of a delivery that has run out,
	// which changes nothing. nil: it is ignored and answered nil.
	LateError error

	// MaxDeliveries is how often a message is delivered. When the last one is
	// returned or runs out, the message is a dead letter of the broker. 0: no limit.
	MaxDeliveries int

	// MaxRedelivery is how long after its first delivery a message may come again;
	// an older one is a dead letter of the broker. 0: no limit.
	MaxRedelivery time.Duration

	// RedeliveryDelay is the least delay of what is returned. Default 0.
	RedeliveryDelay time.Duration

	// Prefetch is how many deliveries may be unsettled at once, those that have run
	// out not counted. At the limit Receive blocks. 0: no limit.
	Prefetch int

	// ReturnsShed makes Shed mean Returned. By default it is final.
	ReturnsShed bool

	// Reorder delivers what may be delivered in random order.
	Reorder bool

	// Duplicates is the share of messages, from 0 to 1, of which a copy is put
	// behind the others when they are delivered. A copy is settled for itself, and
	// is not copied again.
	Duplicates float64

	// Seed makes Reorder and Duplicates do the same in every run.
	Seed uint64

	// OnSettle is called before a settlement is taken, outside of locks, by the
	// goroutine that settles. An error refuses the settlement, and is its answer.
	OnSettle func(m M, s oncepipe.Settlement) error
}

// errBrokerAway is what an unavailable broker answers if it isn't told better.
var errBrokerAway = errors.New("oncetest: broker is away")

// Broker is a fake message broker: a source that delivers again what is not
// settled for good, and remembers what it has seen. Its methods are safe for
// concurrent use, Receive included: of pipelines that share it, each delivery
// goes to one. It has no goroutine and no timer but those of the callers.
type Broker[M any] struct {
	cfg BrokerConfig[M]

	mu         sync.Mutex
	rng        *rand.Rand
	sent       int // messages, copies included
	left       int // not settled for good
	open       int // deliveries that are neither settled nor run out
	closed     bool
	copies     int                 // to be made, by Duplicate
	ready      []*brokerMessage[M] // in order
	later      []brokerAppointment[M]
	refusals   brokerFault
	losses     brokerFault
	changed    chan struct{} // closed at the next change; nil: nobody waits
	deliveries []*BrokerDelivery[M]
	dead       []M
	broken     []error
}

var (
	_ oncepipe.Source[int]       = (*Broker[int])(nil)
	_ oncepipe.HoldLimiter       = (*Broker[int])(nil)
	_ oncepipe.RedeliveryLimiter = (*Broker[int])(nil)
)

type brokerMessage[M any] struct {
	number  int
	value   M
	key     string
	copied  bool
	first   time.Time // delivery
	attempt int
	current *BrokerDelivery[M] // nil unless it is out
}

// brokerAppointment is when a message is ready again, or a delivery runs out.
type brokerAppointment[M any] struct {
	at       time.Time
	message  *brokerMessage[M]
	delivery *BrokerDelivery[M] // nil: the message waits
}

// stale tells that the delivery was settled before.
func (a brokerAppointment[M]) stale() bool {
	return a.delivery != nil && a.message.current != a.delivery
}

// brokerFault hits the next n settlements.
type brokerFault struct {
	n   int
	err error
}

func (f *brokerFault) hits() bool {
	if f.n == 0 {
		return false
	}
	f.n--
	return true
}

// NewBroker returns an empty Broker.
func NewBroker[M any](cfg BrokerConfig[M]) *Broker[M] {
	return &Broker[M]{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0))}
}

// HoldLimit returns BrokerConfig.Hold.
func (b *Broker[M]) HoldLimit() time.Duration { return b.cfg.Hold }

// MaxRedelivery returns BrokerConfig.MaxRedelivery.
func (b *Broker[M]) MaxRedelivery() time.Duration { return b.cfg.MaxRedelivery }

// change calls f under the lock and then wakes those who wait.
func (b *Broker[M]) change(f func()) {
	b.mu.Lock()
	f()
	waiting := b.changed
	b.changed = nil
	b.mu.Unlock()
	if waiting != nil {
		close(waiting)
	}
}

// Send puts messages behind those that are there. It panics after Close.
func (b *Broker[M]) Send(messages ...M) {
	keys := make([]string, len(messages))
	if b.cfg.Key != nil {
		for i, m := range messages {
			keys[i] = b.cfg.Key(m)
		}
	}
	late := false
	b.change(func() {
		if late = b.closed; late {
			return
		}
		for i, m := range messages {
			b.put(&brokerMessage[M]{value: m, key: keys[i]})
		}
	})
	if late {
		panic("oncetest: Broker.Send after Close")
	}
}

func (b *Broker[M]) put(m *brokerMessage[M]) {
	b.sent++
	b.left++
	m.number = b.sent
	b.ready = append(b.ready, m)
}

// Close says that no more is sent: Receive returns io.EOF once every message is
// settled for good.
func (b *Broker[M]) Close() { b.change(func() { b.closed = true }) }

// Duplicate puts a copy behind the others for each of the next n messages that
// are delivered, as BrokerConfig.Duplicates does.
func (b *Broker[M]) Duplicate(n int) { b.change(func() { b.copies += n }) }

// RefuseSettlements makes the next n settlements answer err, and change nothing.
// nil: an error of the Broker's own.
func (b *Broker[M]) RefuseSettlements(n int, err error) {
	b.change(func() { b.refusals = newBrokerFault(n, err) })
}

// LoseAnswers makes the next n settlements that are taken answer err all the
// same. nil: an error of the Broker's own.
func (b *Broker[M]) LoseAnswers(n int, err error) {
	b.change(func() { b.losses = newBrokerFault(n, err) })
}

func newBrokerFault(n int, err error) brokerFault {
	if err == nil {
		err = errBrokerAway
	}
	return brokerFault{max(n, 0), err}
}

// Receive implements oncepipe.Source.
func (b *Broker[M]) Receive(ctx context.Context) (oncepipe.Delivery[M], error) {
	for {
		if err := ctx.Err(); err != nil {
			return oncepipe.Delivery[M]{}, fmt.Errorf("oncetest: broker: receive: %w", err)
		}
		d, changed, next := b.take()
		switch {
		case d != nil:
			v := d.Value
			if b.cfg.Copy != nil {
				v = b.cfg.Copy(v)
			}
			return oncepipe.Delivery[M]{Value: v, Key: d.Key, Settle: func(ctx context.Context, s oncepipe.Settlement) error {
				return b.settle(ctx, d, s)
			}}, nil
		case changed == nil:
			return oncepipe.Delivery[M]{}, io.EOF
		}
		waitFor(ctx, changed, next)
	}
}

// waitFor waits for a change, for the next appointment, or for the end of ctx.
func waitFor(ctx context.Context, changed <-chan struct{}, next time.Time) {
	var due <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed:
	case <-due:
	case <-ctx.Done():
	}
}

// take makes a delivery. Without one it returns what to wait for, or nothing at
// the end.
func (b *Broker[M]) take() (d *BrokerDelivery[M], changed <-chan struct{}, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.advance(now)
	if m := b.pick(now); m != nil {
		return b.deliver(m, now), nil, time.Time{}
	}
	if b.closed && b.left == 0 {
		return nil, nil, time.Time{}
	}
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	if len(b.later) > 0 {
		next = b.later[0].at
	}
	return nil, b.changed, next
}

// advance keeps the appointments up to now.
func (b *Broker[M]) advance(now time.Time) {
	for len(b.later) > 0 {
		a := b.later[0]
		if !a.stale() && a.at.After(now) {
			return
		}
		b.later = b.later[1:]
		switch {
		case a.stale():
		case a.delivery != nil:
			a.delivery.Expired = true
			b.release(a.message)
			b.again(a.message, a.at)
		default:
			b.ready = append(b.ready, a.message)
		}
	}
}

// pick takes a message out of those that are ready, if one may be delivered.
func (b *Broker[M]) pick(now time.Time) *brokerMessage[M] {
	if b.cfg.Prefetch > 0 && b.open >= b.cfg.Prefetch {
		return nil
	}
	for len(b.ready) > 0 {
		if b.cfg.Reorder {
			i := b.rng.IntN(len(b.ready))
			b.ready[0], b.ready[i] = b.ready[i], b.ready[0]
		}
		m := b.ready[0]
		b.ready = b.ready[1:]
		if limit := b.cfg.MaxRedelivery; limit == 0 || m.attempt == 0 || now.Sub(m.first) <= limit {
			return m
		}
		b.bury(m)
	}
	return nil
}

func (b *Broker[M]) deliver(m *brokerMessage[M], now time.Time) *BrokerDelivery[M] {
	if m.attempt == 0 {
		m.first = now
		b.duplicate(m)
	}
	m.attempt++
	m.current = &BrokerDelivery[M]{
		Number: len(b.deliveries) + 1, Message: m.number, Attempt: m.attempt,
		Value: m.value, Key: m.key, At: now, message: m,
	}
	b.deliveries = append(b.deliveries, m.current)
	b.open++
	if b.cfg.Hold > 0 {
		b.appoint(brokerAppointment[M]{at: now.Add(b.cfg.Hold), message: m, delivery: m.current})
	}
	return m.current
}

// duplicate makes a copy where there is to be one.
func (b *Broker[M]) duplicate(m *brokerMessage[M]) {
	switch {
	case m.copied:
		return
	case b.copies > 0:
		b.copies--
	case b.cfg.Duplicates <= 0 || b.rng.Float64() >= b.cfg.Duplicates:
		return
	}
	b.put(&brokerMessage[M]{value: m.value, key: m.key, copied: true})
}

// appoint puts a behind those that are due no later.
func (b *Broker[M]) appoint(a brokerAppointment[M]) {
	i, _ := slices.BinarySearchFunc(b.later, a.at, func(x brokerAppointment[M], at time.Time) int {
		if x.at.After(at) {
			return 1
		}
		return -1
	})
	b.later = slices.Insert(b.later, i, a)
}

// release ends the delivery that is out.
func (b *Broker[M]) release(m *brokerMessage[M]) {
	m.current = nil
	b.open--
}

// again lets a message be ready at a time, unless it was delivered often enough.
func (b *Broker[M]) again(m *brokerMessage[M], at time.Time) {
	if b.cfg.MaxDeliveries > 0 && m.attempt >= b.cfg.MaxDeliveries {
		b.bury(m)
		return
	}
	b.appoint(brokerAppointment[M]{at: at, message: m})
}

func (b *Broker[M]) bury(m *brokerMessage[M]) {
	b.dead = append(b.dead, m.value)
	b.left--
}
