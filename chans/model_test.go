package chans_test

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/chans"
)

// step is a transducer with its model: the same on a slice.
type step struct {
	name  string
	xf    chans.Xform[int, int]
	model func([]int) []int
}

func even(v int) bool { return v%2 == 0 }
func mod3(v int) int  { return v % 3 }

func flatten[T any](groups [][]T) []T { return slices.Concat(groups...) }

func identity[T any](v T) T { return v }

// sum makes an int of each group, so that its borders can be seen.
func sum(group []int) int {
	n := 1000 * len(group)
	for _, v := range group {
		n += v
	}
	return n
}

func mapped[A, B any](list []A, fn func(A) B) []B {
	var out []B
	for _, v := range list {
		out = append(out, fn(v))
	}
	return out
}

func filtered(list []int, yes func(int) bool) []int {
	var out []int
	for _, v := range list {
		if yes(v) {
			out = append(out, v)
		}
	}
	return out
}

func indexed(list []int, yes func(i, v int) bool) []int {
	var out []int
	for i, v := range list {
		if yes(i, v) {
			out = append(out, v)
		}
	}
	return out
}

// prefix is how many values come before the first that yes is false for.
func prefix(list []int, yes func(int) bool) int {
	for i, v := range list {
		if !yes(v) {
			return i
		}
	}
	return len(list)
}

func modelDistinct(n int) func([]int) []int {
	return func(list []int) []int {
		var out []int
		for _, v := range list {
			last := out[max(0, len(out)-n):]
			if !slices.ContainsFunc(last, func(w int) bool { return mod3(w) == mod3(v) }) {
				out = append(out, v)
			}
		}
		return out
	}
}

func modelPartitionBy(list []int, key func(int) int) [][]int {
	var out [][]int
	for i, v := range list {
		if i == 0 || key(list[i-1]) != key(v) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], v)
	}
	return out
}

func modelPartitionAll(list []int, n int) [][]int {
	return slices.Collect(slices.Chunk(list, n))
}

func modelInterpose(list []int, sep int) []int {
	var out []int
	for i, v := range list {
		if i > 0 {
			out = append(out, sep)
		}
		out = append(out, v)
	}
	return out
}

func repeated(v int) []int { return slices.Repeat([]int{v}, max(0, v%4)) }

