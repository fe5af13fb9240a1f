package chans_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/chans"
)

// work is a function of Pipeline.
type work = func(ctx context.Context, v int, emit func(int)) error

func pass(_ context.Context, v int, emit func(int)) error {
	emit(v)
	return nil
}

// unless emits v, and fails for bad.
func unless(bad int) work {
	return func(_ context.Context, v int, emit func(int)) error {
		if v == bad {
			return errBroken
		}
		emit(v)
		return nil
	}
}

// pipelined is what a pipeline makes of values.
func pipelined(ctx context.Context, n int, fn work, values ...int) ([]int, error) {
	out, wait := chans.Go(0, func(to chan<- int) error {
		return chans.Pipeline(ctx, n, to, filled(values...), fn)
	})
	list, err := chans.Into(ctx, nil, out)
	if err != nil {
		return list, err
	}
	return list, wait()
}

// pipelinedAsync is pipelined for operations that send their results.
func pipelinedAsync(ctx context.Context, n int, operation func(v int, results chan<- int), values ...int) ([]int, error) {
	start := func(_ context.Context, v int) (<-chan int, error) {
		results := make(chan int)
		go func() {
			defer close(results)
			operation(v, results)
		}()
		return results, nil
	}
	out, wait := chans.Go(0, func(to chan<- int) error {
		return chans.PipelineAsync(ctx, n, 0, to, filled(values...), start)
	})
	list, err := chans.Into(ctx, nil, out)
	if err != nil {
		return list, err
	}
	return list, wait()
}

var sizes = []struct{ n, items int }{{1, 0}, {1, 10}, {10, 10}, {20, 10}, {5, 1000}}

func (coreAsync) N40_T_OrderOfPipeline(t *testing.T, ctx context.Context) {
	for _, s := range sizes {
		list, err := pipelined(ctx, s.n, pass, upTo(s.items)...)
		noError(t, err)
		same(t, "values", list, upTo(s.items))
	}
}

func (coreAsync) N40_T_OrderOfPipelineBlocking(t *testing.T, ctx context.Context) {
	for _, s := range sizes {
		list, err := pipelined(ctx, s.n, func(_ context.Context, v int, emit func(int)) error {
			time.Sleep(time.Duration(v*7919%13) * time.Millisecond)
			emit(v)
			return nil
		}, upTo(s.items)...)
		noError(t, err)
		same(t, "values", list, upTo(s.items))
	}
}

func (coreAsync) N40_T_OrderOfPipelineAsync(t *testing.T, ctx context.Context) {
	for _, s := range sizes {
		list, err := pipelinedAsync(ctx, s.n, func(v int, results chan<- int) { results <- v }, upTo(s.items)...)
		noError(t, err)
		same(t, "values", list, upTo(s.items))
	}
}

func (coreAsync) N41_T_DelaysKeepTheOrder(t *testing.T, ctx context.Context) {
	start := time.Now()
	delays := []int{2000, 50, 1000, 100}
	list, err := pipelined(ctx, 2, func(_ context.Context, ms int, emit func(int)) error {
		time.Sleep(time.Duration(ms) * time.Millisecond)
		emit(ms)
		return nil
	}, delays...)
	noError(t, err)
	same(t, "values", list, delays)
	equal(t, "two at a time", time.Since(start), 2*time.Second)
}

func (coreAsync) N42_H4_ExactlySoMany(t *testing.T, ctx context.Context) {
	var inside, most atomic.Int64
	_, err := pipelined(ctx, 4, func(_ context.Context, v int, emit func(int)) error {
		raise(&most, inside.Add(1))
		defer inside.Add(-1)
		time.Sleep(time.Second)
		emit(v)
		return nil
	}, upTo(20)...)
	noError(t, err)
	equal(t, "at a time", most.Load(), 4)
}

func (coreAsync) N43_H5_ReadsAhead(t *testing.T, ctx context.Context) {
	for _, n := range []int{1, 2, 4, 8} {
		from := filled(upTo(100)...)
		pipe := begin(func() error { return chans.Pipeline(ctx, n, make(chan int), from, pass) })
		pipe.waits(t, "pipeline")
		equal(t, "pulled", 100-len(from), n+2)
	}
}

func (coreAsync) N44_T_ManyResultsStayTogether(t *testing.T, ctx context.Context) {
	list, err := pipelined(ctx, 2, func(_ context.Context, v int, emit func(int)) error {
		for i := range v {
			emit(10*v + i)
		}
		return nil
	}, 1, 2, 3, 4)
	noError(t, err)
	same(t, "values", list, []int{10, 20, 21, 30, 31, 32, 40, 41, 42, 43})
}

