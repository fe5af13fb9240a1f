package sim_test

import (
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

func drawCell(t *rapid.T) sim.Cell {
	times := func(name string, max time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(max)).Draw(t, name))
	}
	share := func(name string) float64 {
		return float64(rapid.IntRange(0, 30).Draw(t, name)) / 100
	}
	c := sim.Cell{
		Buffer:      rapid.SampledFrom([]int{0, 1, 4, 16, 64, 256}).Draw(t, "buffer"),
		Workers:     rapid.IntRange(1, 8).Draw(t, "workers"),
		Load:        float64(rapid.IntRange(30, 300).Draw(t, "load")) / 100,
		Service:     time.Microsecond + times("service", time.Millisecond),
		Exponential: rapid.Bool().Draw(t, "exponential"),
		Timeout:     time.Millisecond + times("timeout", 20*time.Millisecond),
		Push:        rapid.Bool().Draw(t, "push"),
		Guard:       rapid.SampledFrom(sim.Guards()).Draw(t, "guard"),
		Capacity:    rapid.SampledFrom([]int{0, 1, 16, 100}).Draw(t, "capacity"),
		StoreTime:   times("store time", 300*time.Microsecond),
		Keys:        rapid.IntRange(1, 200).Draw(t, "keys"),
		Burst:       rapid.IntRange(0, 100).Draw(t, "burst"),
		Fail:        share("fail"),
		AckLoss:     share("ack loss"),
		AckDelay:    times("ack delay", 2*time.Millisecond),
		Seed:        rapid.Uint64().Draw(t, "seed"),
	}
	c.Ring = c.Capacity > 0 && rapid.Bool().Draw(t, "ring")
	c.Warmup = rapid.IntRange(0, c.Keys-1).Draw(t, "warmup")
	if rapid.Bool().Draw(t, "skewed") {
		c.Skew, c.SkewKeys = 1.2, 50
	}
	if rapid.Bool().Draw(t, "crashes") {
		c.Crash = 1 + times("crash", 50*time.Millisecond)
	}
	return c
}

// Whatever the cell: the sums are right, nothing is lost but by a mark at entry,
// and the result is the same on one processor as on four.
func TestConservation(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		runtime.GOMAXPROCS(1)
		r, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Extra != r.Claim+r.Late+r.Restart || r.Effects != r.Keys-r.Lost+r.Extra {
			t.Errorf("the sums: %+v", r)
		}
		if c.Crash == 0 && (r.Restart != 0 || r.Items != r.Sends) {
			t.Errorf("without a crash: %+v", r)
		}
		if r.Items > r.Sends || r.Sends < c.Keys {
			t.Errorf("deliveries: %+v", r)
		}
		if r.Lost != 0 && (c.Guard != sim.Entry || c.Crash == 0) {
			t.Errorf("lost: %+v", r)
		}
		runtime.GOMAXPROCS(4)
		if again, err := sim.Run(c); err != nil || again != r {
			t.Errorf("the second run: %v\n%+v, the first was\n%+v", err, again, r)
		}
	})
}

// Ours has no second effect in process: for a small memory where acks are heard
// at once, for one that is large enough always, and with a store whatever its memory.
func TestOursHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		c.Guard = rapid.SampledFrom([]sim.Guard{sim.Ours, sim.OursStore}).Draw(t, "ours")
		if c.Guard == sim.Ours && rapid.Bool().Draw(t, "acks are heard") {
			c.AckLoss, c.AckDelay, c.Skew = 0, 0, 0
		} else if c.Guard == sim.Ours {
			c.Capacity, c.Ring = 0, false
		}
		r, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		gap := c.AckDelay > 0 || c.AckLoss > 0 || c.Skew > 0
		if c.Guard == sim.OursStore {
			gap = c.StoreTime > 0
		}
		if r.Claim+r.Late != 0 || r.Restart != 0 && !gap {
			t.Errorf("%+v", r)
		}
	})
}