// steps are all steps, with the number n where they have one.
func steps(n int) []step {
	pos := max(1, n)
	small := func(v int) bool { return v < 3*n }
	return []step{
		{"Map", chans.Map(func(v int) int { return v + n }), func(l []int) []int {
			return mapped(l, func(v int) int { return v + n })
		}},
		{"TryMap", chans.TryMap(func(v int) (int, error) { return v - n, nil }), func(l []int) []int {
			return mapped(l, func(v int) int { return v - n })
		}},
		{"Filter", chans.Filter(even), func(l []int) []int { return filtered(l, even) }},
		{"Remove", chans.Remove(even), func(l []int) []int {
			return filtered(l, func(v int) bool { return !even(v) })
		}},
		{"Keep", chans.Keep(func(v int) (int, bool) { return v / 2, even(v) }), func(l []int) []int {
			return mapped(filtered(l, even), func(v int) int { return v / 2 })
		}},
		{"FlatMap", chans.FlatMap(repeated), func(l []int) []int { return flatten(mapped(l, repeated)) }},
		{"FlatMapSeq", chans.FlatMapSeq(func(v int) iter.Seq[int] { return slices.Values(repeated(v)) }), func(l []int) []int {
			return flatten(mapped(l, repeated))
		}},
		{"Take", chans.Take[int](n), func(l []int) []int { return l[:min(n, len(l))] }},
		{"TakeWhile", chans.TakeWhile(small), func(l []int) []int { return l[:prefix(l, small)] }},
		{"Drop", chans.Drop[int](n), func(l []int) []int { return l[min(n, len(l)):] }},
		{"DropWhile", chans.DropWhile(small), func(l []int) []int { return l[prefix(l, small):] }},
		{"TakeNth", chans.TakeNth[int](pos), func(l []int) []int {
			return indexed(l, func(i, _ int) bool { return i%pos == 0 })
		}},
		{"Distinct", chans.Distinct(mod3, pos), modelDistinct(pos)},
		{"Dedupe", chans.Dedupe[int](), func(l []int) []int {
			return indexed(l, func(i, v int) bool { return i == 0 || l[i-1] != v })
		}},
		{"PartitionAll", chans.Compose(chans.PartitionAll[int](pos), chans.Map(sum)), func(l []int) []int {
			return mapped(modelPartitionAll(l, pos), sum)
		}},
		{"PartitionAll flat", chans.Compose(chans.PartitionAll[int](pos), chans.FlatMap(identity[[]int])), identity[[]int]},
		{"PartitionBy", chans.Compose(chans.PartitionBy(mod3), chans.Map(sum)), func(l []int) []int {
			return mapped(modelPartitionBy(l, mod3), sum)
		}},
		{"Interpose", chans.Interpose(-1), func(l []int) []int { return modelInterpose(l, -1) }},
		{"Rescue", chans.Rescue(
			chans.TryMap(func(v int) (int, error) {
				if even(v) {
					return 0, errBroken
				}
				return v, nil
			}),
			func(e *chans.ItemError, emit func(int) error) error { return emit(-e.Value.(int)) },
		), func(l []int) []int {
			return mapped(l, func(v int) int {
				if even(v) {
					return -v
				}
				return v
			})
		}},
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// agree checks that xf does what model says, wherever it is used, and each time.
func agree(t fataler, name string, xf chans.Xform[int, int], values, expected []int) {
	t.Helper()
	check := func(where string, got []int, err error) {
		t.Helper()
		if err != nil || !slices.Equal(got, expected) {
			t.Fatalf("%s of %v %s: got %v, %v, want %v", name, values, where, got, err, expected)
		}
	}
	for range 2 {
		got, err := collect(chans.Seq(xf, slices.Values(values)))
		check("on a sequence", got, err)
	}
	to := make(chan int, len(expected)+1)
	err := chans.PipeThrough(context.Background(), to, filled(values...), xf)
	close(to)
	got, _ := chans.Into(context.Background(), nil, to)
	check("on a channel", got, err)
	got, err = chans.Transduce(context.Background(), filled(values...), xf, nil,
		func(list []int, v int) ([]int, error) { return append(list, v), nil })
	check("in Transduce", got, err)
	got, err = settled(xf, values)
	check("in a Driver", got, err)
}

func collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var list []T
	for v, err := range seq {
		if err != nil {
			return list, err
		}
		list = append(list, v)
	}
	return list, nil
}

// origin counts what a run keeps of an input.
type origin struct{ keeps, releases, lost int }

func (o *origin) Keep() { o.keeps++ }
func (o *origin) Release(err error) {
	o.releases++
	if err != nil {
		o.lost++
	}
}

// settled uses xf as a stream does that settles its inputs.
func settled(xf chans.Xform[int, int], values []int) (got []int, err error) {
	d := chans.Drive(xf, func(v int, from []chans.Origin) error {
		got = append(got, v)
		if len(from) == 0 {
			return fmt.Errorf("%d comes from nowhere", v)
		}
		for i, o := range from {
			if slices.Contains(from[:i], o) {
				return fmt.Errorf("%d comes from one input twice", v)
			}
		}
		return nil
	}, func(e *chans.ItemError) error {
		err = e
		return e
	})
	origins := make([]origin, len(values))
	for i, v := range values {
		if d.Stopped() {
			break
		}
		if d.Put(v, &origins[i]) != nil {
			return got, err
		}
	}
	for range 2 { // only the first Close gives on what is kept
		if d.Close() != nil {
			return got, err
		}
	}
	for i, o := range origins {
		if o.keeps != o.releases || o.lost > 0 {
			return got, fmt.Errorf("input %d is not settled: %+v", i, o)
		}
	}
	return got, nil
}

func drawValues(t *rapid.T) []int {
	return rapid.SliceOfN(rapid.IntRange(0, 12), 0, 30).Draw(t, "values")
}

func TestEveryStepAgreesWithItsModel(t *testing.T) {
	for i, s := range steps(1) {
		t.Run(s.name, rapid.MakeCheck(func(t *rapid.T) {
			s := steps(rapid.IntRange(0, 7).Draw(t, "n"))[i]
			values := drawValues(t)
			agree(t, s.name, s.xf, values, s.model(values))
		}))
	}
}

// Any three steps: what one of them does at its end, or keeps, meets every other.
func TestTriplesAgreeWithTheirModel(t *testing.T) {
	values := []int{0, 0, 3, 1, 4, 4, 7, 2}
	all := steps(2)
	for _, a := range all {
		for _, b := range all {
			for _, c := range all {
				xf := chans.Chain(a.xf, b.xf, c.xf)
				agree(t, a.name+" "+b.name+" "+c.name, xf, values, c.model(b.model(a.model(values))))
			}
		}
	}
}

// The steps behind one that has stopped the run still give on what they have, and
// those before it are asked for nothing more.
func TestStopReachesTheStepsBefore(t *testing.T) {
	asked := 0
	endless := chans.FlatMapSeq(func(v int) iter.Seq[int] {
		return func(yield func(int) bool) {
			for asked++; yield(v); asked++ {
			}
		}
	})
	group := chans.Compose(chans.PartitionAll[int](3), chans.FlatMap(identity[[]int]))
	xf := chans.Chain(group, endless, chans.Take[int](4), group)
	got, err := collect(chans.Seq(xf, slices.Values([]int{5, 6, 7, 8})))
	if err != nil || !slices.Equal(got, []int{5, 5, 5, 5}) || asked != 4 {
		t.Fatalf("got %v, %v after %d values", got, err, asked)
	}
}

func TestCompositionsAgreeWithTheirModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := drawValues(t)
		expected := values
		name := ""
		var chain []chans.Xform[int, int]
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			all := steps(rapid.IntRange(0, 7).Draw(t, "n"))
			s := rapid.SampledFrom(all).Draw(t, "step")
			name += " " + s.name
			chain = append(chain, s.xf)
			expected = s.model(expected)
		}
		agree(t, name, chans.Chain(chain...), values, expected)
		if len(chain) == 5 {
			agree(t, name, chans.Compose5(chain[0], chain[1], chain[2], chain[3], chain[4]), values, expected)
		}
	})
}

