package chans

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Switch is what can be on or off for an input of a Mix. Switches are joined with |.
type Switch uint8

const (
	// Mute: values are taken, and discarded.
	Mute Switch = 1 << iota
	// Pause: nothing is taken, so that the writers of the input wait.
	Pause
	// Solo: as long as it is on for some input, only inputs for which it is on are
	// heard, whatever their other switches; the solo mode says what becomes of the others.
	Solo
)

// Mix puts the values of all its inputs into one channel, those of each input in
// its order. Inputs come and go, and are switched, while it runs. One that ends is
// removed.
//
// Each input is read by a goroutine of its own, which takes one value ahead when
// the destination is full. What has been taken to be heard is delivered, even if its input
// is switched or removed meanwhile.
//
// The zero Mix is ready. Its methods can be called by any goroutine at any time,
// also before and after Run. Once Run has ended they change nothing that can be heard.
type Mix[T any] struct {
	mu        sync.Mutex
	inputs    map[<-chan T]*input[T]
	solos     int    // inputs for which Solo is on
	mode      Switch // Pause, or else Mute
	began     bool
	mixing    *mixing[T] // nil before and after Run
	discarded atomic.Uint64
}

// Admix adds inputs. One that is there already stays as it is.
func (m *Mix[T]) Admix(from ...<-chan T) { m.Toggle(0, true, from...) }

// Unmix removes an input. Nothing is taken from it after Unmix has returned. It
// reports whether it was there.
func (m *Mix[T]) Unmix(from <-chan T) (was bool) {
	m.change(func() []*input[T] {
		in := m.inputs[from]
		if in == nil || in.gone {
			return nil
		}
		was = true
		m.drop(in)
		return []*input[T]{in}
	})
	return was
}

// UnmixAll removes all inputs.
func (m *Mix[T]) UnmixAll() {
	m.change(func() (changed []*input[T]) {
		for _, in := range m.inputs {
			m.drop(in)
			changed = append(changed, in)
		}
		return changed
	})
}

// Toggle turns switches of inputs on or off, of all at the same time, and adds
// inputs that are not there. After it has returned, nothing is taken from an input
// that is not to be read.
func (m *Mix[T]) Toggle(s Switch, on bool, from ...<-chan T) {
	if s > Mute|Pause|Solo {
		panic(fmt.Sprintf("chans: no switches: %d", s))
	}
	m.change(func() (changed []*input[T]) {
		for _, c := range from {
			in := m.input(c)
			if on {
				m.set(in, in.on|s)
			} else {
				m.set(in, in.on&^s)
			}
			changed = append(changed, in)
		}
		return changed
	})
}

// SoloMode says what becomes of the other inputs while there is a solo: Mute, as it
// is at first, or Pause. With Mute, an input that is paused itself stays so.
func (m *Mix[T]) SoloMode(mode Switch) {
	if mode != Mute && mode != Pause {
		panic(fmt.Sprintf("chans: no solo mode: %d", mode))
	}
	m.change(func() []*input[T] {
		m.mode = mode
		return nil
	})
}

// Discarded is the number of values so far that were muted.
func (m *Mix[T]) Discarded() uint64 { return m.discarded.Load() }

// Run puts the values of all inputs into to until ctx ends, also while there are
// no inputs. It panics if it was called before.
//
// When ctx ends or to is closed, the values in hand come back as Unsent, at most
// one of each input.
func (m *Mix[T]) Run(ctx context.Context, to chan<- T) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &mixing[T]{ctx: ctx, cancel: cancel, to: to}
	m.begin(r)
	<-ctx.Done()
	m.end()
	r.inputs.Wait()
	return unsent(r.left, ended(ctx))
}

func (m *Mix[T]) begin(r *mixing[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began {
		panic("chans: a Mix runs once")
	}
	m.began, m.mixing = true, r
	for _, in := range m.inputs {
		m.start(in)
	}
}

func (m *Mix[T]) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mixing = nil
}
