package chans

import (
	"context"
	"errors"
)

// Reduce calls fn with the result so far, init at first, and each value of from,
// and returns the last result. fn returns ErrDone with its result to end it early:
// what is left stays in from. An error or a panic of fn ends it too and is returned
// as an ItemError. With an error the result is the one before.
func Reduce[T, R any](ctx context.Context, from <-chan T, init R, fn func(R, T) (R, error)) (R, error) {
	result := init
	for done := ctx.Done(); ; {
		v, ok, live := receive(done, from)
		switch {
		case !live:
			return result, ended(ctx)
		case !ok:
			return result, nil
		}
		next, err := fold(fn, result, v)
		if err != nil && !errors.Is(err, ErrDone) {
			return result, failure(v, err)
		}
		result = next
		if err != nil {
			return result, nil
		}
	}
}

func fold[T, R any](fn func(R, T) (R, error), result R, v T) (next R, err error) {
	defer rescue(&err)
	return fn(result, v)
}

// Into appends the values of from to list until from ends. With an error it
// returns what it has until then.
func Into[T any](ctx context.Context, list []T, from <-chan T) ([]T, error) {
	for done := ctx.Done(); ; {
		v, ok, live := receive(done, from)
		switch {
		case !live:
			return list, ended(ctx)
		case !ok:
			return list, nil
		}
		list = append(list, v)
	}
}
