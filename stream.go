package oncepipe

import (
	"fmt"
	"hash/maphash"
	"iter"
	"strconv"
)

// Stream is a typed handle on the values that come out of a source, an operator
// or a stage. It is read by exactly one operator or stage. Streams are wired
// before Run; they hold no goroutine and no channel.
//
// The operators on streams (Map, TryMap, Filter, FlatMap, FlatMapSeq, KeyBy,
// PartitionBy, Split, Route, Broadcast, Merge) are inline: they run in the
// goroutines of the source or stage before them, several at once when that has
// several workers, and cost a function call. Their functions must not block for
// long. A panic in one is a dead letter of the item it met.
type Stream[T any] struct{ out *port[T] }

// port is where the items of a stream come out.
type port[T any] struct {
	traits
	p    *Pipeline
	from string // the source or stage whose goroutines drive it
	next consumer[T]
}

// consumer takes what a port gives.
type consumer[T any] interface {
	// accept takes over an item and its settlement. It blocks while there is no
	// room, and returns the item to its source when the pipeline stops.
	accept(it item[T])
	// close says that there will be no more. It is called once.
	close()
}

// order says what is left of the source's order.
type order uint8

const (
	unordered    order = iota
	perPartition       // items of a partition are in order
	ordered
)

// traits is what a port inherits from the one before it.
type traits struct {
	order order
	keyed bool // its items carry the partition that PartitionBy gave them
	// shared says that a ticket may be known to an attempt's context, so that an
	// operator must not write to it.
	shared bool
}

func newPort[T any](p *Pipeline, from string, inherited traits) *port[T] {
	out := &port[T]{p: p, from: from, traits: inherited}
	p.ports = append(p.ports, out)
	return out
}

func (o *port[T]) dangling() error {
	if o.next == nil {
		return fmt.Errorf("a stream that comes from %q is never read; end it with Sink or Discard", o.from)
	}
	return nil
}

// read wires c to the stream, whose only reader it must be.
func read[T any](in Stream[T], c consumer[T]) {
	if in.out.next != nil {
		in.out.p.wrong(fmt.Errorf("a stream that comes from %q is read twice; use Broadcast", in.out.from))
		return
	}
	in.out.next = c
}

// derive makes the output stream of an inline operator.
func derive[B, A any](in Stream[A]) (*port[B], Stream[B]) {
	mustBeWired(in)
	out := newPort[B](in.out.p, in.out.from, in.out.traits)
	return out, Stream[B]{out}
}

func mustBeWired[T any](in Stream[T]) {
	if in.out == nil {
		panic("oncepipe: use of a Stream that does not come from a source, an operator or a stage")
	}
}

// pass hands it to the next consumer. When an operator there panics or ends the
// goroutine, the item ends as a dead letter and takes nothing else with it.
func (o *port[T]) pass(it item[T]) {
	passed := false
	defer func() {
		if !passed {
			o.p.crashed(o.from, it.t, it.v, recover())
		}
	}()
	o.next.accept(it)
	passed = true
}

type mapOp[A, B any] struct {
	out *port[B]
	fn  func(A) B
}

func (o *mapOp[A, B]) accept(it item[A]) { o.out.next.accept(item[B]{o.fn(it.v), it.t}) }
func (o *mapOp[A, B]) close()            { o.out.next.close() }

// Map applies fn to every value.
func Map[A, B any](in Stream[A], fn func(A) B) Stream[B] {
	out, s := derive[B](in)
	read(in, &mapOp[A, B]{out, fn})
	return s
}

type tryMapOp[A, B any] struct {
	out *port[B]
	fn  func(A) (B, error)
}

func (o *tryMapOp[A, B]) accept(it item[A]) {
	v, err := o.fn(it.v)
	if err != nil {
		o.out.p.reject(o.out.from, it.t, it.v, ReasonRejected, strip(err))
		return
	}
	o.out.next.accept(item[B]{v, it.t})
}
func (o *tryMapOp[A, B]) close() { o.out.next.close() }

// TryMap applies fn to every value. A value that fn has an error for becomes a
// dead letter; it is not tried again.
func TryMap[A, B any](in Stream[A], fn func(A) (B, error)) Stream[B] {
	out, s := derive[B](in)
	read(in, &tryMapOp[A, B]{out, fn})
	return s
}

