package chans

// PartitionAll passes groups of n values, and at the end the rest as a smaller
// one. Every group is a slice of its own. It panics if n < 1.
//
// A group that a later step fails for is the Value of the ItemError.
func PartitionAll[T any](n int) Xform[T, []T] {
	atLeast1(n, "PartitionAll")
	return func(r *Run, next Sink[[]T]) Sink[T] {
		g := newGrouping(r, next)
		return Sink[T]{func(v T) error {
			g.add(v)
			if len(g.values) == n {
				g.flush()
			}
			return nil
		}, g.close}
	}
}

// PartitionBy passes groups of neighbours with the same key, the last one at the
// end. Every group is a slice of its own. A group is not bounded: where many
// neighbours may have one key, cut it with PartitionAll first.
//
// A group that a later step fails for is the Value of the ItemError.
func PartitionBy[T any, K comparable](key func(T) K) Xform[T, []T] {
	return func(r *Run, next Sink[[]T]) Sink[T] {
		g := newGrouping(r, next)
		var current K
		return Sink[T]{func(v T) error {
			k := key(v)
			if len(g.values) > 0 && k != current {
				g.flush()
				if r.Stopped() {
					return nil
				}
			}
			current = k
			g.add(v)
			return nil
		}, g.close}
	}
}

// grouping is a group that grows.
type grouping[T any] struct {
	r      *Run
	next   Sink[[]T]
	values []T
	hold   Hold
}

func newGrouping[T any](r *Run, next Sink[[]T]) *grouping[T] {
	g := &grouping[T]{r: r, next: next}
	r.OnFlush(g.flushRest)
	return g
}

func (g *grouping[T]) add(v T) {
	g.values = append(g.values, v)
	g.hold.Keep(g.r)
}

// flush passes the group. It is taken out first: a failing one is not tried
// again.
func (g *grouping[T]) flush() {
	group := g.values
	g.values = nil
	Release(g.r, &g.hold, g.next, group)
}

func (g *grouping[T]) flushRest() {
	if len(g.values) > 0 {
		g.flush()
	}
}

func (g *grouping[T]) close() {
	g.flushRest()
	g.next.Close()
}
