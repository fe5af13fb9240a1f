package chans_test

import (
	"errors"
	"testing"

	"github.com/oncepipe/oncepipe/chans"
)

// That the destination is closed is nobody's failure, whoever recovers from it:
// what could not be put comes back.
func TestPipeThroughClosedBehindARecover(t *testing.T) {
	swallow := func(r *chans.Run, next chans.Sink[int]) chans.Sink[int] {
		return chans.Sink[int]{Put: func(v int) error {
			defer func() { _ = recover() }()
			_ = next.Put(v)
			return nil
		}, Close: next.Close}
	}
	handled := func(*chans.ItemError, func(int) error) error {
		t.Error("handled as a failure of a step")
		return nil
	}
	pass := chans.Map(func(v int) int { return v })
	for name, xf := range map[string]chans.Xform[int, int]{
		"rescue":         chans.Rescue(pass, handled),
		"rescue twice":   chans.Rescue(chans.Rescue(pass, handled), handled),
		"step":           swallow,
		"step, rescue":   chans.Compose[int](swallow, chans.Rescue(pass, handled)),
		"rescue of step": chans.Rescue(swallow, handled),
	} {
		t.Run(name, func(t *testing.T) {
			for _, values := range [][]int{{1}, {1, 2, 3}} { // the last one, and one before
				to := make(chan int, 4)
				close(to)
				from := make(chan int, len(values))
				for _, v := range values {
					from <- v
				}
				close(from)
				err := chans.PipeThrough(t.Context(), to, from, xf)
				is(t, err, chans.ErrClosed)
				if failed := new(chans.PanicError); errors.As(err, &failed) {
					t.Errorf("a failure: %v", err)
				}
				unsent := left[int](t, err)
				same(t, "unsent and left", append(unsent, taken(t, from)...), values)
			}
		})
	}
}

func TestPipeThroughClosedWithAGroup(t *testing.T) {
	to := make(chan []int, 4)
	close(to)
	from := make(chan int, 3)
	for v := range 3 {
		from <- v
	}
	close(from)
	err := chans.PipeThrough(t.Context(), to, from, chans.PartitionAll[int](2))
	is(t, err, chans.ErrClosed)
	groups := left[[]int](t, err)
	if len(groups) != 1 {
		t.Fatalf("unsent %v", groups)
	}
	same(t, "unsent", groups[0], []int{0, 1})
	same(t, "left", taken(t, from), []int{2})
}
