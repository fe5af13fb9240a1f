package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe/chans"
	"pgregory.net/rapid"
)

// shelf is a source that keeps what it delivers until it is acked, and delivers
// again what was returned.
type shelf struct {
	mu      sync.Mutex
	ready   []string
	open    int
	wake    chan struct{}
	heard   map[string][]Outcome
	letters map[string]Reason
}

func newShelf(keys ...string) *shelf {
	return &shelf{ready: keys, open: len(keys), wake: make(chan struct{}, 1), heard: map[string][]Outcome{}, letters: map[string]Reason{}}
}

func (s *shelf) Receive(ctx context.Context) (Delivery[string], error) {
	for {
		s.mu.Lock()
		if len(s.ready) > 0 {
			k := s.ready[0]
			s.ready = s.ready[1:]
			s.mu.Unlock()
			return Delivery[string]{Value: k, Key: k, Settle: func(_ context.Context, st Settlement) error { return s.settle(k, st) }}, nil
		}
		open := s.open
		s.mu.Unlock()
		if open == 0 {
			<-ctx.Done() // as a broker does
			return Delivery[string]{}, ctx.Err()
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Delivery[string]{}, ctx.Err()
		}
	}
}

func (s *shelf) settle(k string, st Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[k] = append(s.heard[k], st.Outcome)
	if st.Outcome != Returned {
		s.open--
		token(s.wake)
		return nil
	}
	time.AfterFunc(st.Delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ready = append(s.ready, k)
		token(s.wake)
	})
	return nil
}

func (s *shelf) bury(_ context.Context, l DeadLetter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters[fmt.Sprint(l.Value)] = l.Reason
	return nil
}

func (s *shelf) wantHeard(t *testing.T, want map[string][]Outcome) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !reflect.DeepEqual(s.heard, want) {
		t.Errorf("the source heard %v, want %v", s.heard, want)
	}
}

// runFor runs p until d has passed, and wants no error.
func runFor(t *testing.T, p *Pipeline, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); !s.Conserved() || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}

// seen collects values and keys in the order in which a sink gets them.
type seen[T any] struct {
	mu     sync.Mutex
	values []T
	keys   []string
}

func (s *seen[T]) take(ctx context.Context, v T) error {
	info, _ := InfoFrom(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, v)
	s.keys = append(s.keys, info.Key)
	return nil
}

// A run on a stream makes of values what it makes of a slice.
func TestTransduceIsAsOnASlice(t *testing.T) {
	check(t, 150, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 60).Draw(rt, "values")
		xf := drawSteps(rt)
		var want [][]int
		for v, err := range chans.Seq(xf, slices.Values(values)) {
			if err == nil {
				want = append(want, v)
			}
		}
		inBubble(t, rt, func() (faults []string) {
			p := New("p", Config{Logger: quiet, DeadLetters: func(context.Context, DeadLetter) error { return nil }})
			var got seen[[]int]
			out := Transduce(FromSeq(p, "source", slices.Values(values)), "steps", xf, BatchWait(time.Hour), Buffer(Fixed(3)))
			Sink(out, "sink", got.take)
			err := p.Run(context.Background())
			var re *ReturnedError
			if err != nil && !errors.As(err, &re) {
				faults = append(faults, err.Error())
			}
			if !slices.EqualFunc(got.values, want, slices.Equal) {
				faults = append(faults, fmt.Sprintf("got %v, want %v", got.values, want))
			}
			if s := p.Stats(); !s.Conserved() || s.InFlight != 0 || s.Stages[0].Gathering != 0 {
				faults = append(faults, fmt.Sprintf("%+v", s))
			}
			return faults
		})
	})
}