// Compose and its like are the same as one after the other.
func TestComposeIsAssociative(t *testing.T) {
	s := steps(2)
	values := []int{5, 3, 3, 8, 1, 9, 2, 2, 7}
	a, b, c, d, e := s[0].xf, s[2].xf, s[13].xf, s[14].xf, s[17].xf
	expected := values
	for _, i := range []int{0, 2, 13, 14, 17} {
		expected = s[i].model(expected)
	}
	for name, xf := range map[string]chans.Xform[int, int]{
		"5":     chans.Compose5(a, b, c, d, e),
		"4+1":   chans.Compose(chans.Compose4(a, b, c, d), e),
		"1+4":   chans.Compose(a, chans.Compose4(b, c, d, e)),
		"3+2":   chans.Compose(chans.Compose3(a, b, c), chans.Compose(d, e)),
		"2+3":   chans.Compose(chans.Compose(a, b), chans.Compose3(c, d, e)),
		"chain": chans.Chain(a, chans.Chain(b, c), chans.Chain[int](), d, e),
	} {
		agree(t, name, xf, values, expected)
	}
}

// FuzzCompositions reads steps, their numbers and the values from bytes.
func FuzzCompositions(f *testing.F) {
	f.Add([]byte{13, 14, 7}, []byte{1, 3, 2}, []byte{1, 2, 1, 3, 1, 1})
	f.Add([]byte{16, 12, 5, 17}, []byte{0, 4, 9, 2}, []byte{9, 9, 8, 7, 7})
	f.Fuzz(func(t *testing.T, which, numbers, input []byte) {
		if len(which) > 8 || len(input) > 64 {
			t.Skip()
		}
		values := mapped(input, func(b byte) int { return int(b) })
		expected := values
		var chain []chans.Xform[int, int]
		name := ""
		for i, w := range which {
			n := 0
			if i < len(numbers) {
				n = int(numbers[i] % 9)
			}
			all := steps(n)
			s := all[int(w)%len(all)]
			chain, name = append(chain, s.xf), name+" "+s.name
			if expected = s.model(expected); len(expected) > 5000 {
				t.Skip()
			}
		}
		agree(t, name, chans.Chain(chain...), values, expected)
	})
}

// Groups come as groups.
func TestPartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := drawValues(t)
		n := rapid.IntRange(1, 6).Draw(t, "n")
		all, err := collect(chans.Seq(chans.PartitionAll[int](n), slices.Values(values)))
		if err != nil || !reflect.DeepEqual(all, modelPartitionAll(values, n)) {
			t.Fatalf("PartitionAll(%d) of %v: %v, %v", n, values, all, err)
		}
		by, err := collect(chans.Seq(chans.PartitionBy(mod3), slices.Values(values)))
		if err != nil || !reflect.DeepEqual(by, modelPartitionBy(values, mod3)) {
			t.Fatalf("PartitionBy of %v: %v, %v", values, by, err)
		}
	})
}
