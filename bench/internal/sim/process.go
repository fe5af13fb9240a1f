package sim

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
)

var (
	errKilled = errors.New("the process was killed")
	errFailed = errors.New("the attempt failed")
)

// process is a pipeline and all that it has in memory. What it does after its
// death doesn't happen.
type process struct {
	w      *world
	number int
	dead   atomic.Bool
	kill   context.CancelFunc
	ended  chan error
	inside sync.WaitGroup // whoever may sleep, and the bubble can't end before

	services, claims, records slots
}

// start runs a new process, beside which no other one lives.
func (w *world) start() *process {
	w.processes++
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{w: w, number: w.processes, kill: cancel, ended: make(chan error, 1)}
	pipe := p.pipeline()
	go func() {
		defer cancel()
		p.ended <- pipe.Run(ctx)
	}()
	return p
}

// die is what a SIGKILL does to it.
func (p *process) die() {
	p.dead.Store(true)
	p.kill()
}

// wait returns what became of the process when nothing of it is left.
func (p *process) wait() error {
	err := <-p.ended
	p.inside.Wait()
	return err
}

// pipeline builds what runs: the sender, the guard, the buffer and the workers.
func (p *process) pipeline() *oncepipe.Pipeline {
	c := p.w.cell
	cfg := oncepipe.Config{
		DrainTimeout: -1, // who drains is dead
		PruneEvery:   -1,
		Logger:       slog.New(slog.DiscardHandler),
	}
	st := &link{p.w.store, p}
	if c.Guard == Store {
		cfg.Stores = []oncepipe.Store{st}
	}
	pipe := oncepipe.New("sim", cfg)
	in := oncepipe.From(pipe, "sender", oncepipe.SourceFunc[parcel](p.receive))
	in, effect := p.guarded(in, st)
	opts := []oncepipe.Option{oncepipe.Workers(c.Workers), oncepipe.Buffer(oncepipe.Fixed(c.Buffer))}
	if c.Fail > 0 {
		opts = append(opts, oncepipe.Retry(oncepipe.RetryPolicy{
			MaxAge: -1,
			Backoff: func() backoff.BackOff {
				return &doubling{clock: p.w.clock, first: c.Backoff, next: c.Backoff}
			},
		}))
	}
	oncepipe.Sink(in, "effect", func(ctx context.Context, v parcel) error {
		p.inside.Add(1)
		defer p.inside.Done()
		return effect(ctx, v)
	}, opts...)
	return pipe
}

// receive hands out what the sender wants to send. That it is called again
// says that the pipeline has taken what it was given before.
func (p *process) receive(context.Context) (oncepipe.Delivery[parcel], error) {
	p.inside.Add(1)
	defer p.inside.Done()
	s, clock := p.w.sender, p.w.clock
	if p.dead.Load() {
		return oncepipe.Delivery[parcel]{}, io.EOF
	}
	s.took(clock.now())
	for {
		now := clock.now()
		at, more := s.next(now)
		if !more {
			return oncepipe.Delivery[parcel]{}, io.EOF
		}
		clock.sleep(max(at, now+1), ofSource)
		if p.dead.Load() {
			return oncepipe.Delivery[parcel]{}, io.EOF
		}
		v, ok := s.send(clock.now())
		if !ok {
			continue
		}
		return oncepipe.Delivery[parcel]{Value: v, Key: v.key.name, Settle: func(_ context.Context, o oncepipe.Settlement) error {
			p.settled(v, o)
			return nil
		}}, nil
	}
}

func (p *process) settled(v parcel, o oncepipe.Settlement) {
	switch now := p.w.clock.now(); {
	case p.dead.Load():
	case o.Outcome == oncepipe.Returned:
		p.w.sender.returned(v, now, o.Delay)
	default:
		p.w.sender.done(v, now)
	}
}

// act has the effect, at the end of the service time.
func (p *process) act(_ context.Context, v parcel) error {
	c, clock := &p.w.cell, p.w.clock
	began := clock.now()
	draw := func(purpose uint64) *rand.Rand {
		return c.random(purpose, uint64(v.message), uint64(v.copy), uint64(began))
	}
	service := c.Service
	if c.Exponential {
		service = time.Duration(draw(forService).ExpFloat64() * float64(c.Service))
	}
	p.services.sleep(clock, service, ofServices)
	switch {
	case p.dead.Load():
		return errKilled
	case c.Fail > 0 && draw(forFailure).Float64() < c.Fail:
		return errFailed
	}
	p.w.ledger.write(v.key, p.number, began, clock.now())
	return nil
}

// doubling is a backoff that ends when no other one does.
type doubling struct {
	clock       *clock
	first, next time.Duration
}

func (b *doubling) NextBackOff() time.Duration {
	d := b.next
	b.next = min(2*d, mostBackoffs*b.first)
	return b.clock.park(d)
}

func (b *doubling) Reset() { b.next = b.first }
