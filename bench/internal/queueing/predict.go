package queueing

import (
	"math"
	"time"
)

// Prediction is what the theory says of a run. All figures are means over runs
// with different seeds.
type Prediction struct {
	P       float64       // share of keys whose first delivery is acked after the timeout
	Extra   float64       // effects beyond the first, per key
	Goodput float64       // keys done per second over the capacity
	Sojourn time.Duration // from when a key's first delivery is taken to its ack

	// Spread is the standard deviation of P from run to run. It is wide where a
	// run jumps into collapse at a random moment: one run is one throw then.
	Spread float64
	// Stationary is P of a run without end. A run can be too short to get there.
	Stationary float64
}

// steps is how many steps a run is divided into at least.
const steps = 150

// Predict tells how a run goes on average. It takes some milliseconds, or some
// hundred for a buffer of thousands.
func Predict(r Run) Prediction {
	m := newModel(r.System)
	c := newChain(m, float64(r.Keys))
	t := totals{c: c, warmup: float64(r.Warmup), keys: float64(r.Keys)}
	p := make([]float64, len(c.births))
	p[min(r.Burst, len(p)-1)] = 1
	for dt := 1.0; t.done < t.keys; dt = math.Min(dt*1.1, t.keys/steps) {
		c.remember(p)
		dt = math.Min(dt, t.keys-t.done)
		c.step(p, dt, c.keys)
		t.add(p, dt)
	}
	out := t.prediction(r.System)
	out.Stationary = Stationary(r.System)
	return out
}

// totals sums up a run, key by key.
type totals struct {
	c            *chain
	warmup, keys float64

	done                               float64 // keys so far
	counted, late, copies, wait, taken float64
	free                               float64 // of taken, the time when not full
	freeKeys                           float64 // of counted
	filled                             []float64
	at                                 []float64 // keys done when it was filled
}

func (t *totals) add(p []float64, dt float64) {
	t.done += dt
	filled := 0.0
	w := math.Min(dt, t.done-t.warmup)
	for i, q := range p {
		if i >= t.c.m.places {
			filled += q
		}
		if w <= 0 {
			continue
		}
		q *= w
		t.counted += q
		t.late += q * t.c.late[i]
		t.copies += q * t.c.copies[i]
		t.wait += q * t.c.sojourn[i]
		t.taken += q / t.c.keys[i]
		if i < t.c.m.places {
			t.free += q / t.c.keys[i]
			t.freeKeys += q
		}
	}
	t.filled, t.at = append(t.filled, filled), append(t.at, t.done)
}

func (t *totals) prediction(s System) Prediction {
	m := t.c.m
	p := Prediction{
		P: t.late / t.counted, Extra: t.copies / t.counted,
		Goodput: t.counted / t.taken / m.workers,
		Sojourn: time.Duration(t.wait / t.counted * float64(s.Service)),
	}
	if (1+t.c.full.k)*m.load > 1 {
		p.Goodput, p.Spread = t.jumps()
	}
	return p
}

// jumps is for a system that stays full once it is: filled is the distribution
// of the moment of the jump, and each run goes at one pace before it and at
// another behind it.
func (t *totals) jumps() (goodput, spread float64) {
	m, all := t.c.m, t.keys-t.warmup
	before, behind := 1/m.rate, (1+t.c.full.k)/m.workers
	if t.freeKeys > 0 {
		before = t.free / t.freeKeys
	}
	var mean, square, known float64
	count := func(probability, jump float64) {
		share := (t.keys - math.Max(jump, t.warmup)) / all
		goodput += probability / ((share*behind + (1-share)*before) * m.workers)
		mean += probability * share
		square += probability * share * share
	}
	for i, f := range t.filled {
		if f > known {
			count(f-known, t.at[i])
			known = f
		}
	}
	count(1-known, t.keys)
	return goodput, t.c.full.late * math.Sqrt(math.Max(0, square-mean*mean))
}

// Stationary is P of a run of s without end. Where a collapsed equilibrium
// exists, every such run gets there, however long it takes.
func Stationary(s System) float64 {
	m := newModel(s)
	f := m.full()
	if (1+f.k)*m.load >= 1 {
		return f.late
	}
	c := newChain(m, math.Inf(1))
	q, keys, late := 1.0, 0.0, 0.0
	for i := range c.births {
		if i > 0 {
			q *= c.births[i-1] / c.deaths[i]
		}
		keys += q * c.keys[i]
		late += q * c.keys[i] * c.late[i]
	}
	return late / keys
}
