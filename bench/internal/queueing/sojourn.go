package queueing

import "math"

// exceeds returns P(sojourn > t) by the number of copies that a key finds in the
// system when it is taken, for 0 … n-1.
func (m model) exceeds(n int, t float64) []float64 {
	if m.exponential {
		return m.erlangExceeds(n, t)
	}
	p := make([]float64, n)
	for i := range p {
		// The first departure comes at a uniform moment of the time between two.
		end := 1 + math.Max(0, float64(i)-m.workers+1)/m.workers
		p[i] = math.Min(1, math.Max(0, (end-t)*m.workers))
		if float64(i) < m.workers && end > t {
			p[i] = 1
		}
	}
	return p
}

// erlangExceeds: a key that finds i copies waits for i-W+1 departures, which is
// an Erlang time, and then for its own service.
func (m model) erlangExceeds(n int, t float64) []float64 {
	x := m.workers * t
	serving := make([]float64, n+1) // P(in service at t) by departures to wait for
	last := max(n+1, int(x+10*math.Sqrt(x))+50)
	// Downwards the recursion is stable. The density of an Erlang time of i
	// departures is W·pmf(i-1).
	for i, s := last, 0.0; i > 0; i-- {
		s = ((m.workers-1)*s + m.workers*poissonAt(i-1, x)) / m.workers
		if i-1 <= n {
			serving[i-1] = s
		}
	}
	p := make([]float64, n)
	for i := range min(n, int(m.workers)) {
		p[i] = serving[0]
	}
	waiting := 0.0 // P(still waiting at t)
	for i := int(m.workers); i < n; i++ {
		d := i - int(m.workers) + 1
		waiting += poissonAt(d-1, x)
		p[i] = math.Min(1, waiting+serving[d])
	}
	return p
}

// poissonAt is P(n) of a Poisson distribution with this mean, and 0 far from it.
func poissonAt(n int, mean float64) float64 {
	if math.Abs(float64(n)-mean) > 50+10*math.Sqrt(mean) {
		return 0
	}
	l, _ := math.Lgamma(float64(n) + 1)
	return math.Exp(float64(n)*math.Log(mean) - mean - l)
}

// copies returns how many copies follow a key until it is done, by what it
// finds, while there are places.
func (m model) copies(late []float64) []float64 {
	k := append([]float64(nil), late...)
	for j := 2.0; ; j++ {
		p := m.exceeds(len(k), j*m.patience)
		for i := range p {
			k[i] += p[i]
		}
		if p[len(p)-1] < 1e-9 {
			return k
		}
	}
}