// drawSteps composes some steps, and a grouping at the end.
func drawSteps(t *rapid.T) chans.Xform[int, []int] {
	even := func(v int) bool { return v%2 == 0 }
	all := []chans.Xform[int, int]{
		chans.Map(func(v int) int { return v + 1 }),
		chans.Filter(even),
		chans.Drop[int](2),
		chans.TakeNth[int](2),
		chans.Distinct(func(v int) int { return v }, 4),
		chans.Dedupe[int](),
		chans.Interpose(7),
		chans.FlatMap(func(v int) []int { return make([]int, v%4) }),
		chans.Take[int](8),
		chans.TakeWhile(func(v int) bool { return v < 9 }),
		chans.TryMap(func(v int) (int, error) {
			if v == 3 {
				return 0, errHandler
			}
			return v, nil
		}),
		chans.Map(func(v int) int {
			if v == 5 {
				panic(v)
			}
			return v
		}),
		chans.Compose(chans.PartitionAll[int](3), chans.FlatMap(func(g []int) []int {
			if g[0] == 4 {
				panic(g)
			}
			return g
		})),
	}
	steps := []chans.Xform[int, int]{}
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(all)-1), 0, 4).Draw(t, "steps") {
		steps = append(steps, all[i])
	}
	last := []chans.Xform[int, []int]{
		chans.Map(func(v int) []int { return []int{v} }), chans.PartitionAll[int](4), chans.PartitionBy(even),
	}
	return chans.Compose(chans.Chain(steps...), last[rapid.IntRange(0, len(last)-1).Draw(t, "last")])
}

func TestTransduceKeys(t *testing.T) {
	double := chans.FlatMap(func(v string) []string { return []string{v + "1", v + "2"} })
	run := func(xf chans.Xform[string, []string], keys ...string) *seen[[]string] {
		got := &seen[[]string]{}
		synctest.Test(t, func(t *testing.T) {
			p := New("p", Config{Logger: quiet})
			Sink(Transduce(From(p, "source", newShelf(keys...)), "steps", xf), "sink", got.take)
			runFor(t, p, time.Minute)
		})
		return got
	}
	one := chans.Map(func(v string) []string { return []string{v} })
	if got := run(one, "a", "b"); !slices.Equal(got.keys, []string{"a", "b"}) {
		t.Errorf("1→1: keys %q", got.keys)
	}
	if got := run(chans.Compose(double, one), "a"); !slices.Equal(got.keys, []string{"a", "a/1"}) {
		t.Errorf("1→2: keys %q", got.keys)
	}
	pairs := run(chans.PartitionAll[string](2), "a", "b", "c")
	if k := pairs.keys; len(k) != 2 || !strings.HasPrefix(k[0], "group/") || k[1] != "c" {
		t.Errorf("2→1: keys %q", k)
	}
	if again := run(chans.PartitionAll[string](2), "a", "b"); again.keys[0] != pairs.keys[0] {
		t.Errorf("the same members, other keys: %q and %q", again.keys, pairs.keys)
	}
	if other := run(chans.PartitionAll[string](2), "b", "a"); other.keys[0] == pairs.keys[0] {
		t.Errorf("b, a has the key of a, b: %q", other.keys)
	}
	if got := run(chans.PartitionAll[string](2), "a", ""); len(got.keys) != 1 || got.keys[0] != "" {
		t.Errorf("a member without a key: keys %q", got.keys)
	}
	// Whatever the groups are, no two have one key.
	many := run(chans.Compose(double, chans.Compose(double, chans.PartitionAll[string](3))), "a", "b", "c")
	distinct := slices.Clone(many.keys)
	slices.Sort(distinct)
	if len(many.keys) != 4 || len(slices.Compact(distinct)) != 4 {
		t.Errorf("keys of groups: %q", many.keys)
	}
}

// A member is settled as its group is, and not before.
func TestTransduceGroupSettlesItsMembers(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func() error
		want Outcome
	}{
		"done": {func() error { return nil }, Done},
		"dead": {func() error { return Permanent(errHandler) }, Dead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newShelf("a", "b", "c", "d", "e")
				p := New("p", Config{Logger: quiet, DeadLetters: src.bury})
				groups := Transduce(From(p, "source", src), "steps", chans.PartitionAll[string](2), BatchWait(time.Minute))
				Sink(groups, "sink", func(_ context.Context, g []string) error {
					src.mu.Lock()
					defer src.mu.Unlock()
					for _, v := range g {
						if src.heard[v] != nil {
							t.Errorf("%s is settled before its group", v)
						}
					}
					return c.fn()
				})
				go func() {
					time.Sleep(time.Second)
					if s := p.Stats(); s.InFlight != 1 || s.Stages[0].Gathering != 1 {
						t.Errorf("with one value kept: %+v", s)
					}
					time.Sleep(time.Minute)
					if s := p.Stats(); s.InFlight != 0 || s.Stages[0].Gathering != 0 {
						t.Errorf("after BatchWait: %+v", s)
					}
				}()
				runFor(t, p, time.Hour)
				one := []Outcome{c.want}
				src.wantHeard(t, map[string][]Outcome{"a": one, "b": one, "c": one, "d": one, "e": one})
			})
		})
	}
}