type filterOp[T any] struct {
	out  *port[T]
	keep func(T) bool
}

func (o *filterOp[T]) accept(it item[T]) {
	if !o.keep(it.v) {
		it.t.settle(verdict{outcome: Filtered})
		return
	}
	o.out.next.accept(it)
}
func (o *filterOp[T]) close() { o.out.next.close() }

// Filter keeps the values that keep returns true for. The others are settled as
// Filtered.
func Filter[T any](in Stream[T], keep func(T) bool) Stream[T] {
	out, s := derive[T](in)
	read(in, &filterOp[T]{out, keep})
	return s
}

type flatMapOp[A, B any] struct {
	out *port[B]
	fn  func(A) iter.Seq[B]
}

// accept keeps a share of the scope for itself while it emits children, so that
// the scope can't be settled before the last of them is out.
func (o *flatMapOp[A, B]) accept(it item[A]) {
	own := *it.t
	n := 0
	for v := range o.fn(it.v) {
		child := &ticket{partition: own.partition, scope: own.scope}
		if own.key != "" {
			child.key = Key(own.key, strconv.Itoa(n))
		}
		n++
		own.scope.fork(1)
		o.out.pass(item[B]{v, child})
	}
	own.settle(verdict{outcome: Filtered})
}
func (o *flatMapOp[A, B]) close() { o.out.next.close() }

// FlatMap replaces every value by any number of values. Each has its parent's
// key and its position as key (see Key), so fn has to be deterministic, unless
// KeyBy gives it another. The parent is settled when all its children are, with
// the worst outcome of them; without children it is Filtered.
func FlatMap[A, B any](in Stream[A], fn func(A) []B) Stream[B] {
	return FlatMapSeq(in, func(v A) iter.Seq[B] {
		return func(yield func(B) bool) {
			for _, b := range fn(v) {
				if !yield(b) {
					return
				}
			}
		}
	})
}

// FlatMapSeq is FlatMap for a function that returns an iterator: children go on
// their way while later ones are still being made.
func FlatMapSeq[A, B any](in Stream[A], fn func(A) iter.Seq[B]) Stream[B] {
	out, s := derive[B](in)
	read(in, &flatMapOp[A, B]{out, fn})
	return s
}

// keyOp and partitionOp write to the item's ticket, or to a copy of it where an
// attempt's context may still read the old one.
type keyOp[T any, K ~string] struct {
	out    *port[T]
	copied bool
	key    func(T) K
}

func (o *keyOp[T, K]) accept(it item[T]) {
	it.t = it.t.own(o.copied)
	it.t.key = string(o.key(it.v))
	o.out.next.accept(it)
}
func (o *keyOp[T, K]) close() { o.out.next.close() }

type partitionOp[T any, K ~string] struct {
	out       *port[T]
	copied    bool
	seed      maphash.Seed
	partition func(T) K
}

func (o *partitionOp[T, K]) accept(it item[T]) {
	it.t = it.t.own(o.copied)
	it.t.partition = max(1, maphash.String(o.seed, string(o.partition(it.v))))
	o.out.next.accept(it)
}
func (o *partitionOp[T, K]) close() { o.out.next.close() }

// KeyBy gives every item the key that key returns. An empty key is an item
// without a key.
func KeyBy[T any, K ~string](in Stream[T], key func(T) K) Stream[T] {
	out, s := derive[T](in)
	read(in, &keyOp[T, K]{out, in.out.shared, key})
	out.shared = false
	return s
}

// PartitionBy names the partition of every item: what must be handled in order,
// such as a customer or an account. It is not the key of the item. Stages with
// PerPartition run the items of a partition one after the other.
func PartitionBy[T any, K ~string](in Stream[T], partition func(T) K) Stream[T] {
	out, s := derive[T](in)
	out.keyed = true
	read(in, &partitionOp[T, K]{out, in.out.shared, in.out.p.seed, partition})
	out.shared = false
	return s
}

type discardOp[T any] struct{}

func (discardOp[T]) accept(it item[T]) { it.t.settle(verdict{outcome: Done}) }
func (discardOp[T]) close()            {}

// Discard ends a stream: what comes out of it is done.
func Discard[T any](in Stream[T]) {
	mustBeWired(in)
	read(in, discardOp[T]{})
}
