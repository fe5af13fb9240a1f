package sim

import (
	"slices"
	"time"
)

// result is what there is to say when all is over.
func (w *world) result() Result {
	s, l := w.sender, w.ledger
	r := Result{
		Effects: l.effects, Claim: l.claim, Late: l.late, Restart: l.restart,
		Extra: l.claim + l.late + l.restart,
		Sends: s.sends, Items: s.items, Simulated: s.last,
	}
	for _, k := range s.keys {
		if k.first < w.cell.Warmup {
			continue
		}
		r.Keys++
		if k.effects == 0 {
			r.Lost++ // its messages have their acks, all of them
		}
	}
	w.sojourns(&r)
	r.Goodput = w.goodput()
	last := s.messages[len(s.messages)-(len(s.messages)+9)/10:]
	again := 0
	for i := range last {
		if last[i].sends > 1 {
			again++
		}
	}
	r.Collapsed = 2*again > len(last)
	return r
}

// sojourns looks at the times from delivery to ack.
func (w *world) sojourns(r *Result) {
	measured := w.sender.messages[w.cell.Warmup:]
	if len(measured) == 0 {
		return
	}
	times := make([]time.Duration, len(measured))
	var sum time.Duration
	late := 0
	for i := range measured {
		m := &measured[i]
		times[i] = m.ackedAt - m.started
		sum += times[i]
		if times[i] > w.cell.Timeout {
			late++
		}
	}
	slices.Sort(times)
	n := len(times)
	r.P = float64(late) / float64(n)
	r.Sojourn = sum / time.Duration(n)
	r.SojournP99 = times[(99*n+99)/100-1]
}

// goodput counts a message as done when the pipeline has acknowledged it and its
// key has had its effect. The last hundredth doesn't count: stragglers would make
// the time long.
func (w *world) goodput() float64 {
	done := make([]time.Duration, 0, len(w.sender.messages))
	for i := range w.sender.messages {
		if m := &w.sender.messages[i]; m.key.effects > 0 {
			done = append(done, max(m.settledAt, m.key.end))
		}
	}
	slices.Sort(done)
	from, to := w.cell.Warmup, len(done)-len(done)/100
	if to <= from {
		return 0
	}
	span := done[to-1]
	if from > 0 {
		span -= done[from-1]
	}
	if span == 0 {
		return 0
	}
	return float64(to-from) / float64(span) * float64(w.cell.Service) / float64(w.cell.Workers)
}
