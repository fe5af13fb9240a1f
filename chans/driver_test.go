package chans_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/oncepipe/oncepipe/chans"
)

// note is an origin that counts what is kept of it.
type note struct {
	kept int
	errs []error
}

func (n *note) Keep() { n.kept++ }
func (n *note) Release(err error) {
	n.kept--
	if err != nil {
		n.errs = append(n.errs, err)
	}
}

func itself(v int) int { return v }

func refuse(e *chans.ItemError) error { return e }

// Flush gives on what all steps have kept, the first ones first, and the run goes
// on.
func TestDriverFlush(t *testing.T) {
	var got [][]int
	flat := chans.FlatMap(func(g []int) []int { return g })
	xf := chans.Compose3(chans.PartitionAll[int](3), flat, chans.PartitionAll[int](4))
	d := chans.Drive(xf, func(g []int, _ []chans.Origin) error { got = append(got, g); return nil }, refuse)
	origins := make([]*note, 5)
	for i := range origins {
		origins[i] = &note{}
		if err := d.Put(i, origins[i]); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := d.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if want := [][]int{{0, 1}, {2, 3, 4}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i, o := range origins {
		if o.kept != 0 || o.errs != nil {
			t.Errorf("origin %d: %+v", i, o)
		}
	}
}

// Last makes the steps forget a value, alone or in a group, and no other.
func TestDriverForgets(t *testing.T) {
	passed := 0
	xf := chans.Compose(chans.Distinct(itself, 10), chans.PartitionAll[int](2))
	d := chans.Drive(xf, func(g []int, _ []chans.Origin) error { passed += len(g); return nil }, refuse)
	if !d.Remembers() {
		t.Error("a run with Distinct remembers nothing")
	}
	put := func(v int) func() {
		if err := d.Put(v, &note{}); err != nil {
			t.Fatal(err)
		}
		return d.Last()
	}
	forget := put(1)
	put(2)
	put(1)
	put(2)
	if passed != 2 {
		t.Errorf("%d passed, want 2", passed)
	}
	forget()
	put(1)
	put(2)
	put(3)
	if passed != 4 {
		t.Errorf("%d passed, want 4", passed)
	}
	plain := chans.Drive(chans.Map(itself), func(int, []chans.Origin) error { return nil }, refuse)
	if err := plain.Put(1, &note{}); err != nil || plain.Remembers() || plain.Last() != nil {
		t.Error("a run of Map remembers")
	}
}

// A step that ends its goroutine for a group fails it, and leaves the run usable.
func TestDriverGoexitInAGroup(t *testing.T) {
	var got [][]int
	xf := chans.Compose(chans.PartitionAll[int](2), chans.Map(func(g []int) []int {
		if g[0] == 0 {
			runtime.Goexit()
		}
		return g
	}))
	d := chans.Drive(xf, func(g []int, _ []chans.Origin) error { got = append(got, g); return nil }, refuse)
	origins := []*note{{}, {}, {}, {}}
	for i, o := range origins {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := d.Put(i, o); err != nil {
				t.Error(err)
			}
		}()
		<-done
	}
	for i, o := range origins {
		failed := len(o.errs) == 1 && errors.Is(o.errs[0], chans.ErrGoexit)
		if o.kept != 0 || failed != (i < 2) {
			t.Errorf("origin %d: %+v", i, o)
		}
	}
	if len(got) != 1 || got[0][0] != 2 {
		t.Errorf("got %v", got)
	}
}
