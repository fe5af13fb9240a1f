package queueing

import "math"

// WithoutFeedback is P(sojourn > timeout) as textbooks have it: as if nothing
// were sent again. It is exact, up to the moment at which the first departure is
// seen when several workers with fixed service are busy. For comparison: where
// copies take up room, it is far too low.
//
// The buffer matters only by its end: a key that waits outside has a clock that
// doesn't run yet, so that none can be late when a full system is fast enough.
func WithoutFeedback(s System) float64 {
	m := newModel(s)
	full := m.full().late
	if s.Load >= 1 {
		return full
	}
	n := m.stationary()
	late := m.exceeds(m.places, m.patience)
	p := 0.0
	for i, q := range n {
		if i < len(late) {
			p += q * late[i]
		} else {
			p += q * full
		}
	}
	return p
}

// stationary is the distribution of the number in the system, those outside
// included, without feedback and for a load below 1.
func (m model) stationary() []float64 {
	if m.exponential {
		return m.erlang()
	}
	return m.crommelin()
}

// erlang is M/M/c.
func (m model) erlang() []float64 {
	p := []float64{1}
	for i := 1; i <= int(m.workers) || p[i-1] > 1e-15; i++ {
		p = append(p, p[i-1]*m.rate/math.Min(float64(i), m.workers))
	}
	return normalize(p)
}

// crommelin is M/D/c, by the chain that is exact at moments one service apart:
// N becomes max(N-W, 0) and what has arrived. It is solved by elimination from
// above (Grassmann, Taksar and Heyman), which subtracts nothing.
func (m model) crommelin() []float64 {
	w := int(m.workers)
	var births []float64
	for i := 0; float64(i) < m.rate || births[i-1] > 1e-17; i++ {
		births = append(births, poissonAt(i, m.rate))
	}
	n := 2*w + len(births) + int(math.Log(1e13)/math.Log(decay(m.load)))
	rows := make([][]float64, n) // row i holds the ways to i-w … i+len(births)
	at := func(i, j int) *float64 { return &rows[i][j-i+w] }
	for i := range rows {
		rows[i] = make([]float64, w+len(births)+1)
		for a, q := range births {
			*at(i, min(max(i-w, 0)+a, n-1)) += q
		}
	}
	for k := n - 1; k > 0; k-- {
		down := 0.0
		for j := max(0, k-w); j < k; j++ {
			down += *at(k, j)
		}
		for i := max(0, k-len(births)); i < k; i++ {
			q := at(i, k)
			if *q == 0 {
				continue
			}
			*q /= down
			for j := max(0, k-w); j < k; j++ {
				*at(i, j) += *q * *at(k, j)
			}
		}
	}
	p := make([]float64, n)
	p[0] = 1
	for k := 1; k < n; k++ {
		for i := max(0, k-len(births)); i < k; i++ {
			p[k] += p[i] * *at(i, k)
		}
	}
	return normalize(p)
}

func normalize(p []float64) []float64 {
	sum := 0.0
	for _, q := range p {
		sum += q
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
