package oncepipe

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

const (
	ackQueue    = 256
	ackTries    = 12
	ackMinDelay = 50 * time.Millisecond
	ackMaxDelay = 2 * time.Second
)

// ack is a settlement on its way to its source.
type ack struct {
	source string
	key    string
	fn     func(context.Context, Settlement) error
	s      Settlement
	tries  int
	alone  bool // Run has returned
}

// acker tells sources what became of their deliveries. The first try is made by
// whoever settles; what fails waits here, in one goroutine, so that a source
// that can't take acks for a moment holds no worker. When too many wait, the
// settling goroutines wait with them.
//
// What is done is settled at the end of its way through operators, where a Goexit
// is survived; so the source is called right there, which costs a fraction of a goroutine
// for each call. Else the call has one, since a Goexit must not end who settles.
type acker struct {
	p       *Pipeline
	queue   chan ack
	closing chan struct{}
	ended   chan struct{}
	lost    []error   // read after ended
	until   time.Time // the same
}

func newAcker(p *Pipeline) *acker {
	return &acker{p: p, queue: make(chan ack, ackQueue), closing: make(chan struct{}), ended: make(chan struct{})}
}

func (a *acker) settle(k ack, direct bool) {
	if direct {
		a.direct(k)
		return
	}
	own := k // escapes, and k does not
	if !a.try(&own) {
		a.again(own)
	}
}

// direct makes the first try in this goroutine.
func (a *acker) direct(k ack) {
	ctx := a.begin(&k)
	err := ErrGoexit
	defer func() {
		if r := recover(); r != nil {
			err = crashError(r)
		}
		ctx.end()
		if err != nil && !a.over(&k, err) {
			a.again(k)
		}
	}()
	err = k.fn(ctx, k.s)
}

// again leaves k to the acker's goroutine.
func (a *acker) again(k ack) {
	select {
	case a.queue <- k:
		select {
		case <-a.ended:
			a.late()
		default:
		}
	case <-a.ended:
		a.alone(k)
	}
}

// late works off what came after the acker's end.
func (a *acker) late() {
	for k := range queued(a.queue) {
		a.alone(k)
	}
}

// alone goes on with k in a goroutine that Run did not wait for, for SettleTimeout
// after its end: an ack that is dropped has the message handled again.
func (a *acker) alone(k ack) {
	for delay := ackMinDelay; time.Now().Before(a.until); delay = min(2*delay, ackMaxDelay) {
		if k.alone = true; a.try(&k) {
			return
		}
		time.Sleep(delay)
	}
	a.p.log.Error("oncepipe: source did not take a settlement before Run ended; it will deliver again",
		"source", k.source, "key", k.key, "outcome", k.s.Outcome.String())
}

// try reports whether k is over.
func (a *acker) try(k *ack) bool {
	ctx := a.begin(k)
	defer ctx.end()
	err := isolate(func() error { return k.fn(ctx, k.s) })
	return err == nil || a.over(k, err)
}

func (a *acker) begin(k *ack) *settleContext {
	k.tries++
	base := a.p.settleCtx
	if base.Err() != nil { // Run did not wait for the caller
		base = context.WithoutCancel(base)
	}
	return &settleContext{parent: base, deadline: time.Now().Add(a.p.cfg.SettleTimeout)}
}

// over tells people of an error, and whether it was the last one.
func (a *acker) over(k *ack, err error) bool {
	log := a.p.log.With("source", k.source, "key", k.key, "outcome", k.s.Outcome.String(), "tries", k.tries)
	if k.tries < ackTries {
		log.Warn("oncepipe: source did not take a settlement; trying again", "error", err)
		return false
	}
	log.Error("oncepipe: source did not take a settlement; it will deliver again", "error", err)
	if !k.alone {
		a.lost = append(a.lost, fmt.Errorf("source %s, key %q: settling as %v: %w", k.source, k.key, k.s.Outcome, err))
	}
	return true
}

// settleContext is a context with a deadline. It makes a timer, and all that
// takes, when it is first asked for its end: most sources answer before they would.
type settleContext struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex
	ended  bool
	ctx    context.Context // nil: nobody asked
	cancel context.CancelFunc
}

func (c *settleContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *settleContext) Done() <-chan struct{}       { return c.made().Done() }
func (c *settleContext) Err() error                  { return c.made().Err() }
func (c *settleContext) Value(key any) any           { return c.made().Value(key) }

func (c *settleContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx != nil:
	case c.ended: // by the answer, whatever the time is now
		c.ctx, c.cancel = context.WithCancel(c.parent)
		c.cancel()
	default:
		c.ctx, c.cancel = context.WithDeadline(c.parent, c.deadline)
	}
	return c.ctx
}

// end is called when the source has answered.
func (c *settleContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended = true; c.cancel != nil {
		c.cancel()
	}
}

// run ends when closing is closed and nothing waits.
func (a *acker) run() {
	defer func() {
		a.until = time.Now().Add(a.p.cfg.SettleTimeout)
		close(a.ended)
		a.late()
	}()
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	var waiting []ack
	delay := ackMinDelay
	add := func(k ack) {
		if len(waiting) == 0 {
			delay = ackMinDelay
			timer.Reset(delay)
		}
		waiting = append(waiting, k)
	}
	closing := a.closing
	for closing != nil || len(waiting) > 0 {
		in := a.queue
		if len(waiting) >= ackQueue {
			in = nil
		}
		select {
		case k := <-in:
			add(k)
		case <-closing:
			closing = nil
			for k := range queued(a.queue) {
				add(k)
			}
		case <-timer.C:
			kept := waiting[:0]
			for i := range waiting {
				if !a.try(&waiting[i]) {
					kept = append(kept, waiting[i])
				}
			}
			clear(waiting[len(kept):])
			waiting = kept
			if len(waiting) > 0 {
				delay = min(2*delay, ackMaxDelay)
				timer.Reset(delay)
			}
		}
	}
}

// isolate calls fn in a goroutine of its own: neither its panic nor its Goexit,
// which is what t.FailNow does, unwinds the caller. They are returned as errors.
func isolate(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := ErrGoexit
		defer func() {
			if r := recover(); r != nil {
				err = &PanicError{Value: r, Stack: debug.Stack()}
			}
			done <- err
		}()
		err = fn()
	}()
	return <-done
}

// protect calls fn and returns its panic as a PanicError.
func protect(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return fn()
}
