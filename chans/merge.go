package chans

import (
	"context"
	"errors"
	"sync"
)

// Merge puts the values of all sources into to, those of each source in its
// order, until all have ended. When ctx ends or to is closed, the values that it
// has in hand come back as Unsent.
func Merge[T any](ctx context.Context, to chan<- T, from ...<-chan T) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(from))
	var wg sync.WaitGroup
	for i, c := range from {
		wg.Go(func() {
			if errs[i] = Pipe(ctx, to, c); errs[i] != nil {
				cancel(ErrClosed) // if the context hasn't ended already
			}
		})
	}
	wg.Wait()
	var left []T
	var first error
	for _, err := range errs {
		var u *Unsent[T]
		if errors.As(err, &u) {
			left, err = append(left, u.Values...), u.Err
		}
		if first == nil {
			first = err
		}
	}
	return unsent(left, first)
}

// Split puts the values of from for which yes returns true into the first
// destination, and the others into the second, until from ends. Both have to be
// read: a full one holds up the other. A panic of yes is an ItemError.
//
// When ctx ends or a destination is closed, the value that it has in hand comes back
// as Unsent.
func Split[T any](ctx context.Context, match, rest chan<- T, from <-chan T, yes func(T) bool) error {
	yeses, noes := newOutlet(ctx, match), newOutlet(ctx, rest)
	for done := ctx.Done(); ; {
		v, ok, live := receive(done, from)
		switch {
		case !live:
			return ended(ctx)
		case !ok:
			return nil
		}
		matches, err := ask(yes, v)
		if err != nil {
			return failure(v, err)
		}
		out := noes
		if matches {
			out = yeses
		}
		if err := out.put(v); err != nil {
			return unsent(out.left, err)
		}
	}
}

func ask[T any](yes func(T) bool, v T) (answer bool, err error) {
	defer rescue(&err)
	return yes(v), nil
}

// Zip takes one value of each source, in their order, and puts what fn makes of
// that row into to, until a source ends. It is core.async's map. A row belongs to
// fn: it is not used again. Without sources Zip is done at once.
//
// A source that ends while others have given their value for the row is
// ErrUneven, and those values come back as Unsent[A]; a caller to whom that is a
// normal end ignores it. An error or a panic of fn is an ItemError with the row. When
// ctx ends or to is closed, values in hand come back as Unsent[A] or Unsent[B].
func Zip[A, B any](ctx context.Context, to chan<- B, fn func(row []A) (B, error), from ...<-chan A) error {
	if len(from) == 0 {
		return nil
	}
	out := newOutlet(ctx, to)
	for {
		row, err := takeRow(ctx, from)
		switch {
		case err != nil:
			return unsent(row, err)
		case row == nil:
			return nil
		}
		v, err := combine(fn, row)
		if err != nil {
			return failure(row, err)
		}
		if err := out.put(v); err != nil {
			return unsent(out.left, err)
		}
	}
}

// takeRow takes a value of each source. It returns nil at the end.
func takeRow[T any](ctx context.Context, from []<-chan T) ([]T, error) {
	row := make([]T, 0, len(from))
	for _, c := range from {
		v, ok, live := receive(ctx.Done(), c)
		switch {
		case !live:
			return row, ended(ctx)
		case !ok && len(row) > 0:
			return row, ErrUneven
		case !ok:
			return nil, nil
		}
		row = append(row, v)
	}
	return row, nil
}

func combine[A, B any](fn func([]A) (B, error), row []A) (v B, err error) {
	defer rescue(&err)
	return fn(row)
}
