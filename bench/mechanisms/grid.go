package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// grid finds rows by mechanism and fault.
type grid struct {
	counts map[[2]string]row // with waiting, where there is any
	times  map[[2]string]row // without
}

func gridOf(rows []row) grid {
	g := grid{counts: map[[2]string]row{}, times: map[[2]string]row{}}
	for _, r := range rows {
		at := [2]string{r.Mechanism, r.Fault}
		if _, there := g.counts[at]; r.Waits || !there {
			g.counts[at] = r
		}
		if !r.Waits {
			g.times[at] = r
		}
	}
	return g
}

// count is what a mechanism did under a fault.
func (g grid) count(m mechanism, f fault) (r row, ok bool) {
	r, ok = g.counts[[2]string{m.name, f.name}]
	return r, ok
}

// rate is how many messages per second that were, or a dash. It has two digits:
// the others change from run to run.
func (g grid) rate(m mechanism, f fault) string {
	r, ok := g.times[[2]string{m.name, f.name}]
	if !ok {
		return "–"
	}
	return twoDigits(r.PerSecond)
}

// twoDigits writes v without a fraction, rounded to two significant digits where
// it has more.
func twoDigits(v float64) string {
	unit := 1.0
	for v/unit >= 99.5 {
		unit *= 10
	}
	return fmt.Sprintf("%.0f", math.Round(v/unit)*unit)
}

// under are the counts of a mechanism under faults.
func (g grid) under(m mechanism) (rows []row) {
	for _, f := range faults(0) {
		if r, ok := g.count(m, f); ok {
			rows = append(rows, r)
		}
	}
	return rows
}

// shed is in how many cells a buffer shed, and the least and the most messages in
// one of them.
func (g grid) shed() (cells, least, most int) {
	for _, m := range mechanisms {
		for _, r := range g.under(m) {
			if r.Shed == 0 {
				continue
			}
			if cells == 0 {
				least = r.Shed
			}
			cells, least, most = cells+1, min(least, r.Shed), max(most, r.Shed)
		}
	}
	return cells, least, most
}

// counts says what was seen, each of as many faults as there were. What wasn't
// seen is left out, unless nothing was.
func (r row) counts() (parts []string) {
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d/%d %s", n, r.Faults, what))
		}
	}
	add(r.Lost, "lost")
	add(r.Doubled, "twice")
	add(r.Asked, "asked")
	if r.Shed > 0 {
		parts = append(parts, fmt.Sprintf("%d shed", r.Shed))
	}
	if r.Lost+r.Doubled+r.Asked == 0 {
		parts = append([]string{fmt.Sprintf("0/%d", r.Faults)}, parts...)
	}
	return parts
}

// level is 0 where nothing was lost or doubled, and 3 where it was by at least half
// of the faults. Where a person is asked, or fewer than one in a hundred did it, it
// is 1.
func (r row) level() int {
	switch bad := r.Lost + r.Doubled; {
	case bad == 0 && r.Asked == 0:
		return 0
	case bad*100 < r.Faults || bad == 0:
		return 1
	case bad*2 < r.Faults:
		return 2
	default:
		return 3
	}
}

// show prints the table for a terminal.
func show(out io.Writer, rows []row) error {
	g, columns := gridOf(rows), faults(0)
	fmt.Fprintln(out, "Lost/doubled, of how many faults, at how many messages per second. ?: dead letters; -: shed by choice.")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := []string{"mechanism", "none"}
	for i, f := range columns {
		fmt.Fprintf(out, "%2d  %s\n", i+1, f.name)
		head = append(head, fmt.Sprint(i+1))
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, m := range mechanisms {
		line := []string{m.name, g.rate(m, none) + "/s"}
		for _, f := range columns {
			r, ok := g.count(m, f)
			if !ok {
				line = append(line, "–")
				continue
			}
			text := fmt.Sprintf("%d/%d", r.Lost, r.Doubled)
			if r.Asked > 0 {
				text += fmt.Sprintf(" ?%d", r.Asked)
			}
			if r.Shed > 0 {
				text += fmt.Sprintf(" -%d", r.Shed)
			}
			line = append(line, fmt.Sprintf("%s of %d %s/s", text, r.Faults, g.rate(m, f)))
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}
