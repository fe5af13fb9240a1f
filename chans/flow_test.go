package chans_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/chans"
)

func TestPipe(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		to := make(chan int, 3)
		noError(t, chans.Pipe(ctx, to, filled(1, 2, 3)))
		same(t, "values", taken(t, to), []int{1, 2, 3})

		from := make(chan int)
		_, wait := chans.Go(0, func(to chan<- int) error { return chans.Pipe(ctx, to, from) })
		from <- 4
		end()
		err := wait()
		is(t, err, errBroken)
		same(t, "unsent", left[int](t, err), []int{4})
	})
}

func TestPipeClosedDestination(t *testing.T) {
	to := make(chan int)
	close(to)
	from := filled(1, 2)
	err := chans.Pipe(t.Context(), to, from)
	is(t, err, chans.ErrClosed)
	same(t, "unsent", left[int](t, err), []int{1})
	same(t, "left", taken(t, from), []int{2})
}

// Once the context has ended, nothing more is taken, though both ends are ready.
func TestEndedContextTakesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	to, from := make(chan int, 9), filled(1, 2, 3)
	rows := make(chan []int, 9)
	row := func(row []int) ([]int, error) { return row, nil }
	for name, err := range map[string]error{
		"Pipe":        chans.Pipe(ctx, to, from),
		"PipeThrough": chans.PipeThrough(ctx, to, from, chans.Map(identity[int])),
		"Merge":       chans.Merge(ctx, to, from, from),
		"Split":       chans.Split(ctx, to, to, from, even),
		"Zip":         chans.Zip(ctx, rows, row, from),
		"OntoChan":    chans.OntoChan(ctx, to, slices.Values([]int{1})),
		"Pipeline": chans.Pipeline(ctx, 2, to, from, chans.One(func(_ context.Context, v int) (int, error) {
			return v, nil
		})),
		"Into": second(chans.Into(ctx, nil, from)),
		"Alts": second(chans.Alts(ctx, chans.Priority, chans.TakeOp(from, nil))),
	} {
		if !errors.Is(err, context.Canceled) || len(from) != 3 || len(to)+len(rows) > 0 {
			t.Errorf("%s: %v, %d left, %d out", name, err, len(from), len(to)+len(rows))
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestOntoChan(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		from, wait := chans.ToChan(ctx, 2, slices.Values([]int{1, 2, 3}))
		synctest.Wait()
		same(t, "in the buffer", []int{len(from)}, []int{2})
		list, err := chans.Into(ctx, []int{0}, from)
		noError(t, err)
		noError(t, wait())
		noError(t, wait())
		same(t, "values", list, []int{0, 1, 2, 3})

		_, wait = chans.ToChan(ctx, 0, slices.Values([]int{1, 2, 3}))
		synctest.Wait()
		end()
		err = wait()
		is(t, err, errBroken)
		same(t, "unsent", left[int](t, err), []int{1})
	})
}

// A sequence that breaks closes its channel and says why.
func TestToChanPanics(t *testing.T) {
	from, wait := chans.ToChan(t.Context(), 0, func(yield func(int) bool) {
		yield(1)
		panic(errBroken)
	})
	list, err := chans.Into(t.Context(), nil, from)
	noError(t, err)
	same(t, "values", list, []int{1})
	is(t, wait(), errBroken)
}

func TestGo(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func(chan<- int) error
		want error
	}{
		"error":  {func(chan<- int) error { return errBroken }, errBroken},
		"panic":  {func(chan<- int) error { panic(errBroken) }, errBroken},
		"Goexit": {func(chan<- int) error { runtime.Goexit(); return nil }, chans.ErrGoexit},
		"good":   {func(chan<- int) error { return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			from, wait := chans.Go(0, c.fn)
			if _, ok := <-from; ok {
				t.Error("a value")
			}
			is(t, wait(), c.want)
			var p *chans.PanicError
			if errors.As(wait(), &p) && !strings.Contains(string(p.Stack), "TestGo") {
				t.Errorf("the stack doesn't show where: %s", p.Stack)
			}
		})
	}
}

