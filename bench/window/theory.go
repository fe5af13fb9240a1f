package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/oncepipe/oncepipe/bench/internal/queueing"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// theoryRow is a cell with what the theory predicts for it.
type theoryRow struct {
	row
	PlainP float64 `csv:"plain_p_late"`      // as if copies made no load
	FullP  float64 `csv:"predicted_p_late"`  // with their feedback
	Copies float64 `csv:"predicted_extra"`   // for each key
	Share  float64 `csv:"predicted_goodput"` // over capacity
	Spread float64 `csv:"predicted_spread"`  // standard deviation of P from run to run
	Caveat string  `csv:"caveat"`            // why the prediction may be off
}

// collapseRow is a cell that began with an outage, and the smallest buffer of
// which the theory says that it never gets over one; -1: none.
type collapseRow struct {
	row
	Smallest int `csv:"predicted_smallest"`
}

// predict adds the predictions. Runs of one cell stand one after the other.
func predict(rows []row) (list []theoryRow) {
	for i, r := range rows {
		if i > 0 && system(r.cell()) == system(rows[i-1].cell()) {
			again := list[i-1]
			again.row = r
			list = append(list, again)
			continue
		}
		in := queueing.Run{System: system(r.cell()), Keys: r.Keys + r.Warmup, Warmup: r.Warmup, Burst: r.Burst}
		p := queueing.Predict(in)
		list = append(list, theoryRow{
			row: r, PlainP: queueing.WithoutFeedback(in.System),
			FullP: p.P, Copies: p.Extra, Share: p.Goodput, Spread: p.Spread, Caveat: queueing.Caveat(in, p),
		})
	}
	return list
}

func newCollapseRow(r row) collapseRow {
	smallest, ok := queueing.Collapse(system(r.cell()))
	if !ok {
		smallest = -1
	}
	return collapseRow{row: r, Smallest: smallest}
}

// system is what the theory knows of a cell.
func system(c sim.Cell) queueing.System {
	return queueing.System{
		Buffer: c.Buffer, Workers: c.Workers, Load: c.Load, Service: c.Service,
		Exponential: c.Exponential, Timeout: c.Timeout,
	}
}

// runs is how often a cell of the theory's part is run: more than once where only a
// part of the keys is late, or where it can jump into collapse at any moment. The
// theory tells the mean.
func (s setup) runs(c sim.Cell) int {
	p := queueing.Predict(queueing.Run{System: system(c), Keys: c.Keys, Warmup: c.Warmup})
	switch {
	case (p.P < 0.005 || p.P > 0.995) && p.Spread < 0.04:
		return 1
	case s.Quick:
		return 16
	}
	return 48
}

// compared is a cell's prediction beside the mean of its runs.
type compared struct {
	theoryRow
	runs                      int
	meanP, meanExtra, goodput float64
	squares                   float64 // of P's distances from its mean
}

// noise is the standard error of meanP; 0 of a single run.
func (c compared) noise() float64 {
	if c.runs == 1 {
		return 0
	}
	return math.Sqrt(c.squares / float64(c.runs) / float64(c.runs-1))
}

// measuredP is P as the tables show it.
func (c compared) measuredP() string {
	if c.runs == 1 {
		return percent(c.meanP)
	}
	return percent(c.meanP) + " ± " + percent(c.noise())
}

// why says why P is not within 15 % of what was measured.
func (c compared) why() string {
	switch {
	case c.Caveat != "":
		return c.Caveat
	case c.near():
		return "The runs differ more than that."
	}
	return "Not known."
}

// near says whether the prediction of P is within two standard errors of the runs.
func (c compared) near() bool { return math.Abs(c.FullP-c.meanP) <= 2*c.noise() }

func (d data) compared() (list []compared) {
	same := func(a, b row) bool { return system(a.cell()) == system(b.cell()) }
	for _, r := range d.theory {
		if n := len(list); n == 0 || !same(list[n-1].row, r.row) {
			list = append(list, compared{theoryRow: r})
		}
		c := &list[len(list)-1]
		c.runs++
		before := r.P - c.meanP
		c.meanP += before / float64(c.runs)
		c.squares += before * (r.P - c.meanP)
		c.meanExtra += (r.extra() - c.meanExtra) / float64(c.runs)
		c.goodput += (r.Goodput - c.goodput) / float64(c.runs)
	}
	return list
}

