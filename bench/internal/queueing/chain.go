package queueing

import "math"

// chain is the birth-death chain of the number in the system, those outside
// included. Below places, copies are taken when they are due; from there on, what
// copies leave goes to new keys.
type chain struct {
	m      model
	full   full
	births []float64 // rates
	deaths []float64
	keys   []float64 // rate at which new keys are taken: the chain's clock

	late, copies, sojourn []float64 // of a key that is taken, by state

	certain int // from this state on, a key is sent again
}

// newChain is the chain for a run of that many keys.
func newChain(m model, keys float64) *chain {
	c := &chain{m: m, full: m.full()}
	// Outside, the chain drifts by (1+k)·load - 1 for each key. There is room for
	// all of its fluctuation against the drift.
	drift := math.Abs((1+c.full.k)*m.load - 1)
	n := m.places + 40 + int(math.Min(10/(drift+1e-9), 6*math.Sqrt(keys)))
	below := m.exceeds(m.places, m.patience)
	for c.certain = m.places; c.certain > 0 && below[c.certain-1] > 1-1e-9; {
		c.certain--
	}
	c.late = extend(below, n, c.full.late)
	c.copies = extend(m.copies(below), n, c.full.k)
	c.sojourn, c.keys = make([]float64, n), make([]float64, n)
	for i := range n {
		if i < m.places {
			c.keys[i], c.sojourn[i] = m.rate, 1+math.Max(0, float64(i)-m.workers+1)/m.workers
		} else {
			c.keys[i], c.sojourn[i] = math.Min(m.rate, m.workers/(1+c.full.k)), c.full.sojourn
		}
	}
	c.births, c.deaths = make([]float64, n), make([]float64, n)
	c.feed(c.copies, n)
	return c
}

func extend(v []float64, n int, last float64) []float64 {
	out := make([]float64, n)
	for i := copy(out, v); i < n; i++ {
		out[i] = last
	}
	return out
}

// feed sets the rates of the first n states: for each new key, resent[i] copies
// are sent in state i.
func (c *chain) feed(resent []float64, n int) {
	m := c.m
	for i := range n {
		births, deaths := m.rate*(1+resent[i]), math.Min(float64(i), m.workers)
		if i >= m.places {
			births = m.rate + m.workers*resent[i]/(1+resent[i])
		}
		if !m.exponential && float64(i) >= m.workers {
			births, deaths = fixedService(births, deaths)
		}
		c.births[i], c.deaths[i] = births, deaths
	}
	c.deaths[0], c.births[len(c.births)-1] = 0, 0
}

// fixedService turns the rates of arrivals and of fixed services into those of a
// birth-death chain with the same drift and the same decay.
func fixedService(arrivals, services float64) (births, deaths float64) {
	z := decay(arrivals / services)
	if math.Abs(z-1) < 1e-6 {
		return arrivals / 2, arrivals / 2
	}
	deaths = (services - arrivals) / (1 - 1/z)
	return deaths / z, deaths
}

// decay is the z other than 1 with ρ(z-1) = ln z: with fixed services and load ρ,
// P(N = n) falls by z from one n to the next.
func decay(rho float64) float64 {
	f := func(z float64) float64 { return rho*(z-1) - math.Log(z) } // least at 1/ρ
	inside, outside := 1/rho, 0.0
	if rho < 1 {
		for outside = 2 / rho; f(outside) < 0; {
			outside *= 2
		}
	}
	for range 60 {
		if z := (inside + outside) / 2; f(z) < 0 {
			inside = z
		} else {
			outside = z
		}
	}
	return inside
}

// step lets the distribution p go on by dt of a clock with this pace in each
// state; nil: the services' clock. It is implicit, so that dt may be long. What
// leaves a p that is shorter than the chain is lost.
func (c *chain) step(p []float64, dt float64, pace []float64) {
	rate := func(v []float64, i int) float64 {
		if pace == nil {
			return dt * v[i]
		}
		return dt * v[i] / pace[i]
	}
	back := make([]float64, len(p))
	for i := range p {
		diagonal := 1 + rate(c.births, i) + rate(c.deaths, i)
		if i > 0 {
			born := rate(c.births, i-1)
			diagonal -= born * back[i-1]
			p[i] += born * p[i-1]
		}
		p[i] /= diagonal
		if i+1 < len(p) {
			back[i] = rate(c.deaths, i+1) / diagonal
		}
	}
	for i := len(p) - 2; i >= 0; i-- {
		p[i] += back[i] * p[i+1]
	}
}

// lag is how many steps the sender's timeout is divided into.
const lag = 8

// remember sets the rates by when copies really come: a key's first copy is sent
// T after the key was taken, and the system has changed since. Of those now in
// state i, it takes the share that was late T ago.
func (c *chain) remember(p []float64) {
	near := min(len(p), c.certain+int(6*math.Sqrt(2*c.m.workers*c.m.patience))+10)
	all, late := make([]float64, near), make([]float64, near)
	for i := range near {
		all[i], late[i] = p[i], p[i]*c.late[i]
	}
	for range lag {
		c.step(all, c.m.patience/lag, nil)
		c.step(late, c.m.patience/lag, nil)
	}
	resent := append([]float64(nil), c.copies[:near]...)
	for i := range resent {
		switch {
		case all[i] < 1e-200:
		case i < c.m.places:
			resent[i] += late[i]/all[i] - c.late[i]
		case c.full.late > 0:
			resent[i] *= math.Min(1, late[i]/all[i]/c.full.late)
		}
	}
	c.feed(resent, near)
}
