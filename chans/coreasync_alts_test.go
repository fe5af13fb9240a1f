package chans_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/chans"
)

func (coreAsync) N80_T_ValueAndPort(t *testing.T, ctx context.Context) {
	idle, ready := make(chan int, 1), make(chan int, 1)
	ready <- 7
	var v, w int
	i, err := chans.Alts(ctx, chans.Fair, chans.TakeOp(idle, &v), chans.TakeOp(ready, &w))
	noError(t, err)
	same(t, "port and values", []int{i, v, w}, []int{1, 0, 7})
}

func (coreAsync) N80_T_DefaultWhenNothingIsReady(t *testing.T, ctx context.Context) {
	c, full := make(chan int, 1), make(chan int)
	v := 5
	i, err := chans.Alts(ctx, chans.Default, chans.TakeOp(c, &v), chans.PutOp(full, 1))
	noError(t, err)
	same(t, "port and value", []int{i, v}, []int{-1, 5})
	c <- 7
	i, err = chans.Alts(ctx, chans.Default, chans.TakeOp(c, &v), chans.PutOp(full, 1))
	noError(t, err)
	same(t, "port and value", []int{i, v}, []int{0, 7})
}

// There, the default can be nil. Here it needs no value: -1 says it, and a nil
// that was taken says its port.
func (coreAsync) N80_V_DefaultIsNoValue(t *testing.T, ctx context.Context) {
	c := make(chan any, 1)
	var v any = "before"
	i, err := chans.Alts(ctx, chans.Default, chans.TakeOp(c, &v))
	noError(t, err)
	equal(t, "port", i, -1)
	equal[any](t, "value", v, "before")
	c <- nil
	i, err = chans.Alts(ctx, chans.Default, chans.TakeOp(c, &v))
	noError(t, err)
	equal(t, "port", i, 0)
	equal[any](t, "value", v, nil)
}

func (coreAsync) N80_V_PriorityIsTheOrder(t *testing.T, ctx context.Context) {
	first, second := make(chan int, 200), make(chan int, 200)
	for v := range 200 {
		first <- v
		second <- v
	}
	for range 200 {
		i, err := chans.Alts(ctx, chans.Priority, chans.TakeOp(first, nil), chans.TakeOp(second, nil))
		noError(t, err)
		equal(t, "port", i, 0)
	}
	equal(t, "left in the second", len(second), 200)
}

func (coreAsync) N80_V_FairPicksBoth(t *testing.T, ctx context.Context) {
	first, second := make(chan int, 1000), make(chan int, 1000)
	for v := range 1000 {
		first <- v
		second <- v
	}
	picked := [2]int{}
	for range 1000 {
		i, err := chans.Alts(ctx, chans.Fair, chans.TakeOp(first, nil), chans.TakeOp(second, nil))
		noError(t, err)
		picked[i]++
	}
	if picked[0] < 350 || picked[1] < 350 {
		t.Errorf("picked %v times", picked)
	}
}

func (coreAsync) N80_T_OneOperationCommits(t *testing.T, ctx context.Context) {
	from, to := make(chan int, 1), make(chan int, 1)
	from <- 7
	i, err := chans.Alts(ctx, chans.Fair, chans.TakeOp(from, nil), chans.PutOp(to, 8))
	noError(t, err)
	equal(t, "values in either", len(from)+len(to), []int{0, 2}[i])
}

func (coreAsync) N80_T_OneWaitingOperationCommits(t *testing.T, ctx context.Context) {
	first, second := make(chan int), make(chan int)
	alts := begin(func() int {
		i, err := chans.Alts(ctx, chans.Fair, chans.TakeOp(first, nil), chans.PutOp(second, 8))
		noError(t, err)
		return i
	})
	alts.waits(t, "alts")
	gives(t, second, 8)
	equal(t, "port", alts.returns(t, "alts"), 1)
	sending(ctx, first, 7).waits(t, "put to the other")
}

