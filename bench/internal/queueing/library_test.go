package queueing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

func onLibrary(t *testing.T, c sim.Cell) sim.Result {
	t.Helper()
	r, err := sim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func cell(r Run) sim.Cell {
	return sim.Cell{
		Buffer: r.Buffer, Workers: r.Workers, Load: r.Load,
		Service: r.Service, Exponential: r.Exponential, Timeout: r.Timeout,
		Guard: sim.None, Keys: r.Keys, Warmup: r.Warmup, Burst: r.Burst, Seed: 1,
	}
}

// The simulation on the library, a plain event loop and the theory of the full
// system agree.
func TestLibraryAgrees(t *testing.T) {
	systems := []System{
		standard(39, 1, 1.05, false), standard(40, 1, 1.05, false), standard(64, 1, 0.8, false),
		standard(256, 4, 1.05, false), standard(48, 1, 1.05, true), standard(160, 1, 1.05, true),
	}
	if thorough {
		systems = append(systems, standard(256, 1, 1.05, false), standard(1024, 4, 0.95, false), standard(1024, 4, 1.05, true))
	}
	for _, s := range systems {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
			t.Parallel()
			r := Run{System: s, Keys: 6_000, Warmup: 2_500, Burst: 2_000}
			library, loop, theory := onLibrary(t, cell(r)), simulate(r, 1), FullSystem(s)
			extra := float64(library.Extra) / float64(library.Keys)
			t.Logf("P %.4f %.4f %.4f, extra %.4f %.4f %.4f", library.P, loop.P, theory.Late, extra, loop.Extra, theory.Copies)
			tolerance := 0.01
			if s.Exponential {
				tolerance = 0.08
			}
			for _, d := range []float64{library.P - loop.P, library.P - theory.Late} {
				if math.Abs(d) > tolerance {
					t.Errorf("P: library %v, loop %v, theory %v", library.P, loop.P, theory.Late)
				}
			}
			for _, d := range []float64{extra - loop.Extra, extra - theory.Copies} {
				if math.Abs(d) > tolerance*(1+extra) {
					t.Errorf("extra: library %v, loop %v, theory %v", extra, loop.Extra, theory.Copies)
				}
			}
			if library.Collapsed != loop.Collapsed {
				t.Errorf("collapsed: library %v, loop %v", library.Collapsed, loop.Collapsed)
			}
		})
	}
}

// A memory of completed keys at the worker leaves no late window when it is as
// large as the theory says, and one when it is much smaller, or where copies wait
// out a backoff.
func TestCompletedKeys(t *testing.T) {
	for _, workers := range []int{1, 4} {
		c := cell(Run{System: standard(512, workers, 1.05, true), Keys: 6_000, Burst: 2_000})
		c.Guard, c.Capacity = sim.Completed, CompletedKeys(standard(512, workers, 1.05, true))
		if r := onLibrary(t, c); r.Late != 0 {
			t.Errorf("%d workers, %d keys remembered: %+v", workers, c.Capacity, r)
		}
		retried := c
		retried.Fail, retried.Backoff = 0.2, 500*time.Millisecond
		if r := onLibrary(t, retried); r.Late == 0 {
			t.Errorf("%d workers, backoffs: %+v", workers, r)
		}
		c.Capacity /= 8
		if r := onLibrary(t, c); r.Late == 0 {
			t.Errorf("%d workers, only %d keys remembered: %+v", workers, c.Capacity, r)
		}
	}
}

// The same for Dedup's guard when acks are lost: an LRU bridges one timeout, a Ring
// all of those in a row.
func TestAckedKeys(t *testing.T) {
	const inARow = 8 // of 10 000 keys, hardly one has its acks lost more often
	for _, buffer := range []int{0, 64} {
		for _, ring := range []bool{false, true} {
			s, timeouts := standard(buffer, 4, 0.95, true), 1
			if ring {
				timeouts = inARow
			}
			c := cell(Run{System: s, Keys: 10_000})
			c.Guard, c.Ring, c.AckLoss, c.Capacity = sim.Ours, ring, 0.2, AckedKeys(s, timeouts)
			if r := onLibrary(t, c); r.Extra != 0 {
				t.Errorf("buffer %d, ring %v, %d keys remembered: %+v", buffer, ring, c.Capacity, r)
			}
			c.Capacity /= 8
			if r := onLibrary(t, c); r.Extra == 0 {
				t.Errorf("buffer %d, ring %v, only %d keys remembered: %+v", buffer, ring, c.Capacity, r)
			}
		}
	}
}

// Hardly a key takes longer than the longest time, and that is not far too long.
func TestLongest(t *testing.T) {
	for _, exponential := range []bool{false, true} {
		for _, buffer := range []int{0, 16, 1024} {
			s := standard(buffer, 4, 1.05, exponential)
			c := cell(Run{System: s, Keys: 10_000, Burst: 2_000})
			c.Guard = sim.Ours
			r := onLibrary(t, c)
			if longest := Longest(s); r.SojournP99 > longest || longest > 2*r.SojournP99+20*s.Service {
				t.Errorf("%+v: 99 %% take at most %v, longest %v", s, r.SojournP99, longest)
			}
		}
	}
}

// Where the bound says that no copy is returned, none is; and where it says so by
// far, some are.
func TestMostCopies(t *testing.T) {
	for _, buffer := range []int{16, 128, 256, 512, 4096} {
		s := standard(buffer, 4, 0.9, false)
		perKey, total := MostCopies(s, buffer+s.Workers+1, Longest(s))
		c := cell(Run{System: s, Keys: 10_000, Burst: buffer})
		c.Guard, c.AckLoss = sim.Ours, 0.1
		r := onLibrary(t, c)
		t.Logf("buffer %d: at most %d copies of a key and %d in all; all is over after %v", buffer, perKey, total, r.Simulated)
		// A key whose copy is returned and whose ack is lost is over only then.
		returned := r.Simulated > oncepipe.DefaultJoinWait
		if over := perKey > oncepipe.DefaultJoinPerKey || total > oncepipe.DefaultJoinTotal; returned && !over || over && total > 10*oncepipe.DefaultJoinTotal && !returned {
			t.Errorf("buffer %d: returned %v", buffer, returned)
		}
	}
}
