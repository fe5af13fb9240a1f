package chans

import "context"

// Send puts v into c. It waits for room until ctx ends, whose cause it then
// returns; v is not sent if there is an error. On a closed channel it returns
// ErrClosed, also when the channel is closed while it waits. (As always in Go, to
// close a channel while somebody may send to it is a data race: the sender
// should close it, or [Lossy] be used.)
func Send[T any](ctx context.Context, c chan<- T, v T) (err error) {
	defer rescueClosed(&err)
	if ctx.Err() != nil || !send(ctx.Done(), c, v) {
		return ended(ctx)
	}
	return nil
}

// Receive takes a value from c. It waits for one until ctx ends, whose cause it
// then returns. At the end of a closed channel it returns ErrClosed.
func Receive[T any](ctx context.Context, c <-chan T) (T, error) {
	v, ok, live := receive(ctx.Done(), c)
	switch {
	case !live:
		return v, ended(ctx)
	case !ok:
		return v, ErrClosed
	}
	return v, nil
}

// Offer puts v into c if that is possible without waiting. It answers true when
// it has, false when there is no room and no receiver waits, and ErrClosed when
// the channel is closed.
func Offer[T any](c chan<- T, v T) (ok bool, err error) {
	defer rescueClosed(&err)
	select {
	case c <- v:
		return true, nil
	default:
		return false, nil
	}
}

// Poll takes a value from c if there is one. It answers false when there is
// none for now, and ErrClosed when there won't be any more.
func Poll[T any](c <-chan T) (v T, ok bool, err error) {
	select {
	case v, ok = <-c:
		if !ok {
			err = ErrClosed
		}
	default:
	}
	return v, ok, err
}

// send reports whether v was sent before done. A select with two cases costs
// twice as much as a send, so that it comes only when there is no room.
func send[T any](done <-chan struct{}, c chan<- T, v T) bool {
	if done == nil {
		c <- v
		return true
	}
	select {
	case c <- v:
		return true
	default:
	}
	select {
	case c <- v:
		return true
	case <-done:
		return false
	}
}

// receive takes a value, or finds c closed (not ok), or done (not live).
func receive[T any](done <-chan struct{}, c <-chan T) (v T, ok, live bool) {
	if done == nil {
		v, ok = <-c
		return v, ok, true
	}
	select {
	case <-done:
		return v, false, false
	default:
	}
	select {
	case v, ok = <-c:
		return v, ok, true
	default:
	}
	select {
	case v, ok = <-c:
		return v, ok, true
	case <-done:
		return v, false, false
	}
}

// outlet is the way into a destination. After its first error it only collects.
type outlet[T any] struct {
	ctx  context.Context
	done <-chan struct{}
	to   chan<- T
	left []T
	err  error

	sending bool // putBare is: it stays so if that panics
	sent    T    // what it sends
}

func newOutlet[T any](ctx context.Context, to chan<- T) *outlet[T] {
	return &outlet[T]{ctx: ctx, done: ctx.Done(), to: to}
}

func (o *outlet[T]) put(v T) (err error) {
	sent := false
	defer func() {
		if !sent { // recover has its cost
			o.fail(v, recover())
			err = o.err
		}
	}()
	sent = o.err == nil && send(o.done, o.to, v)
	return nil
}

// fail keeps v, which could not be sent because of the panic r, or ctx, or an
// earlier failure.
func (o *outlet[T]) fail(v T, r any) {
	o.left = append(o.left, v)
	if o.err != nil {
		return
	}
	if o.err = closedBy(r); o.err == nil {
		o.err = ended(o.ctx)
	}
}

// putBare is put without a recover of its own where there is room, which costs a
// tenth of a chain of steps. Who calls it asks interrupted after each panic.
func (o *outlet[T]) putBare(v T) error {
	if o.err == nil && !o.sending {
		o.sent, o.sending = v, true
		select {
		case o.to <- v:
			o.sending = false
			return nil
		default:
			o.sending = false
		}
	}
	o.interrupted()
	return o.put(v)
}

// interrupted takes note of a putBare that has panicked, whoever has recovered:
// its channel is closed.
func (o *outlet[T]) interrupted() {
	if o.sending {
		o.sending = false
		o.left, o.err = append(o.left, o.sent), ErrClosed
	}
}
