package chans

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Pipeline calls fn for each value of from, n at a time, and puts what fn emits
// into to: none, one or many results for a value, together, and in the order of
// the values. A slow value holds back those behind it. Pipeline takes at most n+2
// values more than it has delivered. It panics if n < 1.
//
// fn must not emit after it has returned. It sees a context that also ends when the
// pipeline does. A stateful transducer has no place here, since neighbours run at
// the same time: use PipeThrough before or behind it.
//
// The first failure, in the order of the values, ends the pipeline: an error of fn
// or a panic, as an ItemError. Results of the values before it are delivered; what
// fn had emitted for the failed one is not. [RescueFunc] decides otherwise. The values that had
// been taken from the source behind the failed one, or when ctx ended, or to was
// closed, come back as Unsent, whether fn has been called for them or not; of the first of them some
// results may have been delivered. Pipeline returns when all calls of fn have.
func Pipeline[A, B any](
	ctx context.Context, n int, to chan<- B, from <-chan A, fn func(ctx context.Context, v A, emit func(B)) error,
) error {
	atLeast1(n, "Pipeline")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := newPipeline(ctx, n, fn)
	var wg sync.WaitGroup
	wg.Go(func() { p.feed(from) })
	for range n {
		wg.Go(func() { p.work(&wg) })
	}
	left, err := p.deliver(newOutlet(ctx, to), func() { cancel(errEnded) })
	wg.Wait()
	if err == nil {
		err = p.err
	}
	return unsent(left, err)
}

// One makes a function for Pipeline of one that has exactly one result.
func One[A, B any](fn func(context.Context, A) (B, error)) func(context.Context, A, func(B)) error {
	return func(ctx context.Context, v A, emit func(B)) error {
		w, err := fn(ctx, v)
		if err == nil {
			emit(w)
		}
		return err
	}
}

// errEnded is why a context ended that fn sees when the pipeline has failed.
var errEnded = fmt.Errorf("chans: pipeline ended: %w", context.Canceled)

// errSkipped is the error of a value that fn was not called for.
var errSkipped = errors.New("chans: skipped")

// pipeline has slots for the values on their way: n in order, one in the hand of
// feed and one in that of deliver. So a slot is free when its turn comes again.
type pipeline[A, B any] struct {
	ctx   context.Context
	fn    func(context.Context, A, func(B)) error
	slots []slot[A, B]
	order chan *slot[A, B] // to deliver, which takes all
	jobs  chan *slot[A, B] // to the workers; has room for all
	err   error            // of feed
}

// slot is a value on its way.
type slot[A, B any] struct {
	v    A
	out  []B
	emit func(B)
	err  error
	done chan struct{} // has one when out and err are there
}

func newPipeline[A, B any](ctx context.Context, n int, fn func(context.Context, A, func(B)) error) *pipeline[A, B] {
	p := &pipeline[A, B]{
		ctx:   ctx,
		fn:    fn,
		slots: make([]slot[A, B], n+2),
		order: make(chan *slot[A, B], n),
		jobs:  make(chan *slot[A, B], n+2),
	}
	for i := range p.slots {
		s := &p.slots[i]
		s.done = make(chan struct{}, 1)
		s.emit = func(v B) { s.out = append(s.out, v) }
	}
	return p
}

// feed gives each value a slot.
func (p *pipeline[A, B]) feed(from <-chan A) {
	defer close(p.order)
	defer close(p.jobs)
	done := p.ctx.Done()
	for i := 0; ; i = (i + 1) % len(p.slots) {
		v, ok, live := receive(done, from)
		if !live {
			p.err = ended(p.ctx)
		}
		if !ok {
			return
		}
		s := &p.slots[i]
		s.v = v
		p.jobs <- s
		p.order <- s
	}
}

// work calls fn until there are no more values. When fn ends the goroutine,
// another one takes its place.
func (p *pipeline[A, B]) work(wg *sync.WaitGroup) {
	alive := false
	defer func() {
		if !alive {
			wg.Go(func() { p.work(wg) })
		}
	}()
	for s := range p.jobs {
		p.run(s)
	}
	alive = true
}

func (p *pipeline[A, B]) run(s *slot[A, B]) {
	defer func() { s.done <- struct{}{} }()
	defer rescue(&s.err)
	if p.ctx.Err() != nil {
		s.err = errSkipped
		return
	}
	s.err = ErrGoexit // should fn not return
	s.err = p.fn(p.ctx, s.v, s.emit)
}

// deliver puts the results in order. It calls end at the first failure, and
// returns it with the values that are left then.
func (p *pipeline[A, B]) deliver(out *outlet[B], end func()) (left []A, err error) {
	for s := range p.order {
		<-s.done
		if err == nil {
			if err = p.settle(s, out); err != nil {
				end()
			}
			if _, failed := err.(*ItemError); err != nil && !failed {
				left = append(left, s.v)
			}
		} else {
			left = append(left, s.v)
		}
		clear(s.out)
		var none A
		s.v, s.out, s.err = none, s.out[:0], nil
	}
	return left, err
}

// settle delivers what became of a value. What is not the value's own failure is
// no ItemError.
func (p *pipeline[A, B]) settle(s *slot[A, B], out *outlet[B]) error {
	switch {
	case s.err == nil:
	case s.err == errSkipped, p.ctx.Err() != nil && stopped(p.ctx, s.err):
		return ended(p.ctx)
	default:
		return failure(s.v, s.err)
	}
	for _, v := range s.out {
		if err := out.put(v); err != nil {
			return err
		}
	}
	return nil
}

// stopped reports whether err comes of the end of ctx.
func stopped(ctx context.Context, err error) bool {
	return errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}

// PipelineAsync is Pipeline for functions that begin something and return a
// channel with its results, which they close at the end. No more than n of them have
// begun and not ended. One that has not closed its channel after limit has failed
// with context.DeadlineExceeded, which is also how the context ends that start got;
// a limit of 0 is none. What still comes in that channel afterwards is not taken.
func PipelineAsync[A, B any](
	ctx context.Context, n int, limit time.Duration, to chan<- B, from <-chan A,
	start func(ctx context.Context, v A) (<-chan B, error),
) error {
	return Pipeline(ctx, n, to, from, func(ctx context.Context, v A, emit func(B)) error {
		ctx, cancel := within(ctx, limit)
		defer cancel()
		results, err := start(ctx, v)
		if err != nil {
			return err
		}
		for {
			v, ok, live := receive(ctx.Done(), results)
			switch {
			case !live:
				return ended(ctx)
			case !ok:
				return nil
			}
			emit(v)
		}
	})
}

func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}
