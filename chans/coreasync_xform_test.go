package chans_test

import (
	"context"
	"slices"
	"testing"

	"github.com/oncepipe/oncepipe/chans"
)

func (coreAsync) N21_T_Map(t *testing.T, _ context.Context) {
	list, err := through(t, chans.Map(func(v int) int { return v + 1 }), upTo(10)...)
	noError(t, err)
	same(t, "values", list, upTo(11)[1:])
}

func (coreAsync) N21_T_Filter(t *testing.T, _ context.Context) {
	list, err := through(t, chans.Filter(even), upTo(10)...)
	noError(t, err)
	same(t, "values", list, []int{0, 2, 4, 6, 8})
}

func (coreAsync) N21_T_FlatMap(t *testing.T, _ context.Context) {
	list, err := through(t, chans.FlatMap(func(v int) []int { return []int{v, v} }), upTo(10)...)
	noError(t, err)
	same(t, "values", list, []int{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9})
}

func sameGroups(t *testing.T, got [][]int, want ...[]int) {
	t.Helper()
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("groups: got %v, want %v", got, want)
	}
}

func (coreAsync) N22_T_RestOnClose(t *testing.T, _ context.Context) {
	groups, err := through(t, chans.PartitionAll[int](5), upTo(8)...)
	noError(t, err)
	sameGroups(t, groups, []int{0, 1, 2, 3, 4}, []int{5, 6, 7})
}

func (coreAsync) N22_T_NoEmptyGroup(t *testing.T, _ context.Context) {
	groups, err := through(t, chans.PartitionAll[int](5), upTo(10)...)
	noError(t, err)
	sameGroups(t, groups, []int{0, 1, 2, 3, 4}, []int{5, 6, 7, 8, 9})
}

// There, the rest overfills the buffer. Here it waits for room, and isn't lost.
func (coreAsync) N23_C3_RestIntoAFullBuffer(t *testing.T, ctx context.Context) {
	to := make(chan []int, 1)
	pipe := begin(func() error {
		return chans.PipeThrough(ctx, to, filled(upTo(3)...), chans.PartitionAll[int](2))
	})
	pipe.waits(t, "the rest")
	equal(t, "buffered", len(to), 1)
	first := <-to
	noError(t, pipe.returns(t, "pipe"))
	sameGroups(t, [][]int{first, <-to}, []int{0, 1}, []int{2})
}

func (coreAsync) N24_C20_WaitingPutsBeforeTheRest(t *testing.T, ctx context.Context) {
	from := make(chan int)
	var puts []call[error]
	for v := range 5 {
		put := sending(ctx, from, v)
		put.waits(t, "put")
		puts = append(puts, put)
	}
	groups, wait := chans.Go(3, func(to chan<- []int) error {
		return chans.PipeThrough(ctx, to, from, chans.PartitionAll[int](2))
	})
	for _, put := range puts {
		noError(t, put.returns(t, "put"))
	}
	close(from)
	noError(t, wait())
	sameGroups(t, taken(t, groups), []int{0, 1}, []int{2, 3}, []int{4})
}

func (coreAsync) N25_C19_LastGroupOnClose(t *testing.T, _ context.Context) {
	groups, err := through(t, chans.PartitionBy(even), 0, 2, 1, 3, 4)
	noError(t, err)
	sameGroups(t, groups, []int{0, 2}, []int{1, 3}, []int{4})
}

func (coreAsync) N26_C4_Distinct(t *testing.T, _ context.Context) {
	list, err := through(t, chans.Distinct(identity[int], 100), 1, 2, 1, 3, 2)
	noError(t, err)
	same(t, "values", list, []int{1, 2, 3})
}

// There, distinct remembers everything for ever.
func (coreAsync) N26_C4_DistinctIsBounded(t *testing.T, _ context.Context) {
	list, err := through(t, chans.Distinct(identity[int], 2), 1, 2, 1, 3, 1)
	noError(t, err)
	same(t, "values", list, []int{1, 2, 3, 1})
}

func (coreAsync) N27_C5_Dedupe(t *testing.T, _ context.Context) {
	list, err := through(t, chans.Dedupe[int](), 1, 1, 2, 2, 1)
	noError(t, err)
	same(t, "values", list, []int{1, 2, 1})
}

// failsOnce fails for the first value that it is given.
func failsOnce() chans.Xform[int, int] {
	failed := false
	return chans.TryMap(func(v int) (int, error) {
		if !failed {
			failed = true
			return 0, errBroken
		}
		return v, nil
	})
}

// drop is a handler that drops what failed.
func drop[T any](*chans.ItemError, func(T) error) error { return nil }

func (coreAsync) N28_C15_FailedIsNotSeen(t *testing.T, _ context.Context) {
	xf := chans.Compose(chans.Distinct(identity[int], 100), failsOnce())
	list, err := through(t, chans.Rescue(xf, drop[int]), 7, 7, 7)
	noError(t, err)
	same(t, "values", list, []int{7})
}

