package chans_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/chans"
)

// mixed starts a mix of inputs into out.
func mixed(ctx context.Context, out chan<- int, from ...<-chan int) (*chans.Mix[int], call[error]) {
	m := &chans.Mix[int]{}
	m.Admix(from...)
	return m, begin(func() error { return m.Run(ctx, out) })
}

func (coreAsync) N69_T_TwoSources(t *testing.T, ctx context.Context) {
	out := make(chan int, 6)
	_, run := mixed(ctx, out, filled(1, 2, 3), filled(4, 5, 6))
	run.waits(t, "mix")
	list := taken(t, out)
	slices.Sort(list)
	same(t, "values", list, []int{1, 2, 3, 4, 5, 6})
	empty(t, out)
}

func (coreAsync) N69_T_ManyInputsAtOnce(t *testing.T, ctx context.Context) {
	out := make(chan int)
	m, _ := mixed(ctx, out)
	for v := range 2048 {
		m.Admix(filled(v))
	}
	var list []int
	for range 2048 {
		list = append(list, <-out)
	}
	slices.Sort(list)
	same(t, "values", list, upTo(2048))
	empty(t, out)
}

func (coreAsync) N69_T_ClosedOutputStops(t *testing.T, ctx context.Context) {
	out, from := make(chan int), filled(1, 2, 3)
	close(out)
	_, run := mixed(ctx, out, from)
	err := run.returns(t, "mix")
	is(t, err, chans.ErrClosed)
	same(t, "handed back", left[int](t, err), []int{1})
	same(t, "still in the source", taken(t, from), []int{2, 3})
}

func (coreAsync) N70_K2_MuteDiscards(t *testing.T, ctx context.Context) {
	from, out := make(chan int), make(chan int, 9)
	m, _ := mixed(ctx, out, from)
	m.Toggle(chans.Mute, true, from)
	for v := range 10 {
		noError(t, sending(ctx, from, v).returns(t, "put"))
	}
	empty(t, out)
	equal(t, "discarded", m.Discarded(), 10)
	m.Toggle(chans.Mute, false, from)
	noError(t, chans.Send(ctx, from, 10))
	gives(t, out, 10)
}

func (coreAsync) N70_K3_PauseLeavesWithTheProducer(t *testing.T, ctx context.Context) {
	from, out := make(chan int), make(chan int, 9)
	m, _ := mixed(ctx, out, from)
	m.Toggle(chans.Pause, true, from)
	put := sending(ctx, from, 1)
	put.waits(t, "put")
	empty(t, out)
	m.Toggle(chans.Pause, false, from)
	noError(t, put.returns(t, "put"))
	gives(t, out, 1)
	equal(t, "discarded", m.Discarded(), 0)
}

func (coreAsync) N70_K4_SoloMutesTheOthers(t *testing.T, ctx context.Context) {
	solo, other, out := make(chan int), make(chan int), make(chan int, 9)
	m, _ := mixed(ctx, out, solo, other)
	m.Toggle(chans.Solo, true, solo)
	noError(t, sending(ctx, other, 1).returns(t, "put to the other"))
	empty(t, out)
	equal(t, "discarded", m.Discarded(), 1)
	noError(t, chans.Send(ctx, solo, 2))
	gives(t, out, 2)
}

func (coreAsync) N70_K5_SoloPausesTheOthers(t *testing.T, ctx context.Context) {
	solo, other, out := make(chan int), make(chan int), make(chan int, 9)
	m, _ := mixed(ctx, out, solo, other)
	m.SoloMode(chans.Pause)
	m.Toggle(chans.Solo, true, solo)
	put := sending(ctx, other, 1)
	put.waits(t, "put to the other")
	noError(t, chans.Send(ctx, solo, 2))
	gives(t, out, 2)
	m.Toggle(chans.Solo, false, solo)
	noError(t, put.returns(t, "put to the other"))
	gives(t, out, 1)
	equal(t, "discarded", m.Discarded(), 0)
}

func (coreAsync) N70_K6_SoloBeatsItsOwnMute(t *testing.T, ctx context.Context) {
	from, out := make(chan int), make(chan int, 9)
	m, _ := mixed(ctx, out, from)
	m.Toggle(chans.Mute|chans.Solo, true, from)
	noError(t, chans.Send(ctx, from, 1))
	gives(t, out, 1)
	m.Toggle(chans.Solo, false, from)
	noError(t, chans.Send(ctx, from, 2))
	empty(t, out)
	equal(t, "discarded", m.Discarded(), 1)
}

func (coreAsync) N70_K8_UnmixStopsTaking(t *testing.T, ctx context.Context) {
	gone, stays, out := make(chan int), make(chan int), make(chan int, 9)
	m, _ := mixed(ctx, out, gone, stays)
	synctest.Wait()
	equal(t, "was there", m.Unmix(gone), true)
	sending(ctx, gone, 1).waits(t, "put")
	noError(t, chans.Send(ctx, stays, 2))
	gives(t, out, 2)
	m.UnmixAll()
	sending(ctx, stays, 3).waits(t, "put")
	empty(t, out)
}

// There, only with the solo mode that pauses.
func (coreAsync) N70_V_SoloBeatsItsOwnPause(t *testing.T, ctx context.Context) {
	for _, mode := range []chans.Switch{chans.Mute, chans.Pause} {
		from, out := make(chan int), make(chan int, 9)
		m, _ := mixed(ctx, out, from)
		m.SoloMode(mode)
		m.Toggle(chans.Pause|chans.Solo, true, from)
		noError(t, sending(ctx, from, 1).returns(t, "put"))
		gives(t, out, 1)
	}
}
