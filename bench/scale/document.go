package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/picture"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// render makes the document and the pictures of scale.csv and scale.json.
func render(dir results.Dir) error {
	how, err := results.ReadJSON[results.Run](dir, "scale.json")
	if err != nil {
		return err
	}
	points, err := results.ReadCSV[point](dir, "scale.csv")
	if err != nil {
		return err
	}
	for name, charts := range map[string][][]picture.Chart{
		"scale-cost.svg":   costs(points),
		"scale-memory.svg": memories(points),
	} {
		svg, err := picture.Grid(charts)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := dir.Write(name, svg); err != nil {
			return err
		}
	}
	return dir.Write("scale.md", []byte(document(how, points)))
}

func document(how results.Run, points []point) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Cost as everything grows\n\n%s\n", how.Header())
	fmt.Fprintf(&b, "What does an item cost when there are ten times as many keys, workers, parked items or pipelines? As much as before,\n"+
		"or so it should be: the slope is that of log(cost) over log(n), fitted by least squares. 0 is flat, 1 grows as n does.\n"+
		"All figures are medians of interleaved rounds.\n\n")
	b.WriteString(how.Part("short", short(points)))
	b.WriteString("\n![cost against n](scale-cost.svg)\n\n![memory against n](scale-memory.svg)\n")
	for _, g := range groups {
		columns, rows := table(g, points)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", g.title, g.about, results.Table(columns, rows))
		if g.name == "keys" {
			b.WriteString(bounding(points))
		}
	}
	columns, rows := judgement(judge(points))
	fmt.Fprintf(&b, "\n## Limits\n\n%s", results.Table(columns, rows))
	return b.String()
}

// table has a row for each size of a group and a column for each series.
func table(g group, points []point) (columns []string, rows [][]string) {
	columns = []string{">" + strings.ToLower(g.title)}
	var there []series
	var sizes []int
	for _, s := range all() {
		if n, _ := of(points, s.id); inGroup(s.id, g) && len(n) > 0 {
			there = append(there, s)
			columns = append(columns, ">"+s.text)
			sizes = append(sizes, n...)
		}
	}
	slices.Sort(sizes)
	for _, size := range slices.Compact(sizes) {
		row := []string{number(size)}
		for _, s := range there {
			cell := ""
			n, values := of(points, s.id)
			if i := slices.Index(n, size); i >= 0 {
				cell = quantity(values[i], s.unit)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return columns, rows
}

// judgement is a row for each limit.
func judgement(verdicts []verdict) (columns []string, rows [][]string) {
	for _, v := range verdicts {
		got, limit := v.figures()
		rows = append(rows, []string{v.series.text, reach(v), v.bound.what, got, limit, word(v)})
	}
	return []string{"what", "n", "held is", ">measured", ">limit", ""}, rows
}

func word(v verdict) string {
	if v.held {
		return "held"
	}
	return "**not held**"
}

func reach(v verdict) string {
	if v.bound.what == inAll {
		return ""
	}
	return number(v.from) + " … " + number(v.to)
}

// bounding compares how much dearer a key gets with how much a read does.
func bounding(points []point) string {
	n, cost := of(points, "keys/all")
	_, ring := of(points, "keys/ring")
	_, read := of(points, "keys/read")
	end := len(n) - 1
	if end < 1 || len(ring) <= end || len(read) <= end {
		return ""
	}
	return fmt.Sprintf("\nFrom %s to %s keys, each with a place in the guard, a key gets dearer by %s behind `Dedup` and by %s in the guard by\n"+
		"itself; one read in as many bytes by %s. Of a guard a key touches its bucket, what is chained there, and the bucket of the oldest\n"+
		"key, anywhere in it. All of that is far away once it is more than the processor's caches hold.\n",
		number(n[0]), number(n[end]),
		quantity(cost[end]-cost[0], nanoseconds), quantity(ring[end]-ring[0], nanoseconds), quantity(read[end]-read[0], nanoseconds))
}

// quantity is a value with three digits or so, and its unit.
func quantity(v float64, unit string) string {
	switch {
	case unit == nanoseconds && math.Abs(v) >= 10_000:
		return quantity(v/1000, microseconds)
	case unit == bytes && math.Abs(v) >= 10_000:
		return quantity(v/1000, kilobytes)
	}
	digits := 0
	switch {
	case v == math.Trunc(v):
	case math.Abs(v) < 10:
		digits = 2
	case math.Abs(v) < 100:
		digits = 1
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if digits == 0 {
		text = number(int(math.Round(v)))
	}
	if unit == ratios || unit == goroutines {
		return text
	}
	return text + " " + unit
}

// number is n with a space between thousands.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}
