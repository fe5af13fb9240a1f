package queueing

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// several runs r with as many seeds.
func several(r Run, seeds int) (p, extra []float64) {
	for seed := range seeds {
		m := simulate(r, uint64(seed))
		p, extra = append(p, m.P), append(extra, m.Extra)
	}
	return p, extra
}

// mean of a measure, and its standard deviation from run to run.
func mean(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(v)-1))
}

// metastable: one run of r is one throw.
func metastable(r Run) bool {
	at, ok := Collapse(r.System)
	return ok && r.Load < 1 && r.Buffer >= at
}

// Theory and simulation agree within 15 % where a share between 1 and 99 % is
// late, on top of two standard errors of the simulation.
func TestTheoryAgrees(t *testing.T) {
	for _, workers := range []int{1, 4} {
		for _, exponential := range []bool{false, true} {
			for _, load := range []float64{0.8, 0.95, 1.05} {
				for _, buffer := range []int{16, 64, 256, 1024} {
					r := Run{System: standard(buffer, workers, load, exponential), Keys: 20_000, Warmup: 2_000}
					t.Run(fmt.Sprintf("%d workers, exponential %v, load %v, buffer %d", workers, exponential, load, buffer), func(t *testing.T) {
						t.Parallel()
						agree(t, r)
					})
				}
			}
		}
	}
}

// The same with other timeouts and workers, where there is no caveat.
func TestTheoryAgreesElsewhere(t *testing.T) {
	if !thorough || testing.Short() {
		t.Skip("needs several seeds for each system")
	}
	for _, workers := range []int{1, 2, 8} {
		for _, exponential := range []bool{false, true} {
			for _, timeout := range []time.Duration{4300, 10_000, 25_500} {
				for _, load := range []float64{0.8, 0.95, 1.05} {
					for _, part := range []float64{0.7, 1.5, 4} {
						s := System{
							Workers: workers, Load: load, Service: time.Millisecond, Exponential: exponential,
							Timeout: timeout * time.Microsecond,
						}
						s.Buffer = int(part * BStar(workers, s.Timeout, s.Service))
						r := Run{System: s, Keys: 20_000, Warmup: 2_000}
						if Caveat(r, Predict(r)) == "" {
							t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) { agree(t, r) })
						}
					}
				}
			}
		}
	}
}

func agree(t *testing.T, r Run) {
	seeds, quick := 8, !thorough || testing.Short()
	switch {
	case metastable(r) && quick:
		t.Skip("needs many seeds")
	case metastable(r):
		seeds = min(100, 25_600/r.Buffer) // large ones take long
	case quick:
		seeds = 2
	}
	theory := Predict(r)
	p, extra := several(r, seeds)
	measured, deviation := mean(p)
	noise := deviation / math.Sqrt(float64(seeds))
	if metastable(r) {
		noise = max(noise, 1/float64(seeds)) // by one jump more or less
	}
	if measured < 0.01 || measured > 0.99 {
		if math.Abs(theory.P-measured) > 0.01+2*noise {
			t.Errorf("P is %.4f ± %.4f, in theory %.4f", measured, noise, theory.P)
		}
		return
	}
	t.Logf("P %.3f ± %.3f, in theory %.3f", measured, noise, theory.P)
	if math.Abs(theory.P-measured) > 0.15*measured+2*noise {
		t.Errorf("P is %.4f ± %.4f, in theory %.4f", measured, noise, theory.P)
	}
	copies, _ := mean(extra)
	t.Logf("extra %.3f, in theory %.3f", copies, theory.Extra)
	if math.Abs(theory.Extra-copies) > 0.15*copies+2*noise*copies/measured {
		t.Errorf("%.4f extra effects for each key, in theory %.4f", copies, theory.Extra)
	}
}

// Spread is how far apart runs are.
func TestSpread(t *testing.T) {
	if !thorough || testing.Short() {
		t.Skip("needs many seeds")
	}
	for _, s := range []System{
		standard(16, 1, 0.95, false), standard(64, 1, 0.9, false), standard(64, 1, 0.95, false),
		standard(64, 1, 0.8, true), standard(64, 1, 0.9, true), standard(256, 4, 1.05, false), standard(256, 4, 1.05, true),
	} {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
			t.Parallel()
			r := Run{System: s, Keys: 20_000, Warmup: 2_000}
			p, _ := several(r, 300)
			_, measured := mean(p)
			theory := Predict(r).Spread
			t.Logf("spread %.4f, in theory %.4f", measured, theory)
			if math.Abs(theory-measured) > 0.01+0.3*measured {
				t.Errorf("spread %.4f, in theory %.4f", measured, theory)
			}
		})
	}
}

var buffers = []int{0, 1, 4, 16, 64, 256, 1024, 4096}

// A burst pushes the system into its second equilibrium, if it has one. The
// place where that begins is the same, within a step of the list.
func TestCollapse(t *testing.T) {
	for _, workers := range []int{1, 4} {
		for _, exponential := range []bool{false, true} {
			for _, load := range []float64{0.5, 0.8, 0.95, 1.05, 1.2} {
				at, ok := Collapse(standard(0, workers, load, exponential))
				if !ok {
					t.Fatalf("%d workers, load %v: no collapse", workers, load)
				}
				theory := slices.IndexFunc(buffers, func(b int) bool { return b >= at })
				measured := slices.IndexFunc(buffers, func(b int) bool {
					s := standard(b, workers, load, exponential)
					return simulate(Run{System: s, Keys: 6_000 + 2*b, Burst: 500 + 2*b}, 1).Collapsed
				})
				if theory < 0 || measured < 0 || theory-measured > 1 || measured-theory > 1 {
					t.Errorf("%d workers, exponential %v, load %v: collapse at step %d, in theory %d (B = %d)",
						workers, exponential, load, measured, theory, at)
				}
			}
		}
	}
}

// Where a collapse begins, to the place.
func TestCollapsePlace(t *testing.T) {
	for _, workers := range []int{1, 4} {
		for _, load := range []float64{0.8, 0.95, 1.05} {
			at, _ := Collapse(standard(0, workers, load, false))
			star := BStar(workers, 20e6, 5e5)
			if float64(at) < star || float64(at) > star+4 {
				t.Errorf("%d workers, load %v: %d, B* is %v", workers, load, at, star)
			}
		}
	}
	low, _ := Collapse(standard(0, 1, 0.5, false))
	if star := BStar(1, 40e6, 5e5); math.Abs(float64(low)-star) > 4 {
		t.Errorf("at load 0.5 a key needs two copies: %d, want about %v", low, star)
	}
	if at, ok := Collapse(standard(0, 1, 1e-7, false)); ok {
		t.Errorf("collapse of an idle system at %d", at)
	}
}