func (coreAsync) N44_T_ManyAsyncResultsStayTogether(t *testing.T, ctx context.Context) {
	list, err := pipelinedAsync(ctx, 2, func(v int, results chan<- int) {
		for i := range v {
			time.Sleep(time.Duration(5-v) * time.Second)
			results <- 10*v + i
		}
	}, 1, 2, 3, 4)
	noError(t, err)
	same(t, "values", list, []int{10, 20, 21, 30, 31, 32, 40, 41, 42, 43})
}

func (coreAsync) N45_H6_NoResult(t *testing.T, ctx context.Context) {
	list, err := pipelined(ctx, 3, func(_ context.Context, v int, emit func(int)) error {
		if even(v) {
			emit(v)
		}
		return nil
	}, upTo(10)...)
	noError(t, err)
	same(t, "values", list, []int{0, 2, 4, 6, 8})
}

func (coreAsync) N46_T_CloseAtTheEnd(t *testing.T, ctx context.Context) {
	to := make(chan int, 2)
	pipe := begin(func() error {
		defer close(to)
		return chans.Pipeline(ctx, 2, to, filled(1, 2), pass)
	})
	noError(t, pipe.returns(t, "pipeline"))
	gives(t, to, 1)
	gives(t, to, 2)
	isClosed(t, to)
}

func (coreAsync) N46_T_LeaveOpen(t *testing.T, ctx context.Context) {
	to := make(chan int, 2)
	noError(t, chans.Pipeline(ctx, 2, to, filled(1, 2), pass))
	same(t, "values", taken(t, to), []int{1, 2})
	empty(t, to)
	noError(t, chans.Send(ctx, to, 3))
	gives(t, to, 3)
}

func (coreAsync) N47_T_HandlerReplaces(t *testing.T, ctx context.Context) {
	fn := chans.RescueFunc(unless(3), func(_ context.Context, v int, err error, emit func(int)) error {
		equal(t, "value", v, 3)
		equal(t, "the error itself", err, errBroken)
		emit(-1)
		return nil
	})
	list, err := pipelined(ctx, 2, fn, 1, 2, 3, 4)
	noError(t, err)
	same(t, "values", list, []int{1, 2, -1, 4})
}

// There, the value is missing from the output, and nothing says so.
func (coreAsync) N48_H9_WithoutHandler(t *testing.T, ctx context.Context) {
	from, to := filled(1, 2, 3, 4), make(chan int, 4)
	err := chans.Pipeline(ctx, 1, to, from, unless(3))
	is(t, err, errBroken)
	blames(t, err, 3)
	same(t, "before it", taken(t, to), []int{1, 2})
	var behind []int
	if len(from) == 0 {
		behind = left[int](t, err)
	}
	same(t, "behind it", append(behind, taken(t, from)...), []int{4})
}

// There, a transducer in a pipeline is a new one for each value. Here it doesn't
// compile as a pipeline's function, and stands in front.
func inFront[B any](t *testing.T, ctx context.Context, xf chans.Xform[int, B], values ...int) []B {
	t.Helper()
	first, prepared := chans.Go(0, func(to chan<- B) error { return chans.PipeThrough(ctx, to, filled(values...), xf) })
	out, done := chans.Go(0, func(to chan<- B) error {
		return chans.Pipeline(ctx, 4, to, first, chans.One(func(_ context.Context, v B) (B, error) { return v, nil }))
	})
	list, err := chans.Into(ctx, nil, out)
	noError(t, err)
	noError(t, prepared())
	noError(t, done())
	return list
}

func (coreAsync) N49_H7_DistinctInFront(t *testing.T, ctx context.Context) {
	same(t, "values", inFront(t, ctx, chans.Distinct(identity[int], 100), 1, 1, 2, 1, 2), []int{1, 2})
}

func (coreAsync) N49_H8_GroupsInFront(t *testing.T, ctx context.Context) {
	sameGroups(t, inFront(t, ctx, chans.PartitionAll[int](2), 1, 2, 3), []int{1, 2}, []int{3})
}

func (coreAsync) N49_H18_TakeInFront(t *testing.T, ctx context.Context) {
	same(t, "values", inFront(t, ctx, chans.Take[int](1), 1, 2, 3), []int{1})
}

func (coreAsync) N50_H16_SlowHeadHoldsBack(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error {
		return chans.Pipeline(ctx, 3, to, filled(10, 1, 2), func(_ context.Context, s int, emit func(int)) error {
			time.Sleep(time.Duration(s) * time.Second)
			emit(s)
			return nil
		})
	})
	time.Sleep(9 * time.Second)
	empty(t, out)
	time.Sleep(time.Second)
	gives(t, out, 10)
	gives(t, out, 1)
	gives(t, out, 2)
	noError(t, wait())
}

