package chans_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/chans"
)

func (coreAsync) N56_T_PipeCopiesAndCloses(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error { return chans.Pipe(ctx, to, filled(upTo(10)...)) })
	list, err := chans.Into(ctx, nil, out)
	noError(t, err)
	noError(t, wait())
	same(t, "values", list, upTo(10))
	isClosed(t, out)
}

func (coreAsync) N56_H1_PipeLeavesOpen(t *testing.T, ctx context.Context) {
	to := make(chan int, 2)
	noError(t, chans.Pipe(ctx, to, filled(1, 2)))
	same(t, "values", taken(t, to), []int{1, 2})
	empty(t, to)
}

// There, the value that pipe had taken is gone.
func (coreAsync) N57_H2_PipeIntoAClosedTarget(t *testing.T, ctx context.Context) {
	from, to := filled(1, 2, 3), make(chan int)
	close(to)
	err := chans.Pipe(ctx, to, from)
	is(t, err, chans.ErrClosed)
	same(t, "handed back", left[int](t, err), []int{1})
	same(t, "still in the source", taken(t, from), []int{2, 3})
}

func (coreAsync) N57_H2_PipeWithoutReader(t *testing.T, ctx context.Context) {
	from := filled(1, 2, 3)
	readers, gone := context.WithCancelCause(ctx)
	pipe := begin(func() error { return chans.Pipe(readers, make(chan int), from) })
	pipe.waits(t, "pipe")
	gone(errBroken)
	err := pipe.returns(t, "pipe")
	is(t, err, errBroken)
	same(t, "handed back", left[int](t, err), []int{1})
	same(t, "still in the source", taken(t, from), []int{2, 3})
}

func (coreAsync) N71_T_Merge(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error {
		return chans.Merge(ctx, to, filled(upTo(4)...), filled(upTo(4)...), filled(upTo(4)...), filled(upTo(4)...))
	})
	list, err := chans.Into(ctx, nil, out)
	noError(t, err)
	noError(t, wait())
	slices.Sort(list)
	same(t, "values", list, []int{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3})
	isClosed(t, out)
}

func (coreAsync) N71_L3_MergeKeepsEachOrder(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error {
		return chans.Merge(ctx, to, filled(1, 2, 3, 4, 5), filled(-1, -2, -3, -4, -5))
	})
	list, err := chans.Into(ctx, nil, out)
	noError(t, err)
	noError(t, wait())
	same(t, "first", filtered(list, func(v int) bool { return v > 0 }), []int{1, 2, 3, 4, 5})
	same(t, "second", filtered(list, func(v int) bool { return v < 0 }), []int{-1, -2, -3, -4, -5})
}

func (coreAsync) N71_L2_MergeOfNothing(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error { return chans.Merge(ctx, to) })
	noError(t, wait())
	isClosed(t, out)
}

func (coreAsync) N72_T_Split(t *testing.T, ctx context.Context) {
	evens, odds := make(chan int, 10), make(chan int, 10)
	noError(t, chans.Split(ctx, evens, odds, filled(upTo(10)...), even))
	same(t, "evens", taken(t, evens), []int{0, 2, 4, 6, 8})
	same(t, "odds", taken(t, odds), []int{1, 3, 5, 7, 9})
}

func (coreAsync) N72_L6_SplitStarves(t *testing.T, ctx context.Context) {
	from, evens, odds := filled(0, 1, 3, 2), make(chan int), make(chan int)
	split := begin(func() error { return chans.Split(ctx, evens, odds, from, even) })
	gives(t, evens, 0)
	empty(t, evens) // 1 waits for a reader of odds
	split.waits(t, "split")
	gives(t, odds, 1)
	gives(t, odds, 3)
	gives(t, evens, 2)
	noError(t, split.returns(t, "split"))
}

// The side that may lag is given room that sheds, and holds nobody up.
func (coreAsync) N72_L6_SplitIntoALossySide(t *testing.T, ctx context.Context) {
	evens, odds := make(chan int, 10), make(chan int)
	sheds := chans.Sliding[int](2, nil)
	shed := begin(func() error {
		_, err := chans.Reduce(ctx, odds, 0, func(n, v int) (int, error) { return n + 1, sheds.Put(v) })
		return err
	})
	noError(t, chans.Split(ctx, evens, odds, filled(upTo(10)...), even))
	close(odds)
	noError(t, shed.returns(t, "odds"))
	same(t, "evens", taken(t, evens), []int{0, 2, 4, 6, 8})
	same(t, "odds", taken(t, sheds.C()), []int{7, 9})
	equal(t, "shed", sheds.Shed(), 3)
}

