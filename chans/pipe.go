package chans

import (
	"context"
	"iter"
)

// Pipe puts the values of from into to until from ends. When ctx ends or to is
// closed, the value that it has in hand comes back as Unsent.
func Pipe[T any](ctx context.Context, to chan<- T, from <-chan T) error {
	out := newOutlet(ctx, to)
	for {
		v, ok, live := receive(out.done, from)
		switch {
		case !live:
			return ended(ctx)
		case !ok:
			return nil
		}
		if err := out.put(v); err != nil {
			return unsent(out.left, err)
		}
	}
}

// OntoChan puts the values of seq into to. When ctx ends or to is closed, the
// value that it has in hand comes back as Unsent. A panic of seq is a PanicError.
func OntoChan[T any](ctx context.Context, to chan<- T, seq iter.Seq[T]) (err error) {
	defer rescue(&err)
	out := newOutlet(ctx, to)
	if ctx.Err() != nil {
		return ended(ctx)
	}
	for v := range seq {
		if err := out.put(v); err != nil {
			return unsent(out.left, err)
		}
	}
	return nil
}

// ToChan runs OntoChan with a channel of its own, as [Go] does: it has a buffer
// of n values and is closed at the end.
func ToChan[T any](ctx context.Context, n int, seq iter.Seq[T]) (from <-chan T, wait func() error) {
	return Go(n, func(to chan<- T) error { return OntoChan(ctx, to, seq) })
}
