package main

import (
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// measured is core.json.
type measured struct {
	results.Run
	Rows []ratio.Row `json:"rows"`
}

// words say what the rows are, in the order of the document.
var words = []struct{ name, text string }{
	{"chain3/1 worker", "three stages with keys, settlement and retry : three on bare channels, 1 worker each"},
	{"chain3/4 workers", "the same with 4 workers each"},
	{"chain3/acked", "three stages, 1 worker each, with a source that is told of each item : three on bare channels"},
	{"inline over raw chain3", "three `Map`s and one stage : three stages on bare channels"},
	{"inline over chain1", "three `Map`s and one stage : one stage"},
	{"dedup begin+done, raw hops", "a new key through `Dedup` and its guard : a hop of a bare channel"},
	{"guard/time/1", "`Ring` : hashicorp/golang-lru/v2, time with 1 goroutine"},
	{"guard/time/4", "`Ring` : hashicorp/golang-lru/v2, time with 4 goroutines"},
	{"guard/bytes", "`Ring` : hashicorp/golang-lru/v2, bytes per key"},
	{"guard/allocs", "`Ring`, allocations per claim"},
	{"guard/missed", "`Ring`, keys forgotten before their time"},
	{"parked/index bytes per item", "retry lane's index, bytes per parked item at a million"},
}

// render makes core.md of core.json.
func render(dir results.Dir) error {
	m, err := results.ReadJSON[measured](dir, "core.json")
	if err != nil {
		return err
	}
	byName := map[string]ratio.Row{}
	for _, r := range m.Rows {
		byName[r.Name] = r
	}
	var short, long [][]string
	for _, w := range words {
		r, ok := byName[w.name]
		if !ok {
			continue
		}
		delete(byName, w.name)
		short = append(short, []string{w.text, figure(r.Ratio), figure(r.Limit), held(r)})
		long = append(long, []string{"`" + w.name + "`", w.text, fmt.Sprintf("%.3f", r.Ratio), fmt.Sprintf("%.3f", r.Limit), held(r)})
	}
	for name := range byName {
		return fmt.Errorf("there are no words for %q", name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What the core costs\n\n%s\n"+
		"Each figure is the median of ratios of times that were taken side by side, in rounds. Nothing fails, buffers are of 64.\n\n", m.Header())
	b.WriteString(m.Part("short", results.Table([]string{"what", ">ratio", ">limit", ""}, short)))
	fmt.Fprintf(&b, "\nThe same by the names that the program prints:\n\n%s",
		results.Table([]string{"name", "what", ">ratio", ">limit", ""}, long))
	return dir.Write("core.md", []byte(b.String()))
}

func figure(v float64) string { return fmt.Sprintf("%.3g", v) }

func held(r ratio.Row) string {
	if r.OK {
		return "held"
	}
	return "**not held**"
}