// There, both sides stop and the other one is never closed.
func (coreAsync) N73_L5_SplitWithAClosedSide(t *testing.T, ctx context.Context) {
	from, evens, odds := filled(0, 1, 2), make(chan int), make(chan int)
	close(odds)
	split := begin(func() error {
		defer close(evens)
		return chans.Split(ctx, evens, odds, from, even)
	})
	gives(t, evens, 0)
	err := split.returns(t, "split")
	is(t, err, chans.ErrClosed)
	same(t, "handed back", left[int](t, err), []int{1})
	same(t, "still in the source", taken(t, from), []int{2})
	isClosed(t, evens)
}

func (coreAsync) N74_T_Zip(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error {
		return chans.Zip(ctx, to, total, filled(upTo(4)...), filled(upTo(4)...), filled(upTo(4)...), filled(upTo(4)...))
	})
	list, err := chans.Into(ctx, nil, out)
	noError(t, err)
	noError(t, wait())
	same(t, "values", list, []int{0, 4, 8, 12})
	isClosed(t, out)
}

func (coreAsync) N74_T_ZipOfNothing(t *testing.T, ctx context.Context) {
	out, wait := chans.Go(0, func(to chan<- int) error { return chans.Zip(ctx, to, total) })
	noError(t, wait())
	isClosed(t, out)
}

func plus(sum, v int) (int, error) { return sum + v, nil }

func (coreAsync) N75_T_ReduceNothing(t *testing.T, ctx context.Context) {
	sum, err := chans.Reduce(ctx, filled[int](), 7, plus)
	noError(t, err)
	equal(t, "sum", sum, 7)
}

func (coreAsync) N75_T_ReduceSum(t *testing.T, ctx context.Context) {
	sum, err := chans.Reduce(ctx, filled(upTo(10)...), 0, plus)
	noError(t, err)
	equal(t, "sum", sum, 45)
}

// upToSix ends at 6.
func upToSix(sum, v int) (int, error) {
	if v == 6 {
		return sum + v, chans.ErrDone
	}
	return sum + v, nil
}

func (coreAsync) N75_T_ReduceStopsEarly(t *testing.T, ctx context.Context) {
	sum, err := chans.Reduce(ctx, filled(upTo(10)...), 0, upToSix)
	noError(t, err)
	equal(t, "sum", sum, 21)
}

func (coreAsync) N75_L12_ReduceLeavesTheRest(t *testing.T, ctx context.Context) {
	from := filled(upTo(10)...)
	_, err := chans.Reduce(ctx, from, 0, upToSix)
	noError(t, err)
	same(t, "unread", taken(t, from), []int{7, 8, 9})
}

func listed[T any](list []T, v T) ([]T, error) { return append(list, v), nil }

func (coreAsync) N76_T_TransduceIntoAList(t *testing.T, ctx context.Context) {
	list, err := chans.Transduce(ctx, filled(upTo(5)...), chans.Map(func(v int) int { return v + 1 }), nil, listed[int])
	noError(t, err)
	same(t, "values", list, []int{1, 2, 3, 4, 5})
}

func (coreAsync) N76_L13_TransduceCompletes(t *testing.T, ctx context.Context) {
	groups, err := chans.Transduce(ctx, filled(upTo(5)...), chans.PartitionAll[int](2), nil, listed[[]int])
	noError(t, err)
	sameGroups(t, groups, []int{0, 1}, []int{2, 3}, []int{4})
}

func (coreAsync) N77_T_OntoChan(t *testing.T, ctx context.Context) {
	to := make(chan int)
	feed := begin(func() error {
		defer close(to)
		return chans.OntoChan(ctx, to, slices.Values(upTo(10)))
	})
	list, err := chans.Into(ctx, nil, to)
	noError(t, err)
	noError(t, feed.returns(t, "feed"))
	same(t, "values", list, upTo(10))
}

func (coreAsync) N77_T_ToChan(t *testing.T, ctx context.Context) {
	from, wait := chans.ToChan(ctx, 0, slices.Values(upTo(10)))
	list, err := chans.Into(ctx, nil, from)
	noError(t, err)
	noError(t, wait())
	same(t, "values", list, upTo(10))
	isClosed(t, from)
}

func (coreAsync) N77_M1_OntoChanLeavesOpen(t *testing.T, ctx context.Context) {
	to := make(chan int, 3)
	noError(t, chans.OntoChan(ctx, to, slices.Values(upTo(3))))
	same(t, "values", taken(t, to), upTo(3))
	empty(t, to)
}

func (coreAsync) N77_M2_CompletionIsKnown(t *testing.T, ctx context.Context) {
	from, wait := chans.ToChan(ctx, 0, slices.Values([]int{1, 2}))
	done := begin(wait)
	gives(t, from, 1)
	done.waits(t, "one is left")
	gives(t, from, 2)
	noError(t, done.returns(t, "all are out"))
}

