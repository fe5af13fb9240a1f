package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", []string{"core.json"}, render)
}

// A group of one row through the whole program: what it shows is what it writes.
func TestRun(t *testing.T) {
	dir := results.Dir(t.TempDir())
	var shown []ratio.Row
	code, err := run(t.Context(), "parked", dir, func(r ratio.Row) { shown = append(shown, r) })
	if code != 0 || err != nil || len(shown) != 1 {
		t.Fatalf("%d, %v, %+v", code, err, shown)
	}
	m, err := results.ReadJSON[measured](dir, "core.json")
	if err != nil || m.Partial || !slices.Equal(m.Rows, shown) {
		t.Errorf("%+v, %v; shown %+v", m, err, shown)
	}
	results.CheckDocument(t, dir, []string{"core.json"}, render)
}

func TestInterrupted(t *testing.T) {
	dir := results.Dir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, err := run(ctx, "", dir, func(r ratio.Row) { t.Errorf("measured %+v", r) })
	m, readErr := results.ReadJSON[measured](dir, "core.json")
	if code != interrupted || err != nil || readErr != nil || !m.Partial {
		t.Errorf("%d, %v; %+v, %v", code, err, m, readErr)
	}
	if text, err := dir.Read("core.md"); err != nil || !strings.Contains(string(text), "<!-- part: short -->\n**It was cut short") {
		t.Errorf("%s\ndoesn't say in its part that it was cut short; %v", text, err)
	}
}

func TestRender(t *testing.T) {
	dir := results.Dir(t.TempDir())
	m := measured{Rows: []ratio.Row{ratio.AtMost("guard/bytes", 0.1934, 0.2), ratio.AtMost("chain3/1 worker", 1.8, 1.7)}}
	if err := results.WriteJSON(dir, "core.json", m); err != nil {
		t.Fatal(err)
	}
	if err := render(dir); err != nil {
		t.Fatal(err)
	}
	text, err := dir.Read("core.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bytes per key | 0.193 | 0.2 | held |\n", "1 worker each | 1.8 | 1.7 | **not held** |\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
	m.Rows = append(m.Rows, ratio.AtMost("new", 1, 1))
	if err := results.WriteJSON(dir, "core.json", m); err != nil {
		t.Fatal(err)
	}
	if err := render(dir); err == nil {
		t.Error("a row without words is left out")
	}
}