// What is kept when the drain begins is given on.
func TestTransduceDrainFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newShelf("a", "b", "c")
		p := New("p", Config{Logger: quiet})
		var got seen[[]string]
		Sink(Transduce(From(p, "source", src), "steps", chans.PartitionAll[string](2), BatchWait(time.Hour)), "sink", got.take)
		runFor(t, p, time.Minute)
		done := []Outcome{Done}
		src.wantHeard(t, map[string][]Outcome{"a": done, "b": done, "c": done})
		if len(got.values) != 2 || len(got.values[1]) != 1 {
			t.Errorf("groups %q", got.values)
		}
	})
}

// A copy that waits behind a Dedup keeps the input open: nothing waits for its end.
func TestTransduceBehindDedupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		fresh := Dedup(FromSeq(p, "source", slices.Values([]string{"a", "b", "a"})), "dedup", func(v string) string { return v })
		var got seen[[]string]
		Sink(Transduce(fresh, "steps", chans.PartitionAll[string](10)), "sink", got.take)
		began := time.Now()
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Done != 2 || s.Duplicate != 1 || len(got.values) != 1 || time.Since(began) != DefaultKeptFor {
			t.Errorf("after %v: %q, %+v", time.Since(began), got.values, s)
		}
	})
}

func TestTransduceBounds(t *testing.T) {
	groups := func(values int, opts ...Option) (sizes []int) {
		synctest.Test(t, func(t *testing.T) {
			ch := make(chan int)
			go func() {
				defer close(ch)
				for i := range values {
					ch <- i
					time.Sleep(time.Millisecond)
				}
			}()
			p := New("p", Config{Logger: quiet})
			one := chans.PartitionBy(func(int) bool { return true })
			Sink(Transduce(FromChan(p, "source", ch), "steps", one, opts...), "sink",
				func(_ context.Context, g []int) error { sizes = append(sizes, len(g)); return nil })
			runFor(t, p, time.Hour)
		})
		return sizes
	}
	if got := groups(10, BatchSize(4)); !slices.Equal(got, []int{4, 4, 2}) {
		t.Errorf("BatchSize(4): groups of %v", got)
	}
	if got := groups(10, BatchWait(3*time.Millisecond+1)); !slices.Equal(got, []int{4, 4, 2}) {
		t.Errorf("BatchWait: groups of %v", got)
	}
	if got := groups(3, BatchWait(0)); !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("BatchWait(0): groups of %v", got)
	}
}

// What keeps coming and is not kept doesn't put off what is.
func TestTransduceWaitUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		var first time.Duration
		began := time.Now()
		slow := chans.Filter(func(v int) bool { time.Sleep(time.Millisecond); return v == 0 })
		in := FromSeq(p, "source", func(yield func(int) bool) {
			for i := 0; i < 5000 && yield(i); i++ {
			}
		})
		Sink(Transduce(in, "steps", chans.Compose(slow, chans.PartitionAll[int](2)), BatchWait(100*time.Millisecond)), "sink",
			func(context.Context, []int) error { first = time.Since(began); return nil })
		runFor(t, p, time.Hour)
		if first != 101*time.Millisecond {
			t.Errorf("given on after %v", first)
		}
	})
}

