package real

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/oncepipe/oncepipe"
)

// look is how often the sender looks for what is due. Shorter sleeps than that
// have no meaning; what is due by then goes out in a burst.
const look = time.Millisecond

// message is a key that the sender wants to see done.
type message struct {
	key   string
	acked atomic.Bool
}

// due is a message to be sent again, unless it is acked by then.
type due struct {
	at time.Time
	m  *message
}

// sender is a source whose keys arrive like a Poisson process. It sends a key
// again when there is no ack a timeout after the pipeline took it, before any new
// one, for as long as it takes.
type sender struct {
	gap     float64 // mean time between keys, in nanoseconds
	timeout time.Duration
	length  time.Duration // new keys come for so long
	random  *rand.Rand

	// Of the source's goroutine; to be read when Run is over.
	begun      time.Time
	next       time.Time // when the next key arrives
	inHand     *message  // that the pipeline hasn't taken yet
	dues       []due     // in their order
	keys       int
	deliveries int

	unacked atomic.Int64 // keys that were sent
	inTime  atomic.Int64 // keys acked while new ones came
	failed  atomic.Pointer[error]
}

func newSender(c Cell, capacity float64, timeout time.Duration) *sender {
	return &sender{
		gap:     float64(time.Second) / (c.Load * capacity),
		timeout: timeout,
		length:  c.For,
		random:  rand.New(rand.NewPCG(c.Seed, 0)),
	}
}

// giveUp ends the source with an error.
func (s *sender) giveUp(err error) { s.failed.CompareAndSwap(nil, &err) }

// Receive returns the next delivery, and io.EOF when all keys are acked and no new
// one comes.
func (s *sender) Receive(ctx context.Context) (oncepipe.Delivery[string], error) {
	now := time.Now()
	if s.begun.IsZero() {
		s.begun = now
		s.arrive(now)
	}
	if s.inHand != nil {
		s.dues = append(s.dues, due{now.Add(s.timeout), s.inHand})
		s.inHand = nil
	}
	for {
		if failed := s.failed.Load(); failed != nil {
			return oncepipe.Delivery[string]{}, oncepipe.Permanent(*failed)
		}
		if m := s.ready(now); m != nil {
			s.inHand = m
			s.deliveries++
			return oncepipe.Delivery[string]{Value: m.key, Key: m.key, Settle: s.settle(m)}, nil
		}
		if s.over(now) && s.unacked.Load() == 0 {
			return oncepipe.Delivery[string]{}, io.EOF
		}
		if err := s.wait(ctx); err != nil {
			return oncepipe.Delivery[string]{}, err
		}
		now = time.Now()
	}
}

func (s *sender) over(now time.Time) bool { return now.Sub(s.begun) >= s.length }

func (s *sender) arrive(after time.Time) {
	s.next = after.Add(time.Duration(s.random.ExpFloat64() * s.gap))
}

// ready returns what is to be sent now, if anything is.
func (s *sender) ready(now time.Time) *message {
	for len(s.dues) > 0 && (s.dues[0].m.acked.Load() || !now.Before(s.dues[0].at)) {
		m := s.dues[0].m
		s.dues = s.dues[1:]
		if !m.acked.Load() {
			return m
		}
	}
	if s.over(now) || now.Before(s.next) {
		return nil
	}
	s.arrive(s.next)
	s.keys++
	s.unacked.Add(1)
	return &message{key: "key-" + strconv.Itoa(s.keys)}
}

// wait returns when it is time to look again.
func (s *sender) wait(ctx context.Context) error {
	t := time.NewTimer(look)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle is how the sender hears of a delivery. Only a key that is done is acked; one
// that is given back is sent again in time.
func (s *sender) settle(m *message) func(context.Context, oncepipe.Settlement) error {
	return func(_ context.Context, is oncepipe.Settlement) error {
		switch is.Outcome {
		case oncepipe.Done, oncepipe.Duplicate:
		case oncepipe.Returned:
			return nil
		default:
			s.giveUp(errors.New("a delivery is " + is.Outcome.String()))
			return nil
		}
		if m.acked.CompareAndSwap(false, true) {
			s.unacked.Add(-1)
			if time.Since(s.begun) < s.length {
				s.inTime.Add(1)
			}
		}
		return nil
	}
}