// telling says whether a relative error of P means something: what was measured, or
// what was predicted, is neither about none nor about all.
func (c compared) telling() bool {
	partly := func(p float64) bool { return p >= 0.01 && p <= 0.99 }
	return partly(c.meanP) || partly(c.FullP)
}

// offP is the relative error of P; against none at all there is no such number.
func (c compared) offP() string {
	if c.meanP == 0 {
		return "–"
	}
	return signed(off(c.FullP, c.meanP))
}

// off is the relative error of a prediction.
func off(predicted, measured float64) float64 { return predicted/measured - 1 }

// agrees says whether a prediction is within 15 % of what was measured.
func agrees(predicted, measured float64) bool { return math.Abs(off(predicted, measured)) <= 0.15 }

// service names the kind of service times.
func (r row) service() string {
	if r.Exponential {
		return "exponential"
	}
	return "fixed"
}

// predictions is the theory beside the measurement.
func (d data) predictions() table {
	t := table{
		title: "theory and measurement, no guard",
		columns: []string{
			"service", "workers", "load", "buffer", "runs", "P(wait > T)", "no feedback", "predicted", "off",
			"extra per key", "predicted", "off", "goodput", "predicted", "off",
		},
	}
	for _, c := range d.compared() {
		errP, errCopies := "", ""
		if c.telling() {
			errP = c.offP()
		}
		if c.meanExtra >= 0.01 {
			errCopies = signed(off(c.Copies, c.meanExtra))
		}
		t.add(c.service(), c.Workers, c.Load, c.Buffer, c.runs, c.measuredP(), percent(c.PlainP), percent(c.FullP), errP,
			fmt.Sprintf("%.3f", c.meanExtra), fmt.Sprintf("%.3f", c.Copies), errCopies,
			fmt.Sprintf("%.2f", c.goodput), fmt.Sprintf("%.2f", c.Share), signed(off(c.Share, c.goodput)))
	}
	return t
}

// place is the smallest buffer with which a system doesn't get over an outage, as
// measured and as predicted; -1 if none of those that were tried.
type place struct {
	service             string
	workers             int
	load                float64
	measured, predicted int
	steps               int     // of the buffers tried, that they are apart
	balance             float64 // load with the copies of a full system, at the measured one
}

func (d data) places() (list []place) {
	same := func(a, b collapseRow) bool {
		return a.Exponential == b.Exponential && a.Workers == b.Workers && a.Load == b.Load
	}
	for rest := d.collapse; len(rest) > 0; {
		n := 1
		for n < len(rest) && same(rest[0], rest[n]) {
			n++
		}
		group := rest[:n]
		rest = rest[n:]
		at := func(is func(collapseRow) bool) int {
			if i := slices.IndexFunc(group, is); i >= 0 {
				return i
			}
			return len(group)
		}
		m := at(func(r collapseRow) bool { return r.Collapsed })
		p := at(func(r collapseRow) bool { return r.Smallest >= 0 && r.Buffer >= r.Smallest })
		buffer := func(i int) int {
			if i == len(group) {
				return -1
			}
			return group[i].Buffer
		}
		balance := 0.0
		if m < len(group) {
			c := group[m].cell()
			balance = c.Load * (1 + queueing.FullSystem(system(c)).Copies)
		}
		list = append(list, place{
			service: group[0].service(), workers: group[0].Workers, load: group[0].Load,
			measured: buffer(m), predicted: group[0].Smallest, steps: p - m, balance: balance,
		})
	}
	return list
}

// collapses is the place of the collapse, in theory and measurement.
func (d data) collapses() table {
	t := table{
		title:   "the smallest buffer that doesn't get over an outage",
		columns: []string{"service", "workers", "load", "B*", "measured", "predicted", "steps apart", "load with copies"},
	}
	name := func(b int) string {
		if b < 0 {
			return "none"
		}
		return fmt.Sprint(b)
	}
	for _, p := range d.places() {
		t.add(p.service, p.workers, p.load, limit(p.workers, d.Setup.Service, d.Setup.Timeout),
			name(p.measured), name(p.predicted), p.steps, fmt.Sprintf("%.2f", p.balance))
	}
	return t
}
