package chans_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/oncepipe/oncepipe/chans"
)

// show prints what xf makes of values.
func show[A, B any](xf chans.Xform[A, B], values ...A) {
	for v, err := range chans.Seq(xf, slices.Values(values)) {
		if err != nil {
			fmt.Println("failed:", err)
			continue
		}
		fmt.Println(v)
	}
}

func ExampleMap() {
	show(chans.Map(strings.ToUpper), "a", "b")
	// Output:
	// A
	// B
}

func ExampleTryMap() {
	show(chans.TryMap(strconv.Atoi), "1", "x", "3")
	// Output:
	// 1
	// failed: chans: value x: strconv.Atoi: parsing "x": invalid syntax
	// 3
}

func ExampleFilter() {
	show(chans.Filter(even), 1, 2, 3, 4)
	// Output:
	// 2
	// 4
}

func ExampleRemove() {
	show(chans.Remove(even), 1, 2, 3, 4)
	// Output:
	// 1
	// 3
}

func ExampleKeep() {
	prices := map[string]int{"tea": 3, "milk": 2}
	price := func(name string) (int, bool) {
		p, ok := prices[name]
		return p, ok
	}
	show(chans.Keep(price), "tea", "gold", "milk")
	// Output:
	// 3
	// 2
}

func ExampleFlatMap() {
	show(chans.FlatMap(strings.Fields), "to be", "", "or not")
	// Output:
	// to
	// be
	// or
	// not
}

func ExampleFlatMapSeq() {
	countdown := func(n int) iter.Seq[int] {
		return func(yield func(int) bool) {
			for ; n > 0 && yield(n); n-- {
			}
		}
	}
	show(chans.FlatMapSeq(countdown), 2, 1)
	// Output:
	// 2
	// 1
	// 1
}

func ExampleTake() {
	show(chans.Take[int](2), 7, 8, 9)
	// Output:
	// 7
	// 8
}

func ExampleTakeWhile() {
	show(chans.TakeWhile(even), 2, 4, 5, 6)
	// Output:
	// 2
	// 4
}

func ExampleDrop() {
	show(chans.Drop[int](2), 7, 8, 9)
	// Output: 9
}

func ExampleDropWhile() {
	show(chans.DropWhile(even), 2, 4, 5, 6)
	// Output:
	// 5
	// 6
}

func ExampleTakeNth() {
	show(chans.TakeNth[int](3), 0, 1, 2, 3, 4, 5, 6)
	// Output:
	// 0
	// 3
	// 6
}

// A message that failed can be sent again; one that got through can't.
func ExampleDistinct() {
	down := true
	write := chans.TryMap(func(id string) (string, error) {
		if down {
			down = false
			return "", errors.New("database is down")
		}
		return "wrote " + id, nil
	})
	id := func(id string) string { return id }
	show(chans.Compose(chans.Distinct(id, 1000), write), "a", "a", "a", "b")
	// Output:
	// failed: chans: value a: database is down
	// wrote a
	// wrote b
}

func ExampleDedupe() {
	show(chans.Dedupe[string](), "on", "on", "off", "on")
	// Output:
	// on
	// off
	// on
}

func ExamplePartitionAll() {
	show(chans.PartitionAll[int](2), 1, 2, 3)
	// Output:
	// [1 2]
	// [3]
}

func ExamplePartitionBy() {
	show(chans.PartitionBy(even), 1, 3, 4, 5)
	// Output:
	// [1 3]
	// [4]
	// [5]
}

func ExampleInterpose() {
	show(chans.Interpose("and"), "a", "b", "c")
	// Output:
	// a
	// and
	// b
	// and
	// c
}

func ExampleCompose() {
	lengths := chans.Map(func(s string) int { return len(s) })
	show(chans.Compose(chans.FlatMap(strings.Fields), lengths), "a few words")
	// Output:
	// 1
	// 3
	// 5
}

func ExampleCompose3() {
	show(chans.Compose3(
		chans.FlatMap(strings.Fields),
		chans.TryMap(strconv.Atoi),
		chans.Filter(even),
	), "1 2", "3 4")
	// Output:
	// 2
	// 4
}

func ExampleCompose4() {
	show(chans.Compose4(
		chans.FlatMap(strings.Fields),
		chans.TryMap(strconv.Atoi),
		chans.Filter(even),
		chans.PartitionAll[int](2),
	), "1 2", "3 4", "6")
	// Output:
	// [2 4]
	// [6]
}

