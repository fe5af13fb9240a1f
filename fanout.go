package oncepipe

import (
	"fmt"
	"sync/atomic"
)

// routeOp sends every item to one of several ports.
type routeOp[T any] struct {
	outs []*port[T]
	pick func(T) int
}

func (o *routeOp[T]) accept(it item[T]) { o.outs[o.pick(it.v)].next.accept(it) }
func (o *routeOp[T]) close() {
	for _, out := range o.outs {
		out.next.close()
	}
}

func fanOut[T any](in Stream[T], n int) ([]*port[T], []Stream[T]) {
	outs, streams := make([]*port[T], n), make([]Stream[T], n)
	for i := range n {
		outs[i], streams[i] = derive[T](in)
	}
	return outs, streams
}

// Split sends the values for which yes returns true to the first stream and the
// others to the second. Both have to be read; a full one holds up the other.
func Split[T any](in Stream[T], yes func(T) bool) (Stream[T], Stream[T]) {
	outs, streams := fanOut(in, 2)
	read(in, &routeOp[T]{outs, func(v T) int {
		if yes(v) {
			return 0
		}
		return 1
	}})
	return streams[0], streams[1]
}

// Route sends every value to the stream of its route, in the order of routes,
// and values of any other route to rest. All have to be read; a full one holds
// up the others.
func Route[T any, R comparable](in Stream[T], by func(T) R, routes ...R) (streams []Stream[T], rest Stream[T]) {
	outs, all := fanOut(in, len(routes)+1)
	index := make(map[R]int, len(routes))
	for i, r := range routes {
		if _, twice := index[r]; twice {
			in.out.p.wrong(fmt.Errorf("Route after %q names the route %v twice", in.out.from, r))
		}
		index[r] = i
	}
	read(in, &routeOp[T]{outs, func(v T) int {
		if i, ok := index[by(v)]; ok {
			return i
		}
		return len(routes)
	}})
	return all[:len(routes)], all[len(routes)]
}

type broadcastOp[T any] struct{ outs []*port[T] }

func (o *broadcastOp[T]) accept(it item[T]) {
	own := it.t
	own.scope.fork(int32(len(o.outs)))
	for _, out := range o.outs {
		t := *own
		out.pass(item[T]{it.v, &t})
	}
	own.settle(verdict{outcome: Filtered})
}

func (o *broadcastOp[T]) close() {
	for _, out := range o.outs {
		out.next.close()
	}
}

// Broadcast sends every value, with its key, to all of n streams. The delivery
// is settled when all branches are, with the worst outcome of them: when one
// branch is dead the effects of the others stand, and a redrive replays them. A
// full branch holds up the others, unless its stage has a Dropping or Sliding
// buffer.
func Broadcast[T any](in Stream[T], n int) []Stream[T] {
	mustBeWired(in)
	if n < 1 {
		in.out.p.wrong(fmt.Errorf("Broadcast after %q to %d streams", in.out.from, n))
		n = 1
	}
	outs, streams := fanOut(in, n)
	read(in, &broadcastOp[T]{outs})
	return streams
}

type mergeOp[T any] struct {
	out  *port[T]
	open atomic.Int32
}

func (o *mergeOp[T]) accept(it item[T]) { o.out.next.accept(it) }
func (o *mergeOp[T]) close() {
	if o.open.Add(-1) == 0 {
		o.out.next.close()
	}
}

// Merge joins streams into one. It has no goroutine of its own: the sources and
// stages before it deliver side by side, each in its own order.
func Merge[T any](first Stream[T], more ...Stream[T]) Stream[T] {
	out, s := derive[T](first)
	op := &mergeOp[T]{out: out}
	op.open.Store(int32(len(more) + 1))
	read(first, op)
	for _, in := range more {
		mustBeWired(in)
		if in.out.p != out.p {
			out.p.wrong(fmt.Errorf("Merge of streams of two pipelines: %q and %q", out.p.name, in.out.p.name))
			continue
		}
		out.from += "+" + in.out.from
		out.order = min(out.order, in.out.order, perPartition)
		out.keyed = out.keyed && in.out.keyed
		out.shared = out.shared || in.out.shared
		read(in, op)
	}
	return s
}
