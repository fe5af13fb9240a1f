package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// line is a line of a table: the row that it is about, and what a reader is told
// that it is.
type line struct{ group, what, shown string }

const nothing = "–"

// table shows what was measured for each store of which there is any of it, by
// cell, below a head.
func (r report) table(head string, lines []line, cell func(row) string) string {
	columns := []string{head}
	var stores []string
	for _, store := range r.Stores {
		if r.any(lines, store) {
			stores = append(stores, store)
			columns = append(columns, ">"+store)
		}
	}
	limits := false
	var rows [][]string
	for _, l := range lines {
		cells, limit := r.cells(l, stores, cell)
		limits = limits || limit != nothing
		rows = append(rows, append(cells, limit))
	}
	if limits {
		return results.Table(append(columns, ">limit"), rows)
	}
	for i := range rows {
		rows[i] = rows[i][:len(columns)]
	}
	return results.Table(columns, rows)
}

func (r report) any(lines []line, store string) bool {
	for _, l := range lines {
		if _, ok := r.find(l.group, store, l.what); ok {
			return true
		}
	}
	return false
}

// cells are what a line shows of these stores, and the limit. What isn't held to
// the limit that another store has stands in parentheses.
func (r report) cells(l line, stores []string, cell func(row) string) (cells []string, limit string) {
	cells, limit = []string{l.shown}, r.limit(l, stores)
	for _, store := range stores {
		row, ok := r.find(l.group, store, l.what)
		switch {
		case !ok:
			cells = append(cells, nothing)
		case limit != nothing && row.Limit == nil:
			cells = append(cells, "("+cell(row)+")")
		default:
			cells = append(cells, cell(row))
		}
	}
	return cells, limit
}

// limit is the one that some of these stores are held to.
func (r report) limit(l line, stores []string) string {
	for _, store := range stores {
		if row, ok := r.find(l.group, store, l.what); ok && row.Limit != nil {
			return strings.TrimSpace(fmt.Sprintf("at %s %v %s", row.Bound, *row.Limit, row.Unit))
		}
	}
	return nothing
}

// value is what was measured, with its unit.
func value(r row) string {
	text := figure(r.Ratio)
	if r.Unit != "" && r.Unit != perSecond {
		text += " " + r.Unit
	}
	if !r.OK {
		text = "**" + text + "**"
	}
	return text
}

// latency is what half of the calls, and what nearly all of them take at most.
func latency(r row) string { return figure(r.P50) + ", " + figure(r.P99) }

// figure shows three digits, or all of an integer's.
func figure(v float64) string {
	switch {
	case v >= 99.95 || v == 0:
		return grouped(strconv.FormatFloat(v, 'f', 0, 64))
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// grouped puts spaces between thousands.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return digits
}
