package sim_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// cells are such that all that can happen in a cell happens in some.
func cells() map[string]sim.Cell {
	list := map[string]sim.Cell{}
	for _, guard := range sim.Guards() {
		plain := cell(guard)
		plain.Buffer, plain.Burst, plain.Keys, plain.Warmup = 64, 100, 300, 30
		plain.Timeout = 5 * time.Millisecond
		list[fmt.Sprintf("%s/plain", guard)] = plain

		rough := plain
		rough.Exponential, rough.Skew, rough.Load = true, 1.3, 1.2
		rough.Fail, rough.AckLoss, rough.StoreTime = 0.1, 0.05, 130*time.Microsecond
		rough.Capacity = 16
		list[fmt.Sprintf("%s/rough", guard)] = rough

		rough.Push, rough.Skew, rough.Buffer = true, 0, 3
		list[fmt.Sprintf("%s/push", guard)] = rough

		rough.Push, rough.Buffer = false, 0
		rough.Crash, rough.AckDelay, rough.Lease = 15*time.Millisecond, 3*time.Millisecond, time.Second
		list[fmt.Sprintf("%s/crash", guard)] = rough
	}
	return list
}

func TestDeterminism(t *testing.T) {
	runs := 20
	if raceEnabled || testing.Short() {
		runs = 3
	}
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for name, c := range cells() {
		t.Run(name, func(t *testing.T) {
			first, err := sim.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			for i := range runs {
				procs := 1 << (i % 3)
				runtime.GOMAXPROCS(procs)
				r, err := sim.Run(c)
				if err != nil {
					t.Fatal(err)
				}
				if r != first {
					t.Fatalf("run %d with GOMAXPROCS %d:\n%+v, the first was\n%+v", i, procs, r, first)
				}
			}
		})
	}
}
