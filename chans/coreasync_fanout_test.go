package chans_test

import (
	"context"
	"testing"

	"github.com/oncepipe/oncepipe/chans"
)

// tapped starts a mult over from with taps.
func tapped(ctx context.Context, from <-chan int, taps ...chan int) (*chans.Mult[int], call[error]) {
	m := &chans.Mult[int]{}
	for _, c := range taps {
		m.Tap(c, chans.CloseAtEnd)
	}
	return m, begin(func() error { return m.Run(ctx, from) })
}

func (coreAsync) N58_T_TwoTaps(t *testing.T, ctx context.Context) {
	a, b := make(chan int, 4), make(chan int, 4)
	_, run := tapped(ctx, filled(upTo(4)...), a, b)
	noError(t, run.returns(t, "mult"))
	for _, c := range []chan int{a, b} {
		same(t, "values", taken(t, c), upTo(4))
		isClosed(t, c)
	}
}

func (coreAsync) N59_T_SlowestTapSetsThePace(t *testing.T, ctx context.Context) {
	a, closed, b := make(chan int), make(chan int), make(chan int)
	close(closed)
	_, run := tapped(ctx, filled(1, 2), a, closed, b)
	gives(t, a, 1)
	empty(t, a)
	run.waits(t, "mult")
	gives(t, b, 1)
	gives(t, a, 2)
	gives(t, b, 2)
	noError(t, run.returns(t, "mult"))
}

func (coreAsync) N60_I3_WithoutTaps(t *testing.T, ctx context.Context) {
	from := make(chan int)
	m, run := tapped(ctx, from)
	for v := range 100 {
		noError(t, sending(ctx, from, v).returns(t, "put"))
	}
	close(from)
	noError(t, run.returns(t, "mult"))
	equal(t, "discarded", m.Discarded(), 100)
}

func (coreAsync) N61_I4_LateTap(t *testing.T, ctx context.Context) {
	from, late := make(chan int), make(chan int, 9)
	m, run := tapped(ctx, from)
	noError(t, chans.Send(ctx, from, 1))
	run.waits(t, "mult")
	m.Tap(late, chans.CloseAtEnd)
	noError(t, chans.Send(ctx, from, 2))
	gives(t, late, 2)
	equal(t, "discarded", m.Discarded(), 1)
}

func (coreAsync) N62_I5_ClosedTapIsRemoved(t *testing.T, ctx context.Context) {
	from, closed, live := make(chan int), make(chan int), make(chan int, 9)
	close(closed)
	m, run := tapped(ctx, from, closed, live)
	noError(t, chans.Send(ctx, from, 1))
	gives(t, live, 1)
	run.waits(t, "mult")
	equal(t, "still a tap", m.Untap(closed), false)
}

func (coreAsync) N62_I6_UntappedStaysOpen(t *testing.T, ctx context.Context) {
	from, gone, live := make(chan int), make(chan int, 9), make(chan int, 9)
	m, run := tapped(ctx, from, gone, live)
	equal(t, "was a tap", m.Untap(gone), true)
	noError(t, chans.Send(ctx, from, 1))
	close(from)
	noError(t, run.returns(t, "mult"))
	gives(t, live, 1)
	empty(t, gone)
}

func (coreAsync) N62_I7_KeptOpen(t *testing.T, ctx context.Context) {
	kept := make(chan int, 9)
	var m chans.Mult[int]
	m.Tap(kept, chans.KeepOpen)
	noError(t, m.Run(ctx, filled(1)))
	gives(t, kept, 1)
	empty(t, kept)
}

// There, the others starve for ever.
func (coreAsync) N63_I8_UntapReleasesTheOthers(t *testing.T, ctx context.Context) {
	stuck, live := make(chan int), make(chan int)
	m, run := tapped(ctx, filled(1, 2), stuck, live)
	gives(t, live, 1)
	empty(t, live)
	run.waits(t, "mult")
	equal(t, "was a tap", m.Untap(stuck), true)
	gives(t, live, 2)
	noError(t, run.returns(t, "mult"))
	empty(t, stuck)
}

func (coreAsync) N63_I9_CloseReleasesTheOthers(t *testing.T, ctx context.Context) {
	stuck, live := make(chan int), make(chan int)
	_, run := tapped(ctx, filled(1, 2), stuck, live)
	gives(t, live, 1)
	run.waits(t, "mult")
	close(stuck)
	gives(t, live, 2)
	noError(t, run.returns(t, "mult"))
}

// A lossy tap is never waited for.
func (coreAsync) N63_I9_LossyTapHoldsNobodyUp(t *testing.T, ctx context.Context) {
	live, unread := make(chan int, 9), chans.Sliding[int](2, nil)
	var m chans.Mult[int]
	m.Tap(live, chans.CloseAtEnd)
	m.TapLossy(unread, chans.CloseAtEnd)
	noError(t, m.Run(ctx, filled(upTo(5)...)))
	same(t, "live", taken(t, live), upTo(5))
	same(t, "unread", taken(t, unread.C()), []int{3, 4})
	equal(t, "shed", unread.Shed(), 3)
}

// There, they are left open, and nobody tells their readers.
func (coreAsync) N62_V_UntapAllEndsTaps(t *testing.T, ctx context.Context) {
	from, ended, kept := make(chan int), make(chan int, 9), make(chan int, 9)
	m, run := tapped(ctx, from, ended)
	m.Tap(kept, chans.KeepOpen)
	m.UntapAll()
	isClosed(t, ended)
	noError(t, chans.Send(ctx, from, 1))
	close(from)
	noError(t, run.returns(t, "mult"))
	empty(t, kept)
	equal(t, "discarded", m.Discarded(), 1)
}

// A channel is a tap once, however often it is added.
func (coreAsync) N58_V_TappedTwice(t *testing.T, ctx context.Context) {
	c := make(chan int, 9)
	_, run := tapped(ctx, filled(1, 2), c, c)
	noError(t, run.returns(t, "mult"))
	same(t, "values", taken(t, c), []int{1, 2})
	isClosed(t, c)
}
