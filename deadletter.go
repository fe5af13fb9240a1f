package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DeadLetter is an item that was given up, kept for a person.
type DeadLetter struct {
	Pipeline  string
	Stage     string // the stage that gave up, or the source or stage whose operator did
	Namespace string // of the stage's records: the pipeline's name, or what the Namespace option says
	Key       string
	Value     any // what went into the stage or operator
	Attempts  int // in this stage; 0 when it was never run
	Reason    Reason
	Err       error         // of the last attempt and, where that is something else, why there was no other
	Age       time.Duration // since the delivery was admitted
}

// Reason says why an item was given up.
type Reason string

// The reasons of dead letters.
const (
	ReasonPermanent Reason = "permanent" // the handler said so
	ReasonExhausted Reason = "exhausted" // MaxAttempts, or the backoff stopped
	ReasonExpired   Reason = "expired"   // MaxAge
	ReasonPanic     Reason = "panic"     // a panic or Goexit
	ReasonRejected  Reason = "rejected"  // an operator had an error for it
	ReasonNoKey     Reason = "no key"
	ReasonMismatch  Reason = "mismatch"  // its key is known with another payload
	ReasonUnknown   Reason = "unknown"   // nobody knows whether the effect happened
	ReasonTakeovers Reason = "takeovers" // taken over too often
)

// The reasons of EventDuplicate: who knew the key.
const (
	ReasonGuard Reason = "guard"
	ReasonStore Reason = "store"
)

func permanentReason(err error) Reason {
	var pe *PanicError
	switch {
	case errors.Is(err, ErrUnknownOutcome): // whatever it was that left it unknown
		return ReasonUnknown
	case errors.As(err, &pe), errors.Is(err, ErrGoexit):
		return ReasonPanic
	case errors.Is(err, ErrNoKey):
		return ReasonNoKey
	case errors.Is(err, ErrMismatch):
		return ReasonMismatch
	case errors.Is(err, ErrMaxTakeovers):
		return ReasonTakeovers
	default:
		return ReasonPermanent
	}
}

// givenUpDelay is when a source may deliver again what was given up and returned
// for want of a place for its dead letter: a source that delivers at once would
// otherwise turn in a circle.
const givenUpDelay = 30 * time.Second

// bury writes the dead letter of an item of a delivery. Only when it is written is the item Dead;
// otherwise its source keeps it.
func (p *Pipeline) bury(l DeadLetter) verdict {
	if p.state.Load() == stateEnded { // of a handler that Run did not wait for
		return verdict{outcome: Returned, err: l.Err}
	}
	l.Pipeline = p.name
	l.Namespace = l.records()
	p.event(Event{Kind: EventDead, Stage: l.Stage, Key: l.Key, Attempt: l.Attempts, Reason: l.Reason, Err: l.Err})
	log := p.log.With("stage", l.Stage, "key", l.Key, "attempts", l.Attempts, "reason", string(l.Reason), "error", l.Err)
	if p.cfg.DeadLetters == nil {
		log.Warn("oncepipe: item given up; returned to its source, since there is no place for dead letters")
		return verdict{outcome: Returned, delay: givenUpDelay, err: l.Err, given: true}
	}
	ctx, cancel := context.WithTimeout(p.settleCtx, p.cfg.SettleTimeout)
	defer cancel()
	if err := isolate(func() error { return p.cfg.DeadLetters(ctx, l) }); err != nil {
		log.Error("oncepipe: dead letter not written; item returned to its source", "cause", err)
		return verdict{outcome: Returned, delay: givenUpDelay, given: true, err: fmt.Errorf("dead letter not written: %w; given up because of: %w", err, l.Err)}
	}
	return verdict{outcome: Dead, err: l.Err}
}

// reject makes a dead letter of an item that no stage has.
func (p *Pipeline) reject(from string, t *ticket, v any, reason Reason, err error) {
	t.settle(p.bury(DeadLetter{
		Stage: from, Key: t.key, Value: v, Reason: reason, Err: err,
		Age: p.now() - t.scope.admitted,
	}))
}

// crashed settles an item during whose way through operators a panic (r) or a
// Goexit (nil) came. A Goexit passes through the operators of an item's
// ancestors as well, so that the first one who hears of it settles for all.
func (p *Pipeline) crashed(from string, t *ticket, v any, r any) {
	if t.scope.open.Load() <= 0 {
		return
	}
	if r != nil {
		p.reject(from, t, v, ReasonPanic, crashError(r))
		return
	}
	t.scope.force(p.bury(DeadLetter{
		Stage: from, Key: t.key, Value: v, Reason: ReasonPanic, Err: ErrGoexit,
		Age: p.now() - t.scope.admitted,
	}))
}

// records is the namespace of the stage's records, also for a letter that somebody
// made by hand.
func (l DeadLetter) records() string {
	if l.Namespace != "" {
		return l.Namespace
	}
	return l.Pipeline
}
