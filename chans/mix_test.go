package chans_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/chans"
)

// runMix runs a Mix into an unbuffered channel.
func runMix(ctx context.Context, m *chans.Mix[int]) (out <-chan int, wait func() error) {
	return chans.Go(0, func(to chan<- int) error { return m.Run(ctx, to) })
}

// 69: all values of two sources, and of 2048 that are added at once.
func TestMixHasAll(t *testing.T) {
	for _, n := range []int{2, 2048} {
		for _, before := range []bool{true, false} {
			bubble(t, func(t *testing.T, ctx context.Context, end func()) {
				var m chans.Mix[int]
				var inputs []<-chan int
				for i := range n {
					inputs = append(inputs, filled(10*i, 10*i+1, 10*i+2))
				}
				if before {
					m.Admix(inputs...)
				}
				out, wait := runMix(ctx, &m)
				m.Admix(inputs...)
				next := make([]int, n)
				for range 3 * n {
					v := <-out
					if next[v/10] != v%10 {
						t.Fatalf("%d out of order", v)
					}
					next[v/10]++
				}
				synctest.Wait()
				yes(t, "an input that has ended is gone", !m.Unmix(inputs[0]))
				end()
				is(t, wait(), errBroken)
			})
		}
	}
}

// mixer is a Mix with two inputs and a writer that tries each of them.
func mixer(t *testing.T, fn func(m *chans.Mix[int], a, b chan int, hears func(what string, a, b string))) {
	t.Helper()
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mix[int]
		a, b := make(chan int), make(chan int)
		out, wait := runMix(ctx, &m)
		m.Admix(a, b)
		try := func(c chan int) string {
			if !offered(t, c, 1) {
				return "waits"
			}
			if poll(t, out) == "1" {
				return "heard"
			}
			return "muted"
		}
		fn(&m, a, b, func(what, expectA, expectB string) {
			t.Helper()
			if gotA, gotB := try(a), try(b); gotA != expectA || gotB != expectB {
				t.Errorf("%s: got %s, %s, want %s, %s", what, gotA, gotB, expectA, expectB)
			}
		})
		end()
		is(t, wait(), errBroken)
	})
}

// 70: mute takes and discards; pause leaves values with the writer; solo silences
// the others as the solo mode says, and beats the own mute and pause; unmix stops.
func TestMixSwitches(t *testing.T) {
	mixer(t, func(m *chans.Mix[int], a, b chan int, hears func(string, string, string)) {
		hears("at first", "heard", "heard")
		m.Toggle(chans.Mute, true, a)
		hears("a mute", "muted", "heard")
		number(t, "discarded", m.Discarded(), 1)
		m.Toggle(chans.Pause, true, a)
		hears("a mute and pause", "waits", "heard")
		m.Toggle(chans.Mute, false, a)
		m.Toggle(chans.Pause, false, a)
		hears("a neither", "heard", "heard")
		m.Toggle(chans.Mute|chans.Pause, true, a, b)
		hears("both mute and pause", "waits", "waits")
		m.Toggle(chans.Solo, true, a)
		hears("solo beats mute and pause", "heard", "waits")
		m.Toggle(chans.Pause, false, b)
		hears("b is muted", "heard", "muted")
		m.Toggle(chans.Mute, false, b)
		hears("b is muted for the solo", "heard", "muted")
		m.SoloMode(chans.Pause)
		hears("b is paused for the solo", "heard", "waits")
		m.Toggle(chans.Solo, true, b)
		hears("both solo", "heard", "heard")
		m.Toggle(chans.Solo, false, a)
		hears("solo of b", "waits", "heard")
		m.SoloMode(chans.Mute)
		hears("a has its own pause", "waits", "heard")
		m.Toggle(chans.Mute|chans.Pause|chans.Solo, false, a, b)
		hears("no switches", "heard", "heard")
		yes(t, "a unmixed", m.Unmix(a) && !m.Unmix(a))
		hears("a unmixed", "waits", "heard")
		m.Toggle(chans.Solo, true, a)
		hears("added by a switch", "heard", "muted")
		m.Unmix(a)
		hears("no solo any more", "waits", "heard")
		m.Admix(a)
		hears("its switches are gone", "heard", "heard")
		m.Toggle(chans.Solo, true, a)
		close(a)
		synctest.Wait()
		yes(t, "b is heard when the solo has ended", offered(t, b, 2) && m.Unmix(b))
		m.UnmixAll()
	})
}

