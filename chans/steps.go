package chans

import "iter"

// Map applies fn to every value.
func Map[A, B any](fn func(A) B) Xform[A, B] {
	return func(_ *Run, next Sink[B]) Sink[A] {
		return Sink[A]{func(v A) error { return next.Put(fn(v)) }, next.Close}
	}
}

// TryMap applies fn to every value. An error of fn is that of the value.
func TryMap[A, B any](fn func(A) (B, error)) Xform[A, B] {
	return func(_ *Run, next Sink[B]) Sink[A] {
		return Sink[A]{func(v A) error {
			w, err := fn(v)
			if err != nil {
				return err
			}
			return next.Put(w)
		}, next.Close}
	}
}

// Filter passes the values for which yes returns true.
func Filter[T any](yes func(T) bool) Xform[T, T] {
	return func(_ *Run, next Sink[T]) Sink[T] {
		return Sink[T]{func(v T) error {
			if yes(v) {
				return next.Put(v)
			}
			return nil
		}, next.Close}
	}
}

// Remove passes the values for which yes returns false.
func Remove[T any](yes func(T) bool) Xform[T, T] {
	return func(_ *Run, next Sink[T]) Sink[T] {
		return Sink[T]{func(v T) error {
			if yes(v) {
				return nil
			}
			return next.Put(v)
		}, next.Close}
	}
}

// Keep applies fn to every value and passes the results that come with true.
func Keep[A, B any](fn func(A) (B, bool)) Xform[A, B] {
	return func(_ *Run, next Sink[B]) Sink[A] {
		return Sink[A]{func(v A) error {
			if w, ok := fn(v); ok {
				return next.Put(w)
			}
			return nil
		}, next.Close}
	}
}

// FlatMap passes every element of what fn makes of a value. When one of them
// fails, the value has failed, and those behind it are left out.
func FlatMap[A, B any](fn func(A) []B) Xform[A, B] {
	return func(r *Run, next Sink[B]) Sink[A] {
		return Sink[A]{func(v A) error {
			for _, w := range fn(v) {
				if err := next.Put(w); err != nil || r.Stopped() {
					return err
				}
			}
			return nil
		}, next.Close}
	}
}

// FlatMapSeq is FlatMap for sequences. They may be endless, if a later step
// stops the run.
func FlatMapSeq[A, B any](fn func(A) iter.Seq[B]) Xform[A, B] {
	return func(r *Run, next Sink[B]) Sink[A] {
		return Sink[A]{func(v A) error {
			for w := range fn(v) {
				if err := next.Put(w); err != nil || r.Stopped() {
					return err
				}
			}
			return nil
		}, next.Close}
	}
}

// Take passes n values and stops the run with the last of them; nothing is taken
// from the source beyond it. A value that a later step fails for doesn't count.
// With n < 1 nothing is taken at all.
func Take[T any](n int) Xform[T, T] {
	return func(r *Run, next Sink[T]) Sink[T] {
		left := n
		if left < 1 {
			r.Stop()
		}
		return Sink[T]{func(v T) error {
			if left < 1 {
				return nil
			}
			err := next.Put(v)
			if err == nil {
				left--
			}
			if left < 1 {
				r.Stop()
			}
			return err
		}, next.Close}
	}
}

// TakeWhile passes values until yes returns false, and then stops the run. The
// value that ended it is not passed.
func TakeWhile[T any](yes func(T) bool) Xform[T, T] {
	return func(r *Run, next Sink[T]) Sink[T] {
		over := false
		return Sink[T]{func(v T) error {
			if over = over || !yes(v); over {
				r.Stop()
				return nil
			}
			return next.Put(v)
		}, next.Close}
	}
}

// Drop leaves out the first n values.
func Drop[T any](n int) Xform[T, T] {
	return func(_ *Run, next Sink[T]) Sink[T] {
		left := n
		return Sink[T]{func(v T) error {
			if left > 0 {
				left--
				return nil
			}
			return next.Put(v)
		}, next.Close}
	}
}

// DropWhile leaves out values until yes returns false, which it is not asked
// again.
func DropWhile[T any](yes func(T) bool) Xform[T, T] {
	return func(_ *Run, next Sink[T]) Sink[T] {
		over := false
		return Sink[T]{func(v T) error {
			if over = over || !yes(v); over {
				return next.Put(v)
			}
			return nil
		}, next.Close}
	}
}

// TakeNth passes the first value and every nth after it. It panics if n < 1.
func TakeNth[T any](n int) Xform[T, T] {
	atLeast1(n, "TakeNth")
	return func(_ *Run, next Sink[T]) Sink[T] {
		skip := 0
		return Sink[T]{func(v T) error {
			if skip > 0 {
				skip--
				return nil
			}
			skip = n - 1
			return next.Put(v)
		}, next.Close}
	}
}

// Interpose passes sep between any two values.
func Interpose[T any](sep T) Xform[T, T] {
	return func(r *Run, next Sink[T]) Sink[T] {
		due := false // sep comes before the next value
		return Sink[T]{func(v T) error {
			if due {
				if err := next.Put(sep); err != nil {
					return err
				}
				due = false
				if r.Stopped() {
					return nil
				}
			}
			err := next.Put(v)
			if err == nil {
				due = true
			}
			return err
		}, next.Close}
	}
}
