package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// setup is what the flags chose. It is kept in window.json.
type setup struct {
	Quick       bool          `json:"quick"`
	Seed        uint64        `json:"seed"`
	Keys        int           `json:"keys"` // a cell
	Buffers     []int         `json:"buffers"`
	Loads       []float64     `json:"loads"`
	Guards      []string      `json:"guards"`
	Workers     int           `json:"workers"`
	Service     time.Duration `json:"service_ns"`
	Timeout     time.Duration `json:"timeout_ns"`
	Exponential bool          `json:"exponential"`
	Fail        float64       `json:"fail"`
	Skew        float64       `json:"skew"`
	Push        bool          `json:"push"`
}

// The sweeps that are done when the flags say nothing else.
var (
	fullBuffers  = []int{0, 1, 4, 16, 64, 256, 1024, 4096}
	quickBuffers = []int{0, 16, 64, 256, 1024}
	fullLoads    = []float64{0.5, 0.8, 0.95, 1.05, 1.2}
	quickLoads   = []float64{0.8, 0.95, 1.05}
	fullGuards   = []string{
		"none", "entry", "completed-16", "completed-256", "completed-4096", "completed",
		"ours-16", "ours-256", "ours-4096", "ours", "store", "ours+store-256",
	}
	quickGuards = []string{"none", "entry", "completed-256", "ours-256", "store"}
)

// part is one file of the results: cells in the order of its lines.
type part struct {
	name  string
	cells []sim.Cell
}

// file is where a part is kept.
func file(part string) string {
	if part == "sweep" {
		return "window.csv"
	}
	return "window-" + part + ".csv"
}

// partNames are all parts, in their order.
var partNames = []string{"sweep", "theory", "collapse", "lru", "crash", "push", "retry", "skew"}

// parts are the cells that are simulated, each with its seed: those of one part, or
// of all of them for "".
func (s setup) parts(only string) (list []part) {
	for i, cells := range []func() []sim.Cell{
		s.sweep, s.theory, s.collapse, s.lru, s.crash, s.push, s.retry, s.skew,
	} {
		if only != "" && only != partNames[i] {
			continue
		}
		p := part{partNames[i], cells()}
		for i := range p.cells {
			p.cells[i].Seed = s.seedOf(p.cells[i])
		}
		list = append(list, p)
	}
	return list
}

// seedOf derives a cell's seed from everything but its guard, so that all guards
// meet the same sender. The Seed that the cell has by now tells repetitions apart.
func (s setup) seedOf(c sim.Cell) uint64 {
	c.Guard, c.Capacity = "", 0
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %+v", s.Seed, c)
	return h.Sum64()
}

// base is the cell that the parts vary.
func (s setup) base() sim.Cell {
	c := sim.Cell{
		Workers: s.Workers, Load: s.highLoad(), Service: s.Service, Exponential: s.Exponential, Timeout: s.Timeout,
		Push: s.Push, Guard: sim.None, StoreTime: s.Service / 10, Keys: s.Keys, Warmup: s.Keys / 4,
		Fail: s.Fail, Skew: s.Skew,
	}
	if s.Skew > 0 {
		c.Warmup = 0 // hardly a key is new after it
	}
	return c
}

// highLoad is the load of the sweep that the pictures show: a little above the
// capacity, as after an outage.
func (s setup) highLoad() float64 { return nearest(s.Loads, 1.05) }

// limit is B*, the buffer from which on a full one is a wait of more than Timeout.
func limit(workers int, service, timeout time.Duration) int {
	return max(0, int(math.Floor(float64(workers)*(timeout.Seconds()/service.Seconds()-1))))
}

func (s setup) limit() int { return limit(s.Workers, s.Service, s.Timeout) }

// memory is rate × T: the keys that are done while the sender of one whose ack was
// lost waits.
func (s setup) memory() int {
	return int(math.Ceil(float64(s.Workers) * s.Timeout.Seconds() / s.Service.Seconds()))
}

// sweep is every guard in front of every buffer at every load.
func (s setup) sweep() (cells []sim.Cell) {
	for _, load := range s.Loads {
		for _, b := range s.Buffers {
			for _, name := range s.Guards {
				g, err := parseGuardian(name)
				if err != nil {
					panic(err) // the flags were checked
				}
				c := s.base()
				c.Load, c.Buffer = load, b
				cells = append(cells, g.guards(c))
			}
		}
	}
	return cells
}

// theory is what is compared with the predictions: no guard, one worker and
// four, service times of both kinds, buffers around the limit. Where a run can jump
// into collapse at any moment there are some of them.
func (s setup) theory() (cells []sim.Cell) {
	loads, steps := fullLoads, []float64{0.25, 0.5, 0.75, 0.85, 0.95, 1, 1.05, 1.15, 1.5, 2, 3, 6}
	if s.Quick {
		loads, steps = quickLoads, []float64{0.5, 0.75, 0.85, 1, 1.15, 1.5, 3}
	}
	s.eachService(func(c sim.Cell) {
		c.Keys = min(c.Keys, 20_000)
		c.Warmup = c.Keys / 4
		for _, c.Load = range loads {
			for _, c.Buffer = range multiples(limit(c.Workers, c.Service, c.Timeout), steps) {
				for run := range s.runs(c) {
					c.Seed = uint64(run)
					cells = append(cells, c)
				}
			}
		}
	})
	return cells
}

