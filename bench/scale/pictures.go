package main

import "github.com/oncepipe/oncepipe/bench/internal/picture"

// costs are the pictures of what one costs in time.
func costs(points []point) [][]picture.Chart {
	return [][]picture.Chart{
		{
			chart("Keys", "keys", "ns for a key", points, single, "keys/stage", "keys/default", "keys/all", "keys/ring", "keys/read"),
			chart("Workers", "workers", "ns of a worker for an item", points, single, "workers/trivial", "workers/bare", "workers/100µs", "workers/1ms"),
		},
		{
			chart("Parked items", "parked items", "ns for an item", points, single, "parked/park", "parked/back"),
			chart("Pipelines", "pipelines in one process", "ns", points, single, "pipelines/life", "pipelines/item", "pipelines/bare"),
		},
	}
}

// memories are the pictures of what all take together.
func memories(points []point) [][]picture.Chart {
	return [][]picture.Chart{{
		chart("A guard for all keys", "keys", "MB", points, together, "keys/bytes"),
		chart("Parked items, beyond the items", "parked items", "MB", points, together, "parked/bytes"),
		chart("Small pipelines", "pipelines in one process", "MB", points, together, "pipelines/bytes"),
	}}
}

func single(_ int, value float64) float64   { return value }
func together(n int, value float64) float64 { return float64(n) * value / 1e6 }

// chart has a line for each series that there is, of y(n, value) over n.
func chart(title, x, y string, points []point, at func(int, float64) float64, ids ...string) picture.Chart {
	c := picture.Chart{Title: title, X: x, Y: y, XLog: true, YLog: true}
	for _, id := range ids {
		n, values := of(points, id)
		line := picture.Series{Name: seriesOf(id).label, Line: true, Dots: true}
		for i := range n {
			line.X = append(line.X, float64(n[i]))
			line.Y = append(line.Y, at(n[i], values[i]))
		}
		if len(n) > len(c.XTicks) {
			c.XTicks = line.X
		}
		if len(n) > 0 {
			c.Series = append(c.Series, line)
		}
	}
	return c
}
