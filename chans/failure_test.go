package chans_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/chans"
)

// failing passes values and has an error for those that are in bad, once each.
func failing(bad ...int) chans.Xform[int, int] {
	left := slices.Clone(bad)
	return chans.TryMap(func(v int) (int, error) {
		if i := slices.Index(left, v); i >= 0 {
			left = slices.Delete(left, i, i+1)
			return 0, errBroken
		}
		return v, nil
	})
}

// panicking panics where failing has an error.
func panicking(bad ...int) chans.Xform[int, int] {
	xf := failing(bad...)
	return func(r *chans.Run, next chans.Sink[int]) chans.Sink[int] {
		in := xf(r, next)
		return chans.Sink[int]{Put: func(v int) error {
			err := in.Put(v)
			if errors.Is(err, errBroken) {
				panic(err)
			}
			return err
		}, Close: in.Close}
	}
}

// results are the values and failures of a sequence.
func results[T any](seq iter.Seq2[T, error]) (list []T, failed []any) {
	for v, err := range seq {
		var e *chans.ItemError
		switch {
		case errors.As(err, &e):
			failed = append(failed, e.Value)
		case err != nil:
			failed = append(failed, err)
		default:
			list = append(list, v)
		}
	}
	return list, failed
}

// core.async's sharpest trap (C15): there, the second 1 is swallowed.
func TestDistinctForgetsWhatFailed(t *testing.T) {
	for name, bad := range map[string]chans.Xform[int, int]{"error": failing(1), "panic": panicking(1)} {
		t.Run(name, func(t *testing.T) {
			xf := chans.Compose(chans.Distinct(identity[int], 10), bad)
			got, failed := results(chans.Seq(xf, slices.Values([]int{1, 2, 1, 1, 2})))
			same(t, "values", got, []int{2, 1})
			same(t, "failures", failed, []any{1})
		})
	}
}

func TestDedupeForgetsWhatFailed(t *testing.T) {
	xf := chans.Compose(chans.Dedupe[int](), failing(2))
	got, failed := results(chans.Seq(xf, slices.Values([]int{1, 2, 2, 2, 1, 1})))
	same(t, "values", got, []int{1, 2, 1})
	same(t, "failures", failed, []any{2})
	// What failed doesn't stand between neighbours.
	xf = chans.Compose(chans.Dedupe[int](), failing(2))
	got, _ = results(chans.Seq(xf, slices.Values([]int{1, 2, 1})))
	same(t, "values", got, []int{1})
}

func TestTakeCountsWhatGotThrough(t *testing.T) {
	xf := chans.Compose(chans.Take[int](2), failing(1))
	got, failed := results(chans.Seq(xf, slices.Values([]int{1, 2, 3, 4})))
	same(t, "values", got, []int{2, 3})
	same(t, "failures", failed, []any{1})
}

// A group fails as a whole, and its members count as never seen.
func TestDistinctForgetsFailedGroups(t *testing.T) {
	fail := true
	write := chans.TryMap(func(group []int) (string, error) {
		if fail = !fail; !fail && len(group) > 1 {
			return "", errBroken
		}
		return fmt.Sprint(group), nil
	})
	xf := chans.Compose3(chans.Distinct(identity[int], 10), chans.PartitionAll[int](2), write)
	got, failed := []string{}, []string{}
	for v, err := range chans.Seq(xf, slices.Values([]int{1, 1, 2, 2, 1, 2, 3, 1})) {
		var e *chans.ItemError
		if errors.As(err, &e) {
			failed = append(failed, fmt.Sprint(e.Value))
		} else {
			got = append(got, v)
		}
	}
	// [1 2] fails; then 2 1 is a new group; 2 is a duplicate; [3] at the end fails not.
	same(t, "groups", got, []string{"[2 1]", "[3]"})
	same(t, "failures", failed, []string{"[1 2]"})
}

