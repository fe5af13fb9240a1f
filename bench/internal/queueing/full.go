package queueing

import (
	"math"
	"time"
)

// full is the system while every place is taken and keys wait outside.
type full struct {
	sojourn float64 // mean
	late    float64 // P(sojourn > T)
	k       float64 // copies that follow a key
}

// full: whoever is taken found one place free, so it waits for B departures,
// 1/W apart, and for its own service.
func (m model) full() full {
	f := full{sojourn: 1 + float64(m.buffer)/m.workers}
	f.late = m.exceeds(m.places, m.patience)[m.places-1]
	if m.workers == 1 && !m.exponential && f.sojourn > m.patience {
		f.late = 1
	}
	f.k = m.fullCopies()
	return f
}

// fullCopies is k of a full system. A copy that is due goes into the source's
// hand at the next departure and is taken at the one after that. It is sent if
// its key has no ack when it goes into the hand.
func (m model) fullCopies() float64 {
	if m.exponential {
		return m.fullCopiesErlang()
	}
	// Counted in departures; no two copies are due between the same two.
	period := math.Ceil(m.patience*m.workers) + 1
	return math.Max(0, math.Ceil(float64(m.places+1)/period)-1)
}

// fullCopiesErlang sums up P(the j-th copy is sent). The first one is when more
// than one departure is missing at T. For the others it is
// P(sojourn > j·period - 1/W), and the period depends on k itself.
func (m model) fullCopiesErlang() float64 {
	first := 0.0
	if m.places > 1 {
		first = m.exceeds(m.places, m.patience)[m.places-2]
	}
	sojourn := 1 + float64(m.buffer)/m.workers
	deviation := math.Sqrt(1 + float64(m.buffer)/(m.workers*m.workers))
	low, high := 0.0, sojourn/m.patience+2
	for high-low > 1e-6*(1+high) {
		k := (low + high) / 2
		period, sum := m.period(k), first
		for j := 2.0; (j-1)*period < sojourn+6*deviation; j++ {
			sum += normalExceeds((j*period - 1/m.workers - sojourn) / deviation)
		}
		if sum > k {
			low = k
		} else {
			high = k
		}
	}
	return low
}

// period is the mean time between two copies of a key when k follow each first
// one. The unacked keys, M of them, go round: the sender's clock takes T, then a
// copy waits for a departure, and in the source's hand for one more. A new key is
// chosen at a departure at which no copy is due; by Erlang's loss formula for M
// sources and an offered load of W·T + 1 that is known from M, and it is the share
// 1/(1+k) of all departures. So M follows from k, and the period by Little's law.
//
// And copies come in the rhythm that the departures had T ago, from which the
// present ones have strayed by √(W·T); where these are behind, copies wait.
func (m model) period(k float64) float64 {
	stray := math.Sqrt(m.workers*m.patience/(2*math.Pi)) / m.workers // E max(0, √(WT)·Z)
	least := m.patience + 2/m.workers
	if k == 0 {
		return least + stray
	}
	offered := m.workers*m.patience + 1
	loss, n := 1.0, 0.0
	for {
		next := offered * loss / (n + 1 + offered*loss)
		if next*(1+k) <= 1 {
			n += math.Log(loss*(1+k)) / math.Log(loss/next)
			break
		}
		loss, n = next, n+1
	}
	return math.Max(least, n*(1+k)/(k*m.workers)) + stray
}

// normalExceeds is P(Z > x) for a standard normal Z.
func normalExceeds(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }

// MaxCollapse is where Collapse stops looking.
const MaxCollapse = 1 << 20

// Collapse returns the smallest buffer with which s has a second, collapsed
// equilibrium, whatever s.Buffer is: the system stays full by the copies that it
// causes itself, and most keys are sent again. It is there when
// Load × (1 + k) > 1 and k > 1/2, k being the copies for each key in a full
// system. It reports false when there is none up to MaxCollapse.
func Collapse(s System) (int, bool) {
	high := 1
	for !collapses(s, high) {
		if high *= 2; high > MaxCollapse {
			return 0, false
		}
	}
	low := -1 // the last that is known not to
	if high > 1 {
		low = high / 2
	}
	for high-low > 1 {
		if b := (low + high) / 2; collapses(s, b) {
			high = b
		} else {
			low = b
		}
	}
	return high, true
}

func collapses(s System, buffer int) bool {
	s.Buffer = buffer
	k := newModel(s).fullCopies()
	return k > 0.5 && s.Load*(1+k) > 1
}

// Full describes a system whose places are all taken.
type Full struct {
	Sojourn time.Duration // mean, from when a key is taken to its ack
	Late    float64       // share of keys that are acked after the timeout
	Copies  float64       // copies that follow a key
}

// FullSystem returns what becomes of a key while all places are taken.
func FullSystem(s System) Full {
	f := newModel(s).full()
	return Full{Sojourn: time.Duration(f.sojourn * float64(s.Service)), Late: f.late, Copies: f.k}
}
