package chans

import (
	"reflect"
	"runtime"
	"slices"
)

// round is one value on its way to all taps.
type round[T any] struct {
	m       *Mult[T]
	done    <-chan struct{}
	v       T
	got     int       // taps that have it
	waiting []*tap[T] // plain ones without room so far
	closed  []*tap[T] // found closed
	cases   []reflect.SelectCase
}

// give puts v into all taps. If some are left waiting, the context has ended. Its
// error is that of an observer.
func (r *round[T]) give(v T) error {
	r.v, r.got, r.waiting = v, 0, r.waiting[:0]
	gate := &r.m.gate
	now := gate.enter()
	r.offer(now.is.plain)
	gate.leave(now)
	var err error
	for _, t := range now.is.lossy {
		err = join(err, r.put(t))
	}
	if len(r.waiting) > 0 {
		runtime.Gosched() // mostly their readers only need a turn, which is cheaper than a wait
	}
	r.dropClosed()
	for live := true; live && len(r.waiting) > 0; {
		live = r.wait()
		r.dropClosed()
	}
	if r.got == 0 && len(r.waiting) == 0 {
		r.m.discard(1)
	}
	return err
}

func (r *round[T]) dropClosed() {
	for _, t := range r.closed {
		r.m.untapClosed(t)
	}
	r.closed = r.closed[:0]
}

// offer puts the value into those that have room, and has the others wait.
func (r *round[T]) offer(list []*tap[T]) {
	for i := 0; i < len(list); i++ {
		i = r.offerFrom(i, list)
	}
}

// offerFrom stops at a closed one.
func (r *round[T]) offerFrom(i int, list []*tap[T]) (at int) {
	var err error
	defer func() {
		if err != nil {
			r.closed = append(r.closed, list[at])
		}
	}()
	defer rescueClosed(&err)
	for at = i; at < len(list); at++ {
		select {
		case list[at].c <- r.v:
			r.got++
		default:
			r.waiting = append(r.waiting, list[at])
		}
	}
	return at
}

// put sheds rather than waits.
func (r *round[T]) put(t *tap[T]) (err error) {
	if t.gone.Load() {
		return nil
	}
	defer func() {
		if err != nil {
			err = failure(r.v, err)
		}
	}()
	defer rescue(&err)
	if t.lossy.Put(r.v) != nil {
		r.closed = append(r.closed, t)
	} else {
		r.got++
	}
	return nil
}

// wait waits until one of those that wait has got the value, or the taps have
// changed. It reports whether the context lives.
func (r *round[T]) wait() (live bool) {
	gate := &r.m.gate
	now := gate.enter()
	defer gate.leave(now)
	again := slices.DeleteFunc(r.waiting, func(t *tap[T]) bool { return t.gone.Load() })
	r.waiting = again[:0]
	r.offer(again)
	if len(r.waiting) == 0 {
		return true
	}
	sent, live := r.block(now.old)
	if sent >= 0 {
		r.got++
		r.waiting = slices.Delete(r.waiting, sent, sent+1)
	}
	return live
}

// block puts the value into the first that has room. It is -1 when none has got
// it: the taps have changed, the context has ended, or one is closed, which offer
// will find.
func (r *round[T]) block(old <-chan struct{}) (sent int, live bool) {
	var closed error
	defer func() {
		if closed != nil {
			sent, live = -1, true
		}
	}()
	defer rescueClosed(&closed)
	if len(r.waiting) > 1 {
		return r.blockMany(old)
	}
	select {
	case r.waiting[0].c <- r.v:
		return 0, true
	case <-old:
		return -1, true
	case <-r.done:
		return -1, false
	}
}

func (r *round[T]) blockMany(old <-chan struct{}) (sent int, live bool) {
	v := reflect.ValueOf(&r.v).Elem()
	r.cases = r.cases[:0]
	for _, t := range r.waiting {
		r.cases = append(r.cases, reflect.SelectCase{Dir: reflect.SelectSend, Chan: reflect.ValueOf(t.c), Send: v})
	}
	for _, end := range []<-chan struct{}{old, r.done} {
		r.cases = append(r.cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(end)})
	}
	n := len(r.waiting)
	switch i, _, _ := reflect.Select(r.cases); i {
	case n:
		return -1, true
	case n + 1:
		return -1, false
	default:
		return i, true
	}
}