func (coreAsync) N77_M3_StopsWhenTheTargetCloses(t *testing.T, ctx context.Context) {
	to := make(chan int)
	close(to)
	asked := 0
	err := chans.OntoChan(ctx, to, func(yield func(int) bool) {
		for asked = 1; yield(asked); asked++ {
		}
	})
	is(t, err, chans.ErrClosed)
	same(t, "handed back", left[int](t, err), []int{1})
	equal(t, "asked of the sequence", asked, 1)
}

// There, the target is never closed.
func (coreAsync) N78_M6_BrokenSequence(t *testing.T, ctx context.Context) {
	from, wait := chans.ToChan(ctx, 2, func(yield func(int) bool) {
		yield(1)
		panic(errBroken)
	})
	err := wait()
	is(t, err, errBroken)
	panicked(t, err)
	gives(t, from, 1)
	isClosed(t, from)
}

// There, nil is what a channel can't carry.
func (coreAsync) N78_M6_NilIsAValue(t *testing.T, ctx context.Context) {
	from, wait := chans.ToChan(ctx, 0, slices.Values([]any{1, nil, false}))
	list, err := chans.Into(ctx, nil, from)
	noError(t, err)
	noError(t, wait())
	same(t, "values", list, []any{1, nil, false})
}

func getting(ctx context.Context, p *chans.Promise[int]) call[got[int]] {
	return begin(func() got[int] {
		v, err := p.Get(ctx)
		return got[int]{v, err}
	})
}

func (coreAsync) N79_T_AllWaitingTakers(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	takes := []call[got[int]]{getting(ctx, p), getting(ctx, p), getting(ctx, p)}
	takes[2].waits(t, "take")
	p.Deliver(1)
	p.Deliver(2)
	for _, take := range takes {
		equal(t, "taken", take.returns(t, "take"), got[int]{1, nil})
	}
}

func (coreAsync) N79_T_LaterPutsAreIgnored(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	p.Deliver(1)
	equal(t, "later", p.Deliver(2), false)
	equal(t, "taken", getting(ctx, p).returns(t, "take"), got[int]{1, nil})
}

func (coreAsync) N79_T_ValueSurvivesClose(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	p.Deliver(1)
	p.Close()
	for range 2 {
		equal(t, "taken", getting(ctx, p).returns(t, "take"), got[int]{1, nil})
	}
}

func (coreAsync) N79_T_ClosedEmpty(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	before := getting(ctx, p)
	before.waits(t, "take")
	p.Close()
	is(t, before.returns(t, "take").err, chans.ErrClosed)
	is(t, getting(ctx, p).returns(t, "take").err, chans.ErrClosed)
}

func (coreAsync) N79_T_TimeoutNotEarlier(t *testing.T, _ context.Context) {
	start := time.Now()
	timeout := time.After(500 * time.Millisecond)
	time.Sleep(500*time.Millisecond - 1)
	equal(t, "fired", len(timeout), 0)
	<-timeout
	equal(t, "after", time.Since(start), 500*time.Millisecond)
}

func (coreAsync) N79_T_TimeoutsByDeadline(t *testing.T, ctx context.Context) {
	fired := make(chan int, 4)
	for _, ms := range []int{800, 600, 700, 500} {
		begin(func() error {
			<-time.After(time.Duration(ms) * time.Millisecond)
			return chans.Send(ctx, fired, ms)
		})
	}
	time.Sleep(time.Second)
	same(t, "in the order", taken(t, fired), []int{500, 600, 700, 800})
}

func (coreAsync) N79_F2_NotShared(t *testing.T, _ context.Context) {
	first, second := time.After(time.Second), time.After(time.Second)
	if first == second {
		t.Error("two timeouts are one channel")
	}
	<-first
	<-second
}

// There, closing one fires all within 10 ms of it.
func (coreAsync) N79_F3_StoppedAlone(t *testing.T, ctx context.Context) {
	first, stop := context.WithTimeout(ctx, time.Second)
	second, release := context.WithTimeout(ctx, time.Second)
	defer release()
	stop()
	is(t, first.Err(), context.Canceled)
	time.Sleep(time.Second - 1)
	noError(t, second.Err())
	<-second.Done()
	is(t, second.Err(), context.DeadlineExceeded)
}

// There, a channel has no place for more than 1024.
func (coreAsync) N79_F4_ManyWaiters(t *testing.T, ctx context.Context) {
	limited, release := context.WithTimeout(ctx, time.Second)
	defer release()
	var waiters []call[got[int]]
	for range 5000 {
		waiters = append(waiters, receiving(limited, make(chan int)))
	}
	waiters[0].waits(t, "before its time")
	time.Sleep(time.Second)
	for _, w := range waiters {
		is(t, w.returns(t, "waiter").err, context.DeadlineExceeded)
	}
}
