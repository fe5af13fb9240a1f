package chans

import (
	"context"
	"reflect"
)

// Choice says how Alts chooses among operations. Choices are joined with |.
type Choice uint8

const (
	// Fair: every operation that is ready has the same chance.
	Fair Choice = 0
	// Priority: of the operations that are ready, the first one in the list. Once
	// Alts has to wait, it is whichever becomes ready.
	Priority Choice = 1 << (iota - 1)
	// Default: don't wait. Alts returns -1 when nothing is ready.
	Default
)

// Op is an operation that Alts may choose. TakeOp and PutOp make them.
type Op struct {
	scase reflect.SelectCase
	// try does it if that is possible without waiting.
	try func() (bool, error)
	// into is where a received value goes; not valid for a put.
	into reflect.Value
}

// TakeOp takes a value from c and stores it in *v; v may be nil. A closed channel
// is ready: Alts returns ErrClosed with the index of the operation. A nil channel
// is never ready.
func TakeOp[T any](c <-chan T, v *T) Op {
	if v == nil {
		v = new(T)
	}
	return Op{
		scase: reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)},
		try: func() (bool, error) {
			w, ok, err := Poll(c)
			if ok {
				*v = w
			}
			return ok, err
		},
		into: reflect.ValueOf(v).Elem(),
	}
}

// PutOp puts v into c. A closed channel is ready: Alts returns ErrClosed with the
// index of the operation. A nil channel is never ready.
func PutOp[T any](c chan<- T, v T) Op {
	return Op{
		scase: reflect.SelectCase{Dir: reflect.SelectSend, Chan: reflect.ValueOf(c), Send: reflect.ValueOf(&v).Elem()},
		try:   func() (bool, error) { return Offer(c, v) },
	}
}

// Alts does exactly one of the operations and returns its index. It waits for one
// to be ready until ctx ends, whose cause it then returns; with Default it doesn't
// wait and returns -1 when none is. Without operations it returns ErrNoOps.
//
// It is for channels whose number is known at run time only; otherwise select does
// the same, and is faster.
func Alts(ctx context.Context, how Choice, ops ...Op) (int, error) {
	switch {
	case len(ops) == 0:
		return -1, ErrNoOps
	case ctx.Err() != nil:
		return -1, ended(ctx)
	}
	if how&Priority != 0 {
		if i, err := firstReady(ops); i >= 0 || how&Default != 0 {
			return i, err
		}
	}
	last := reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}
	if how&Default != 0 {
		last = reflect.SelectCase{Dir: reflect.SelectDefault}
	}
	i, v, open, err := choose(ops, last)
	switch {
	case err != nil: // nothing was done; the closed channel is ready, or another
		return firstReady(ops)
	case i == len(ops) && how&Default != 0:
		return -1, nil
	case i == len(ops):
		return -1, ended(ctx)
	case !ops[i].into.IsValid():
		return i, nil
	case !open:
		return i, ErrClosed
	}
	ops[i].into.Set(v)
	return i, nil
}

// choose does one of the operations, or last. It is ErrClosed that a put met a
// closed channel, whose index can't be known.
func choose(ops []Op, last reflect.SelectCase) (i int, v reflect.Value, open bool, err error) {
	cases := make([]reflect.SelectCase, 0, len(ops)+1)
	for _, op := range ops {
		cases = append(cases, op.scase)
	}
	cases = append(cases, last)
	defer rescueClosed(&err)
	i, v, open = reflect.Select(cases)
	return i, v, open, nil
}

// firstReady does the first operation that doesn't have to wait.
func firstReady(ops []Op) (int, error) {
	for i, op := range ops {
		ready, err := op.try()
		if ready || err != nil {
			return i, err
		}
	}
	return -1, nil
}