// An error of the group before is not that of the value that ended it.
func TestPartitionByBlamesTheGroup(t *testing.T) {
	write := chans.TryMap(func(group []int) ([]int, error) {
		if group[0] == 1 {
			return nil, errBroken
		}
		return group, nil
	})
	xf := chans.Compose3(chans.Distinct(identity[int], 10), chans.PartitionBy(even), write)
	var got [][]int
	var failed []any
	for group, err := range chans.Seq(xf, slices.Values([]int{1, 3, 4, 4, 1, 6})) {
		var e *chans.ItemError
		if errors.As(err, &e) {
			failed = append(failed, e.Value)
			continue
		}
		got = append(got, group)
	}
	want(t, "groups", fmt.Sprint(got), "[[4] [6]]", func(a, b string) bool { return a == b })
	want(t, "failures", fmt.Sprint(failed), "[[1 3] [1]]", func(a, b string) bool { return a == b })
}

// Whatever fails, each key gets through once, and one that hasn't can be put
// again.
func TestDistinctUnderFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, 8), 0, 40).Draw(t, "values")
		outcomes := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 20).Draw(t, "outcomes")
		size := rapid.IntRange(1, 5).Draw(t, "group")
		calls, written := 0, map[int]int{}
		write := chans.TryMap(func(group []int) (int, error) {
			outcome := outcomes[min(calls, len(outcomes)-1)]
			calls++
			switch {
			case calls > len(outcomes):
			case outcome == 1:
				return 0, errBroken
			case outcome == 2:
				panic("broken")
			}
			for _, v := range group {
				written[v]++
			}
			return len(group), nil
		})
		groups := chans.Xform[int, []int](chans.PartitionAll[int](size))
		if rapid.Bool().Draw(t, "twice") {
			groups = chans.Compose3(groups, chans.PartitionAll[[]int](2), chans.Map(flatten[int]))
		}
		xf := chans.Compose3(chans.Distinct(identity[int], 1000), groups, write)
		d := chans.Drive(xf, func(int, []chans.Origin) error { return nil },
			func(e *chans.ItemError) error { return e })
		origins := map[*origin]int{}
		put := func(v int) {
			o := &origin{}
			origins[o] = v
			_ = d.Put(v, o)
		}
		for _, v := range values {
			put(v)
		}
		for calls <= len(outcomes) { // the last failure
			put(100 + len(origins))
		}
		for _, v := range values { // what was lost comes again
			put(v)
		}
		_ = d.Close()
		for _, v := range values {
			if written[v] != 1 {
				t.Fatalf("%d was written %d times", v, written[v])
			}
		}
		for o, v := range origins {
			if o.keeps != o.releases || o.lost > o.keeps {
				t.Fatalf("the origin of %d is not settled: %+v", v, *o)
			}
		}
	})
}

func TestDistinctIsBounded(t *testing.T) {
	xf := chans.Distinct(identity[int], 2)
	got, _ := results(chans.Seq(xf, slices.Values([]int{1, 2, 1, 3, 1, 3})))
	same(t, "values", got, []int{1, 2, 3, 1})
}

// A key that was lost with its group and passed again is not forgotten when the
// place it had at first is needed.
func TestDistinctWindowAfterFailedGroup(t *testing.T) {
	calls := 0
	write := chans.TryMap(func(group []string) ([]string, error) {
		if calls++; calls == 1 {
			return nil, errBroken
		}
		return group, nil
	})
	xf := chans.Compose4(chans.Distinct(identity[string], 3), chans.PartitionAll[string](2), write, chans.FlatMap(identity[[]string]))
	got, failed := results(chans.Seq(xf, slices.Values([]string{"a", "x", "a", "y", "a", "z"})))
	same(t, "values", got, []string{"a", "y", "z"})
	want(t, "failures", fmt.Sprint(failed), "[[a x]]", func(a, b string) bool { return a == b })
}

// Without Rescue the first failure ends the work, after the steps have given on
// what they keep; what is left stays in the source.
func TestFirstFailureEndsPipeThrough(t *testing.T) {
	for name, bad := range map[string]chans.Xform[int, int]{"error": failing(3), "panic": panicking(3)} {
		t.Run(name, func(t *testing.T) {
			from := filled(1, 2, 3, 4, 5)
			to := make(chan []int, 5)
			err := chans.PipeThrough(t.Context(), to, from, chans.Compose(bad, chans.PartitionAll[int](10)))
			is(t, err, errBroken)
			var e *chans.ItemError
			if !errors.As(err, &e) || e.Value != 3 {
				t.Errorf("got %v", err)
			}
			if groups := taken(t, to); len(groups) != 1 || !slices.Equal(groups[0], []int{1, 2}) {
				t.Errorf("got %v", groups)
			}
			same(t, "left", taken(t, from), []int{4, 5})
			var p *chans.PanicError
			if panicked := errors.As(err, &p); panicked != (name == "panic") {
				t.Errorf("got %v", err)
			} else if panicked && !strings.Contains(string(p.Stack), "panicking") {
				t.Errorf("the stack doesn't show where: %s", p.Stack)
			}
		})
	}
}

