package sim

import (
	"strconv"
	"sync"
	"time"
)

// message is what the sender wants to see done. It sends it until it hears an ack.
type message struct {
	key       *key
	wanted    time.Duration // when it is there to be sent
	started   time.Duration // when the sender's clock for the first delivery began
	notBefore time.Duration // the pipeline asked not to send it again before
	sends     int           // that the pipeline has taken
	settled   bool
	settledAt time.Duration // when the pipeline acknowledged it first
	acked     bool
	ackedAt   time.Duration // when the sender heard of that
}

// parcel is one delivery of a message.
type parcel struct {
	message, copy int
	key           *key
}

// sender outlives the processes of the pipeline.
type sender struct {
	cell Cell
	keys []*key

	mu       sync.Mutex
	messages []message
	arrived  int // messages that were sent at least once
	dues     dues
	inHand   int           // message that the pipeline hasn't taken yet; -1: none
	wanted   time.Duration // when the sender wanted to send that
	unheard  []ack         // in the order in which they will be heard
	sends    int
	items    int
	last     time.Duration // ack that was heard
}

// ack is an acknowledgement on its way to the sender.
type ack struct {
	at      time.Duration
	message int
}

func newSender(c Cell) *sender {
	s := &sender{cell: c, messages: make([]message, c.Keys), inHand: -1}
	arrivals := c.random(forArrivals)
	gap := float64(c.Service) / float64(c.Workers) / c.Load
	at := time.Duration(0)
	draw := keyDrawer(c)
	byNumber := map[uint64]*key{}
	for i := range s.messages {
		if i >= c.Burst {
			at += time.Duration(arrivals.ExpFloat64() * gap)
		}
		n := draw(i)
		k := byNumber[n]
		if k == nil {
			k = &key{name: strconv.FormatUint(n, 10), first: i}
			byNumber[n] = k
			s.keys = append(s.keys, k)
		}
		s.messages[i] = message{key: k, wanted: at}
	}
	return s
}

// took notes that the pipeline has taken what was in the sender's hand, or that
// the process which didn't is gone.
func (s *sender) took(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inHand < 0 {
		return
	}
	m := &s.messages[s.inHand]
	began := now
	if s.cell.Push {
		began = s.wanted
	}
	if m.sends == 0 {
		m.started = began
	}
	m.sends++
	s.sends++
	s.dues.add(s.inHand, max(now, began+s.cell.Timeout))
	s.inHand = -1
}

// next says when there is something to send. It returns false when all has been
// done.
func (s *sender) next(now time.Duration) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(now)
	i, at, again := s.dues.first()
	for again && s.messages[i].acked {
		s.dues.drop()
		i, at, again = s.dues.first()
	}
	if s.arrived == len(s.messages) {
		return at, again
	}
	if wanted := s.messages[s.arrived].wanted; !again || wanted < at {
		at = wanted
	}
	return at, true
}

// send returns what is to be sent now: what is due again, the oldest first, then
// what is new.
func (s *sender) send(now time.Duration) (parcel, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(now)
	for {
		i, at, again := s.dues.first()
		if !again || at > now {
			break
		}
		s.dues.drop()
		m := &s.messages[i]
		switch {
		case m.acked:
		case m.notBefore > now:
			s.dues.add(i, m.notBefore)
		default:
			return s.hand(i, at), true
		}
	}
	if s.arrived < len(s.messages) && s.messages[s.arrived].wanted <= now {
		s.arrived++
		return s.hand(s.arrived-1, s.messages[s.arrived-1].wanted), true
	}
	return parcel{}, false
}

func (s *sender) hand(i int, wanted time.Duration) parcel {
	s.inHand, s.wanted = i, wanted
	m := &s.messages[i]
	return parcel{message: i, copy: m.sends, key: m.key}
}

// done is the pipeline's ack.
func (s *sender) done(p parcel, now time.Duration) {
	lost := s.cell.AckLoss > 0 &&
		s.cell.random(forAck, uint64(p.message), uint64(p.copy)).Float64() < s.cell.AckLoss
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items++
	if m := &s.messages[p.message]; !m.settled {
		m.settled, m.settledAt = true, now
	}
	switch {
	case lost:
	case s.cell.AckDelay == 0:
		s.heard(ack{now, p.message})
	default:
		s.unheard = append(s.unheard, ack{now + s.cell.AckDelay, p.message})
	}
}

// returned is the pipeline's wish to have p again, after the delay.
func (s *sender) returned(p parcel, now, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items++
	m := &s.messages[p.message]
	m.notBefore = max(m.notBefore, now+delay)
}

// hear takes in the acks that have come.
func (s *sender) hear(now time.Duration) {
	for len(s.unheard) > 0 && s.unheard[0].at <= now {
		s.heard(s.unheard[0])
		s.unheard = s.unheard[1:]
	}
}

func (s *sender) heard(a ack) {
	if m := &s.messages[a.message]; !m.acked {
		m.acked, m.ackedAt = true, a.at
		s.last = a.at
	}
}

// cut drops the acks that a killed process didn't get to send.
func (s *sender) cut(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(now)
	s.unheard = nil
}
