package chans

import (
	"context"
	"sync/atomic"
)

// Promise is one value for everyone who asks, before or after it is there. It is
// core.async's promise-chan. Its methods can be called by any number of
// goroutines. It holds no goroutine.
type Promise[T any] struct {
	taken atomic.Bool // somebody delivers or closes
	done  chan struct{}
	v     T
	ok    bool
}

// NewPromise makes a promise that is open.
func NewPromise[T any]() *Promise[T] { return &Promise[T]{done: make(chan struct{})} }

// Deliver gives the promise its value. The first one wins: Deliver reports
// whether it was this one.
func (p *Promise[T]) Deliver(v T) bool { return p.end(v, true) }

// Close ends a promise that has no value: all who ask are told ErrClosed. A value
// that was delivered stays.
func (p *Promise[T]) Close() {
	var none T
	p.end(none, false)
}

func (p *Promise[T]) end(v T, ok bool) bool {
	if !p.taken.CompareAndSwap(false, true) {
		return false
	}
	p.v, p.ok = v, ok
	close(p.done)
	return true
}

// Done is closed when the promise has its value or was closed. It is for select;
// Get doesn't wait afterwards.
func (p *Promise[T]) Done() <-chan struct{} { return p.done }

// Get returns the value. It waits for it until ctx ends, whose cause it then
// returns. A promise that was closed without a value returns ErrClosed. A value
// that is there is returned whatever the state of ctx.
func (p *Promise[T]) Get(ctx context.Context) (T, error) {
	var none T
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return none, ended(ctx)
		}
	}
	if !p.ok {
		return none, ErrClosed
	}
	return p.v, nil
}