// A step that stops releases its source: not one value more is taken.
func TestStopLeavesTheSource(t *testing.T) {
	for n := range 4 {
		from := filled(1, 2, 3, 4)
		to := make(chan int, 4)
		noError(t, chans.PipeThrough(t.Context(), to, from, chans.Compose(chans.Map(identity[int]), chans.Take[int](n))))
		if len(to) != n || len(from) != 4-n {
			t.Errorf("Take(%d): %d out, %d left", n, len(to), len(from))
		}
	}
	endless := func(yield func(int) bool) {
		for i := 0; yield(i); i++ {
		}
	}
	got, failed := results(chans.Seq(chans.Take[int](3), endless))
	same(t, "values", got, []int{0, 1, 2})
	same(t, "failures", failed, nil)
	inner := chans.Compose(chans.FlatMapSeq(func(int) iter.Seq[int] { return endless }), chans.Take[int](3))
	got, _ = results(chans.Seq(inner, endless))
	same(t, "values", got, []int{0, 1, 2})
	for range chans.Seq(chans.FlatMapSeq(func(int) iter.Seq[int] { return endless }), endless) {
		break
	}
}

// A panic in the body of a loop over Seq is the loop's, not an item's.
func TestSeqBodyPanics(t *testing.T) {
	defer func() {
		if r := recover(); r != errBroken {
			t.Errorf("recovered %v", r)
		}
	}()
	for range chans.Seq(chans.Compose(chans.PartitionAll[int](2), chans.FlatMap(identity[[]int])), slices.Values([]int{1, 2, 3})) {
		panic(errBroken)
	}
}

func TestRescue(t *testing.T) {
	replace := func(e *chans.ItemError, emit func(int) error) error { return emit(-e.Value.(int)) }
	t.Run("replace", func(t *testing.T) {
		got, err := through(t, chans.Rescue(failing(3), replace), 1, 2, 3, 4)
		noError(t, err)
		same(t, "values", got, []int{1, 2, -3, 4})
	})
	t.Run("drop", func(t *testing.T) {
		got, err := through(t, chans.Rescue(panicking(3), func(*chans.ItemError, func(int) error) error { return nil }), 1, 2, 3, 4)
		noError(t, err)
		same(t, "values", got, []int{1, 2, 4})
	})
	t.Run("stop", func(t *testing.T) {
		other := errors.New("other")
		got, err := through(t, chans.Rescue(failing(3), func(*chans.ItemError, func(int) error) error { return other }), 1, 2, 3, 4)
		is(t, err, other)
		same(t, "values", got, []int{1, 2})
	})
	t.Run("handler panics", func(t *testing.T) {
		got, err := through(t, chans.Rescue(failing(3), func(*chans.ItemError, func(int) error) error { panic("again") }), 1, 2, 3, 4)
		var p *chans.PanicError
		if !errors.As(err, &p) || p.Value != "again" {
			t.Errorf("got %v", err)
		}
		same(t, "values", got, []int{1, 2})
	})
	t.Run("behind", func(t *testing.T) {
		for _, bad := range []chans.Xform[int, int]{failing(3), panicking(3)} {
			xf := chans.Compose(chans.Rescue(chans.Map(identity[int]), replace), bad)
			_, err := through(t, xf, 1, 2, 3, 4)
			is(t, err, errBroken)
		}
	})
	t.Run("group", func(t *testing.T) {
		write := chans.TryMap(func(group []int) (string, error) {
			if group[0] == 1 {
				return "", errBroken
			}
			return fmt.Sprint(group), nil
		})
		xf := chans.Compose(chans.Distinct(identity[int], 9), chans.Rescue(
			chans.Compose(chans.PartitionAll[int](2), write),
			func(e *chans.ItemError, emit func(string) error) error { return emit(fmt.Sprint("bad ", e.Value)) },
		))
		got, err := through(t, xf, 1, 2, 1, 3, 3, 4, 5)
		noError(t, err)
		same(t, "values", got, []string{"bad [1 2]", "[3 4]", "[5]"})
	})
	t.Run("group behind", func(t *testing.T) {
		inner := chans.Rescue(chans.PartitionAll[int](2), func(e *chans.ItemError, emit func([]int) error) error { return nil })
		write := chans.TryMap(func(group []int) (int, error) { return 0, errBroken })
		_, err := through(t, chans.Compose(inner, write), 1, 2, 3)
		is(t, err, errBroken)
	})
}

