package chans

import (
	"math"
	"sync"
	"sync/atomic"
)

// Lossy is a channel whose writers never wait: when its buffer is full, a value
// is shed. It is read as a plain channel, and has any number of writers and
// readers. While a reader waits, nothing is shed.
//
// Every value that was put is taken, still in the buffer, or counted by Shed.
type Lossy[T any] struct {
	c       chan T
	slides  bool
	observe func(T)
	shed    atomic.Uint64
	// writers counts those inside Put. Close makes it negative, and the last one
	// to leave closes the channel: nobody can be sending then.
	writers atomic.Int64
	closing sync.Once
	closed  sync.Once
}

const closing = math.MinInt64

// Dropping makes a channel with a buffer of n values that sheds a new value when
// it is full. observe, which may be nil, is called with each value that is shed,
// in the goroutine of the writer. Dropping panics if n < 1.
func Dropping[T any](n int, observe func(T)) *Lossy[T] {
	atLeast1(n, "Dropping")
	return &Lossy[T]{c: make(chan T, n), observe: observe}
}

// Sliding makes a channel with a buffer of n values that sheds its oldest value
// when it is full. observe, which may be nil, is called with each value that is
// shed, in the goroutine of the writer. Sliding panics if n < 1.
//
// A reader that takes a value just when a writer has found the buffer full can't
// call that writer back: the then oldest value is shed although there is room again.
func Sliding[T any](n int, observe func(T)) *Lossy[T] {
	atLeast1(n, "Sliding")
	return &Lossy[T]{c: make(chan T, n), slides: true, observe: observe}
}

// C is the channel to take from. It ends when Close was called and the buffer
// has been taken.
func (l *Lossy[T]) C() <-chan T { return l.c }

// Shed is the number of values that were shed so far.
func (l *Lossy[T]) Shed() uint64 { return l.shed.Load() }

// Put puts v and may shed a value for it. It never waits. Its only error is
// ErrClosed; then v was not put, and is not counted as shed.
func (l *Lossy[T]) Put(v T) error {
	if l.writers.Add(1) < 0 {
		l.leave()
		return ErrClosed
	}
	select {
	case l.c <- v:
		l.leave()
	default:
		l.overflow(v)
	}
	return nil
}

// overflow puts v into a buffer that was full.
func (l *Lossy[T]) overflow(v T) {
	defer l.leave()
	if !l.slides {
		l.lose(v)
		return
	}
	for {
		select {
		case oldest := <-l.c:
			l.lose(oldest)
		default:
		}
		select {
		case l.c <- v:
			return
		default:
		}
	}
}

func (l *Lossy[T]) lose(v T) {
	l.shed.Add(1)
	if l.observe != nil {
		l.observe(v)
	}
}

func (l *Lossy[T]) leave() {
	if l.writers.Add(-1) == closing {
		l.closed.Do(func() { close(l.c) })
	}
}

// Close ends the channel: values in its buffer can still be taken, and Put
// returns ErrClosed. It can be called by anybody, at any time, more than once.
func (l *Lossy[T]) Close() {
	l.closing.Do(func() {
		l.writers.Add(1)
		l.writers.Add(closing)
		l.leave()
	})
}
