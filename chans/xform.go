package chans

// Xform is a transducer: a way from values of type A to values of type B that
// knows neither where the first come from nor where the second go. It is called
// once for each use and returns what takes the values of that use; whatever state
// it has belongs in that call. Transducers are joined by [Compose], so that each step
// has a run of its own.
//
// A use is serial: Put and Close are not called at the same time.
type Xform[A, B any] func(r *Run, next Sink[B]) Sink[A]

// Sink takes the values of a run.
type Sink[T any] struct {
	// Put takes v. An error says that v, and nothing but v, failed; the run goes on
	// unless its driver decides otherwise. A step that puts several values for one
	// looks at [Run.Stopped] in between.
	Put func(v T) error
	// Close gives on what a step has kept, and then closes the next. It is called
	// once, after the last Put.
	Close func()
}

// Compose joins two transducers: values go through f, then through g.
func Compose[A, B, C any](f Xform[A, B], g Xform[B, C]) Xform[A, C] {
	return func(r *Run, next Sink[C]) Sink[A] {
		rest := g(r, next)
		return f(r.before(), rest)
	}
}

// Compose3 joins three transducers, as Compose does.
func Compose3[A, B, C, D any](f Xform[A, B], g Xform[B, C], h Xform[C, D]) Xform[A, D] {
	return Compose(f, Compose(g, h))
}

// Compose4 joins four transducers, as Compose does.
func Compose4[A, B, C, D, E any](f Xform[A, B], g Xform[B, C], h Xform[C, D], i Xform[D, E]) Xform[A, E] {
	return Compose(f, Compose3(g, h, i))
}

// Compose5 joins five transducers, as Compose does.
func Compose5[A, B, C, D, E, F any](
	f Xform[A, B], g Xform[B, C], h Xform[C, D], i Xform[D, E], j Xform[E, F],
) Xform[A, F] {
	return Compose(f, Compose4(g, h, i, j))
}

// Chain joins any number of transducers of one type. Without any, values pass.
func Chain[T any](steps ...Xform[T, T]) Xform[T, T] {
	return func(r *Run, next Sink[T]) Sink[T] {
		for i := len(steps) - 1; i >= 0; i-- {
			next = steps[i](r, next)
			r = r.before()
		}
		return next
	}
}
