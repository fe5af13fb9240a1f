package main

import (
	"fmt"

	"github.com/oncepipe/oncepipe/bench/internal/picture"
)

// speedPicture has a chart for those that go from queue to queue or need none, and one
// for those whose workers do all.
func (m measured) speedPicture() ([]byte, error) {
	return picture.Grid([][]picture.Chart{
		{m.chart("Three steps, 3 hops or inline", threeHops, inline)},
		{m.chart("Three steps, 1 hop", oneHop)},
	})
}

func (m measured) chart(title string, shapes ...string) picture.Chart {
	c := picture.Chart{
		Title: title,
		X:     "workers a step (0: a goroutine for each message)",
		Y:     "ns per item",
		YLog:  true, XTicks: []float64{0, 1, 2, 3, 4},
	}
	for _, shape := range shapes {
		at := map[string]int{}
		for _, r := range m.rates {
			if r.Shape != shape {
				continue
			}
			i, ok := at[r.Chain]
			if !ok {
				i = len(c.Series)
				at[r.Chain] = i
				c.Series = append(c.Series, series(r))
			}
			c.Series[i].X = append(c.Series[i].X, float64(r.Workers))
			c.Series[i].Y = append(c.Series[i].Y, r.Nanos)
		}
	}
	return c
}

func series(r rate) picture.Series {
	s := picture.Series{Name: r.Chain, Line: true, Dots: true}
	if r.Shape == inline {
		s.Name += ", inline"
	}
	return s
}

// faultPicture has a row for each writer and a column for each fault.
func (m measured) faultPicture() ([]byte, error) {
	h := picture.Heat{Title: fmt.Sprintf("Faults: lost / doubled of %d messages", m.messages())}
	row := map[string]int{}
	for _, v := range m.verdicts {
		i, ok := row[v.Peer]
		if !ok {
			i = len(h.Rows)
			row[v.Peer] = i
			h.Rows = append(h.Rows, v.Peer)
			h.Cells = append(h.Cells, nil)
		}
		if i == 0 {
			h.Columns = append(h.Columns, v.Fault)
		}
		h.Cells[i] = append(h.Cells[i], picture.HeatCell{Text: v.brief(), Level: v.level()})
	}
	return h.SVG()
}

func (v verdict) brief() string {
	switch {
	case v.Cannot != "":
		return "–"
	case v.Stuck:
		return "stuck"
	case v.waited():
		return "others wait"
	case v.avoided():
		return v.Instead
	}
	return fmt.Sprintf("%d / %d", v.Lost, v.Doubled)
}

func (v verdict) level() int {
	switch {
	case v.Cannot != "", v.avoided():
		return -1
	case v.Stuck, v.Lost > 0:
		return 3
	case v.Doubled > 0:
		return 2
	case v.waited(), v.Open > 0:
		return 1
	}
	return 0
}

// avoided says whether the writer did well by doing something else.
func (v verdict) avoided() bool { return v.Instead != "" && !v.harmed() }

// waited says whether the slow messages stopped all others.
func (v verdict) waited() bool { return v.During == 0 }