// An input that is added paused never gives a value.
func TestMixAddsPaused(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mix[int]
		before, after := filled(1), filled(2)
		m.Toggle(chans.Pause, true, before)
		out, wait := runMix(ctx, &m)
		m.Toggle(chans.Pause, true, after)
		polls(t, "out", out, "nothing")
		end()
		is(t, wait(), errBroken)
		same(t, "left", append(taken(t, before), taken(t, after)...), []int{1, 2})
		m.Admix(filled(3)) // changes nothing
	})
}

// A value in hand is delivered though its input was removed, and before those of
// the same input when that has come again.
func TestMixDeliversWhatItHasInHand(t *testing.T) {
	for name, again := range map[string]bool{"removed": false, "added again": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context, end func()) {
				var m chans.Mix[int]
				a, b := make(chan int), make(chan int)
				m.Admix(a, b)
				out, wait := runMix(ctx, &m)
				a <- 1
				m.Toggle(chans.Mute, true, a)
				yes(t, "unmixed", m.Unmix(a) && !m.Unmix(a))
				if again {
					m.Admix(a)
				}
				yes(t, "nothing is taken meanwhile", !offered(t, a, 2))
				polls(t, "out", out, "1")
				yes(t, "the input is read again", offered(t, a, 3) == again)
				end()
				if err := wait(); again {
					same(t, "unsent", left[int](t, err), []int{3})
				}
			})
		})
	}
}

func TestMixEndsWithItsDestination(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, end func()) {
		var m chans.Mix[int]
		to := make(chan int)
		m.Admix(filled(1, 2), filled(3, 4), make(chan int))
		wait := running(func() error { return m.Run(ctx, to) })
		synctest.Wait()
		close(to)
		err := wait()
		is(t, err, chans.ErrClosed)
		back := left[int](t, err)
		slices.Sort(back)
		same(t, "unsent", back, []int{1, 3})
	})
}

// After Unmix or a pause has returned, nothing is taken, whoever writes.
func TestMixStopsAtOnce(t *testing.T) {
	var m chans.Mix[int]
	ctx, cancel := context.WithCancel(t.Context())
	out, wait := runMix(ctx, &m)
	go drain(out)
	for i := range 500 {
		in := make(chan int, 100)
		m.Admix(in)
		go func() {
			for range cap(in) {
				in <- i
			}
			close(in)
		}()
		if i%2 == 0 {
			m.Toggle(chans.Pause, true, in)
		} else {
			m.Unmix(in)
		}
		before := 0
		for v := range in { // all that are left are for this reader
			yes(t, "its own", v == i)
			before++
		}
		yes(t, "at most all", before <= cap(in))
		m.Unmix(in)
	}
	cancel()
	is(t, wait(), context.Canceled)
}

// modelInput is an input of a modelMix.
type modelInput struct {
	mixed           bool
	on              chans.Switch
	closed, hasHand bool
}

// modelMix is a Mix whose goroutines have always come to rest.
type modelMix struct {
	began, stopped bool
	mode           chans.Switch
	inputs         []*modelInput
	hands          [][2]int // input and value, as they wait
	discarded      int
	unsent         []int
}

func (m *modelMix) solo() bool {
	return slices.ContainsFunc(m.inputs, func(in *modelInput) bool { return in.mixed && in.on&chans.Solo != 0 })
}

func (m *modelMix) hears(in *modelInput) string {
	switch {
	case !m.began || m.stopped || !in.mixed || in.hasHand:
		return "waits"
	case in.on&chans.Solo != 0:
		return "heard"
	case in.on&chans.Pause != 0 || m.solo() && m.mode == chans.Pause:
		return "waits"
	case in.on&chans.Mute != 0 || m.solo():
		return "muted"
	}
	return "heard"
}

// settle removes inputs whose end has been seen, which may let others be heard.
func (m *modelMix) settle() {
	for _, in := range slices.Concat(m.inputs, m.inputs, m.inputs) {
		if in.closed && m.hears(in) != "waits" {
			*in = modelInput{closed: true}
		}
	}
}

