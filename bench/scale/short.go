package main

import (
	"fmt"
	"slices"
	"strings"
)

// short is the answer in a few lines: how each cost goes with n, and what is not
// held.
func short(points []point) string {
	var b strings.Builder
	for _, line := range []struct {
		what   string
		series []string
	}{
		{"keys", []string{"keys/default", "keys/all", "keys/bytes"}},
		{"workers", []string{"workers/trivial", "workers/1ms"}},
		{"parked items", []string{"parked/park", "parked/back", "parked/bytes", "parked/late99"}},
		{"pipelines in one process", []string{"pipelines/life", "pipelines/item", "pipelines/bytes"}},
	} {
		n, _ := of(points, line.series[0])
		if len(n) < 2 {
			continue
		}
		var said []string
		for _, id := range line.series {
			if sizes, _ := of(points, id); slices.Equal(sizes, n) { // all, unless the run was cut short
				said = append(said, course(points, id))
			}
		}
		fmt.Fprintf(&b, "- **%s … %s %s**: %s.\n", number(n[0]), number(n[len(n)-1]), line.what, strings.Join(said, "; "))
	}
	return b.String() + "\n" + outcome(judge(points))
}

// course says from where to where the values of a series go.
func course(points []point, id string) string {
	s := seriesOf(id)
	n, values := of(points, id)
	last := len(values) - 1
	text := fmt.Sprintf("%s %s → %s", s.text, quantity(values[0], s.unit), quantity(values[last], s.unit))
	for _, b := range s.bounds {
		if b.what == slope {
			text += " (slope " + steepness(slopeOf(n, values)) + ")"
		}
	}
	return text
}

// outcome says which limits are not held.
func outcome(verdicts []verdict) string {
	var broken []string
	for _, v := range verdicts {
		if v.held {
			continue
		}
		got, limit := v.figures()
		broken = append(broken, fmt.Sprintf("%s: %s %s, limit %s", v.series.text, v.bound.what, got, limit))
	}
	if len(broken) == 0 {
		return fmt.Sprintf("All %d limits are held; a slope of 0 is flat, 1 grows as n does, and the limit is %.2f.\n", len(verdicts), flat)
	}
	return fmt.Sprintf("%d of %d limits are **not held**: %s.\n", len(broken), len(verdicts), strings.Join(broken, "; "))
}