// Outputs are those of the values, in their order, whatever the delays; no more
// than n run; n do where there are enough values.
func TestPipelineAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(rt, "n")
		values := rapid.SliceOfN(rapid.IntRange(0, 30), 0, 40).Draw(rt, "values")
		room := rapid.IntRange(0, 3).Draw(rt, "room")
		synctest.Test(t, func(t *testing.T) {
			var running, most atomic.Int64
			out, wait := chans.Go(room, func(to chan<- int) error {
				return chans.Pipeline(t.Context(), n, to, filled(values...), func(_ context.Context, v int, emit func(int)) error {
					raise(&most, running.Add(1))
					defer running.Add(-1)
					for i := range v % 4 {
						emit(100*v + i)
					}
					time.Sleep(time.Duration(v+1) * time.Millisecond)
					return nil
				})
			})
			got, err := chans.Into(t.Context(), nil, out)
			noError(t, err)
			noError(t, wait())
			var expected []int
			for _, v := range values {
				for i := range v % 4 {
					expected = append(expected, 100*v+i)
				}
			}
			if !slices.Equal(got, expected) || int(most.Load()) != min(n, len(values)) {
				rt.Errorf("got %v, want %v; %d at a time", got, expected, most.Load())
			}
		})
	})
}

// raise makes most at least n.
func raise(most *atomic.Int64, n int64) {
	for old := most.Load(); old < n && !most.CompareAndSwap(old, n); old = most.Load() {
	}
}

// double is a function for Pipeline that fails in some way for 3.
func double(how string) func(context.Context, int, func(int)) error {
	return func(_ context.Context, v int, emit func(int)) error {
		emit(2 * v)
		if v != 3 {
			return nil
		}
		switch how {
		case "error":
			return errBroken
		case "panic":
			panic(errBroken)
		case "Goexit":
			runtime.Goexit()
		}
		return nil
	}
}

func TestPipelineFailures(t *testing.T) {
	for how, target := range map[string]error{"error": errBroken, "panic": errBroken, "Goexit": chans.ErrGoexit} {
		for n := 1; n < 4; n++ {
			t.Run(fmt.Sprint(how, n), func(t *testing.T) {
				values := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
				from := filled(values...)
				to := make(chan int, len(values))
				err := chans.Pipeline(t.Context(), n, to, from, double(how))
				is(t, err, target)
				var e *chans.ItemError
				if !errors.As(err, &e) || e.Value != 3 {
					t.Errorf("got %v", err)
				}
				same(t, "out", taken(t, to), []int{2, 4})
				var back []int
				var u *chans.Unsent[int]
				if errors.As(err, &u) {
					back = u.Values
				}
				same(t, "rest", append(back, taken(t, from)...), []int{4, 5, 6, 7, 8, 9})
			})
		}
	}
}

func TestRescueFunc(t *testing.T) {
	for how, target := range map[string]error{"error": errBroken, "panic": errBroken} {
		to := make(chan int, 9)
		fn := chans.RescueFunc(double(how), func(_ context.Context, v int, err error, emit func(int)) error {
			is(t, err, target)
			emit(-v)
			return nil
		})
		noError(t, chans.Pipeline(t.Context(), 2, to, filled(1, 2, 3, 4), fn))
		same(t, "out", taken(t, to), []int{2, 4, -3, 8})
		other := errors.New("other")
		fn = chans.RescueFunc(double(how), func(_ context.Context, v int, err error, emit func(int)) error {
			emit(-v)
			panic(other)
		})
		is(t, chans.Pipeline(t.Context(), 2, to, filled(1, 2, 3, 4), fn), other)
		same(t, "out", taken(t, to), []int{2, 4})
	}
}

