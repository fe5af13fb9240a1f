package main

import "github.com/oncepipe/oncepipe"

// sizes is how much is measured.
type sizes struct {
	rounds    int
	keys      []int
	fewest    int // keys that go through for one figure
	guard     int // keys in the guard that doesn't grow with them; not more than the fewest keys
	workers   []int
	items     int // through workers whose work is trivial, and through all pipelines together,
	each      int // but not fewer through one pipeline
	waits     int // that each worker makes
	parked    []int
	crowded   int // items that are parked for one figure, where one crowd is less
	pipelines []int
}

func sizesOf(quick bool) sizes {
	if quick {
		return sizes{
			rounds: 3,
			keys:   []int{100_000, 300_000, 1_000_000}, fewest: 300_000, guard: oncepipe.DefaultGuard,
			workers: []int{1, 4, 16}, items: 200_000, each: 4_000, waits: 50,
			parked: []int{1_000, 10_000, 100_000}, crowded: 20_000,
			pipelines: []int{1, 10, 100},
		}
	}
	return sizes{
		rounds: 5,
		keys:   []int{100_000, 300_000, 1_000_000, 3_000_000, 10_000_000}, fewest: 300_000, guard: oncepipe.DefaultGuard,
		workers: []int{1, 2, 4, 8, 16, 32, 64}, items: 400_000, each: 4_000, waits: 100,
		parked: []int{1_000, 10_000, 100_000, 1_000_000}, crowded: 20_000,
		pipelines: []int{1, 10, 100, 1_000},
	}
}
