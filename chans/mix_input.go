package chans

import (
	"context"
	"sync"
)

// mixing is the run of a Mix.
type mixing[T any] struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	to     chan<- T
	inputs sync.WaitGroup

	mu   sync.Mutex
	left []T
}

// input is a channel of a Mix. Only its gate is not guarded by the lock of the Mix.
type input[T any] struct {
	c    <-chan T
	on   Switch
	gone bool // removed, but a value of it may still be in hand
	read bool // by its goroutine
	gate gate[hearing]
}

// hearing is what the switches of all inputs mean for one.
type hearing uint8

const (
	heard hearing = iota
	muted
	paused
	removed
)

// change lets fn change the inputs under the lock, and those that it returns, or
// all if the solos have changed, follow.
func (m *Mix[T]) change(fn func() []*input[T]) {
	for _, change := range m.changes(fn) {
		change.settle()
	}
}

func (m *Mix[T]) changes(fn func() []*input[T]) (changes []replaced[hearing]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	solo, mode := m.solos > 0, m.mode
	changed := fn()
	for _, in := range changed {
		changes = append(changes, m.follow(in)...)
		m.start(in)
	}
	if solo != (m.solos > 0) || mode != m.mode {
		for _, in := range m.inputs {
			changes = append(changes, m.follow(in)...)
		}
	}
	return changes
}

// follow makes the hearing of an input what it should be. It returns the change,
// if there is one.
func (m *Mix[T]) follow(in *input[T]) []replaced[hearing] {
	h := m.hearing(in)
	if in.gate.now().is == h {
		return nil
	}
	return []replaced[hearing]{in.gate.replace(h)}
}

func (m *Mix[T]) hearing(in *input[T]) hearing {
	solo := m.solos > 0
	switch {
	case in.gone:
		return removed
	case in.on&Solo != 0:
		return heard
	case in.on&Pause != 0, solo && m.mode == Pause:
		return paused
	case in.on&Mute != 0, solo:
		return muted
	}
	return heard
}

func (m *Mix[T]) set(in *input[T], on Switch) {
	m.solos += int(on&Solo>>2) - int(in.on&Solo>>2)
	in.on = on
}

// input finds an input or adds it.
func (m *Mix[T]) input(c <-chan T) *input[T] {
	if in := m.inputs[c]; in != nil {
		in.gone = false
		return in
	}
	if m.inputs == nil {
		m.inputs = make(map[<-chan T]*input[T])
	}
	in := &input[T]{c: c}
	m.inputs[c] = in
	return in
}

// drop removes an input. If there is a goroutine for it, that goroutine takes it out
// of the map when it has nothing in hand any more, so that an input that is added
// again keeps its order.
func (m *Mix[T]) drop(in *input[T]) {
	m.set(in, 0)
	in.gone = true
	if m.mixing == nil {
		delete(m.inputs, in.c)
	}
}

// start begins to read an input whose hearing is set.
func (m *Mix[T]) start(in *input[T]) {
	if r := m.mixing; r != nil && !in.read {
		in.read = true
		r.inputs.Go(func() { m.read(r, in) })
	}
}

// read takes the values of an input and delivers those that are heard.
func (m *Mix[T]) read(r *mixing[T], in *input[T]) {
	out := newOutlet(r.ctx, r.to)
	for r.ctx.Err() == nil {
		now := in.gate.enter()
		v, met := in.meet(now, out.done)
		in.gate.leave(now)
		switch {
		case met == aValue && now.is == muted:
			m.discarded.Add(1)
		case met == aValue:
			if err := out.put(v); err != nil {
				r.stop(out.left, err)
			}
		case met == itsEnd:
			m.forgetEnded(in)
			return
		case now.is == removed && m.forget(in):
			return
		}
	}
}

// met is what a reader of an input comes upon.
type met uint8

const (
	aChange met = iota // or the end of the context
	aValue
	itsEnd
)

// meet takes a value, if that is what the version says.
func (in *input[T]) meet(now *version[hearing], done <-chan struct{}) (v T, m met) {
	c := in.c
	switch now.is {
	case removed:
		return v, aChange
	case paused:
		c = nil // never has a value
	}
	ok := false
	select {
	case v, ok = <-c:
	default:
		select {
		case v, ok = <-c:
		case <-now.old:
			return v, aChange
		case <-done:
			return v, aChange
		}
	}
	if !ok {
		return v, itsEnd
	}
	return v, aValue
}

// forget lets a removed input go, unless it has been added again.
func (m *Mix[T]) forget(in *input[T]) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if in.gone && m.inputs[in.c] == in {
		delete(m.inputs, in.c)
	}
	return in.gone
}

func (m *Mix[T]) forgetEnded(in *input[T]) {
	m.change(func() []*input[T] {
		m.set(in, 0)
		if m.inputs[in.c] == in {
			delete(m.inputs, in.c)
		}
		return nil
	})
}

// stop ends the run with the values that an input has left.
func (r *mixing[T]) stop(left []T, err error) {
	r.mu.Lock()
	r.left = append(r.left, left...)
	r.mu.Unlock()
	r.cancel(err)
}
