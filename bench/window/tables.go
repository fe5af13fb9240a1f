package main

import (
	"fmt"
	"slices"

	"github.com/oncepipe/oncepipe/bench/internal/real"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// byGuard is a table of the sweep at one load: a line for each buffer, a column for
// each guard.
func (d data) byGuard(title string, load float64, cell func(row) string) table {
	t := table{title: fmt.Sprintf("%s, at load %v", title, load), columns: append([]string{"buffer"}, d.Setup.Guards...)}
	for _, b := range d.Setup.Buffers {
		line, any := []string{fmt.Sprint(b)}, false
		for _, g := range d.Setup.Guards {
			text := "–"
			if r, ok := d.at("sweep", g, b, load); ok {
				text, any = cell(r), true
			}
			line = append(line, text)
		}
		if any {
			t.rows = append(t.rows, line)
		}
	}
	return t
}

func (d data) duplicates(load float64) table {
	return d.byGuard("extra effects, of keys", load, func(r row) string { return percent(r.extra()) })
}

func (d data) goodput(load float64) table {
	return d.byGuard("keys done, of capacity", load, func(r row) string { return fmt.Sprintf("%.2f", r.Goodput) })
}

func (d data) sojourn(load float64) table {
	return d.byGuard("time from first delivery to ack, mean / 99 %", load, func(r row) string {
		return millis(r.Sojourn) + " / " + millis(r.SojournP99)
	})
}

// windows tells the claim window and the late guard's apart.
func (d data) windows(load float64) table {
	return d.byGuard("extra effects that began while the first ran / after it", load, func(r row) string {
		if r.Extra == 0 {
			return "0"
		}
		return fmt.Sprintf("%d / %d", r.Claim, r.Late)
	})
}

// lruAlone is the memory of completed keys without a table in flight.
func (d data) lruAlone() table {
	return d.capacities("extra effects, of keys, with completed keys alone", sim.Completed)
}

// lruBehind is the memory behind the table in flight, when acks are lost.
func (d data) lruBehind() table {
	return d.capacities("extra effects, of keys, with ours, 1 % of acks lost", sim.Ours)
}

func (d data) capacities(title string, g sim.Guard) table {
	t := table{title: title, columns: []string{"capacity"}}
	rows := d.lruRows(g)
	buffers := valuesOf(rows, func(r row) int { return r.Buffer })
	for _, b := range buffers {
		t.columns = append(t.columns, fmt.Sprint("B = ", b))
	}
	for _, c := range valuesOf(rows, func(r row) int { return r.Capacity }) {
		line := []string{fmt.Sprint(c)}
		for _, b := range buffers {
			text := "–"
			if i := slices.IndexFunc(rows, func(r row) bool { return r.Capacity == c && r.Buffer == b }); i >= 0 {
				text = percent(rows[i].extra())
			}
			line = append(line, text)
		}
		t.rows = append(t.rows, line)
	}
	return t
}

// killed is the mean of a guard's kills at one buffer.
type killed struct {
	guard       string
	buffer      int
	kills       int
	extra, lost float64 // per kill
}

func (d data) killed(guard string, buffer int) (k killed) {
	k.guard, k.buffer = guard, buffer
	for _, r := range d.rows["crash"] {
		if r.label() == guard && r.Buffer == buffer {
			k.kills++
			k.extra += float64(r.Restart)
			k.lost += float64(r.Lost)
		}
	}
	if k.kills > 0 {
		k.extra /= float64(k.kills)
		k.lost /= float64(k.kills)
	}
	return k
}

func (d data) crashes() table {
	guards := valuesOf(d.rows["crash"], row.label)
	t := table{title: "a kill: keys with an effect again / keys lost, mean", columns: append([]string{"buffer"}, guards...)}
	for _, b := range valuesOf(d.rows["crash"], func(r row) int { return r.Buffer }) {
		line := []string{fmt.Sprint(b)}
		for _, g := range guards {
			k := d.killed(g, b)
			text := "–"
			if k.kills > 0 {
				text = count(k.extra) + " / " + count(k.lost)
			}
			line = append(line, text)
		}
		t.rows = append(t.rows, line)
	}
	return t
}

func (d data) pushed() table {
	t := table{title: "extra effects, of keys, when the sender's clock runs while it is blocked"}
	guards := valuesOf(d.rows["push"], row.label)
	loads := valuesOf(d.rows["push"], func(r row) float64 { return r.Load })
	t.columns = []string{"buffer"}
	for _, g := range guards {
		for _, l := range loads {
			t.columns = append(t.columns, fmt.Sprintf("%s, load %v", g, l))
		}
	}
	for _, b := range valuesOf(d.rows["push"], func(r row) int { return r.Buffer }) {
		line := []string{fmt.Sprint(b)}
		for _, g := range guards {
			for _, l := range loads {
				text := "–"
				if r, ok := d.at("push", g, b, l); ok {
					text = percent(r.extra())
				}
				line = append(line, text)
			}
		}
		t.rows = append(t.rows, line)
	}
	return t
}

func (d data) retries() table {
	t := table{
		title:   "attempts that fail and are tried again by the pipeline",
		columns: []string{"guard", "buffer", "attempts that fail", "extra effects", "of keys", "goodput", "sojourn, mean / 99 %"},
	}
	for _, r := range d.rows["retry"] {
		t.add(r.label(), r.Buffer, percent(r.Fail), r.Extra, percent(r.extra()), fmt.Sprintf("%.2f", r.Goodput),
			millis(r.Sojourn)+" / "+millis(r.SojournP99))
	}
	return t
}

func (d data) hotKeys() table {
	t := table{title: "extra effects when messages repeat keys by themselves", columns: []string{"buffer"}}
	guards := valuesOf(d.rows["skew"], row.label)
	t.columns = append(t.columns, guards...)
	for _, b := range valuesOf(d.rows["skew"], func(r row) int { return r.Buffer }) {
		line := []string{fmt.Sprint(b)}
		for _, g := range guards {
			text := "–"
			if r, ok := d.pick("skew", func(r row) bool { return r.label() == g && r.Buffer == b }); ok {
				text = fmt.Sprint(r.Extra)
			}
			line = append(line, text)
		}
		t.rows = append(t.rows, line)
	}
	return t
}

func (d data) realTime() table {
	t := table{
		title: "in real time",
		columns: []string{
			"store", "guard", "workers", "B*", "buffer", "load", "keys", "extra rows", "of keys", "lost", "keys done, of capacity", "overloaded",
		},
	}
	for _, r := range d.real {
		behind := "yes"
		if !overloaded(r) {
			behind = "no"
		}
		t.add(r.Store, string(r.Guard), r.Workers, fmt.Sprintf("%.0f", r.Threshold), r.Buffer, r.Load, r.Keys, r.Extra,
			percent(extraRows(r)), r.Lost, fmt.Sprintf("%.2f", r.Share), behind)
	}
	return t
}

func extraRows(r real.Result) float64 { return float64(r.Extra) / float64(max(1, r.Keys)) }

func filter[R any](rows []R, is func(R) bool) (list []R) {
	for _, r := range rows {
		if is(r) {
			list = append(list, r)
		}
	}
	return list
}
