package chans_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/oncepipe/oncepipe/chans"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

// filled is a closed channel with values in it.
func filled[T any](values ...T) <-chan T {
	c := make(chan T, len(values))
	for _, v := range values {
		c <- v
	}
	close(c)
	return c
}

// taken are the values that are in c now.
func taken[T any](t *testing.T, c <-chan T) []T {
	t.Helper()
	var list []T
	for {
		v, ok, _ := chans.Poll(c)
		if !ok {
			return list
		}
		list = append(list, v)
	}
}

func want[T any](t *testing.T, what string, got, want T, equal func(a, b T) bool) {
	t.Helper()
	if !equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func same[T comparable](t *testing.T, what string, got, expected []T) {
	t.Helper()
	want(t, what, got, expected, slices.Equal)
}

func is(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got error %v, want %v", err, target)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("unexpected error: %v", err)
	}
}

// left are the values that err hands back.
func left[T any](t *testing.T, err error) []T {
	t.Helper()
	var u *chans.Unsent[T]
	if !errors.As(err, &u) {
		t.Errorf("%v hands nothing back", err)
		return nil
	}
	return u.Values
}

// through is what xf makes of values on a channel.
func through[A, B any](t *testing.T, xf chans.Xform[A, B], values ...A) ([]B, error) {
	t.Helper()
	out, wait := chans.Go(0, func(to chan<- B) error {
		return chans.PipeThrough(t.Context(), to, filled(values...), xf)
	})
	var list []B
	for v := range out {
		list = append(list, v)
	}
	return list, wait()
}

// bubble runs fn in fake time with a context that can be ended.
func bubble(t *testing.T, fn func(t *testing.T, ctx context.Context, end func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		fn(t, ctx, func() { cancel(errBroken) })
		cancel(nil)
		synctest.Wait()
	})
}
