package chans

import (
	"context"
	"errors"
	"sync"
)

// publishing is the run of a Pub: one goroutine routes, and one for each topic
// that has had a value puts its values into its subscribers.
type publishing[K comparable, T any] struct {
	p      *Pub[K, T]
	ctx    context.Context
	cancel context.CancelCauseFunc
	topics sync.WaitGroup

	mu   sync.Mutex
	left []T
	err  error // the first one of a topic
}

func newPublishing[K comparable, T any](ctx context.Context, p *Pub[K, T]) *publishing[K, T] {
	ctx, cancel := context.WithCancelCause(ctx)
	return &publishing[K, T]{p: p, ctx: ctx, cancel: cancel}
}

// route puts each value into the buffer of its topic.
func (r *publishing[K, T]) route(from <-chan T) error {
	done := r.ctx.Done()
	for {
		v, ok, live := receive(done, from)
		switch {
		case !live:
			return ended(r.ctx)
		case !ok:
			return nil
		}
		tp, err := r.topicOf(v)
		if err != nil {
			err = r.p.rescued(failure(v, err))
		}
		switch {
		case err != nil:
			return err
		case tp == nil:
			r.p.discarded.Add(1)
		default:
			r.put(tp, v)
		}
	}
}

func (p *Pub[K, T]) rescued(e *ItemError) (err error) {
	if p.Rescue == nil {
		return e
	}
	defer rescue(&err)
	return p.Rescue(e)
}

// topicOf is nil when nobody is subscribed. It is an error too that a topic can't
// be looked up, as one in an interface may not be comparable.
func (r *publishing[K, T]) topicOf(v T) (tp *topic[K, T], err error) {
	defer rescue(&err)
	k := r.p.Topic(v)
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	tp = r.p.topics[k]
	if tp != nil && tp.done == nil {
		tp.ctx, tp.cancel = context.WithCancelCause(r.ctx)
		tp.done = make(chan struct{})
		r.topics.Go(func() { r.serve(tp) })
	}
	return tp, nil
}

// put returns when v is in the buffer of its topic or, should that have ended,
// accounted for.
func (r *publishing[K, T]) put(tp *topic[K, T], v T) {
	sent := send(tp.ctx.Done(), tp.c, v)
	if sent && tp.ctx.Err() == nil {
		return
	}
	<-tp.done
	r.account(tp, tp.buffered())
	if !sent {
		r.account(tp, []T{v})
	}
}

// serve puts the values of a topic into its subscribers.
func (r *publishing[K, T]) serve(tp *topic[K, T]) {
	err := ErrGoexit
	defer func() {
		r.served(tp, err)
		close(tp.done)
	}()
	err = tp.mult.Run(tp.ctx, tp.c)
}

// served accounts for what is left of a topic, and ends its subscribers. A failure
// ends the run first, so that nothing more comes into the buffer unnoticed.
func (r *publishing[K, T]) served(tp *topic[K, T], err error) {
	defer tp.cancel(nil)
	var item *ItemError
	var left *Unsent[T]
	back := errors.As(err, &left)
	switch {
	case errors.As(err, &item):
		r.fail(item)
		r.cancel(item)
	case err == ErrGoexit:
		r.fail(err)
		r.cancel(err)
	case back:
		r.fail(left.Err)
	case err != nil && !tp.evicted():
		r.fail(err)
	}
	if back {
		r.account(tp, left.Values)
	}
	r.account(tp, tp.buffered())
	r.p.releaseTopic(tp)
}

// fail keeps the first error.
func (r *publishing[K, T]) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (p *Pub[K, T]) releaseTopic(tp *topic[K, T]) {
	var after aftermath[K, T]
	defer after.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(tp, &after)
}

// account deals with values that nobody gets: they are discarded if their topic
// ended for want of subscribers, and come back otherwise.
func (r *publishing[K, T]) account(tp *topic[K, T], values []T) {
	if tp.evicted() {
		r.p.discarded.Add(uint64(len(values)))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, values...)
}

func (tp *topic[K, T]) evicted() bool { return context.Cause(tp.ctx) == errEvicted }

func (tp *topic[K, T]) buffered() (values []T) {
	for {
		v, ok, _ := Poll(tp.c)
		if !ok {
			return values
		}
		values = append(values, v)
	}
}

// finish ends all topics, waits until their values have been put into their
// subscribers, and makes the error of Run.
func (r *publishing[K, T]) finish(err error) error {
	for _, tp := range r.p.end() {
		close(tp.c)
	}
	r.topics.Wait()
	r.cancel(nil)
	if err == nil {
		err = r.err
	}
	return unsent(r.left, err)
}

// end releases the topics that never had a value, and returns the others.
func (p *Pub[K, T]) end() (started []*topic[K, T]) {
	var after aftermath[K, T]
	defer after.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, tp := range p.topics {
		if tp.done == nil {
			p.release(tp, &after)
		} else {
			started = append(started, tp)
		}
	}
	return started
}