// With nobody reading, n+2 values are taken; at the end they are handed back.
func TestPipelineReadsAhead(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8} {
		bubble(t, func(t *testing.T, ctx context.Context, end func()) {
			values := slices.Collect(func(yield func(int) bool) {
				for i := 0; i < 30 && yield(i); i++ {
				}
			})
			from := filled(values...)
			_, wait := chans.Go(0, func(to chan<- int) error {
				return chans.Pipeline(ctx, n, to, from, chans.One(func(_ context.Context, v int) (int, error) { return v, nil }))
			})
			synctest.Wait()
			same(t, "taken", []int{30 - len(from)}, []int{n + 2})
			end()
			err := wait()
			is(t, err, errBroken)
			same(t, "unsent", left[int](t, err), values[:n+2])
			same(t, "left", taken(t, from), values[n+2:])
		})
	}
}

// fn sees the end of the context; what it returns then is no failure of its
// value.
func TestPipelineStops(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		from := filled(1, 2, 3, 4, 5, 6)
		_, wait := chans.Go(0, func(to chan<- int) error {
			return chans.Pipeline(ctx, 2, to, from, chans.One(func(ctx context.Context, v int) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}))
		})
		synctest.Wait()
		end()
		err := wait()
		is(t, err, errBroken)
		var e *chans.ItemError
		if errors.As(err, &e) {
			t.Errorf("a value is blamed: %v", err)
		}
		same(t, "values", append(left[int](t, err), taken(t, from)...), []int{1, 2, 3, 4, 5, 6})
	})
}

func TestPipelineClosedDestination(t *testing.T) {
	to := make(chan int)
	close(to)
	from := filled(1, 2, 3, 4, 5, 6, 7, 8, 9)
	err := chans.Pipeline(t.Context(), 2, to, from, double(""))
	is(t, err, chans.ErrClosed)
	same(t, "values", append(left[int](t, err), taken(t, from)...), []int{1, 2, 3, 4, 5, 6, 7, 8, 9})
}

func TestPipelineAsync(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var open, most atomic.Int64
		out, wait := chans.Go(0, func(to chan<- int) error {
			return chans.PipelineAsync(ctx, 3, time.Minute, to, filled(1, 2, 3, 4, 0, 2), func(ctx context.Context, v int) (<-chan int, error) {
				raise(&most, open.Add(1))
				results, _ := chans.ToChan(ctx, 0, func(yield func(int) bool) {
					defer open.Add(-1)
					for range v {
						time.Sleep(time.Second)
						if !yield(v) {
							return
						}
					}
				})
				return results, nil
			})
		})
		got, err := chans.Into(ctx, nil, out)
		noError(t, err)
		noError(t, wait())
		same(t, "values", got, []int{1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 2, 2})
		same(t, "at a time", []int64{most.Load()}, []int64{3})
	})
}

// An operation that never ends holds its place until its limit, and is the
// failure of its value.
func TestPipelineAsyncLimits(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var begun atomic.Int64
		never := func(context.Context, int) (<-chan int, error) {
			begun.Add(1)
			return make(chan int), nil
		}
		run := func(limit time.Duration) func() error {
			_, wait := chans.Go(0, func(to chan<- int) error {
				return chans.PipelineAsync(ctx, 2, limit, to, filled(1, 2, 3, 4, 5), never)
			})
			return wait
		}
		wait := run(time.Minute)
		synctest.Wait()
		same(t, "begun", []int64{begun.Load()}, []int64{2})
		err := wait()
		is(t, err, context.DeadlineExceeded)
		var e *chans.ItemError
		if !errors.As(err, &e) || e.Value != 1 {
			t.Errorf("got %v", err)
		}
		wait = run(0)
		synctest.Wait()
		end()
		is(t, wait(), errBroken)

		failing := func(context.Context, int) (<-chan int, error) { return nil, errBroken }
		is(t, chans.PipelineAsync(t.Context(), 2, 0, make(chan int), filled(1), failing), errBroken)
	})
}