func (coreAsync) N80_T_ClosedTakeIsReady(t *testing.T, ctx context.Context) {
	idle, closed := make(chan int), make(chan int)
	close(closed)
	i, err := chans.Alts(ctx, chans.Fair, chans.TakeOp(idle, nil), chans.TakeOp(closed, nil))
	is(t, err, chans.ErrClosed)
	equal(t, "port", i, 1)
}

func (coreAsync) N80_T_ClosedPutIsReady(t *testing.T, ctx context.Context) {
	idle, closed := make(chan int), make(chan int)
	close(closed)
	before := runtime.NumGoroutine()
	for range 10_000 {
		i, err := chans.Alts(ctx, chans.Fair, chans.TakeOp(idle, nil), chans.PutOp(closed, 1))
		if i != 1 || !errors.Is(err, chans.ErrClosed) {
			t.Fatalf("got %d, %v", i, err)
		}
	}
	yes(t, "no goroutine stays", runtime.NumGoroutine() < before+100) // those of other tests come and go
	ok, err := chans.Offer(idle, 1)
	noError(t, err)
	equal(t, "somebody waits", ok, false)
}

func (coreAsync) N80_T_DefaultLeavesNothingWaiting(t *testing.T, ctx context.Context) {
	c := make(chan int)
	for range 2000 {
		i, err := chans.Alts(ctx, chans.Default, chans.TakeOp(c, nil))
		noError(t, err)
		equal(t, "port", i, -1)
	}
	ok, err := chans.Offer(c, 1)
	noError(t, err)
	equal(t, "somebody waits", ok, false)
}

// There, it is an assertion.
func (coreAsync) N80_T_NoPorts(t *testing.T, ctx context.Context) {
	_, err := chans.Alts(ctx, chans.Fair)
	is(t, err, chans.ErrNoOps)
}

// There, nil can't be put.
func (coreAsync) N80_T_NilPut(t *testing.T, ctx context.Context) {
	c := make(chan any, 1)
	i, err := chans.Alts(ctx, chans.Fair, chans.PutOp[any](c, nil))
	noError(t, err)
	equal(t, "port", i, 0)
	gives[any](t, c, nil)
}

// There, the process-wide handler has the exception, and the channel just closes.
func (coreAsync) NE_T_GoBlock(t *testing.T, _ context.Context) {
	out, wait := chans.Go(1, func(to chan<- int) error {
		to <- 1
		panic(errBroken)
	})
	err := wait()
	panicked(t, err)
	is(t, err, errBroken)
	gives(t, out, 1)
	isClosed(t, out)
}

// There are no callbacks. Functions of the user that are called with a value are
// what comes nearest.
func (coreAsync) NE_T_ObserverOfAPut(t *testing.T, _ context.Context) {
	l := chans.Dropping(1, func(int) { panic(errBroken) })
	noError(t, l.Put(1))
	_, wait := chans.Go(0, func(chan<- int) error { return l.Put(2) })
	err := wait()
	panicked(t, err)
	is(t, err, errBroken)
	equal(t, "shed", l.Shed(), 1)
	l.Close()
	gives(t, l.C(), 1)
	isClosed(t, l.C())
}

func (coreAsync) NE_T_FunctionOfATake(t *testing.T, ctx context.Context) {
	from := filled(1, 2, 3)
	sum, err := chans.Reduce(ctx, from, 0, func(sum, v int) (int, error) {
		if v == 2 {
			panic(errBroken)
		}
		return sum + v, nil
	})
	panicked(t, err)
	is(t, err, errBroken)
	blames(t, err, 2)
	equal(t, "sum so far", sum, 1)
	same(t, "still in the source", taken(t, from), []int{3})
}

func (coreAsync) NE_T_EndedGoroutine(t *testing.T, _ context.Context) {
	out, wait := chans.Go(0, func(chan<- int) error {
		runtime.Goexit()
		return nil
	})
	is(t, wait(), chans.ErrGoexit)
	synctest.Wait()
	isClosed(t, out)
}
