package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// small is a quick sweep around a smaller limit, for which the theory takes less time.
var small = []string{"-quick", "-keys", "400", "-timeout", "2ms"}

func flags(t *testing.T, args ...string) config {
	t.Helper()
	c, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func partOf(t *testing.T, c config, name string) part {
	t.Helper()
	list := c.parts(name)
	if len(list) != 1 || list[0].name != name {
		t.Fatalf("%d parts are called %q", len(list), name)
	}
	return list[0]
}

func TestSweepIsWhatWasAskedFor(t *testing.T) {
	full, quick := partOf(t, flags(t), "sweep").cells, partOf(t, flags(t, "-quick"), "sweep").cells
	if got, want := len(full), 8*5*12; got != want {
		t.Errorf("the full sweep has %d cells, want %d", got, want)
	}
	if got, want := len(quick), 5*3*5; got != want {
		t.Errorf("the quick sweep has %d cells, want %d", got, want)
	}
	for _, c := range quick {
		if c.Keys != 20_000 {
			t.Fatalf("a cell of the quick sweep has %d keys", c.Keys)
		}
	}
}

func TestSweepOrder(t *testing.T) {
	c := flags(t, "-quick", "-buffers", "4,0", "-loads", "1.2,0.5", "-guards", "ours+store-16,none")
	var got []string
	for _, c := range partOf(t, c, "sweep").cells {
		got = append(got, guardian{c.Guard, c.Capacity}.String()+" "+
			strings.Join([]string{time.Duration(c.Buffer).String(), time.Duration(c.Load * 10).String()}, " "))
	}
	want := []string{
		"ours+store-16 4ns 12ns", "none 4ns 12ns", "ours+store-16 0s 12ns", "none 0s 12ns",
		"ours+store-16 4ns 5ns", "none 4ns 5ns", "ours+store-16 0s 5ns", "none 0s 5ns",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestSeeds(t *testing.T) {
	type traffic struct {
		part string
		seed uint64
	}
	first := flags(t, small...).parts("")
	guards := map[traffic]map[string]bool{}
	for _, p := range first {
		for _, c := range p.cells {
			at := traffic{p.name, c.Seed}
			if guards[at] == nil {
				guards[at] = map[string]bool{}
			}
			name := guardian{c.Guard, c.Capacity}.String()
			if guards[at][name] {
				t.Fatalf("%s: two cells with one seed and the guard %s", p.name, name)
			}
			guards[at][name] = true
		}
	}
	for at, names := range guards {
		if at.part == "sweep" && len(names) != len(quickGuards) {
			t.Errorf("not all guards meet the same sender: %v", names)
		}
	}
}

func TestOtherSeed(t *testing.T) {
	first, again := partOf(t, flags(t, "-quick"), "crash"), partOf(t, flags(t, "-quick"), "crash")
	other := partOf(t, flags(t, "-quick", "-seed", "2"), "crash")
	for i, c := range first.cells {
		if c != again.cells[i] {
			t.Fatalf("not the same cell again: %+v, %+v", c, again.cells[i])
		}
		if c.Seed == other.cells[i].Seed {
			t.Fatalf("the same seed with another -seed: %+v", c)
		}
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		workers          int
		service, timeout time.Duration
		want             int
	}{
		{1, 500 * time.Microsecond, 20 * time.Millisecond, 39},
		{4, 500 * time.Microsecond, 20 * time.Millisecond, 156},
		{4, 20 * time.Millisecond, 10 * time.Millisecond, 0},
	} {
		if got := limit(c.workers, c.service, c.timeout); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// What was promised is looked at in every cell where it was promised, and nowhere
// else.
func TestBroken(t *testing.T) {
	ours := row{Guard: sim.Ours, Capacity: 16, Keys: 100, Extra: 1}
	for _, c := range []struct {
		name   string
		change func(*row)
		want   string
	}{
		{"extra", func(*row) {}, "extra effects"},
		{"behind a store", func(r *row) { r.Guard = sim.OursStore }, "extra effects"},
		{"lost", func(r *row) { r.Extra, r.Lost = 0, 1 }, "keys lost"},
		{"good", func(r *row) { r.Extra = 0 }, ""},
		{"another guard", func(r *row) { r.Guard = sim.Completed }, ""},
		{"after a kill", func(r *row) { r.Crash = time.Second }, ""},
		{"a lost ack", func(r *row) { r.AckLoss = 0.01 }, ""},
		{"a lost ack and all keys known", func(r *row) { r.AckLoss, r.Capacity = 0.01, 0 }, "extra effects"},
		{"a natural repeat", func(r *row) { r.Skew = 1.2 }, ""},
		{"a natural repeat, behind a store", func(r *row) { r.Skew, r.Guard = 1.2, sim.OursStore }, "extra effects"},
	} {
		r := ours
		c.change(&r)
		if got := r.broken(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