func TestMerge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sources := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 99), 0, 10), 0, 5).Draw(rt, "sources")
		synctest.Test(t, func(t *testing.T) {
			var from []<-chan [2]int
			for i, list := range sources {
				from = append(from, filled(mapped(list, func(v int) [2]int { return [2]int{i, v} })...))
			}
			out, wait := chans.Go(0, func(to chan<- [2]int) error { return chans.Merge(t.Context(), to, from...) })
			got := make([][]int, len(sources))
			for v := range out {
				got[v[0]] = append(got[v[0]], v[1])
			}
			noError(t, wait())
			for i, list := range sources {
				if !slices.Equal(got[i], list) {
					rt.Errorf("source %d: got %v, want %v", i, got[i], list)
				}
			}
		})
	})
}

func TestMergeHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		_, wait := chans.Go(0, func(to chan<- int) error {
			return chans.Merge(ctx, to, filled(1, 9), filled(2, 9), make(chan int))
		})
		synctest.Wait()
		end()
		err := wait()
		is(t, err, errBroken)
		same(t, "unsent", left[int](t, err), []int{1, 2})
	})
	// One that finds the destination closed stops the others.
	to := make(chan int)
	close(to)
	err := chans.Merge(t.Context(), to, filled(1), make(chan int))
	is(t, err, chans.ErrClosed)
	same(t, "unsent", left[int](t, err), []int{1})
}

func TestSplit(t *testing.T) {
	yes, no := make(chan int, 5), make(chan int, 5)
	noError(t, chans.Split(t.Context(), yes, no, filled(0, 1, 2, 3, 4), even))
	same(t, "even", taken(t, yes), []int{0, 2, 4})
	same(t, "odd", taken(t, no), []int{1, 3})

	close(no)
	from := filled(0, 1, 2)
	err := chans.Split(t.Context(), yes, no, from, even)
	is(t, err, chans.ErrClosed)
	same(t, "unsent", left[int](t, err), []int{1})
	same(t, "left", taken(t, from), []int{2})

	err = chans.Split(t.Context(), yes, no, filled(7), func(int) bool { panic(errBroken) })
	is(t, err, errBroken)
	var e *chans.ItemError
	if !errors.As(err, &e) || e.Value != 7 {
		t.Errorf("got %v", err)
	}

	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		yes := make(chan int)
		_, wait := chans.Go(0, func(no chan<- int) error { return chans.Split(ctx, yes, no, filled(1, 2), even) })
		synctest.Wait() // nobody takes 1, so that 2 waits too
		select {
		case <-yes:
			t.Error("2 came through")
		default:
		}
		end()
		err := wait()
		is(t, err, errBroken)
		same(t, "unsent", left[int](t, err), []int{1})
	})
}

func total(row []int) (int, error) {
	n := 0
	for _, v := range row {
		n += v
	}
	return n, nil
}

func TestZip(t *testing.T) {
	to := make(chan int, 9)
	four := func() <-chan int { return filled(0, 1, 2, 3) }
	noError(t, chans.Zip(t.Context(), to, total, four(), four(), four(), four()))
	same(t, "rows", taken(t, to), []int{0, 4, 8, 12})
	noError(t, chans.Zip(t.Context(), to, total))
	noError(t, chans.Zip(t.Context(), to, total, filled(1), filled(2, 9)))
	same(t, "rows", taken(t, to), []int{3})

	err := chans.Zip(t.Context(), to, total, filled(1, 2), filled(3))
	is(t, err, chans.ErrUneven)
	same(t, "unsent", left[int](t, err), []int{2})
	same(t, "rows", taken(t, to), []int{4})

	err = chans.Zip(t.Context(), to, func([]int) (int, error) { panic(errBroken) }, filled(1), filled(2))
	is(t, err, errBroken)
	var e *chans.ItemError
	if !errors.As(err, &e) || fmt.Sprint(e.Value) != "[1 2]" {
		t.Errorf("got %v", err)
	}
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		_, wait := chans.Go(0, func(to chan<- int) error {
			return chans.Zip(ctx, to, total, filled(1), make(chan int))
		})
		synctest.Wait()
		end()
		err := wait()
		is(t, err, errBroken)
		same(t, "unsent", left[int](t, err), []int{1})
	})
}

