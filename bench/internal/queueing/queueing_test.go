package queueing

import (
	"math"
	"testing"
	"time"
)

func standard(buffer, workers int, load float64, exponential bool) System {
	return System{
		Buffer: buffer, Workers: workers, Load: load,
		Service: time.Millisecond / 2, Exponential: exponential, Timeout: 20 * time.Millisecond,
	}
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > relative*math.Abs(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestBStar(t *testing.T) {
	near(t, "B* with 1 worker", BStar(1, 20*time.Millisecond, time.Millisecond/2), 39, 0)
	near(t, "B* with 4 workers", BStar(4, 20*time.Millisecond, time.Millisecond/2), 156, 0)
	for _, w := range []int{1, 4} {
		at := int(BStar(w, 20*time.Millisecond, time.Millisecond/2))
		if f := FullSystem(standard(at, w, 1.2, false)); f.Late != 0 {
			t.Errorf("%d workers: late with B*: %+v", w, f)
		}
		if f := FullSystem(standard(at+1, w, 1.2, false)); f.Late == 0 || f.Copies == 0 {
			t.Errorf("%d workers: nothing is late beyond B*: %+v", w, f)
		}
	}
}

// A sojourn's distribution must have the mean that it is said to have.
func TestSojourn(t *testing.T) {
	for _, exponential := range []bool{false, true} {
		for _, w := range []int{1, 4, 64} {
			m := newModel(standard(20, w, 0.9, exponential))
			means := make([]float64, m.places)
			const dt = 0.02
			for x := dt / 2; x < 60; x += dt {
				for i, p := range m.exceeds(m.places, x) {
					means[i] += p * dt
				}
			}
			for i, got := range means {
				want := 1 + math.Max(0, float64(i)-m.workers+1)/m.workers
				if !exponential && i >= w {
					want -= 0.5 / m.workers
				}
				near(t, "mean sojourn", got, want, 0.03)
			}
		}
	}
}

func TestWithoutFeedback(t *testing.T) {
	// M/M/1: P(sojourn > t) = exp(-(1-ρ)μt).
	near(t, "M/M/1", WithoutFeedback(standard(1<<14, 1, 0.9, true)), math.Exp(-0.1*40), 1e-9)
	// M/M/2 with ρ = 1/2: the probability to wait is 1/3, by Erlang's formula.
	near(t, "M/M/2", normalize(newModel(standard(0, 2, 0.5, true)).stationary())[0], 1.0/3, 1e-9)
	// M/D/1: the mean number is ρ + ρ²/(2(1-ρ)).
	for _, rho := range []float64{0.5, 0.8, 0.95} {
		mean := 0.0
		for i, p := range newModel(standard(0, 1, rho, false)).stationary() {
			mean += float64(i) * p
		}
		near(t, "M/D/1", mean, rho+rho*rho/(2*(1-rho)), 1e-6)
	}
	if p := WithoutFeedback(standard(39, 1, 1.2, false)); p != 0 {
		t.Errorf("late at B*: %v", p)
	}
	if p := WithoutFeedback(standard(40, 1, 1.2, false)); p != 1 {
		t.Errorf("beyond B*, at a load above 1: %v", p)
	}
}

// The birth-death chain of fixed services has the tail of the exact one.
func TestFixedServiceChain(t *testing.T) {
	for _, w := range []int{1, 4} {
		for _, load := range []float64{0.8, 0.95} {
			m := newModel(standard(1<<10, w, load, false))
			exact := m.crommelin()
			p := []float64{1}
			rate := func(i int) (float64, float64) {
				if i < w {
					return m.rate, float64(i)
				}
				return fixedService(m.rate, m.workers)
			}
			for i := 1; i < len(exact); i++ {
				up, _ := rate(i - 1)
				_, down := rate(i)
				p = append(p, p[i-1]*up/down)
			}
			normalize(p)
			tail := func(p []float64) (sum float64) {
				for _, q := range p[40:] {
					sum += q
				}
				return sum
			}
			near(t, "P(N ≥ 40)", tail(p), tail(exact), 0.15)
		}
	}
}

func TestCaveat(t *testing.T) {
	for _, c := range []struct {
		system System
		silent bool
	}{
		{standard(16, 1, 0.95, false), true},
		{standard(64, 1, 0.95, false), false},
		{standard(1024, 4, 1.05, true), true},
		{standard(1024, 4, 0.95, false), false},
	} {
		r := Run{System: c.system, Keys: 20_000, Warmup: 2_000}
		if got := Caveat(r, Predict(r)); (got == "") != c.silent {
			t.Errorf("%+v: %q", c.system, got)
		}
	}
}

func BenchmarkPredict(b *testing.B) {
	for b.Loop() {
		Predict(Run{System: standard(4096, 4, 0.95, false), Keys: 20_000, Warmup: 2_000})
	}
}