// collapse looks for the buffer from which on a system doesn't get over an
// outage: it begins with a backlog that fills it for twice the timeout.
func (s setup) collapse() (cells []sim.Cell) {
	loads, steps := []float64{0.3, 0.5, 0.8, 0.95}, []float64{0.35, 0.5, 0.71, 1, 1.41, 2, 2.83, 4, 5.66, 8}
	if s.Quick {
		loads, steps = []float64{0.3, 0.5, 0.8}, []float64{0.5, 0.71, 1, 1.41, 2, 2.83, 4, 5.66}
	}
	s.eachService(func(c sim.Cell) {
		for _, c.Load = range loads {
			for _, c.Buffer = range multiples(limit(c.Workers, c.Service, c.Timeout), steps) {
				c.Keys = s.Keys / 2
				c.Burst = min(c.Keys/2, 2*c.Buffer+2*c.Workers*int(c.Timeout/c.Service))
				c.Warmup = max(c.Burst, c.Keys/4)
				cells = append(cells, c)
			}
		}
	})
	return cells
}

// multiples are the different sizes at these steps, which rise.
func multiples(size int, steps []float64) (list []int) {
	for _, step := range steps {
		list = append(list, int(math.Round(step*float64(size))))
	}
	return slices.Compact(list)
}

// eachService calls add for one worker and four, for service times of both kinds.
func (s setup) eachService(add func(sim.Cell)) {
	for _, workers := range []int{1, 4} {
		for _, exponential := range []bool{false, true} {
			c := s.base()
			c.Workers, c.Exponential, c.Push, c.Fail, c.Skew = workers, exponential, false, 0, 0
			add(c)
		}
	}
}

// lru looks for the capacity that a memory of completed keys needs: alone, and
// behind the table in flight, where it is needed when acks are lost.
func (s setup) lru() (cells []sim.Cell) {
	capacities, buffers := doubled(4, 8192, 2), fullBuffers[3:]
	if s.Quick {
		capacities, buffers = doubled(32, 2048, 2), []int{64, 256, 1024}
	}
	for _, b := range buffers {
		for _, capacity := range capacities {
			c := s.base()
			c.Buffer = b
			cells = append(cells, guardian{sim.Completed, capacity}.guards(c))
		}
		for _, loss := range []float64{0, 0.01} {
			for _, capacity := range capacities {
				c := s.base()
				c.Buffer, c.AckLoss = b, loss
				cells = append(cells, guardian{sim.Ours, capacity}.guards(c))
			}
		}
	}
	return cells
}

// kills is how often the process is killed for each line of the crash's table.
func (s setup) kills() int {
	if s.Quick {
		return 5
	}
	return 20
}

// crash kills the process while its buffer is full, and acks are on their way.
func (s setup) crash() (cells []sim.Cell) {
	for _, g := range []guardian{{sim.None, 0}, {sim.Entry, 0}, {sim.Ours, 256}, {sim.Store, 0}, {sim.OursStore, 256}} {
		for _, b := range s.Buffers {
			for kill := range s.kills() {
				c := s.base()
				c.Buffer, c.Burst = b, b+c.Workers
				c.Warmup, c.Keys = 0, c.Burst+s.Keys/8
				c.AckDelay, c.Lease = c.Timeout/4, time.Second
				rate := c.Load * float64(c.Workers) / c.Service.Seconds()
				c.Crash = time.Duration(float64(c.Keys-c.Burst) / rate / 2 * float64(time.Second))
				c.Seed = uint64(kill)
				cells = append(cells, g.guards(c))
			}
		}
	}
	return cells
}

// push lets the sender's clock run while it is blocked.
func (s setup) push() (cells []sim.Cell) {
	for _, load := range s.Loads {
		for _, g := range []guardian{{sim.None, 0}, {sim.Ours, 256}} {
			for _, b := range s.Buffers {
				c := s.base()
				c.Load, c.Buffer, c.Push = load, b, true
				cells = append(cells, g.guards(c))
			}
		}
	}
	return cells
}

// retry lets attempts fail, at a load that leaves room for their repeats.
func (s setup) retry() (cells []sim.Cell) {
	for _, fail := range []float64{0, 0.2} {
		for _, g := range []guardian{{sim.None, 0}, {sim.Ours, 256}} {
			for _, b := range s.Buffers {
				c := s.base()
				c.Load, c.Buffer, c.Fail, c.Backoff = 0.6, b, fail, c.Service
				cells = append(cells, g.guards(c))
			}
		}
	}
	return cells
}

// skew has a few hot keys, which come again and again by themselves.
func (s setup) skew() (cells []sim.Cell) {
	for _, g := range []guardian{
		{sim.None, 0},
		{sim.Completed, 256},
		{sim.Completed, 0},
		{sim.Ours, 256},
		{sim.Ours, 0},
		{sim.Store, 0},
		{sim.OursStore, 256},
	} {
		for _, b := range s.Buffers {
			c := s.base()
			c.Buffer, c.Skew, c.SkewKeys, c.Warmup = b, 1.2, 1000, 0
			cells = append(cells, g.guards(c))
		}
	}
	return cells
}

// guards is the cell with this guardian.
func (g guardian) guards(c sim.Cell) sim.Cell {
	c.Guard, c.Capacity = g.guard, g.capacity
	return c
}

// doubled is first, first·by, … up to last.
func doubled(first, last, by int) (list []int) {
	for n := first; n <= last; n *= by {
		list = append(list, n)
	}
	return list
}

func nearest(list []float64, x float64) float64 {
	return slices.MinFunc(list, func(a, b float64) int { return cmp.Compare(math.Abs(a-x), math.Abs(b-x)) })
}
