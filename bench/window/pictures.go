package main

import (
	"fmt"
	"slices"

	"github.com/oncepipe/oncepipe/bench/internal/picture"
	"github.com/oncepipe/oncepipe/bench/internal/results"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// least is the share of extra effects below which the pictures show 0: a hundredth
// of a percent.
const least = 0.01

// draw writes all pictures. One that would be empty, since the run was cut short,
// isn't written.
func (d data) draw(dir results.Dir) error {
	load := d.Setup.highLoad()
	for _, p := range []struct {
		name   string
		charts [][]picture.Chart
	}{
		{"window-duplicates.svg", one(d.sweepChart(load,
			picture.Chart{Title: "Extra effects by buffer", Y: "extra effects, % of keys", YLog: true, YFloor: least},
			func(r row) float64 { return 100 * r.extra() }))},
		{"window-goodput.svg", one(d.sweepChart(load,
			picture.Chart{Title: "What is left of the capacity", Y: "keys done / capacity"},
			func(r row) float64 { return r.Goodput }))},
		{"window-sojourn.svg", one(d.sweepChart(load,
			picture.Chart{Title: "How long a key takes", Y: "first delivery to ack, ms", YLog: true},
			func(r row) float64 { return ms(r.Sojourn) }))},
		{"window-crash.svg", [][]picture.Chart{{d.crashExtra(), d.crashLost()}}},
		{"window-lru.svg", [][]picture.Chart{{d.lruChart(sim.Completed), d.lruChart(sim.Ours)}}},
		{"window-theory.svg", d.theoryCharts()},
	} {
		if empty(p.charts) {
			continue
		}
		svg, err := picture.Grid(p.charts)
		if err != nil {
			return fmt.Errorf("draw %s: %w", p.name, err)
		}
		if err := dir.Write(p.name, svg); err != nil {
			return err
		}
	}
	return nil
}

func one(c picture.Chart) [][]picture.Chart { return [][]picture.Chart{{c}} }

func empty(charts [][]picture.Chart) bool {
	for _, line := range charts {
		for _, c := range line {
			if len(c.Series) > 0 {
				return false
			}
		}
	}
	return true
}

// byBuffer puts the buffer's size on the chart's x axis.
func byBuffer(c picture.Chart, buffers []int) picture.Chart {
	c.X, c.XLog = "buffer", true
	for _, b := range buffers {
		c.XTicks = append(c.XTicks, float64(b))
	}
	return c
}

// upright is a dashed line at x, from the foot to the highest point of the others.
func upright(c picture.Chart, name string, x float64) picture.Series {
	top := c.YFloor
	for _, s := range c.Series {
		top = max(top, slices.Max(s.Y))
	}
	return picture.Series{Name: name, X: []float64{x, x}, Y: []float64{c.YFloor, top}, Dash: true, Line: true, Color: 7}
}

// sweepChart has a line for each guard, and B*.
func (d data) sweepChart(load float64, c picture.Chart, value func(row) float64) picture.Chart {
	c = byBuffer(c, d.Setup.Buffers)
	c.Title += fmt.Sprintf(" (load %v)", load)
	for i, g := range d.Setup.Guards {
		s := picture.Series{Name: g, Line: true, Dots: true, Color: i%6 + 1}
		for _, b := range d.Setup.Buffers {
			if r, ok := d.at("sweep", g, b, load); ok {
				s.X, s.Y = append(s.X, float64(b)), append(s.Y, value(r))
			}
		}
		if g == string(sim.None) {
			s = d.withLimit(s, load, value)
		}
		if len(s.X) > 0 {
			c.Series = append(c.Series, d.broken(s)...)
		}
	}
	if len(c.Series) > 0 {
		b := d.Setup.limit()
		c.Series = append(c.Series, upright(c, fmt.Sprintf("B* = %d", b), float64(b)))
	}
	return c
}

// withLimit adds to the line without a guard what the theory's cells of the same
// system know around B*: the nearest one that isn't above it, and the nearest that
// is. Between the sweep's buffers the line would rise where nothing was measured.
func (d data) withLimit(s picture.Series, load float64, value func(row) float64) picture.Series {
	below, above := -1, -1
	mean := map[int]*struct{ sum, n float64 }{}
	for _, r := range d.theory {
		if system(r.cell()) != system(d.Setup.cellAt(r.Buffer, load)) {
			continue
		}
		if mean[r.Buffer] == nil {
			mean[r.Buffer] = new(struct{ sum, n float64 })
		}
		mean[r.Buffer].sum += value(r.row)
		mean[r.Buffer].n++
		if r.Buffer <= d.Setup.limit() {
			below = max(below, r.Buffer)
		} else if above < 0 || r.Buffer < above {
			above = r.Buffer
		}
	}
	if len(s.X) == 0 || !slices.IsSorted(s.X) || d.Setup.Push || d.Setup.Fail > 0 || d.Setup.Skew > 0 {
		return s
	}
	for _, b := range []int{below, above} {
		i, there := slices.BinarySearch(s.X, float64(b))
		if b >= 0 && !there {
			s.X, s.Y = slices.Insert(s.X, i, float64(b)), slices.Insert(s.Y, i, mean[b].sum/mean[b].n)
		}
	}
	return s
}

// broken breaks a line that goes from 0 to something across B*, where nothing was
// measured: it would rise below B*.
func (d data) broken(s picture.Series) []picture.Series {
	limit := float64(d.Setup.limit())
	i := slices.IndexFunc(s.X, func(x float64) bool { return x > limit })
	if i < 1 || s.X[i-1] == limit || s.Y[i-1] > 0 || s.Y[i] == 0 {
		return []picture.Series{s}
	}
	rest := s
	rest.Name, rest.X, rest.Y = "", s.X[i:], s.Y[i:]
	s.X, s.Y = s.X[:i], s.Y[:i]
	return []picture.Series{s, rest}
}

// cellAt is what the sweep runs with this buffer at this load.
func (s setup) cellAt(buffer int, load float64) sim.Cell {
	c := s.base()
	c.Buffer, c.Load = buffer, load
	return c
}

func (d data) crashExtra() picture.Chart {
	return d.crashChart("A kill: keys that have their effect again", "keys, mean per kill", func(k killed) float64 { return k.extra })
}

func (d data) crashLost() picture.Chart {
	return d.crashChart("A kill: keys acknowledged and lost", "keys, mean per kill", func(k killed) float64 { return k.lost })
}

func (d data) crashChart(title, y string, value func(killed) float64) picture.Chart {
	buffers := valuesOf(d.rows["crash"], func(r row) int { return r.Buffer })
	c := byBuffer(picture.Chart{Title: title, Y: y, YLog: true, YFloor: least}, buffers)
	for _, g := range valuesOf(d.rows["crash"], row.label) {
		s := picture.Series{Name: g, Line: true, Dots: true}
		for _, b := range buffers {
			if k := d.killed(g, b); k.kills > 0 {
				s.X, s.Y = append(s.X, float64(b)), append(s.Y, value(k))
			}
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// lruChart has a line for each buffer, over the capacity.
func (d data) lruChart(g sim.Guard) picture.Chart {
	rows := d.lruRows(g)
	c := picture.Chart{
		Title: "Completed keys alone", X: "capacity of the LRU, keys", Y: "extra effects, % of keys",
		XLog: true, YLog: true, YFloor: least,
	}
	if g == sim.Ours {
		c.Title = "Behind the table in flight, 1 % of acks lost"
	}
	for _, n := range valuesOf(rows, func(r row) int { return r.Capacity }) {
		c.XTicks = append(c.XTicks, float64(n))
	}
	for _, b := range valuesOf(rows, func(r row) int { return r.Buffer }) {
		s := picture.Series{Name: fmt.Sprint("buffer ", b), Line: true, Dots: true}
		for _, r := range rows {
			if r.Buffer == b {
				s.X, s.Y = append(s.X, float64(r.Capacity)), append(s.Y, 100*r.extra())
			}
		}
		c.Series = append(c.Series, s)
	}
	if g == sim.Ours && len(c.Series) > 0 {
		n := d.Setup.memory()
		c.Series = append(c.Series, upright(c, fmt.Sprintf("rate × T = %d", n), float64(n)))
	}
	return c
}

// theoryCharts is P(wait > T), predicted as lines over measured points, for each
// number of workers and kind of service times.
func (d data) theoryCharts() (charts [][]picture.Chart) {
	all := d.compared()
	for _, workers := range valuesOf(all, func(c compared) int { return c.Workers }) {
		var line []picture.Chart
		for _, exponential := range []bool{false, true} {
			cells := filter(all, func(c compared) bool { return c.Workers == workers && c.Exponential == exponential })
			if len(cells) > 0 {
				line = append(line, theoryChart(cells))
			}
		}
		charts = append(charts, line)
	}
	return charts
}

func theoryChart(cells []compared) picture.Chart {
	c := picture.Chart{
		Title: fmt.Sprintf("P(wait > T), W = %d, %s service", cells[0].Workers, cells[0].service()),
		X:     "buffer", Y: "% of keys (lines: theory)", XLog: true, YLog: true, YFloor: least,
	}
	for _, b := range valuesOf(cells, func(c compared) int { return c.Buffer }) {
		c.XTicks = append(c.XTicks, float64(b))
	}
	for i, load := range valuesOf(cells, func(c compared) float64 { return c.Load }) {
		predicted := picture.Series{Line: true, Color: i + 1}
		measured := picture.Series{Name: fmt.Sprint("load ", load), Dots: true, Color: i + 1}
		for _, at := range cells {
			if at.Load == load {
				predicted.X, predicted.Y = append(predicted.X, float64(at.Buffer)), append(predicted.Y, 100*at.FullP)
				measured.X, measured.Y = append(measured.X, float64(at.Buffer)), append(measured.Y, 100*at.meanP)
			}
		}
		c.Series = append(c.Series, predicted, measured)
	}
	return c
}
