package queueing

import (
	"math"
	"math/rand/v2"
	"time"
)

// plain is the model as a plain event loop: no library, no goroutine. What it
// shares with the simulation on the library is the model alone.
type plain struct {
	system System
	rng    *rand.Rand

	now    time.Duration
	keys   []plainKey
	next   int // key that has not been chosen yet
	clocks []clock
	head   int // of clocks
	queue  []int
	front  int // of queue
	hand   int // key in the source's hand; -1: none
	busy   []service
}

type plainKey struct {
	wanted, taken, acked time.Duration // taken, acked: of the first delivery; -1: not yet
	effects              int
}

// clock is the sender's for one delivery.
type clock struct {
	key int
	at  time.Duration
}

type service struct {
	key  int
	ends time.Duration
}

type measured struct {
	P, Extra, Goodput float64
	Collapsed         bool
}

// simulate runs r once.
func simulate(r Run, seed uint64) measured {
	s := &plain{system: r.System, keys: make([]plainKey, r.Keys), rng: rand.New(rand.NewPCG(seed, 1)), hand: -1}
	gap := float64(r.Service) / float64(r.Workers) / r.Load
	wanted := time.Duration(0)
	for i := range s.keys {
		if i >= r.Burst {
			wanted += time.Duration(s.rng.ExpFloat64() * gap)
		}
		s.keys[i] = plainKey{wanted: wanted, taken: -1, acked: -1}
	}
	for s.step() {
	}
	return s.measure(r.Warmup)
}

// step goes to the next event. It returns false when nothing is left.
func (s *plain) step() bool {
	at, ending := time.Duration(math.MaxInt64), -1
	if s.hand < 0 {
		at = s.nextToSend()
	}
	for i, b := range s.busy {
		if b.ends <= at {
			at, ending = b.ends, i
		}
	}
	if at == math.MaxInt64 {
		return false
	}
	s.now = max(s.now, at)
	if ending >= 0 {
		s.end(ending)
	}
	if s.hand < 0 {
		s.choose()
		s.place()
	}
	return true
}

func (s *plain) nextToSend() time.Duration {
	at := time.Duration(math.MaxInt64)
	if s.next < len(s.keys) {
		at = s.keys[s.next].wanted
	}
	for s.head < len(s.clocks) && s.keys[s.clocks[s.head].key].acked >= 0 {
		s.head++
	}
	if s.head < len(s.clocks) {
		at = min(at, s.clocks[s.head].at)
	}
	return at
}

// end is the end of a service, which is the effect and the ack.
func (s *plain) end(i int) {
	k := &s.keys[s.busy[i].key]
	if k.effects++; k.acked < 0 {
		k.acked = s.now
	}
	last := len(s.busy) - 1
	s.busy[i] = s.busy[last]
	s.busy = s.busy[:last]
	if s.front < len(s.queue) {
		s.start(s.queue[s.front])
		s.front++
	}
	s.place()
}

func (s *plain) start(key int) {
	d := float64(s.system.Service)
	if s.system.Exponential {
		d *= s.rng.ExpFloat64()
	}
	s.busy = append(s.busy, service{key, s.now + time.Duration(d)})
}

// choose puts what is to be sent now into the source's hand: copies first.
func (s *plain) choose() {
	for s.head < len(s.clocks) && s.hand < 0 && s.clocks[s.head].at <= s.now {
		if key := s.clocks[s.head].key; s.keys[key].acked < 0 {
			s.hand = key
		}
		s.head++
	}
	if s.hand < 0 && s.next < len(s.keys) && s.keys[s.next].wanted <= s.now {
		s.hand = s.next
		s.next++
	}
}

// place hands over what is in the source's hand, if there is a place. From then
// on the sender's clock runs.
func (s *plain) place() {
	key := s.hand
	switch {
	case key < 0:
		return
	case len(s.busy) < s.system.Workers:
		s.start(key)
	case len(s.queue)-s.front < s.system.Buffer:
		s.queue = append(s.queue, key)
	default:
		return
	}
	s.hand = -1
	if s.keys[key].taken < 0 {
		s.keys[key].taken = s.now
	}
	s.clocks = append(s.clocks, clock{key, s.now + s.system.Timeout})
}

func (s *plain) measure(warmup int) measured {
	var m measured
	end, last := time.Duration(0), 0
	for i, k := range s.keys[warmup:] {
		if k.acked-k.taken > s.system.Timeout {
			m.P++
		}
		m.Extra += float64(k.effects - 1)
		if warmup+i >= len(s.keys)*9/10 && k.effects > 1 {
			last++
		}
		end = max(end, k.acked)
	}
	n := float64(len(s.keys) - warmup)
	m.P /= n
	m.Extra /= n
	m.Goodput = n / float64(end-s.keys[warmup].taken) * float64(s.system.Service) / float64(s.system.Workers)
	m.Collapsed = last > len(s.keys)/20
	return m
}
