package due

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The index against a sorted list, across the wrap of its sequence numbers.
func TestIndexModel(t *testing.T) {
	type waiting struct {
		at    int64
		place uint32
	}
	rapid.Check(t, func(t *rapid.T) {
		x := Index{seq: math.MaxUint32 - 20}
		var model []waiting
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				at := int64(rapid.IntRange(0, 8).Draw(t, "at"))
				place, first := x.Push(at)
				for _, w := range model {
					if w.place == place {
						t.Fatalf("place %d is given twice", place)
					}
				}
				model = append(model, waiting{at, place})
				slices.SortStableFunc(model, func(a, b waiting) int { return cmp.Compare(a.at, b.at) })
				if first != (model[0].place == place) {
					t.Fatalf("first is %v", first)
				}
			},
			"pop": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				if place, at := x.First(); place != model[0].place || at != model[0].at {
					t.Fatalf("first is %d at %d, want %+v", place, at, model[0])
				}
				x.Pop()
				model = model[1:]
			},
			"": func(t *rapid.T) {
				if x.Len() != len(model) {
					t.Fatalf("%d places, want %d", x.Len(), len(model))
				}
				all := make([]uint32, len(x.heap))
				for i, e := range x.heap {
					all[i] = e.place
				}
				slices.Sort(all)
				want := make([]uint32, len(model))
				for i, w := range model {
					want[i] = w.place
				}
				slices.Sort(want)
				if !slices.Equal(all, want) {
					t.Fatalf("all places %v, want %v", all, want)
				}
				for i := 1; i < len(x.heap); i++ {
					if x.heap[i].before(x.heap[(i-1)/4]) {
						t.Fatalf("entry %d is before the one above it", i)
					}
				}
			},
		})
	})
}

// Places that were given back serve again, so that the caller's slice does not
// grow with the number of pushes.
func TestPlacesAreReused(t *testing.T) {
	var x Index
	for i := range int64(10_000) {
		if place, _ := x.Push(i); place > 10 {
			t.Fatalf("place %d with %d in use", place, x.Len())
		}
		if x.Len() > 10 {
			x.Pop()
		}
	}
}

func BenchmarkPushPop(b *testing.B) {
	var x Index
	for i := range int64(1_000_000) {
		x.Push(i * 7919 % 1_000_003)
	}
	at := int64(0)
	for b.Loop() {
		x.Push(at * 7919 % 1_000_003)
		x.Pop()
		at++
	}
}
