package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// guardian is a guard with the capacity of its LRU; 0 is unbounded, or no LRU.
type guardian struct {
	guard    sim.Guard
	capacity int
}

// String is how the guardian is called in tables and flags: "completed-256".
func (g guardian) String() string {
	if g.capacity == 0 {
		return string(g.guard)
	}
	return fmt.Sprintf("%s-%d", g.guard, g.capacity)
}

// hasLRU says whether a capacity means anything to the guard.
func hasLRU(g sim.Guard) bool {
	return g == sim.Completed || g == sim.Ours || g == sim.OursStore
}

func parseGuardian(text string) (guardian, error) {
	name, size, sized := strings.Cut(text, "-")
	g := guardian{guard: sim.Guard(name)}
	if !slices.Contains(sim.Guards(), g.guard) {
		return g, fmt.Errorf("no guard %q; there are %v", name, sim.Guards())
	}
	if !sized {
		return g, nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 1 || !hasLRU(g.guard) {
		return g, fmt.Errorf("%q: a capacity is a positive number, of completed, ours or ours+store", text)
	}
	g.capacity = n
	return g, nil
}