func ExampleCompose5() {
	show(chans.Compose5(
		chans.FlatMap(strings.Fields),
		chans.TryMap(strconv.Atoi),
		chans.Filter(even),
		chans.PartitionAll[int](2),
		chans.Map(sum),
	), "1 2", "3 4", "6")
	// Output:
	// 2006
	// 1006
}

func ExampleChain() {
	var steps []chans.Xform[int, int]
	for _, p := range []int{2, 3, 5} {
		steps = append(steps, chans.Remove(func(v int) bool { return v%p == 0 && v != p }))
	}
	show(chans.Chain(steps...), 2, 4, 7, 9, 11, 25)
	// Output:
	// 2
	// 7
	// 11
}

// A value that can't be read is replaced; one could also count it, or send it to
// a channel of dead letters.
func ExampleRescue() {
	numbers := chans.Rescue(chans.TryMap(strconv.Atoi), func(e *chans.ItemError, emit func(int) error) error {
		if errors.Is(e, strconv.ErrRange) {
			return e // fails all the same
		}
		return emit(-1)
	})
	show(numbers, "1", "x", "99999999999999999999")
	// Output:
	// 1
	// -1
	// failed: chans: value 99999999999999999999: strconv.Atoi: parsing "99999999999999999999": value out of range
}

// A step of one's own: pairs of neighbours. Its state is made with each use.
func ExampleXform() {
	pairs := chans.Xform[int, [2]int](func(_ *chans.Run, next chans.Sink[[2]int]) chans.Sink[int] {
		last, some := 0, false
		return chans.Sink[int]{
			Put: func(v int) error {
				pair := [2]int{last, v}
				passes := some
				last, some = v, true
				if passes {
					return next.Put(pair)
				}
				return nil
			},
			Close: next.Close,
		}
	})
	show(pairs, 1, 2, 3)
	// Output:
	// [1 2]
	// [2 3]
}

// A step that stops the run: nothing is taken behind the first zero.
func ExampleRun_Stop() {
	untilZero := chans.Xform[int, int](func(r *chans.Run, next chans.Sink[int]) chans.Sink[int] {
		return chans.Sink[int]{
			Put: func(v int) error {
				if r.Stopped() {
					return nil
				}
				if v == 0 {
					r.Stop()
				}
				return next.Put(v)
			},
			Close: next.Close,
		}
	})
	show(untilZero, 1, 0, 2)
	// Output:
	// 1
	// 0
}

// A step that keeps values: the longest word of each sentence. Hold makes the
// words done no earlier than what they went into.
func ExampleRelease() {
	longest := chans.Xform[string, string](func(r *chans.Run, next chans.Sink[string]) chans.Sink[string] {
		var word string
		var kept chans.Hold
		flush := func() {
			if word != "" {
				w := word
				word = ""
				chans.Release(r, &kept, next, w)
			}
		}
		return chans.Sink[string]{
			Put: func(v string) error {
				kept.Keep(r)
				if w := strings.TrimSuffix(v, "."); len(w) > len(word) {
					word = w
				}
				if strings.HasSuffix(v, ".") {
					flush()
				}
				return nil
			},
			Close: func() {
				flush()
				next.Close()
			},
		}
	})
	show(longest, "all", "is", "well.", "so", "far")
	// Output:
	// well
	// far
}

func ExampleSeq() {
	words := chans.Compose(chans.FlatMap(strings.Fields), chans.Take[string](3))
	for word, err := range chans.Seq(words, slices.Values([]string{"to be", "or not", "to be"})) {
		fmt.Println(word, err)
	}
	// Output:
	// to <nil>
	// be <nil>
	// or <nil>
}

// acked is an origin that is told to its source when nothing of it is kept.
type acked struct {
	id   int
	open int
}

func (a *acked) Keep() { a.open++ }
func (a *acked) Release(err error) {
	if a.open--; a.open == 0 {
		fmt.Println("settled", a.id, err)
	}
}

// A driver with origins: a message is settled when the group that it went into
// has been taken.
func ExampleDrive() {
	d := chans.Drive(chans.PartitionAll[string](2), func(group []string, from []chans.Origin) error {
		fmt.Println("group", group, "of", len(from))
		return nil
	}, func(e *chans.ItemError) error { return e })
	for i, v := range []string{"a", "b", "c"} {
		if err := d.Put(v, &acked{id: i}); err != nil {
			fmt.Println(err)
		}
	}
	if err := d.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// group [a b] of 2
	// settled 0 <nil>
	// settled 1 <nil>
	// group [c] of 1
	// settled 2 <nil>
}
