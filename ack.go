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
	p     *Pipeline
	queue chan ack
	ended chan struct{}
	lost  []error // read after ended
}

func newAcker(p *Pipeline) *acker {
	return &acker{p: p, queue: make(chan ack, ackQueue), ended: make(chan struct{})}
}

func (a *acker) settle(k ack) {
	if a.try(&k) {
		return
	}
	a.queue <- k
}

func (a *acker) try(k *ack) bool {
	k.tries++
	ctx, cancel := context.WithTimeout(a.p.settleCtx, a.p.cfg.SettleTimeout)
	defer cancel()
	err := protect(func() error { return k.fn(ctx, k.s) })
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

// run ends when queue is closed and nothing waits.
func (a *acker) run() {
	defer close(a.ended)
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	var waiting []ack
	delay := ackMinDelay
	queue := a.queue
	for queue != nil || len(waiting) > 0 {
		in := queue
		if len(waiting) >= ackQueue {
			in = nil
		}
		select {
		case k, ok := <-in:
			if !ok {
				queue = nil
				continue
			}
			if len(waiting) == 0 {
				delay = ackMinDelay
				timer.Reset(delay)
			}
			waiting = append(waiting, k)
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

// protect calls fn and returns its panic as a PanicError.
func protect(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return fn()
}