// groupsFailingOnce are groups of two, of which the first fails.
func groupsFailingOnce() chans.Xform[int, []int] {
	failed := false
	return chans.Compose(chans.PartitionAll[int](2), chans.TryMap(func(g []int) ([]int, error) {
		if !failed {
			failed = true
			return nil, errBroken
		}
		return g, nil
	}))
}

// A group that fails takes the marks of its members back.
func (coreAsync) N28_C15_FailedGroupIsNotSeen(t *testing.T, _ context.Context) {
	xf := chans.Compose(chans.Distinct(identity[int], 100), groupsFailingOnce())
	list, lost := results(chans.Seq(xf, slices.Values([]int{1, 2, 1, 2, 1})))
	sameGroups(t, list, []int{1, 2})
	equal(t, "failures", len(lost), 1)
}

func (coreAsync) N28_C15_DroppedGroupIsNotSeen(t *testing.T, _ context.Context) {
	xf := chans.Compose(chans.Distinct(identity[int], 100), groupsFailingOnce())
	list, err := through(t, chans.Rescue(xf, drop[[]int]), 1, 2, 1, 2, 1)
	noError(t, err)
	sameGroups(t, list, []int{1, 2})
}

func (coreAsync) N29_C16_FailureBeforeDistinct(t *testing.T, _ context.Context) {
	xf := chans.Compose(failsOnce(), chans.Distinct(identity[int], 100))
	list, err := through(t, chans.Rescue(xf, drop[int]), 7, 7, 7)
	noError(t, err)
	same(t, "values", list, []int{7})
}

func (coreAsync) N30_C6_TakeEndsTheStage(t *testing.T, ctx context.Context) {
	from := filled(upTo(5)...)
	out, wait := chans.Go(2, func(to chan<- int) error {
		return chans.PipeThrough(ctx, to, from, chans.Take[int](2))
	})
	noError(t, wait())
	gives(t, out, 0)
	gives(t, out, 1)
	isClosed(t, out)
	same(t, "still in the source", taken(t, from), []int{2, 3, 4})
}

// There, the channel closes. Here the end of the stage ends its producers' context.
func (coreAsync) N30_C6_LaterPutIsTold(t *testing.T, ctx context.Context) {
	producers, end := context.WithCancelCause(ctx)
	from, to := make(chan int), make(chan int, 2)
	stage := begin(func() error {
		defer end(chans.ErrDone)
		return chans.PipeThrough(ctx, to, from, chans.Take[int](2))
	})
	noError(t, chans.Send(producers, from, 0))
	noError(t, chans.Send(producers, from, 1))
	noError(t, stage.returns(t, "stage"))
	is(t, chans.Send(producers, from, 2), chans.ErrDone)
}

// There, all four answer true.
func (coreAsync) N31_C7_WaitingPutsBeyondTake(t *testing.T, ctx context.Context) {
	producers, end := context.WithCancelCause(ctx)
	from, to := make(chan int), make(chan int, 4)
	var puts []call[error]
	for v := range 4 {
		put := sending(producers, from, v)
		put.waits(t, "put")
		puts = append(puts, put)
	}
	noError(t, chans.PipeThrough(ctx, to, from, chans.Take[int](2)))
	end(chans.ErrDone)
	noError(t, puts[0].returns(t, "put 0"))
	noError(t, puts[1].returns(t, "put 1"))
	is(t, puts[2].returns(t, "put 2"), chans.ErrDone)
	is(t, puts[3].returns(t, "put 3"), chans.ErrDone)
	same(t, "values", taken(t, to), []int{0, 1})
}

// There, a put waits for room that its value doesn't need.
func (coreAsync) N32_C9_FilteredNeedsNoRoom(t *testing.T, ctx context.Context) {
	from, to := make(chan int), make(chan int, 1)
	to <- 0
	pipe := begin(func() error { return chans.PipeThrough(ctx, to, from, chans.Filter(even)) })
	for _, v := range []int{1, 3, 5} {
		noError(t, sending(ctx, from, v).returns(t, "put"))
	}
	close(from)
	noError(t, pipe.returns(t, "pipe"))
	same(t, "values", taken(t, to), []int{0})
}

func (coreAsync) N33_T_ExpandingIntoALittleBuffer(t *testing.T, ctx context.Context) {
	from, to := make(chan int), make(chan int, 1)
	pipe := begin(func() error {
		return chans.PipeThrough(ctx, to, from, chans.FlatMap(func(v int) []int { return []int{v, v, v} }))
	})
	offered := func(v int) bool {
		pipe.waits(t, "pipe")
		ok, err := chans.Offer(from, v)
		noError(t, err)
		return ok
	}
	equal(t, "first", offered(1), true)
	equal(t, "one of three in the buffer", offered(2), false)
	gives(t, to, 1)
	equal(t, "two of three", offered(2), false)
	gives(t, to, 1)
	equal(t, "all are out", offered(2), true)
	gives(t, to, 1)
	gives(t, to, 2)
}

