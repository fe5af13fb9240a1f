package guard

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/oncepipe/oncepipe"
)

func BenchmarkGuard(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 0))
	keys, old := stream(claims, random), distinct(capacity, random)
	for _, c := range []struct {
		name     string
		newGuard func(capacity int) guard
	}{
		{"ring", newRing},
		{"lru", func(n int) guard { return oncepipe.LRU(n) }},
		{"golang-lru", newGolangLRU},
		{"syncmap", func(int) guard { return oncepipe.SyncMap() }},
	} {
		for _, workers := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/%d", c.name, workers), func(b *testing.B) {
				b.ReportAllocs()
				for left := b.N; left > 0; left -= claims {
					// A guard of its own for each pass: the unbounded one would
					// know every key in the second.
					b.StopTimer()
					g := c.newGuard(capacity)
					pass(g, old, 1)
					b.StartTimer()
					pass(g, keys[:min(left, claims)], workers)
				}
			})
		}
	}
}

// The goals that don't depend on how busy the machine is. Those of time are
// checked by the command that prints the report.
func TestReport(t *testing.T) {
	if testing.Short() {
		t.Skip("fills guards with a million keys")
	}
	rows, err := report(3)
	if err != nil {
		t.Fatal(err)
	}
	timed := map[string]bool{"guard/time/1": true, "guard/time/4": true}
	for _, r := range rows {
		t.Logf("%-14s %.3f, limit %.3f", r.Name, r.Ratio, r.Limit)
		if !r.OK && !timed[r.Name] {
			t.Errorf("%s is %.3f, above %.3f", r.Name, r.Ratio, r.Limit)
		}
		delete(timed, r.Name)
	}
	if len(timed) != 0 || len(rows) != 5 {
		t.Errorf("rows are missing: %v", rows)
	}
}

func TestStreamRepeatsRecentKeys(t *testing.T) {
	const n = 100_000
	last := map[string]int{}
	repeats := 0
	for i, k := range stream(n, rand.New(rand.NewPCG(3, 0))) {
		if len(k) != 36 {
			t.Fatalf("key %q has %d bytes", k, len(k))
		}
		if at, ok := last[k]; ok {
			repeats++
			if i-at > recent {
				t.Fatalf("key %d repeats the one %d before", i, i-at)
			}
		}
		last[k] = i
	}
	if repeats < n*9/100 || repeats > n*11/100 {
		t.Errorf("%d of %d keys repeat", repeats, n)
	}
}
