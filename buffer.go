package oncepipe

import "fmt"

// DefaultBuffer is the size of a stage's buffer when no Buffer option is given.
// Measured on two cores: 16 places take most of what a buffer can gain.
const DefaultBuffer = 16

// BufferPolicy says how many items wait in front of a stage and what happens to
// one that finds no place: Fixed, Dropping or Sliding.
type BufferPolicy struct {
	kind bufferKind
	size int
}

type bufferKind uint8

const (
	fixed bufferKind = iota
	dropping
	sliding
)

// Fixed is a buffer of n places; 0 hands items over from goroutine to goroutine.
// When it is full the stage before it waits, and at last the source. It is the
// default.
func Fixed(n int) BufferPolicy { return BufferPolicy{fixed, n} }

// Dropping is a buffer of n places, at least 1. An item that finds it full is
// settled as Shed.
func Dropping(n int) BufferPolicy { return BufferPolicy{dropping, n} }

// Sliding is a buffer of n places, at least 1. When it is full the oldest item
// in it is settled as Shed and makes room for the new one.
func Sliding(n int) BufferPolicy { return BufferPolicy{sliding, n} }

func (b BufferPolicy) check() error {
	switch {
	case b.size < 0:
		return fmt.Errorf("buffer of %d places", b.size)
	case b.size == 0 && b.kind != fixed:
		return fmt.Errorf("a dropping or sliding buffer needs at least one place")
	}
	return nil
}

// inbox is the bounded queue in front of a stage.
type inbox[T any] struct {
	queue[T]
	p      *Pipeline
	policy BufferPolicy
	shed   func(item[T])
}

// accept places it by the policy: first without waiting, which is all that a
// queue with room needs.
func (b *inbox[T]) accept(it item[T]) {
	if !b.put(it) {
		b.acceptFull(it)
	}
}

func (b *inbox[T]) acceptFull(it item[T]) {
	switch b.policy.kind {
	case dropping:
		b.shed(it)
	case sliding:
		for !b.put(it) {
			var oldest item[T]
			if b.take(&oldest) {
				b.shed(oldest)
			}
		}
	default:
		if !b.putWait(it, b.p.stopped()) {
			it.t.settle(verdict{outcome: Returned, err: ErrShutdown})
		}
	}
}
