package chans

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// AtEnd says what becomes of a channel when no more values will be put into it.
type AtEnd uint8

const (
	// CloseAtEnd: it is closed, so that its readers know.
	CloseAtEnd AtEnd = iota
	// KeepOpen: it stays open, for other writers.
	KeepOpen
)

// Mult puts every value of a source into each of its taps, in order. The next value
// waits until all taps have taken the last one, or have gone: a channel that is
// not read holds up all. A [Lossy] tap never does; it sheds instead, and counts.
//
// A value that no tap gets, as there are none, is discarded and counted. A tap
// gets the values that are taken from the source after it was added, and perhaps the
// one that was taken at that moment. A channel is
// a tap once, however often it is added; how it ends is what was said last.
//
// The zero Mult is ready. Its methods can be called by any goroutine at any time,
// also before and after Run.
type Mult[T any] struct {
	mu           sync.Mutex
	byKey        map[any]*tap[T]
	began, ended bool

	gate      gate[taps[T]] // replaced under mu
	discarded atomic.Uint64
	topic     *topicHooks // nil if it is no topic's
}

// taps is what Run works with. It is not changed, but replaced.
type taps[T any] struct{ plain, lossy []*tap[T] }

// tap is a channel that values are put into: either c or lossy.
type tap[T any] struct {
	c     chan<- T
	lossy *Lossy[T]
	atEnd AtEnd // guarded by the lock of its owner
	gone  atomic.Bool
}

func plainTap[T any](c chan<- T, atEnd AtEnd) *tap[T] {
	if c == nil {
		panic("chans: a nil channel never takes a value")
	}
	return &tap[T]{c: c, atEnd: atEnd}
}

func lossyTap[T any](l *Lossy[T], atEnd AtEnd) *tap[T] { return &tap[T]{lossy: l, atEnd: atEnd} }

func (t *tap[T]) key() any {
	if t.lossy != nil {
		return t.lossy
	}
	return t.c
}

// end closes the channel, if it is to be closed. That its owner has closed it
// before is as good.
func (t *tap[T]) end() {
	switch {
	case t.atEnd == KeepOpen:
	case t.lossy != nil:
		t.lossy.Close()
	default:
		var closedBefore error
		defer rescueClosed(&closedBefore)
		close(t.c)
	}
}

// Tap adds c. When Run has ended, c has no values to wait for and is ended at
// once.
//
// Run closes c at the end unless it is to be kept open. Nobody else should close
// it before Untap has returned true. A tap that is found closed is removed.
func (m *Mult[T]) Tap(c chan<- T, atEnd AtEnd) { m.tap(plainTap(c, atEnd)) }

// TapLossy is Tap for a lossy channel. It may be closed at any time.
func (m *Mult[T]) TapLossy(l *Lossy[T], atEnd AtEnd) { m.tap(lossyTap(l, atEnd)) }

func (m *Mult[T]) tap(t *tap[T]) {
	added, change := m.add(t)
	change.settle()
	if !added {
		t.end()
	}
}

// Untap removes c without closing it. It releases Run if it waits for c, and waits
// for Run to let go of c: nothing is put into it after Untap has returned.
// It reports whether c was a tap until then; if so, the caller may close it.
func (m *Mult[T]) Untap(c chan<- T) bool { return m.untap(c) }

// UntapLossy is Untap for a lossy channel. A value that is being put into it may
// come through.
func (m *Mult[T]) UntapLossy(l *Lossy[T]) bool { return m.untap(l) }

func (m *Mult[T]) untap(key any) bool {
	was, change := m.remove(key)
	change.settle()
	return was
}

// UntapAll removes all taps and, as their readers can't know of it otherwise, ends
// them as Run does: those that are not kept open are closed.
func (m *Mult[T]) UntapAll() { m.endAll(false) }

// Discarded is the number of values so far that no tap got.
func (m *Mult[T]) Discarded() uint64 { return m.discarded.Load() }

// Run takes the values of from and puts them into the taps until from ends. Then,
// or when ctx ends, it ends all taps. It panics if it was called before.
//
// A value that not all taps have got when ctx ends comes back as Unsent. A panic
// of the observer of a lossy tap is an ItemError, after the other taps have got
// the value.
func (m *Mult[T]) Run(ctx context.Context, from <-chan T) error {
	m.begin()
	defer m.endAll(true)
	r := round[T]{m: m, done: ctx.Done()}
	for {
		v, ok, live := receive(r.done, from)
		switch {
		case !live:
			return ended(ctx)
		case !ok:
			return nil
		}
		err := r.give(v)
		if len(r.waiting) > 0 {
			err = join(err, unsent([]T{v}, ended(ctx)))
		}
		if err != nil {
			return err
		}
	}
}

func (m *Mult[T]) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began {
		panic("chans: a Mult runs once")
	}
	m.began = true
}

// add reports false when there is nothing to come for t.
func (m *Mult[T]) add(t *tap[T]) (added bool, change replaced[taps[T]]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false, change
	}
	if known := m.byKey[t.key()]; known != nil {
		known.atEnd = t.atEnd
		return true, change
	}
	if m.byKey == nil {
		m.byKey = make(map[any]*tap[T])
	}
	m.byKey[t.key()] = t
	now := m.gate.now().is
	if t.lossy != nil {
		now.lossy = append(slices.Clip(now.lossy), t)
	} else {
		now.plain = append(slices.Clip(now.plain), t)
	}
	return true, m.gate.replace(now)
}

func (m *Mult[T]) remove(key any) (was bool, change replaced[taps[T]]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.byKey[key]
	if t == nil {
		return false, change
	}
	delete(m.byKey, key)
	t.gone.Store(true)
	now := m.gate.now().is
	return true, m.gate.replace(taps[T]{without(now.plain, t), without(now.lossy, t)})
}

func without[T any](list []*tap[T], t *tap[T]) []*tap[T] {
	i := slices.Index(list, t)
	if i < 0 {
		return list
	}
	return slices.Concat(list[:i], list[i+1:])
}

func (m *Mult[T]) endAll(forGood bool) {
	all, change := m.removeAll(forGood)
	change.settle()
	for _, t := range all {
		t.end()
	}
}

func (m *Mult[T]) removeAll(forGood bool) (all map[any]*tap[T], change replaced[taps[T]]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = m.ended || forGood
	all, m.byKey = m.byKey, nil
	for _, t := range all {
		t.gone.Store(true)
	}
	return all, m.gate.replace(taps[T]{})
}

// untapClosed removes a tap that somebody else has closed.
func (m *Mult[T]) untapClosed(t *tap[T]) {
	was, change := m.remove(t.key())
	change.settle()
	if was && m.topic != nil {
		m.topic.closed(t.key())
	}
}

func (m *Mult[T]) discard(n int) {
	m.discarded.Add(uint64(n))
	if m.topic != nil {
		m.topic.discarded.Add(uint64(n))
	}
}
