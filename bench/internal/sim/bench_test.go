package sim_test

import (
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

func BenchmarkRun(b *testing.B) {
	for _, guard := range sim.Guards() {
		b.Run(string(guard), func(b *testing.B) {
			c := cell(guard)
			c.Buffer, c.Keys = 256, 20_000
			items := 0
			for b.Loop() {
				r, err := sim.Run(c)
				if err != nil {
					b.Fatal(err)
				}
				items += r.Items
			}
			b.ReportMetric(float64(items)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// cell is the one of most tests: four workers, a little too much load.
func cell(guard sim.Guard) sim.Cell {
	return sim.Cell{
		Buffer: 64, Workers: 4, Load: 1.05, Service: 500 * time.Microsecond, Timeout: 20 * time.Millisecond,
		Guard: guard, Keys: 2000, Warmup: 200, Seed: 1,
	}
}