// A value that was lost with its group is no neighbour any more.
func TestDedupeForgetsFailedGroups(t *testing.T) {
	calls := 0
	write := chans.TryMap(func(group []int) ([]int, error) {
		if calls++; calls == 1 {
			return nil, errBroken
		}
		return group, nil
	})
	xf := chans.Compose4(chans.Dedupe[int](), chans.PartitionAll[int](2), write, chans.FlatMap(identity[[]int]))
	got, failed := results(chans.Seq(xf, slices.Values([]int{1, 2, 1, 3, 3})))
	same(t, "values", got, []int{1, 3})
	want(t, "failures", fmt.Sprint(failed), "[[1 2]]", func(a, b string) bool { return a == b })
}

// A step whose end panics is a failure without a value; it comes once.
func TestPanicAtTheEnd(t *testing.T) {
	bad := chans.Xform[int, int](func(_ *chans.Run, next chans.Sink[int]) chans.Sink[int] {
		return chans.Sink[int]{Put: next.Put, Close: func() { panic(errBroken) }}
	})
	got, err := through(t, bad, 1, 2)
	is(t, err, errBroken)
	same(t, "values", got, []int{1, 2})
	got, err = through(t, chans.Compose(failing(2), bad), 1, 2)
	same(t, "values", got, []int{1})
	for _, part := range []string{"value 2: broken", "value <nil>: panic: broken"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v doesn't say %q", err, part)
		}
	}
}

// A separator is put once, also when it or the value behind it fails.
func TestInterposeUnderFailures(t *testing.T) {
	got, failed := results(chans.Seq(chans.Compose(chans.Interpose(0), failing(2)), slices.Values([]int{1, 2, 3})))
	same(t, "values", got, []int{1, 0, 3})
	same(t, "failures", failed, []any{2})
	got, failed = results(chans.Seq(chans.Compose(chans.Interpose(0), failing(0)), slices.Values([]int{1, 2, 3})))
	same(t, "values", got, []int{1, 0, 3})
	same(t, "failures", failed, []any{2})
}

// What a step gives on at the end, or puts beyond it, doesn't get past a step
// that has stopped the run.
func TestNothingPassesAStop(t *testing.T) {
	add := func(list []int, v int) ([]int, error) {
		if list = append(list, v); len(list) == 2 {
			return list, chans.ErrDone
		}
		return list, nil
	}
	careless := chans.Xform[int, int](func(_ *chans.Run, next chans.Sink[int]) chans.Sink[int] {
		return chans.Sink[int]{Put: func(v int) error {
			for range 3 {
				if err := next.Put(v); err != nil {
					return err
				}
			}
			return nil
		}, Close: func() {
			_ = next.Put(9)
			next.Close()
		}}
	})
	for name, xf := range map[string]chans.Xform[int, int]{
		"done":      careless,
		"Interpose": chans.Compose4(careless, chans.Interpose(2), chans.PartitionBy(even), chans.FlatMap(identity[[]int])),
	} {
		got, err := chans.Transduce(t.Context(), filled(2, 4), xf, nil, add)
		noError(t, err)
		same(t, name, got, []int{2, 2})
	}
}

