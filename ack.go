package oncepipe

import (
	"context"
	"fmt"
	"runtime/debug"
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
}

// acker tells sources what became of their deliveries. The first try is made by
// whoever settles; what fails waits here, in one goroutine, so that a source
// that can't take acks for a moment holds no worker. When too many wait, the
// settling goroutines wait with them.
type acker struct {
	p       *Pipeline
	queue   chan ack
	closing chan struct{}
	ended   chan struct{}
	lost    []error // read after ended
}

func newAcker(p *Pipeline) *acker {
	return &acker{p: p, queue: make(chan ack, ackQueue), closing: make(chan struct{}), ended: make(chan struct{})}
}

func (a *acker) settle(k ack) {
	if a.try(&k) {
		return
	}
	select {
	case a.queue <- k:
	case <-a.ended: // Run did not wait for the caller
	}
}

func (a *acker) try(k *ack) bool {
	k.tries++
	base := a.p.settleCtx
	if base.Err() != nil { // Run did not wait for the caller
		base = context.WithoutCancel(base)
	}
	ctx, cancel := context.WithTimeout(base, a.p.cfg.SettleTimeout)
	defer cancel()
	err := isolate(func() error { return k.fn(ctx, k.s) })
	if err == nil {
		return true
	}
	log := a.p.log.With("source", k.source, "key", k.key, "outcome", k.s.Outcome.String(), "tries", k.tries)
	if k.tries < ackTries {
		log.Warn("oncepipe: source did not take a settlement; trying again", "error", err)
		return false
	}
	log.Error("oncepipe: source did not take a settlement; it will deliver again", "error", err)
	a.lost = append(a.lost, fmt.Errorf("source %s, key %q: settling as %v: %w", k.source, k.key, k.s.Outcome, err))
	return true
}

// run ends when closing is closed and nothing waits.
func (a *acker) run() {
	defer close(a.ended)
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
