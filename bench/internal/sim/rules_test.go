package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

func run(t *testing.T, c sim.Cell) sim.Result {
	t.Helper()
	r, err := sim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Duplicates begin where a full buffer takes longer than the sender waits.
func TestBufferRule(t *testing.T) {
	for _, c := range []struct {
		workers          int
		service, timeout time.Duration
	}{
		{1, 500 * time.Microsecond, 20 * time.Millisecond},
		{4, 500 * time.Microsecond, 20 * time.Millisecond},
		{4, 2 * time.Millisecond, 50 * time.Millisecond},
		{16, time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d workers, %v, %v", c.workers, c.service, c.timeout), func(t *testing.T) {
			x := cell(sim.None)
			x.Workers, x.Service, x.Timeout, x.Load = c.workers, c.service, c.timeout, 1.2
			limit := c.workers * int(c.timeout/c.service-1)
			x.Buffer = limit - 2*c.workers
			if r := run(t, x); r.Extra != 0 || r.P != 0 {
				t.Errorf("buffer %d: %+v", x.Buffer, r)
			}
			x.Buffer = limit + 2*c.workers
			if r := run(t, x); r.Extra == 0 || r.P == 0 {
				t.Errorf("buffer %d: %+v", x.Buffer, r)
			}
		})
	}
}

// Without repeats the cell is a queue that is in every textbook.
func TestQueue(t *testing.T) {
	x := cell(sim.None)
	x.Workers, x.Load, x.Buffer, x.Timeout, x.Keys = 1, 0.5, 1000, time.Minute, 20_000
	for _, c := range []struct {
		name        string
		exponential bool
		want        float64 // mean sojourn, in service times
	}{
		{"M/D/1", false, 1.5},
		{"M/M/1", true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			x.Exponential = c.exponential
			r := run(t, x)
			if got := float64(r.Sojourn) / float64(x.Service); math.Abs(got-c.want) > 0.05*c.want {
				t.Errorf("sojourn %.3f service times, want %.3f", got, c.want)
			}
			if math.Abs(r.Goodput-x.Load) > 0.02 {
				t.Errorf("goodput %.3f, want the load", r.Goodput)
			}
		})
	}
}

// What each guard lets through, and nothing else.
func TestFaults(t *testing.T) {
	crash := func(c sim.Cell) sim.Cell {
		c.Crash, c.Lease = 100*time.Millisecond, time.Second
		return c
	}
	filled := func(guard sim.Guard) sim.Cell {
		c := cell(guard)
		c.Buffer, c.Burst = 256, 300
		return c
	}
	lossy := func(capacity int) sim.Cell {
		c := cell(sim.Ours)
		c.Load, c.AckLoss, c.Capacity = 0.95, 0.01, capacity
		return c
	}
	// Two acks that are lost in a row take 304 keys.
	ring := lossy(300)
	ring.AckLoss, ring.Ring = 0.2, true
	lru := ring
	lru.Ring = false
	slowAck := func(guard sim.Guard) sim.Cell {
		c := crash(cell(guard))
		c.AckDelay = 5 * time.Millisecond
		return c
	}
	slowStore := func(guard sim.Guard) sim.Cell {
		c := crash(cell(guard))
		c.StoreTime = 200 * time.Microsecond
		return c
	}
	one := filled(sim.Completed)
	one.Workers, one.Capacity = 1, 16
	small := filled(sim.Completed)
	small.Capacity = 16
	for _, c := range []struct {
		name                       string
		cell                       sim.Cell
		claim, late, restart, lost bool
	}{
		{"nothing: repeats run", filled(sim.None), false, true, false, false},
		{"nothing: what was done is done again after a crash", slowAck(sim.None), false, false, true, false},
		{"marked at entry: a crash loses what was acked before it was done", crash(filled(sim.Entry)), false, false, false, true},
		{"completed: two copies run at once", filled(sim.Completed), true, false, false, false},
		{"completed, small: forgets", small, false, true, false, false},
		{"completed, one worker: forgets", one, false, true, false, false},
		{"ours: holds", filled(sim.Ours), false, false, false, false},
		{"ours: a crash without a gap is harmless", crash(filled(sim.Ours)), false, false, false, false},
		{"ours: memory ends with the process", slowAck(sim.Ours), false, false, true, false},
		{"ours: acks are lost and 64 keys are too few", lossy(64), false, true, false, false},
		{"ours: acks are lost and 512 keys are enough", lossy(512), false, false, false, false},
		{"ours: an LRU remembers what is asked for", lru, false, false, false, false},
		{"ours: a ring forgets in its order", ring, false, true, false, false},
		{"store: outlives the process", slowAck(sim.Store), false, false, false, false},
		{"ours and store: outlive the process", slowAck(sim.OursStore), false, false, false, false},
		{"store: done and not yet recorded", slowStore(sim.Store), false, false, true, false},
		{"ours and store: done and not yet recorded", slowStore(sim.OursStore), false, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, c.cell)
			if r.Claim > 0 != c.claim || r.Late > 0 != c.late || r.Restart > 0 != c.restart || r.Lost > 0 != c.lost {
				t.Errorf("%+v", r)
			}
		})
	}
}

// One worker does one thing at a time: a copy right behind its first has its effect
// after it, never while it runs.
func TestOneWorkerHasNoClaimWindow(t *testing.T) {
	x := cell(sim.None)
	x.Workers, x.Buffer, x.Load, x.Skew, x.SkewKeys = 1, 4, 0.9, 1.5, 3
	if r := run(t, x); r.Claim != 0 || r.Late != r.Extra || r.Extra < r.Keys {
		t.Errorf("%+v", r)
	}
}

// A killed process that sleeps for longer than the new one lives is waited for.
func TestCrashOfASleeper(t *testing.T) {
	c := cell(sim.None)
	c.Keys, c.Warmup, c.Timeout, c.Crash = 1, 0, time.Hour, 50*time.Millisecond
	if r := run(t, c); r.Effects != 1 || r.Sends != 1 {
		t.Errorf("%+v", r)
	}
}

func TestRefusedCells(t *testing.T) {
	for name, spoil := range map[string]func(*sim.Cell){
		"no worker":      func(c *sim.Cell) { c.Workers = 0 },
		"65 workers":     func(c *sim.Cell) { c.Workers = 65 },
		"unknown guard":  func(c *sim.Cell) { c.Guard = "luck" },
		"no ring":        func(c *sim.Cell) { c.Ring = true },
		"no load":        func(c *sim.Cell) { c.Load = 0 },
		"no service":     func(c *sim.Cell) { c.Service = 0 },
		"no timeout":     func(c *sim.Cell) { c.Timeout = 0 },
		"all warmup":     func(c *sim.Cell) { c.Warmup = c.Keys },
		"never succeeds": func(c *sim.Cell) { c.Fail = 1 },
		"never heard":    func(c *sim.Cell) { c.AckLoss = 1 },
		"flat skew":      func(c *sim.Cell) { c.Skew = 0.5 },
		"negative time":  func(c *sim.Cell) { c.Crash = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := cell(sim.None)
			spoil(&c)
			if r, err := sim.Run(c); err == nil {
				t.Errorf("%+v", r)
			}
		})
	}
}