func (coreAsync) N34_T_ExpandingServesManyTakers(t *testing.T, ctx context.Context) {
	for size := 1; size <= 9; size++ {
		for n := 1; n <= 9; n++ {
			from, to := make(chan int), make(chan int, size)
			pipe := begin(func() error {
				return chans.PipeThrough(ctx, to, from, chans.FlatMap(upTo))
			})
			var takes []call[got[int]]
			for range n {
				take := receiving(ctx, to)
				take.waits(t, "take")
				takes = append(takes, take)
			}
			noError(t, chans.Send(ctx, from, n))
			for i, take := range takes {
				if v := take.returns(t, "take"); v != (got[int]{i, nil}) {
					t.Errorf("buffer %d, taker %d of %d got %v", size, i, n, v)
				}
			}
			close(from)
			noError(t, pipe.returns(t, "pipe"))
		}
	}
}

// There, the value is missing, the put answers true, and nobody is told.
func (coreAsync) N35_C13_ErrorIsReturned(t *testing.T, ctx context.Context) {
	from, to := filled(upTo(5)...), make(chan int, 5)
	err := chans.PipeThrough(ctx, to, from, failing(2))
	is(t, err, errBroken)
	blames(t, err, 2)
	same(t, "before it", taken(t, to), []int{0, 1})
	same(t, "behind it, in the source", taken(t, from), []int{3, 4})
}

func (coreAsync) N35_C13_PanicIsReturned(t *testing.T, ctx context.Context) {
	from, to := filled(upTo(5)...), make(chan int, 5)
	err := chans.PipeThrough(ctx, to, from, panicking(2))
	panicked(t, err)
	blames(t, err, 2)
	same(t, "before it", taken(t, to), []int{0, 1})
	same(t, "behind it, in the source", taken(t, from), []int{3, 4})
}

func (coreAsync) N36_C14_HandlerReplaces(t *testing.T, _ context.Context) {
	list, err := through(t, chans.Rescue(failing(2), func(e *chans.ItemError, emit func(int) error) error {
		return emit(e.Value.(int) * 100)
	}), upTo(5)...)
	noError(t, err)
	same(t, "values", list, []int{0, 1, 200, 3, 4})
}

func (coreAsync) N36_C14_HandlerSkips(t *testing.T, _ context.Context) {
	list, err := through(t, chans.Rescue(failing(2), drop[int]), upTo(5)...)
	noError(t, err)
	same(t, "values", list, []int{0, 1, 3, 4})
}

// What a handler emits doesn't go through the steps that it guards.
func (coreAsync) N36_C14_ReplacementSkipsTheSteps(t *testing.T, _ context.Context) {
	xf := chans.Compose(failing(2), chans.Map(func(v int) int { return -v }))
	list, err := through(t, chans.Rescue(xf, func(_ *chans.ItemError, emit func(int) error) error {
		return emit(100)
	}), 1, 2, 3)
	noError(t, err)
	same(t, "values", list, []int{-1, 100, -3})
}

// There, the channel's lock stays taken, and whoever touches it hangs.
func (coreAsync) N37_C22_HandlerPanics(t *testing.T, ctx context.Context) {
	from, to := filled(upTo(5)...), make(chan int, 5)
	xf := chans.Rescue(failing(2), func(*chans.ItemError, func(int) error) error { panic(errBroken) })
	err := chans.PipeThrough(ctx, to, from, xf)
	panicked(t, err)
	blames(t, err, 2)
	noError(t, chans.Send(ctx, to, 7))
	same(t, "the channel works on", taken(t, to), []int{0, 1, 7})
}

// flushing counts in n how often it is closed.
func flushing(n *int) chans.Xform[int, int] {
	return func(_ *chans.Run, next chans.Sink[int]) chans.Sink[int] {
		return chans.Sink[int]{Put: next.Put, Close: func() {
			*n++
			next.Close()
		}}
	}
}

// There, every take on a drained channel completes the transducer again.
func (coreAsync) N38_C17_CompletionRunsOnce(t *testing.T, ctx context.Context) {
	flushed := 0
	out, wait := chans.Go(0, func(to chan<- int) error {
		return chans.PipeThrough(ctx, to, filled(1), flushing(&flushed))
	})
	gives(t, out, 1)
	noError(t, wait())
	for range 5 {
		isClosed(t, out)
	}
	equal(t, "flushed", flushed, 1)
}

func (coreAsync) N38_C17_DriverClosesOnce(t *testing.T, _ context.Context) {
	flushed := 0
	out := func(int, []chans.Origin) error { return nil }
	d := chans.Drive(flushing(&flushed), out, func(e *chans.ItemError) error { return e })
	noError(t, d.Put(1, nil))
	noError(t, d.Close())
	noError(t, d.Close())
	equal(t, "flushed", flushed, 1)
}

// There, a transducer on a channel without a buffer is refused.
func (coreAsync) N39_C1_NoBufferIsNeeded(t *testing.T, ctx context.Context) {
	from, to := make(chan int), make(chan int)
	pipe := begin(func() error { return chans.PipeThrough(ctx, to, from, chans.Filter(even)) })
	noError(t, chans.Send(ctx, from, 1))
	noError(t, chans.Send(ctx, from, 2))
	pipe.waits(t, "pipe")
	gives(t, to, 2)
	close(from)
	noError(t, pipe.returns(t, "pipe"))
}