func TestTakeHoldsBackWhatItIsStillGiven(t *testing.T) {
	flood := chans.Xform[int, int](func(_ *chans.Run, next chans.Sink[int]) chans.Sink[int] {
		return chans.Sink[int]{Put: func(v int) error {
			return errors.Join(next.Put(v), next.Put(v), next.Put(v))
		}, Close: next.Close}
	})
	got, err := through(t, chans.Compose(flood, chans.Take[int](2)), 1, 2)
	noError(t, err)
	same(t, "values", got, []int{1, 1})
	got, err = through(t, chans.Compose3(chans.FlatMap(func(v int) []int { return []int{v, v + 1, v} }), flood, chans.TakeWhile(even)), 2, 4)
	noError(t, err)
	same(t, "values", got, []int{2, 2, 2})
}

// Once a step has stopped the run, the ones before it put nothing more.
func TestFlatMapHeedsAStop(t *testing.T) {
	list := func(v int) []int { return []int{v, v, v} }
	for name, flat := range map[string]chans.Xform[int, int]{
		"FlatMap":    chans.FlatMap(list),
		"FlatMapSeq": chans.FlatMapSeq(func(v int) iter.Seq[int] { return slices.Values(list(v)) }),
	} {
		seen := 0
		count := chans.Map(func(v int) int {
			seen++
			return v
		})
		_, err := through(t, chans.Compose3(flat, count, chans.Take[int](1)), 1, 2)
		noError(t, err)
		same(t, name, []int{seen}, []int{1})
	}
}

func TestErrorTexts(t *testing.T) {
	for err, text := range map[error]string{
		&chans.Unsent[int]{Values: []int{1, 2}, Err: errBroken}: "chans: ended with 2 unsent: broken",
		&chans.ItemError{Value: 3, Err: errBroken}:              "chans: value 3: broken",
		&chans.PanicError{Value: "x"}:                           "panic: x",
	} {
		if err.Error() != text {
			t.Errorf("got %q, want %q", err, text)
		}
	}
}

// A failed group counts as never seen inside the Rescue that deals with it, and
// as taken before it.
func TestRescueAndMarks(t *testing.T) {
	pass := chans.Chain[int]()
	distinct := chans.Distinct(identity[int], 9)
	refuse := func(e *chans.ItemError, _ func([]int) error) error { return e }
	drop := func(*chans.ItemError, func([]int) error) error { return nil }
	for name, c := range map[string]struct {
		outer, middle, inner chans.Xform[int, int]
		first, second        func(*chans.ItemError, func([]int) error) error
		again                bool
	}{
		"before both":             {distinct, pass, pass, refuse, drop, false},
		"between, second deals":   {pass, distinct, pass, refuse, drop, true},
		"between, first deals":    {pass, distinct, pass, drop, drop, false},
		"inside, first deals":     {pass, pass, distinct, drop, drop, true},
		"inside, second deals":    {pass, pass, distinct, refuse, drop, true},
		"inside, nobody deals":    {pass, pass, distinct, refuse, refuse, true},
		"between, nobody deals":   {pass, distinct, pass, refuse, refuse, true},
		"before, nobody deals":    {distinct, pass, pass, refuse, refuse, true},
		"in a Rescue of its own":  {chans.Rescue(distinct, func(*chans.ItemError, func(int) error) error { return nil }), pass, pass, refuse, refuse, true},
		"in one before the other": {pass, chans.Rescue(distinct, func(*chans.ItemError, func(int) error) error { return nil }), pass, refuse, drop, true},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			write := chans.TryMap(func(group []int) ([]int, error) {
				if calls++; calls == 1 {
					return nil, errBroken
				}
				return group, nil
			})
			inner := chans.Rescue(chans.Compose3(c.inner, chans.PartitionAll[int](2), write), c.first)
			xf := chans.Compose(c.outer, chans.Rescue(chans.Compose(c.middle, inner), c.second))
			got, _ := results(chans.Seq(xf, slices.Values([]int{1, 2, 1, 2})))
			if passed := len(got) > 0; passed != c.again {
				t.Errorf("got %v", got)
			}
		})
	}
}

// What can't be put any more is handed back, also what steps had kept.
func TestPipeThroughHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		from := make(chan int)
		out, wait := chans.Go(0, func(to chan<- []int) error {
			return chans.PipeThrough(ctx, to, from, chans.PartitionAll[int](2))
		})
		for i := range 3 {
			if i == 2 {
				<-out
			}
			from <- i
		}
		end()
		err := wait()
		is(t, err, errBroken)
		if groups := left[[]int](t, err); len(groups) != 1 || !slices.Equal(groups[0], []int{2}) {
			t.Errorf("got %v", groups)
		}
	})
}

