package main

import (
	"fmt"
	"io"
	"testing"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// What comes out of some cells, to the last key: another machine, or a change of
// the pipeline that should not matter, must not change it.
func TestPinned(t *testing.T) {
	cfg := flags(t, "-quick", "-keys", "4000", "-buffers", "64,256", "-loads", "1.05", "-guards", "none,completed-16,ours-256,store")
	m, err := measure(t.Context(), []part{partOf(t, cfg, "sweep")}, 2, results.NewProgress(io.Discard, "", 1))
	if err != nil {
		t.Fatal(err)
	}
	type pin struct{ keys, extra, claim, late, sends int }
	want := map[string]pin{
		"none, 64":          {3000, 0, 0, 0, 4000},
		"completed-16, 64":  {3000, 0, 0, 0, 4000},
		"ours-256, 64":      {3000, 0, 0, 0, 4000},
		"store, 64":         {3000, 0, 0, 0, 4000},
		"none, 256":         {3000, 1177, 0, 1177, 5177},
		"completed-16, 256": {3000, 1177, 0, 1177, 5177},
		"ours-256, 256":     {3000, 0, 0, 0, 5140},
		"store, 256":        {3000, 0, 0, 0, 6371},
	}
	if len(m.rows["sweep"]) != len(want) {
		t.Errorf("%d cells", len(m.rows["sweep"]))
	}
	for _, r := range m.rows["sweep"] {
		name := fmt.Sprintf("%s, %d", r.label(), r.Buffer)
		if got := (pin{r.Keys, r.Extra, r.Claim, r.Late, r.Sends}); got != want[name] {
			t.Errorf("%q: got %+v, want %+v", name, got, want[name])
		}
	}
}
