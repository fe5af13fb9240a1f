package chans_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/chans"
)

// coreAsync holds the behaviours of core.async, as they are here. The method
// N28_C15_… is the subtest 28_C15_…: number and fact as in docs/core-async.md, which
// says what core.async does.
type coreAsync struct{}

// minBehaviours is how many subtests there are at least.
const minBehaviours = 170

// TestCoreAsync runs each behaviour in a bubble: whatever is started in it has
// ended when its context has.
func TestCoreAsync(t *testing.T) {
	n := 0
	for name, assert := range behaviours() {
		n++
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				defer end(errBroken)
				assert(t, ctx)
			})
		})
	}
	if n < minBehaviours {
		t.Errorf("%d behaviours, want at least %d", n, minBehaviours)
	}
}

type behaviour = func(*testing.T, context.Context)

func behaviours() iter.Seq2[string, behaviour] {
	return func(yield func(string, behaviour) bool) {
		for m, v := range reflect.ValueOf(coreAsync{}).Methods() {
			if !yield(m.Name[1:], v.Interface().(behaviour)) {
				return
			}
		}
	}
}

// call is a call in another goroutine of the bubble.
type call[T any] struct{ result chan T }

func begin[T any](fn func() T) call[T] {
	c := call[T]{make(chan T, 1)}
	go func() { c.result <- fn() }()
	return c
}

// waits: the call blocks, and no time helps.
func (c call[T]) waits(t *testing.T, what string) {
	t.Helper()
	synctest.Wait()
	if len(c.result) > 0 {
		t.Errorf("%s: returned %v and should wait", what, <-c.result)
	}
}

// returns: the call has an answer without waiting for more to happen.
func (c call[T]) returns(t *testing.T, what string) T {
	t.Helper()
	synctest.Wait()
	select {
	case v := <-c.result:
		return v
	default:
		t.Fatalf("%s: it waits and should return", what)
		panic("unreachable")
	}
}

func sending[T any](ctx context.Context, c chan<- T, v T) call[error] {
	return begin(func() error { return chans.Send(ctx, c, v) })
}

// got is what came out of a channel.
type got[T any] struct {
	v   T
	err error
}

func receiving[T any](ctx context.Context, c <-chan T) call[got[T]] {
	return begin(func() got[T] {
		v, err := chans.Receive(ctx, c)
		return got[T]{v, err}
	})
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// gives takes a value that is there, or on its way.
func gives[T comparable](t *testing.T, c <-chan T, want T) {
	t.Helper()
	synctest.Wait()
	v, ok, err := chans.Poll(c)
	if !ok || err != nil || v != want {
		t.Errorf("got %v, %v, %v, want %v", v, ok, err, want)
	}
}

// empty: nothing is there nor on its way, and the channel is open.
func empty[T any](t *testing.T, c <-chan T) {
	t.Helper()
	synctest.Wait()
	if v, ok, err := chans.Poll(c); ok || err != nil {
		t.Errorf("got %v, %v, %v from a channel that should be open and empty", v, ok, err)
	}
}

// isClosed: there are no values, and won't be.
func isClosed[T any](t *testing.T, c <-chan T) {
	t.Helper()
	synctest.Wait()
	if v, ok, err := chans.Poll(c); ok || !errors.Is(err, chans.ErrClosed) {
		t.Errorf("got %v, %v, %v from a channel that should be closed and empty", v, ok, err)
	}
}

func refuses(t *testing.T, what string, fn func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s is not refused", what)
		}
	}()
	fn()
}

// blames: err is the failure of value.
func blames(t *testing.T, err error, value any) {
	t.Helper()
	var e *chans.ItemError
	if !errors.As(err, &e) || !reflect.DeepEqual(e.Value, value) {
		t.Errorf("got %v, want the failure of %v", err, value)
	}
}

// panicked: err holds a panic with its stack.
func panicked(t *testing.T, err error) {
	t.Helper()
	var p *chans.PanicError
	if !errors.As(err, &p) || len(p.Stack) == 0 {
		t.Errorf("got %v, want a panic with its stack", err)
	}
}

// upTo is 0 to n-1.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
