package queueing

import "math"

// Rare is the P below which a prediction is not more than an order of magnitude.
const Rare = 0.01

// few is a buffer so small that its end matters to each copy.
const few = 10

// Caveat says in a sentence why the theory may be off for r, of which it
// predicts p, or nothing where it should be within 15 % for P and Extra.
func Caveat(r Run, p Prediction) string {
	m := newModel(r.System)
	full := m.full()
	at, ok := Collapse(r.System)
	star := BStar(r.Workers, r.Timeout, r.Service)
	switch balance := r.Load * (1 + full.k); {
	case ok && r.Load < 1 && r.Buffer >= at && p.P < Rare:
		return "A jump into collapse is a rare event here: hardly any run has one, and a run that has one has P near 1."
	case ok && r.Load < 1 && r.Buffer >= at:
		return "The system is metastable: a run jumps into collapse at a random moment, so that one run is one throw. " +
			"The rate of that jump depends exponentially on how copies and queue go together; the theory knows " +
			"the queue's length and not its history, and lets it come somewhat too early."
	case !r.Exponential && math.Abs(float64(r.Buffer)-star) < m.workers+1:
		return "The buffer is within a service of B*: with fixed service times it depends on the phases in which the workers " +
			"happen to run, which they keep for ever, and on who is in the source's hand."
	case r.Load < 1 && full.k > Rare && balance > 0.9:
		return "The system is near the edge: with its copies a full system takes in nearly as much as it does, so that it stays " +
			"full for long, and small errors of the theory count many times."
	case r.Buffer < few && p.P >= Rare && full.late < 1-Rare:
		return "With few places a copy often finds the system full that was not when its key came, and is not sent in the end."
	case p.P > 0 && p.P < Rare:
		return "Below 1 % the figure hangs on the tail of the queue, and small errors of the chain count many times."
	}
	return ""
}
