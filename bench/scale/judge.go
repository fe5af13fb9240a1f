package main

import (
	"fmt"
	"math"
	"strings"
)

// verdict says whether a bound is held.
type verdict struct {
	series series
	bound  bound
	from   int // sizes
	to     int
	got    float64
	held   bool
}

// figures are what was got and the limit, for people.
func (v verdict) figures() (got, limit string) {
	if v.bound.what == slope {
		return steepness(v.got), steepness(v.bound.limit)
	}
	return quantity(v.got, v.series.unit), quantity(v.bound.limit, v.series.unit)
}

// judge holds the points to the bounds of their series. A slope needs two sizes.
func judge(points []point) (list []verdict) {
	for _, s := range bounded() {
		n, values := of(points, s.id)
		if len(n) == 0 {
			continue
		}
		for _, b := range s.bounds {
			v := verdict{series: s, bound: b, from: n[0], to: n[len(n)-1], got: values[len(values)-1]}
			if b.what == slope {
				if len(n) < 2 {
					continue
				}
				v.got = slopeOf(n, values)
			}
			v.held = v.got <= b.limit
			list = append(list, v)
		}
	}
	return list
}

// bounded is every series, with those of what is left.
func bounded() []series {
	list := all()
	for _, g := range groups {
		list = append(list, left(g))
	}
	return list
}

// steepness is a slope for people.
func steepness(slope float64) string {
	return fmt.Sprintf("%.2f", math.Round(100*slope)/100+0) // no -0.00
}

func seriesOf(id string) series {
	for _, s := range bounded() {
		if s.id == id {
			return s
		}
	}
	panic("scale: no series " + id)
}

// of is what there is of a series, the smallest size first: the order in which
// a group lists its sizes.
func of(points []point, id string) (n []int, values []float64) {
	for _, p := range points {
		if p.Series == id {
			n = append(n, p.N)
			values = append(values, p.Value)
		}
	}
	return n, values
}

func inGroup(id string, g group) bool { return strings.HasPrefix(id, g.name+"/") }

// slopeOf fits log(value) to log(n) by least squares: 0 is flat, 1 grows as n
// does.
func slopeOf(n []int, values []float64) float64 {
	var sx, sy, sxx, sxy float64
	for i := range n {
		x, y := math.Log(float64(n[i])), math.Log(values[i])
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	count := float64(len(n))
	return (count*sxy - sx*sy) / (count*sxx - sx*sx)
}