// Without an order to keep, a stage with workers is it.
func (coreAsync) N50_H16_UnorderedDoesNotHoldBack(t *testing.T, ctx context.Context) {
	p := oncepipe.New("unordered", oncepipe.Config{})
	in := oncepipe.FromSeq(p, "in", slices.Values([]int{10, 1, 2}))
	out := oncepipe.Stage(in, "work", func(_ context.Context, s int) (int, error) {
		time.Sleep(time.Duration(s) * time.Second)
		return s, nil
	}, oncepipe.Workers(3))
	var list []int
	oncepipe.Sink(out, "collect", func(_ context.Context, v int) error {
		list = append(list, v)
		return nil
	})
	noError(t, p.Run(ctx))
	same(t, "values", list, []int{1, 2, 10})
}

// There, 5 000 of 5 000 inputs are swallowed after the output was closed.
func (coreAsync) N51_H12_ClosedOutputStops(t *testing.T, ctx context.Context) {
	from, to := filled(upTo(5000)...), make(chan int)
	close(to)
	err := chans.Pipeline(ctx, 4, to, from, pass)
	is(t, err, chans.ErrClosed)
	back := left[int](t, err)
	if len(back) > 4+2 {
		t.Errorf("%d were pulled", len(back))
	}
	same(t, "handed back, and in the source", append(back, taken(t, from)...), upTo(5000))
}

func (coreAsync) N51_H12_EndedContextStops(t *testing.T, ctx context.Context) {
	from, to := filled(upTo(5000)...), make(chan int, 10)
	readers, gone := context.WithCancelCause(ctx)
	pipe := begin(func() error { return chans.Pipeline(readers, 4, to, from, pass) })
	pipe.waits(t, "pipeline")
	gone(errBroken)
	err := pipe.returns(t, "pipeline")
	is(t, err, errBroken)
	all := append(taken(t, to), left[int](t, err)...)
	equal(t, "pulled", len(all), 10+4+2)
	same(t, "delivered, handed back, and in the source", append(all, taken(t, from)...), upTo(5000))
}

func neverCloses(context.Context, int) (<-chan int, error) { return make(chan int), nil }

func (coreAsync) N52_H13_ResultsNeverClosed(t *testing.T, ctx context.Context) {
	start := time.Now()
	err := chans.PipelineAsync(ctx, 2, time.Minute, make(chan int), filled(1, 2, 3), neverCloses)
	is(t, err, context.DeadlineExceeded)
	blames(t, err, 1)
	equal(t, "after", time.Since(start), time.Minute)
}

func (coreAsync) N52_H14_OperationPanics(t *testing.T, ctx context.Context) {
	err := chans.PipelineAsync(ctx, 2, 0, make(chan int), filled(1, 2, 3), func(context.Context, int) (<-chan int, error) {
		panic(errBroken)
	})
	is(t, err, errBroken)
	panicked(t, err)
	blames(t, err, 1)
}

func (coreAsync) N52_H15_HandlerPanics(t *testing.T, ctx context.Context) {
	fn := chans.RescueFunc(unless(1), func(context.Context, int, error, func(int)) error { panic("handler") })
	_, err := pipelined(ctx, 2, fn, 1, 2, 3)
	panicked(t, err)
	blames(t, err, 1)
}

func (coreAsync) N53_H5c_LimitMeansLimit(t *testing.T, ctx context.Context) {
	var begun atomic.Int64
	pipe := begin(func() error {
		return chans.PipelineAsync(ctx, 2, 0, make(chan int), filled(upTo(10)...), func(ctx context.Context, v int) (<-chan int, error) {
			begun.Add(1)
			return neverCloses(ctx, v)
		})
	})
	pipe.waits(t, "pipeline")
	equal(t, "begun", begun.Load(), 2)
}

// heavy takes a processor's time.
func heavy(v int) int {
	for range 10_000 {
		v = v*1103515245 + 12345
	}
	return v
}

func (coreAsync) N54_T_HeavyWork(t *testing.T, ctx context.Context) {
	list, err := pipelined(ctx, 8, func(_ context.Context, v int, emit func(int)) error {
		emit(heavy(v))
		return nil
	}, upTo(50)...)
	noError(t, err)
	var direct []int
	for v := range 50 {
		direct = append(direct, heavy(v))
	}
	same(t, "values", list, direct)
}

func (coreAsync) N55_H17_WaitUntilDone(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error { return chans.Pipeline(ctx, 2, to, filled(1, 2), pass) })
	done := begin(wait)
	done.waits(t, "nobody reads")
	gives(t, out, 1)
	done.waits(t, "one is left")
	gives(t, out, 2)
	noError(t, done.returns(t, "all are out"))
	synctest.Wait()
	isClosed(t, out)
}