func TestTransduceFailures(t *testing.T) {
	// One step for all: what it does hangs on the value.
	act := func(v string) (string, error) {
		switch v {
		case "error":
			return v, errHandler
		case "snooze":
			return v, Snooze(time.Hour)
		case "panic":
			panic(v)
		case "goexit":
			runtime.Goexit()
		}
		return v, nil
	}
	keys := []string{"a", "error", "b", "panic", "c", "goexit", "d", "snooze", "e", "f"}
	reasons := map[string]Reason{"error": ReasonPermanent, "snooze": ReasonPermanent, "panic": ReasonPanic, "goexit": ReasonPanic}
	t.Run("of a value", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src := newShelf(keys...)
			p := New("p", Config{Logger: quiet, DeadLetters: src.bury})
			var got seen[string]
			Sink(Transduce(From(p, "source", src), "steps", chans.TryMap(act)), "sink", got.take)
			runFor(t, p, time.Minute)
			if !slices.Equal(got.values, []string{"a", "b", "c", "d", "e", "f"}) || !reflect.DeepEqual(src.letters, reasons) {
				t.Errorf("%q, letters %v", got.values, src.letters)
			}
			if s := p.Stats().Stages[0]; s.Runs != 10 || s.Done != 6 || s.Failed != 4 || s.Dead != 4 || s.Kind != "transduce" {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("of a group", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src := newShelf(keys...)
			p := New("p", Config{Logger: quiet, DeadLetters: src.bury})
			xf := chans.Compose(chans.PartitionAll[string](2), chans.TryMap(func(g []string) ([]string, error) {
				for _, v := range g {
					if _, err := act(v); err != nil {
						return nil, err
					}
				}
				return g, nil
			}))
			var got seen[[]string]
			Sink(Transduce(From(p, "source", src), "steps", xf), "sink", got.take)
			runFor(t, p, time.Minute)
			all := map[string]Reason{"a": ReasonPermanent, "b": ReasonPanic, "c": ReasonPanic, "d": ReasonPermanent}
			maps.Copy(all, reasons)
			if len(got.values) != 1 || !slices.Equal(got.values[0], []string{"e", "f"}) || !reflect.DeepEqual(src.letters, all) {
				t.Errorf("%q, letters %v", got.values, src.letters)
			}
		})
	})
}

// A step that stops the run ends the pipeline: what it didn't see is neither acked
// nor lost.
func TestTransduceStoppedRunDrains(t *testing.T) {
	for _, n := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			src := newShelf("a", "b", "c", "d", "e", "f")
			p := New("p", Config{Logger: quiet})
			var got seen[string]
			Sink(Transduce(From(p, "source", src), "steps", chans.Take[string](n)), "sink", got.take)
			if err := p.Run(t.Context()); err != nil {
				t.Error(err)
			}
			s := p.Stats()
			if len(got.values) != n || s.Done != int64(n) || s.Filtered != 0 || s.Returned != s.Admitted-s.Done || !s.Conserved() {
				t.Errorf("Take(%d): %q, %+v", n, got.values, s)
			}
		})
	}
}

// distinct remembers no longer what was returned, alone or in a group.
func TestTransduceForgetsWhatWasReturned(t *testing.T) {
	distinct := chans.Distinct(func(v string) string { return v }, 100)
	for name, xf := range map[string]chans.Xform[string, []string]{
		"a value":  chans.Compose(distinct, chans.Map(func(v string) []string { return []string{v} })),
		"a group":  chans.Compose(distinct, chans.PartitionAll[string](2)),
		"a dedupe": chans.Compose(chans.Dedupe[string](), chans.Map(func(v string) []string { return []string{v} })),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newShelf("a", "a", "b")
				p := New("p", Config{Logger: quiet}) // without letters: given up is returned
				failed := map[string]bool{}
				var done []string
				Sink(Transduce(From(p, "source", src), "steps", xf), "sink", func(_ context.Context, g []string) error {
					for _, v := range g {
						if !failed[v] {
							failed[v] = true
							return errHandler
						}
					}
					done = append(done, g...)
					return nil
				})
				runFor(t, p, time.Hour)
				slices.Sort(done)
				if name == "a dedupe" { // another one may have passed in between
					done = slices.Compact(done)
				}
				if !slices.Equal(done, []string{"a", "b"}) {
					t.Errorf("done %q, the source heard %v", done, src.heard)
				}
				for k, heard := range src.heard {
					if last := heard[len(heard)-1]; last != Done && last != Filtered {
						t.Errorf("%s ends with %v", k, heard)
					}
				}
			})
		})
	}
}

func TestTransducePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newShelf("a", "b", "c")
		p := New("p", Config{Logger: quiet})
		var got seen[[]string]
		Sink(Transduce(From(p, "source", src), "steps", chans.PartitionAll[string](2), BatchWait(time.Hour)), "sink", got.take)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Minute) // c is kept
			if err := p.Pause("steps"); err != nil {
				t.Error(err)
			}
			cancel()
		}()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		src.wantHeard(t, map[string][]Outcome{"a": {Done}, "b": {Done}, "c": {Returned}})
	})
}

func TestTransduceIsChecked(t *testing.T) {
	numbers := func(p *Pipeline) Stream[int] { return FromSeq(p, "source", slices.Values([]int{1})) }
	one := chans.Map(func(v int) int { return v })
	for want, build := range map[string]func(p *Pipeline){
		"transducer is nil":                   func(p *Pipeline) { Discard(Transduce[int, int](numbers(p), "steps", nil)) },
		"option Workers has no meaning":       func(p *Pipeline) { Discard(Transduce(numbers(p), "steps", one, Workers(2))) },
		"option Retry has no meaning":         func(p *Pipeline) { Discard(Transduce(numbers(p), "steps", one, Retry(RetryPolicy{}))) },
		"never read":                          func(p *Pipeline) { Transduce(numbers(p), "steps", one) },
		`two stages or sources are called "s`: func(p *Pipeline) { Discard(Transduce(numbers(p), "source", one)) },
		"PerPartition needs PartitionBy": func(p *Pipeline) {
			parts := PartitionBy(numbers(p), func(int) string { return "p" })
			Sink(Transduce(parts, "steps", one), "sink", func(context.Context, int) error { return nil }, PerPartition())
		},
	} {
		p := New("p", Config{Logger: quiet})
		build(p)
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Code of the user that makes the steps of a run, or a step that fails while it
// gives on: nobody knows what it has lost, so the pipeline ends and all goes back.
func TestTransduceBrokenRun(t *testing.T) {
	for name, xf := range map[string]chans.Xform[string, string]{
		"made by panic":  func(*chans.Run, chans.Sink[string]) chans.Sink[string] { panic("made") },
		"made by goexit": func(*chans.Run, chans.Sink[string]) chans.Sink[string] { runtime.Goexit(); panic("no") },
		"close": func(r *chans.Run, next chans.Sink[string]) chans.Sink[string] {
			h := &chans.Hold{}
			return chans.Sink[string]{Put: func(string) error { h.Keep(r); return nil }, Close: func() { panic("close") }}
		},
		"flush": func(r *chans.Run, next chans.Sink[string]) chans.Sink[string] {
			h := &chans.Hold{}
			r.OnFlush(func() { panic("flush") })
			return chans.Sink[string]{Put: func(string) error { h.Keep(r); return nil }, Close: next.Close}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newShelf("a", "b")
				p := New("p", Config{Logger: quiet})
				Discard(Transduce(From(p, "source", src), "steps", xf, BatchWait(time.Minute)))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := p.Run(ctx)
				if err == nil || !strings.Contains(err.Error(), "transducer steps: ") {
					t.Errorf("Run: %v", err)
				}
				if s := p.Stats(); s.Returned != s.Admitted || !s.Conserved() {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A step that ignores the end is named, and what it has goes back.
func TestTransduceAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newShelf("a", "b", "c")
		p := New("p", Config{Logger: quiet, DrainTimeout: -1})
		stuck := chans.Map(func(g []string) []string { time.Sleep(time.Hour); return g })
		Discard(Transduce(From(p, "source", src), "steps", chans.Compose(chans.PartitionAll[string](2), stuck)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Run(ctx)
		var ae *AbandonedError
		if !errors.As(err, &ae) || len(ae.Handlers) != 1 || ae.Handlers[0] != (AbandonedHandler{Stage: "steps", Key: "b", Attempt: 1}) {
			t.Errorf("Run: %v", err)
		}
		src.wantHeard(t, map[string][]Outcome{"a": {Returned}, "b": {Returned}, "c": {Returned}})
		time.Sleep(2 * time.Hour) // what comes of it is not heard
		src.wantHeard(t, map[string][]Outcome{"a": {Returned}, "b": {Returned}, "c": {Returned}})
	})
}