func TestPipeThroughClosedDestination(t *testing.T) {
	to := make(chan int)
	close(to)
	from := filled(1, 2, 3)
	err := chans.PipeThrough(t.Context(), to, from, chans.FlatMap(func(v int) []int { return []int{v, v} }))
	is(t, err, chans.ErrClosed)
	same(t, "unsent", left[int](t, err), []int{1})
	same(t, "left", taken(t, from), []int{2, 3})
}

func TestTransduceAndReduce(t *testing.T) {
	ctx := t.Context()
	add := func(sum, v int) (int, error) { return sum + v, nil }
	sum, err := chans.Reduce(ctx, filled[int](), 7, add)
	noError(t, err)
	sum2, err := chans.Reduce(ctx, filled(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 0, add)
	noError(t, err)
	same(t, "sums", []int{sum, sum2}, []int{7, 45})

	until := func(limit int) func(int, int) (int, error) {
		return func(sum, v int) (int, error) {
			if sum+v >= limit {
				return sum + v, chans.ErrDone
			}
			return sum + v, nil
		}
	}
	from := filled(1, 2, 3, 4)
	sum, err = chans.Reduce(ctx, from, 0, until(3))
	noError(t, err)
	same(t, "sum", []int{sum}, []int{3})
	same(t, "left", taken(t, from), []int{3, 4})
	from = filled(1, 2, 3, 4)
	sum, err = chans.Transduce(ctx, from, chans.FlatMap(repeated), 0, until(3))
	noError(t, err)
	same(t, "sum", []int{sum}, []int{3})
	same(t, "left", taken(t, from), []int{3, 4})

	broken := func(sum, v int) (int, error) {
		switch v {
		case 2:
			return 99, errBroken
		case 3:
			panic(errBroken)
		}
		return sum + v, nil
	}
	for _, bad := range []int{2, 3} {
		sum, err = chans.Reduce(ctx, filled(1, bad), 0, broken)
		is(t, err, errBroken)
		sum2, err = chans.Transduce(ctx, filled(1, bad), chans.Map(identity[int]), 0, broken)
		is(t, err, errBroken)
		same(t, "sums", []int{sum, sum2}, []int{1, 1})
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = chans.Reduce(ended, filled(1), 0, add)
	is(t, err, context.Canceled)
	sum, err = chans.Transduce(ended, filled(1), chans.Map(identity[int]), 5, add)
	is(t, err, context.Canceled)
	same(t, "sum", []int{sum}, []int{5})
}

// A transducer holds nothing of its uses: two at the same time don't meet.
func TestStateIsOfTheUse(t *testing.T) {
	xf := chans.Compose(chans.Distinct(identity[int], 10), chans.PartitionAll[int](2))
	next1, stop1 := iter.Pull2(chans.Seq(xf, slices.Values([]int{1, 2, 3})))
	next2, stop2 := iter.Pull2(chans.Seq(xf, slices.Values([]int{2, 1})))
	defer stop1()
	defer stop2()
	seen := map[string]bool{}
	for _, next := range []func() ([]int, error, bool){next1, next2, next1} {
		group, err, _ := next()
		noError(t, err)
		seen[fmt.Sprint(group)] = true
	}
	same(t, "groups", slices.Sorted(maps.Keys(seen)), []string{"[1 2]", "[2 1]", "[3]"})
}

func TestNumbersThatCannotBeMeant(t *testing.T) {
	for name, call := range map[string]func(){
		"Sliding":      func() { chans.Sliding[int](0, nil) },
		"Dropping":     func() { chans.Dropping[int](0, nil) },
		"TakeNth":      func() { chans.TakeNth[int](0) },
		"Distinct":     func() { chans.Distinct(identity[int], 0) },
		"PartitionAll": func() { chans.PartitionAll[int](0) },
		"Pipeline": func() {
			_ = chans.Pipeline(context.Background(), 0, make(chan int), nil, func(context.Context, int, func(int)) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); !strings.Contains(fmt.Sprint(r), "chans: "+name+" ") {
					t.Errorf("panicked with %v", r)
				}
			}()
			call()
		})
	}
}
