package chans

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

var (
	// ErrClosed: the channel, lossy channel or promise is closed, and nothing can
	// be put into it or taken from it any more.
	ErrClosed = errors.New("chans: closed")

	// ErrGoexit: a function ended its goroutine (runtime.Goexit) instead of
	// returning.
	ErrGoexit = errors.New("chans: function ended its goroutine")

	// ErrUneven: a source of Zip ended while values of the others had been taken
	// for the same row.
	ErrUneven = errors.New("chans: sources of different length")

	// ErrNoOps: Alts was called without an operation.
	ErrNoOps = errors.New("chans: no operation to choose from")

	// ErrDone is returned by a function of Reduce or Transduce with its last
	// result: it wants no more values. It is no failure, and is not handed on.
	ErrDone = errors.New("chans: done")
)

// ItemError is the failure of one value: what the user's function returned for
// it, or a PanicError.
type ItemError struct {
	// Value is the value that failed: what was taken from the source or, where a
	// step had kept values, the group that could not be given on. It is nil when
	// the source itself failed.
	Value any
	Err   error
}

func (e *ItemError) Error() string { return fmt.Sprintf("chans: value %v: %v", e.Value, e.Err) }

// Unwrap returns what failed.
func (e *ItemError) Unwrap() error { return e.Err }

// PanicError is a panic of a user's function.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value that was passed to panic, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Unsent hands back values that had been taken when the work ended early. They
// went nowhere: not into the destination, and not back into the source.
type Unsent[T any] struct {
	Values []T // in order
	Err    error
}

func (e *Unsent[T]) Error() string {
	return fmt.Sprintf("chans: ended with %d unsent: %v", len(e.Values), e.Err)
}

// Unwrap returns why the work ended.
func (e *Unsent[T]) Unwrap() error { return e.Err }

// unsent adds the values that were left to err.
func unsent[T any](values []T, err error) error {
	if len(values) == 0 {
		return err
	}
	return &Unsent[T]{values, err}
}

// join is errors.Join, but leaves a single error as it is.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// failure is the error of value v. An error that names its value stays as it is.
func failure(v any, err error) *ItemError {
	if e, ok := err.(*ItemError); ok {
		return e
	}
	return &ItemError{v, err}
}

// rescue turns a panic into an error. It is deferred.
func rescue(err *error) {
	if r := recover(); r != nil {
		*err = &PanicError{r, debug.Stack()}
	}
}

// rescueClosed turns the panic of a send on a closed channel into ErrClosed. It
// is deferred around nothing but a send.
func rescueClosed(err *error) {
	if closed := closedBy(recover()); closed != nil {
		*err = closed
	}
}

// closedBy is ErrClosed if r is what a send panicked with, and nil without r.
func closedBy(r any) error {
	switch r.(type) {
	case nil:
		return nil
	case runtime.Error:
		return ErrClosed
	}
	panic(r)
}

// ended is the reason why ctx has ended.
func ended(ctx context.Context) error { return fmt.Errorf("chans: stopped: %w", context.Cause(ctx)) }

// atLeast1 refuses a number that can't be meant.
func atLeast1(n int, of string) {
	if n < 1 {
		panic(fmt.Sprintf("chans: %s needs a number of at least 1, got %d", of, n))
	}
}
