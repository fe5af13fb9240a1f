package chans

import (
	"context"
	"errors"
	"iter"
)

// PipeThrough puts what xf makes of the values of from into to, until from ends
// or a step stops the run. It takes nothing from the source beyond that. At the end
// the steps give on what they have kept.
//
// The first failure ends it, in the same orderly way, and is returned as an
// ItemError; see [Rescue] for going on. When ctx ends or to is closed, values that
// can't be put any more come back as Unsent, those that steps had kept too.
func PipeThrough[A, B any](ctx context.Context, to chan<- B, from <-chan A, xf Xform[A, B]) error {
	out := newOutlet(ctx, to)
	failed := through(ctx, from, xf, out.putBare, out.interrupted, &out.err)
	return unsent(out.left, join(failed, out.err))
}

// Transduce is Reduce over what xf makes of the values of from. A failure ends
// it and is returned with the result so far.
func Transduce[A, B, R any](
	ctx context.Context, from <-chan A, xf Xform[A, B], init R, fn func(R, B) (R, error),
) (R, error) {
	result := init
	var stopped error
	fold := func(r *Run, _ Sink[struct{}]) Sink[B] {
		over := false
		return Sink[B]{func(v B) error {
			if over || stopped != nil {
				return stopped
			}
			next, err := fn(result, v)
			switch {
			case errors.Is(err, ErrDone):
				over = true
				r.Stop()
			case err != nil:
				return err
			}
			result = next
			return nil
		}, func() {}}
	}
	failed := through(ctx, from, Compose(xf, fold), func(struct{}) error { return nil }, func() {}, &stopped)
	return result, join(failed, stopped)
}

// through drives xf with the values of from and returns what failed. It writes
// the end of ctx to broken; put returns what is there, and then it is no value's
// failure. Nor is it if recovered, which is called after each panic, writes there.
func through[A, B any](
	ctx context.Context, from <-chan A, xf Xform[A, B], put func(B) error, recovered func(), broken *error,
) error {
	var d *Driver[A]
	failed := failures{stop: func() { d.Stop() }}
	d = drive(xf, put, func(e *ItemError) error {
		if recovered(); *broken != nil {
			d.Stop()
			return e
		}
		return failed.add(e)
	})
	again, live := true, true
	for again {
		again, live = d.pump(ctx.Done(), from, broken)
	}
	if !live {
		*broken = ended(ctx)
	}
	d.close()
	recovered() // by a step that did not tell
	return failed.err
}

// Seq is what xf makes of seq, as a sequence. Nothing happens before it is
// ranged over, and each time is a use of its own. A failure is yielded in its
// place, as an ItemError with a zero value; the sequence goes on behind it unless
// the loop breaks. A panic of seq itself is not caught.
func Seq[A, B any](xf Xform[A, B], seq iter.Seq[A]) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		var d *Driver[A]
		y := yielding[B]{yield: yield, stop: func() { d.Stop() }}
		d = drive(xf, func(v B) error {
			y.give(v, nil)
			return nil
		}, func(e *ItemError) error {
			var none B
			y.give(none, e)
			return e
		})
		if !d.Stopped() {
			for v := range seq {
				d.put(v)
				y.resume()
				if d.Stopped() {
					break
				}
			}
		}
		d.close()
		y.resume()
	}
}

// yielding calls the body of a loop. A panic of the body is not one of the steps
// that called it: it is carried past them and goes on in resume.
type yielding[T any] struct {
	yield  func(T, error) bool
	stop   func()
	over   bool
	inside bool
	crash  any
}

func (y *yielding[T]) give(v T, err error) {
	if y.over {
		return
	}
	defer func() {
		if y.inside {
			y.over = true
			y.stop()
			y.crash = recover()
		}
	}()
	y.inside = true
	more := y.yield(v, err)
	y.inside = false
	if !more {
		y.over = true
		y.stop()
	}
}

func (y *yielding[T]) resume() {
	if y.inside {
		panic(y.crash)
	}
}
