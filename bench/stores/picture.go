package main

import (
	"github.com/oncepipe/oncepipe/bench/internal/picture"
)

const pictureFile = "stores-rates.svg"

// picture shows rates by how many items share a commit.
func (r report) picture() ([]byte, error) {
	return picture.Grid([][]picture.Chart{{
		r.chart("Effects with their records", anEffect),
		r.chart("Claims with their completions", aClaim, aCompletion),
	}})
}

// chart has a line for each store: how often all of these are done in a second,
// one after the other.
func (r report) chart(title string, what ...string) picture.Chart {
	sizes := append([]int{1}, r.Scale.Together...)
	c := picture.Chart{Title: title, X: "items in a commit", Y: "per second", XLog: true, YLog: true}
	for _, size := range sizes {
		c.XTicks = append(c.XTicks, float64(size))
	}
	for _, store := range r.Stores {
		s := picture.Series{Name: store, Line: true, Dots: true}
		for _, size := range sizes {
			if rate, ok := r.inTurn(store, size, what); ok {
				s.X, s.Y = append(s.X, float64(size)), append(s.Y, rate)
			}
		}
		if len(s.X) > 0 {
			c.Series = append(c.Series, s)
		}
	}
	if disk, ok := r.find(rateGroup, r.Stores[0], aSync); ok {
		last := c.XTicks[len(c.XTicks)-1]
		c.Series = append(c.Series, picture.Series{
			Name: "fsyncs of the disk", X: []float64{1, last}, Y: []float64{disk.Ratio, disk.Ratio}, Line: true, Dash: true,
		})
	}
	return c
}

// inTurn is the rate of doing several things one after the other.
func (r report) inTurn(store string, size int, what []string) (rate float64, ok bool) {
	seconds := 0.0
	for _, w := range what {
		row, ok := r.find(rateGroup, store, inCalls(w, size))
		if !ok {
			return 0, false
		}
		seconds += 1 / row.Ratio
	}
	return 1 / seconds, true
}
