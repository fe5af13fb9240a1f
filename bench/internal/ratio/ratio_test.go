package ratio

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoundsAreInterleaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []int
		run := func(i int) func() {
			return func() {
				order = append(order, i)
				time.Sleep(time.Duration(i) * time.Second)
			}
		}
		times := Rounds(4, run(1), run(2), run(3))
		if want := []int{1, 2, 3, 2, 3, 1, 3, 1, 2, 1, 2, 3}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		for i, got := range times {
			d := time.Duration(i+1) * time.Second
			if want := (Times{d, d, d, d}); !slices.Equal(got, want) {
				t.Errorf("times of run %d: %v, want %v", i+1, got, want)
			}
		}
	})
}

func TestOver(t *testing.T) {
	base := Times{1, 10, 100, 1000}
	for _, c := range []struct {
		times Times
		want  float64
	}{
		{Times{2, 20, 200, 2000}, 2},
		{Times{2, 30, 200, 9000}, 2.5},
		{Times{9, 1, 200}, 2},
		{Times{3}, 3},
	} {
		if got := c.times.Over(base[:len(c.times)]); got != c.want {
			t.Errorf("%v over %v = %v, want %v", c.times, base, got, c.want)
		}
	}
}

func TestAtMost(t *testing.T) {
	for ratio, ok := range map[float64]bool{0.4: true, 0.5: true, 0.51: false} {
		if got, want := AtMost("a", ratio, 0.5), (Row{"a", ratio, 0.5, ok}); got != want {
			t.Errorf("AtMost = %v, want %v", got, want)
		}
	}
}

func TestMinus(t *testing.T) {
	if got, want := (Times{5, 7}).Minus(Times{2, 10}), (Times{3, -3}); !slices.Equal(got, want) {
		t.Errorf("Minus = %v, want %v", got, want)
	}
}

func TestMedian(t *testing.T) {
	for want, times := range map[time.Duration]Times{3: {3}, 4: {2, 6}, 5: {9, 5, 1}} {
		if got := times.Median(); got != want {
			t.Errorf("median of %v = %v, want %v", times, got, want)
		}
	}
}

func TestMallocs(t *testing.T) {
	var kept [100]*int
	if got := Mallocs(func() {
		for i := range kept {
			kept[i] = new(int)
		}
	}); got < 100 || got > 1000 {
		t.Errorf("%d allocations, want 100", got)
	}
}