func TestAlts(t *testing.T) {
	ctx := t.Context()
	var v int
	full, empty := make(chan int, 1), make(chan int)
	full <- 7
	both := []chans.Op{chans.TakeOp(empty, &v), chans.TakeOp(full, &v), chans.PutOp(full, 1)}
	for _, how := range []chans.Choice{chans.Fair, chans.Priority, chans.Default, chans.Priority | chans.Default} {
		i, err := chans.Alts(ctx, how, both...)
		noError(t, err)
		same(t, "index and value", []int{i, v, len(full)}, []int{1, 7, 0})
		full <- 7
	}
	for _, how := range []chans.Choice{chans.Default, chans.Priority | chans.Default} {
		i, err := chans.Alts(ctx, how, both[0], chans.PutOp(full, 1), chans.TakeOp[int](nil, nil))
		noError(t, err)
		same(t, "index", []int{i}, []int{-1})
	}
	_, err := chans.Alts(ctx, chans.Fair)
	is(t, err, chans.ErrNoOps)

	closed := make(chan int)
	close(closed)
	for _, how := range []chans.Choice{chans.Fair, chans.Priority, chans.Default} {
		for op, o := range map[string]chans.Op{"take": chans.TakeOp(closed, &v), "put": chans.PutOp(closed, 1)} {
			i, err := chans.Alts(ctx, how, both[0], o)
			if i != 1 || err != chans.ErrClosed {
				t.Errorf("%s of a closed channel: %v, %v", op, i, err)
			}
		}
	}
	anything := make(chan any, 1)
	var got any = 1
	anything <- nil
	if _, err := chans.Alts(ctx, chans.Fair, chans.TakeOp(anything, &got)); err != nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
	var e error
	errs := make(chan error, 1)
	for _, how := range []chans.Choice{chans.Fair, chans.Priority} {
		_, err = chans.Alts(ctx, how, chans.PutOp[error](errs, nil))
		noError(t, err)
		_, err = chans.Alts(ctx, how, chans.TakeOp(errs, &e))
		noError(t, err)
	}
}

func TestAltsChoice(t *testing.T) {
	a, b := make(chan int, 1), make(chan int, 1)
	count := [2]int{}
	for range 1000 {
		select {
		case a <- 1:
		default:
		}
		select {
		case b <- 1:
		default:
		}
		i, err := chans.Alts(t.Context(), chans.Fair, chans.TakeOp(a, nil), chans.TakeOp(b, nil))
		noError(t, err)
		count[i]++
		if len(a)+len(b) != 1 {
			t.Fatal("not exactly one was done")
		}
	}
	if min(count[0], count[1]) < 350 {
		t.Errorf("not fair: %v", count)
	}
}

func TestAltsWaits(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		a, b := make(chan int), make(chan string)
		var v int
		var s string
		index := make(chan int)
		alts := func(how chans.Choice) {
			i, err := chans.Alts(ctx, how, chans.TakeOp(a, &v), chans.TakeOp(b, &s), chans.PutOp(a, 5))
			if err != nil {
				is(t, err, errBroken)
			}
			index <- i
		}
		go alts(chans.Priority)
		synctest.Wait()
		b <- "x"
		same(t, "index", []int{<-index}, []int{1})
		go alts(chans.Fair)
		same(t, "taken", []int{<-a, <-index}, []int{5, 2})
		go alts(chans.Fair)
		synctest.Wait()
		end()
		same(t, "index", []int{<-index}, []int{-1})
	})
}

// A channel that is closed while Alts waits to put into it.
func TestAltsClosedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, never := make(chan int), make(chan int)
		errs := make(chan error)
		go func() {
			i, err := chans.Alts(t.Context(), chans.Fair, chans.TakeOp(never, nil), chans.PutOp(c, 1))
			same(t, "index", []int{i}, []int{1})
			errs <- err
		}()
		synctest.Wait()
		close(c)
		is(t, <-errs, chans.ErrClosed)
	})
}
