package chans_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/chans"
)

func (coreAsync) N09_T_PutAndTakeMeet(t *testing.T, ctx context.Context) {
	c := make(chan int)
	take := receiving(ctx, c)
	take.waits(t, "take")
	noError(t, sending(ctx, c, 1).returns(t, "put"))
	equal(t, "taken", take.returns(t, "take"), got[int]{1, nil})
	empty(t, c)
}

func (coreAsync) N10_T_OneTakerOfTwo(t *testing.T, ctx context.Context) {
	c := make(chan int)
	first := receiving(ctx, c)
	synctest.Wait()
	second := receiving(ctx, c)
	second.waits(t, "second")
	noError(t, chans.Send(ctx, c, 1))
	equal(t, "taken", first.returns(t, "first"), got[int]{1, nil})
	second.waits(t, "second")
}

func (coreAsync) N11_T_TakeMakesRoom(t *testing.T, ctx context.Context) {
	c := make(chan int, 1)
	c <- 1
	put := sending(ctx, c, 2)
	put.waits(t, "put")
	gives(t, c, 1)
	noError(t, put.returns(t, "put"))
	gives(t, c, 2)
}

func (coreAsync) N12_B14_PutsInTheirOrder(t *testing.T, ctx context.Context) {
	c := make(chan int)
	for v := range 100 {
		sending(ctx, c, v).waits(t, "put")
	}
	for v := range 100 {
		gives(t, c, v)
	}
}

func (coreAsync) N13_B16_TakersInTheirOrder(t *testing.T, ctx context.Context) {
	c := make(chan int)
	var takes []call[got[int]]
	for range 100 {
		take := receiving(ctx, c)
		take.waits(t, "take")
		takes = append(takes, take)
	}
	for v, take := range takes {
		noError(t, chans.Send(ctx, c, v))
		equal(t, "taken", take.returns(t, "take"), got[int]{v, nil})
	}
}

func (coreAsync) N14_B2_PutAfterClose(t *testing.T, ctx context.Context) {
	c := make(chan int, 1)
	close(c)
	is(t, chans.Send(ctx, c, 1), chans.ErrClosed)
	ok, err := chans.Offer(c, 1)
	is(t, err, chans.ErrClosed)
	equal(t, "ok", ok, false)
	l := chans.Sliding[int](1, nil)
	l.Close()
	is(t, l.Put(1), chans.ErrClosed)
}

func (coreAsync) N14_B2_RestThenEnd(t *testing.T, ctx context.Context) {
	c := make(chan int, 2)
	c <- 1
	c <- 2
	close(c)
	gives(t, c, 1)
	gives(t, c, 2)
	for range 3 {
		_, err := chans.Receive(ctx, c)
		is(t, err, chans.ErrClosed)
	}
}

// There, the value is delivered all the same. Here its sender keeps it, and knows.
func (coreAsync) N15_B3_PutThatWaitsAtClose(t *testing.T, ctx context.Context) {
	c := make(chan int, 1)
	c <- 1
	put := sending(ctx, c, 2)
	put.waits(t, "put")
	close(c)
	is(t, put.returns(t, "put"), chans.ErrClosed)
	same(t, "values", taken(t, c), []int{1})
}

// A lossy channel has no puts that wait: all that it answered nil for is there.
func (coreAsync) N15_B3_LossyAtClose(t *testing.T, _ context.Context) {
	l := chans.Sliding[int](2, nil)
	noError(t, l.Put(1))
	noError(t, l.Put(2))
	l.Close()
	is(t, l.Put(3), chans.ErrClosed)
	same(t, "values", taken(t, l.C()), []int{1, 2})
	equal(t, "shed", l.Shed(), 0)
}

func (coreAsync) N16_B4_CloseReleasesTakers(t *testing.T, ctx context.Context) {
	c := make(chan int)
	takes := []call[got[int]]{receiving(ctx, c), receiving(ctx, c), receiving(ctx, c)}
	takes[2].waits(t, "take")
	close(c)
	for _, take := range takes {
		is(t, take.returns(t, "take").err, chans.ErrClosed)
	}
}

func (coreAsync) N17_B5_LossyClosedTwice(t *testing.T, _ context.Context) {
	l := chans.Dropping[int](1, nil)
	noError(t, l.Put(1))
	l.Close()
	l.Close()
	gives(t, l.C(), 1)
	isClosed(t, l.C())
}

func (coreAsync) N17_B5_PromiseClosedTwice(t *testing.T, ctx context.Context) {
	p := chans.NewPromise[int]()
	p.Close()
	p.Close()
	equal(t, "delivered", p.Deliver(1), false)
	_, err := p.Get(ctx)
	is(t, err, chans.ErrClosed)
}

// There, the 1025th throws. Here each waits in its own goroutine, as long as its
// context lives, and says that it has put nothing.
func (coreAsync) N18_T_ManyPuts(t *testing.T, ctx context.Context) {
	c := make(chan int)
	patience, lose := context.WithCancelCause(ctx)
	var puts []call[error]
	for v := range 2000 {
		puts = append(puts, sending(patience, c, v))
	}
	puts[1999].waits(t, "put")
	lose(errBroken)
	for _, put := range puts {
		is(t, put.returns(t, "put"), errBroken)
	}
	take := receiving(ctx, c)
	take.waits(t, "take")
	noError(t, chans.Send(ctx, c, 7))
	equal(t, "taken", take.returns(t, "take"), got[int]{7, nil})
}

func (coreAsync) N18_T_ManyTakes(t *testing.T, ctx context.Context) {
	c := make(chan int)
	patience, lose := context.WithCancelCause(ctx)
	var takes []call[got[int]]
	for range 2000 {
		takes = append(takes, receiving(patience, c))
	}
	takes[1999].waits(t, "take")
	lose(errBroken)
	for _, take := range takes {
		is(t, take.returns(t, "take").err, errBroken)
	}
	put := sending(ctx, c, 7)
	put.waits(t, "put")
	gives(t, c, 7)
	noError(t, put.returns(t, "put"))
}

func (coreAsync) N19_T_OfferHasThreeAnswers(t *testing.T, _ context.Context) {
	c := make(chan int, 1)
	ok, err := chans.Offer(c, 1)
	equal(t, "room", got[bool]{ok, err}, got[bool]{true, nil})
	ok, err = chans.Offer(c, 2)
	equal(t, "full", got[bool]{ok, err}, got[bool]{false, nil})
	close(c)
	ok, err = chans.Offer(c, 3)
	equal(t, "closed", got[bool]{ok, err}, got[bool]{false, chans.ErrClosed})
	same(t, "values", taken(t, c), []int{1})
}

// There, poll! can't tell an empty channel from a closed one.
func (coreAsync) N19_T_PollHasThreeAnswers(t *testing.T, _ context.Context) {
	c := make(chan int, 1)
	empty(t, c)
	c <- 1
	gives(t, c, 1)
	close(c)
	isClosed(t, c)
}