func (m *modelMix) do(o op, n int) string {
	defer m.settle()
	in := m.inputs[o.I]
	switch o.Do {
	case "run":
		m.began = true
	case "put":
		how := m.hears(in)
		switch {
		case in.closed || how == "waits":
			return "false"
		case how == "muted":
			m.discarded++
		default:
			in.hasHand = true
			m.hands = append(m.hands, [2]int{o.I, n})
		}
		return "true"
	case "take":
		if len(m.hands) == 0 {
			return "nothing"
		}
		first := m.hands[0]
		m.hands = m.hands[1:]
		m.inputs[first[0]].hasHand = false
		return fmt.Sprint(first[1])
	case "toggle":
		in.mixed = true
		if s := chans.Switch(1 << o.J); o.On {
			in.on |= s
		} else {
			in.on &^= s
		}
	case "admix":
		in.mixed = true
	case "unmix":
		was := in.mixed
		in.mixed, in.on = false, 0
		return fmt.Sprint(was)
	case "unmix all":
		for _, in := range m.inputs {
			in.mixed, in.on = false, 0
		}
	case "solo mode":
		m.mode = map[bool]chans.Switch{true: chans.Pause, false: chans.Mute}[o.On]
	case "close":
		in.closed = true
	case "stop":
		m.stopped = true
		for _, hand := range m.hands {
			m.unsent = append(m.unsent, hand[1])
		}
		m.hands = nil
	}
	return ""
}

// realMix does the same with a Mix.
type realMix struct {
	t      *testing.T
	m      chans.Mix[int]
	ctx    context.Context
	stop   func()
	inputs []chan int
	closed []bool
	out    chan int
	wait   func() error
}

func (r *realMix) do(o op, n int) string {
	in := r.inputs[o.I]
	switch {
	case o.Do == "run" && r.wait == nil:
		r.wait = running(func() error { return r.m.Run(r.ctx, r.out) })
	case o.Do == "put":
		return fmt.Sprint(!r.closed[o.I] && offered(r.t, in, n))
	case o.Do == "take":
		return poll(r.t, r.out)
	case o.Do == "toggle":
		r.m.Toggle(1<<o.J, o.On, in)
	case o.Do == "admix":
		r.m.Admix(in)
	case o.Do == "unmix":
		return fmt.Sprint(r.m.Unmix(in))
	case o.Do == "unmix all":
		r.m.UnmixAll()
	case o.Do == "solo mode" && o.On:
		r.m.SoloMode(chans.Pause)
	case o.Do == "solo mode":
		r.m.SoloMode(chans.Mute)
	case o.Do == "close" && !r.closed[o.I]:
		r.closed[o.I] = true
		close(in)
	case o.Do == "stop":
		r.stop()
	}
	return ""
}

// A Mix does what its sequential model does, whatever happens in which order.
func TestMixAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := history(rt, "run", "put", "put", "put", "put", "put", "put", "take", "take", "take", "toggle", "toggle",
			"toggle", "admix", "admix", "admix", "unmix", "unmix all", "solo mode", "close", "stop")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			real := &realMix{t: t, ctx: ctx, stop: func() { cancel(errBroken) }, closed: make([]bool, 4), out: make(chan int)}
			model := &modelMix{}
			for range 4 {
				real.inputs = append(real.inputs, make(chan int))
				model.inputs = append(model.inputs, &modelInput{})
			}
			for n, o := range append(ops, op{Do: "run"}, op{Do: "stop"}) {
				got := real.do(o, n)
				synctest.Wait()
				if expected := model.do(o, n); got != expected {
					rt.Errorf("%d: %v: got %s, want %s", n, o, got, expected)
				}
				if d := real.m.Discarded(); d != uint64(model.discarded) {
					rt.Errorf("%d: %v: discarded %d, want %d", n, o, d, model.discarded)
				}
			}
			var u *chans.Unsent[int]
			var back []int
			err := real.wait()
			if errors.As(err, &u) {
				back = u.Values
			}
			slices.Sort(back)
			slices.Sort(model.unsent)
			if !slices.Equal(back, model.unsent) || !errors.Is(err, errBroken) {
				rt.Errorf("got %v, want unsent %v", err, model.unsent)
			}
		})
	})
}
