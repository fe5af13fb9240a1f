package chans_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/chans"
)

func (coreAsync) N01_T_ThirdPutWaits(t *testing.T, ctx context.Context) {
	c := make(chan int, 2)
	noError(t, sending(ctx, c, 1).returns(t, "first"))
	noError(t, sending(ctx, c, 2).returns(t, "second"))
	third := sending(ctx, c, 3)
	third.waits(t, "third")
	gives(t, c, 1)
	noError(t, third.returns(t, "third"))
}

func (coreAsync) N02_T_InsertionOrder(t *testing.T, ctx context.Context) {
	c := make(chan int, 3)
	for v := range 3 {
		noError(t, chans.Send(ctx, c, v))
	}
	same(t, "values", taken(t, c), []int{0, 1, 2})
}

func (coreAsync) N02_T_NothingToRemove(t *testing.T, ctx context.Context) {
	c := make(chan int, 3)
	_, ok, err := chans.Poll(c)
	noError(t, err)
	equal(t, "ok", ok, false)
	receiving(ctx, c).waits(t, "receive")
}

func (coreAsync) N03_T_DroppingKeepsTheOldest(t *testing.T, _ context.Context) {
	l := chans.Dropping[int](2, nil)
	for v := range 3 {
		noError(t, l.Put(v+1)) // nobody reads: had it to wait, the bubble would be dead
	}
	equal(t, "size", len(l.C()), 2)
	same(t, "values", taken(t, l.C()), []int{1, 2})
}

func (coreAsync) N03_T_DroppingCounts(t *testing.T, _ context.Context) {
	var lost []int
	l := chans.Dropping(2, func(v int) { lost = append(lost, v) })
	for v := range 3 {
		noError(t, l.Put(v+1))
	}
	equal(t, "shed", l.Shed(), 1)
	same(t, "observed", lost, []int{3})
}

func (coreAsync) N04_T_SlidingKeepsTheNewest(t *testing.T, _ context.Context) {
	l := chans.Sliding[int](2, nil)
	for v := range 3 {
		noError(t, l.Put(v+1))
	}
	equal(t, "size", len(l.C()), 2)
	same(t, "values", taken(t, l.C()), []int{2, 3})
}

func (coreAsync) N04_T_SlidingCounts(t *testing.T, _ context.Context) {
	var lost []int
	l := chans.Sliding(2, func(v int) { lost = append(lost, v) })
	for v := range 3 {
		noError(t, l.Put(v+1))
	}
	equal(t, "shed", l.Shed(), 1)
	same(t, "observed", lost, []int{1})
}

func (coreAsync) N05_T_FirstValueStays(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	equal(t, "first", p.Deliver(1), true)
	equal(t, "second", p.Deliver(2), false)
	v, err := p.Get(ctx)
	noError(t, err)
	equal(t, "value", v, 1)
}

func (coreAsync) N05_T_TakingDoesNotConsume(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	p.Deliver(1)
	for range 3 {
		v, err := p.Get(ctx)
		noError(t, err)
		equal(t, "value", v, 1)
	}
}

func (coreAsync) N05_T_CloseKeepsTheValue(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	p.Deliver(1)
	p.Close()
	v, err := p.Get(ctx)
	noError(t, err)
	equal(t, "value", v, 1)
}

func (coreAsync) N06_T_DroppingNeverWaits(t *testing.T, _ context.Context) {
	l := chans.Dropping[int](2, nil)
	for v := range 1000 {
		noError(t, l.Put(v))
	}
	equal(t, "shed", l.Shed(), 998)
}

func (coreAsync) N06_T_SlidingNeverWaits(t *testing.T, _ context.Context) {
	l := chans.Sliding[int](2, nil)
	for v := range 1000 {
		noError(t, l.Put(v))
	}
	equal(t, "shed", l.Shed(), 998)
}

func (coreAsync) N06_T_PromiseNeverWaits(t *testing.T, _ context.Context) {
	p := chans.NewPromise[int]()
	won := 0
	for v := range 1000 {
		if p.Deliver(v) {
			won++
		}
	}
	equal(t, "won", won, 1)
}

func (coreAsync) N06_T_FixedWaits(t *testing.T, ctx context.Context) {
	c := make(chan int, 1)
	ok, err := chans.Offer(c, 1)
	noError(t, err)
	equal(t, "first", ok, true)
	sending(ctx, c, 2).waits(t, "second")
}

// Three values for a buffer of one and two readers that wait: none is shed.
func (coreAsync) N07_A8_WaitingReadersAreServed(t *testing.T, ctx context.Context) {
	l := chans.Dropping[int](1, nil)
	first, second := receiving(ctx, l.C()), receiving(ctx, l.C())
	synctest.Wait()
	for v := range 3 {
		noError(t, l.Put(1+v))
	}
	equal(t, "handed over", first.returns(t, "first").v+second.returns(t, "second").v, 1+2)
	same(t, "buffered", taken(t, l.C()), []int{3})
	equal(t, "shed", l.Shed(), 0)
}

func (coreAsync) N08_A6_SlidingOfNothing(t *testing.T, _ context.Context) {
	refuses(t, "Sliding(0)", func() { chans.Sliding[int](0, nil) })
}

func (coreAsync) N08_A6_DroppingOfNothing(t *testing.T, _ context.Context) {
	refuses(t, "Dropping(0)", func() { chans.Dropping[int](0, nil) })
}
