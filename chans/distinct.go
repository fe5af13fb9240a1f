package chans

// Distinct passes a value unless one with the same key has passed. It remembers
// the last n keys that have, so that a copy which comes later than n others passes
// again. It panics if n < 1.
//
// A key counts as seen only when all later steps of the run took its value without
// an error: after a failure the value can be put again. While a later step keeps the
// value, its copies are duplicates; should what became of it fail, it counts as
// never seen.
func Distinct[T any, K comparable](key func(T) K, n int) Xform[T, T] {
	atLeast1(n, "Distinct")
	return func(r *Run, next Sink[T]) Sink[T] {
		r.track()
		seen := window[K]{size: n, place: map[K]int{}}
		return Sink[T]{func(v T) error {
			k := key(v)
			if seen.has(k) {
				return nil
			}
			if err := next.Put(v); err != nil {
				return err
			}
			if len(r.lots) == 0 || r.taken(func() { seen.forget(k) }) {
				seen.add(k)
			}
			return nil
		}, next.Close}
	}
}

// window remembers the last keys that were added.
type window[K comparable] struct {
	size  int
	place map[K]int // where a key stands in order
	order []K       // a ring, once it has its size
	next  int
}

func (w *window[K]) has(k K) bool {
	_, ok := w.place[k]
	return ok
}

func (w *window[K]) forget(k K) { delete(w.place, k) }

func (w *window[K]) add(k K) {
	if len(w.order) < w.size {
		w.place[k] = len(w.order)
		w.order = append(w.order, k)
		return
	}
	// A key that was forgotten and added again stands at a later place.
	if oldest := w.order[w.next]; w.has(oldest) && w.place[oldest] == w.next {
		delete(w.place, oldest)
	}
	w.order[w.next] = k
	w.place[k] = w.next
	w.next = (w.next + 1) % w.size
}

// Dedupe passes a value unless it equals the last one that passed. As with
// Distinct, a value that failed in a later step hasn't passed.
func Dedupe[T comparable]() Xform[T, T] {
	return func(r *Run, next Sink[T]) Sink[T] {
		r.track()
		var last T
		passed := 0 // number of last; 0: none
		count := 0
		return Sink[T]{func(v T) error {
			if passed > 0 && v == last {
				return nil
			}
			if err := next.Put(v); err != nil {
				return err
			}
			count++
			number := count
			if len(r.lots) == 0 || r.taken(func() {
				if passed == number {
					passed = 0
				}
			}) {
				last, passed = v, number
			}
			return nil
		}, next.Close}
	}
}
