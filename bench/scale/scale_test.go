package main

import (
	"context"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", []string{"scale.csv", "scale.json"}, render)
}

func smallSizes() sizes {
	return sizes{
		rounds: 2,
		keys:   []int{1_000, 2_000}, fewest: 2_000, guard: 500,
		workers: []int{1, 3}, items: 1_000, each: 100, waits: 3,
		parked: []int{100, 1_000}, crowded: 300,
		pipelines: []int{1, 5},
	}
}

// The whole program on a small scale: each probe checks by itself that nothing is
// lost, and the figures are there at each size.
func TestRun(t *testing.T) {
	dir := results.Dir(t.TempDir())
	before := runtime.NumGoroutine()
	code, err := run(t.Context(), groups, smallSizes(), results.NewRun("a test"), dir, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	points, err := results.ReadCSV[point](dir, "scale.csv")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int{"keys": {1_000, 2_000}, "workers": {1, 3}, "parked": {100, 1_000}, "pipelines": {1, 5}}
	for _, s := range all() {
		group, _, _ := strings.Cut(s.id, "/")
		n, values := of(points, s.id)
		if !slices.Equal(n, want[group]) {
			t.Errorf("%s at %v, want %v", s.id, n, want[group])
		}
		for _, v := range values {
			if v <= 0 && s.unit != bytes && s.unit != milliseconds { // a small crowd has next to none of these
				t.Errorf("%s is %v", s.id, v)
			}
		}
	}
	for _, g := range groups {
		if n, values := of(points, left(g).id); len(n) != 1 || values[0] != 0 {
			t.Errorf("%s leaves %v", g.name, values)
		}
	}
	broken := slices.ContainsFunc(judge(points), func(v verdict) bool { return !v.held })
	if broken != (code == 1) || code > 1 {
		t.Errorf("exit code %d; a limit isn't held: %v", code, broken)
	}
	if now := settled(before); now > before {
		t.Errorf("%d goroutines, %d before", now, before)
	}
	results.CheckDocument(t, dir, []string{"scale.csv", "scale.json"}, render)
}

// What was measured before the end is kept, and the document says that it isn't all.
func TestInterrupted(t *testing.T) {
	dir := results.Dir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	first := group{"keys", "Keys", "", func(s sizes) plan {
		p := keys(s)
		p.rounds = append(p.rounds, func(*meter) error { cancel(); return nil })
		return p
	}}
	code, err := run(ctx, []group{first, groups[1]}, smallSizes(), results.NewRun("a test"), dir, io.Discard, io.Discard)
	if code != interrupted || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	text, err := dir.Read("scale.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]bool{
		"<!-- part: short -->\n**It was cut short": true, "## Keys": true, "2 000": true, "## Workers": false,
	} {
		if strings.Contains(string(text), what) != want {
			t.Errorf("%q in the document: %v, want %v", what, !want, want)
		}
	}
}

// What was not measured doesn't take the place of what was.
func TestInterruptedAtOnce(t *testing.T) {
	dir := results.Dir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, err := run(ctx, groups, smallSizes(), results.NewRun("a test"), dir, io.Discard, io.Discard)
	if code != interrupted || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	if files, err := os.ReadDir(string(dir)); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// A run may end where one series has a size that the next one lacks.
func TestShort_LeavesOutWhatLacksSizes(t *testing.T) {
	points := []point{
		{"keys/default", 10, 100, nanoseconds},
		{"keys/default", 1_000, 101, nanoseconds},
		{"keys/all", 10, 100, nanoseconds},
	}
	text := short(points)
	if want := course(points, "keys/default"); !strings.Contains(text, "10 … 1 000 keys**: "+want+".\n") {
		t.Errorf("%q lacks only %q", text, want)
	}
}

func TestSlope(t *testing.T) {
	n := []int{10, 100, 1_000}
	for want, values := range map[float64][]float64{
		0:    {7, 7, 7},
		1:    {20, 200, 2_000},
		-1:   {3, 0.3, 0.03},
		0.25: {1, math.Pow(10, 0.25), math.Sqrt(10)},
	} {
		if got := slopeOf(n, values); math.Abs(got-want) > 1e-9 {
			t.Errorf("slope of %v is %v, want %v", values, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	points := []point{
		{"keys/stage", 10, 100, nanoseconds},
		{"keys/stage", 1_000, 101, nanoseconds},
		{"keys/bytes", 10, 20, bytes},
		{"keys/bytes", 1_000, 40, bytes},
		{"keys/ring", 10, 1, nanoseconds},
		{"keys/ring", 1_000, 1_000, nanoseconds},
		{"parked/late99", 10, 9, milliseconds},
		{"parked/late99", 1_000, 5, milliseconds},
		{"parked/park", 10, 9, nanoseconds},
		{"keys/left", 0, 1, goroutines},
	}
	want := []string{
		"keys/stage slope true", "keys/bytes slope false", "keys/bytes at the largest n false",
		"parked/late99 at the largest n true", "keys/left in all false",
	}
	var got []string
	for _, v := range judge(points) {
		held := " false"
		if v.held {
			held = " true"
		}
		got = append(got, v.series.id+" "+v.bound.what+held)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	text := short(points)
	for _, want := range []string{"3 of 5 limits are **not held**", "slope 0.15, limit 0.15", "at the largest n 40 bytes, limit 32 bytes"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

func TestQuantity(t *testing.T) {
	for want, got := range map[string]string{
		"1 234 ns": quantity(1234.4, nanoseconds), "12.3 µs": quantity(12_345, nanoseconds), "0 bytes": quantity(0, bytes),
		"-2.50 ns": quantity(-2.5, nanoseconds), "99.1 kB": quantity(99_125, bytes), "7": quantity(7, goroutines),
		"1.02": quantity(1.02, ratios), "1 131 µs": quantity(1_131_232, nanoseconds), "10 000 000": number(10_000_000), "-100": number(-100),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
