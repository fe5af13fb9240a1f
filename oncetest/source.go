package oncetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// SourceEnv is a source over an empty queue, and the other end of that queue.
// Source and Send are needed; what else is nil makes the rules that need it not
// applicable.
type SourceEnv[M any] struct {
	Source oncepipe.Source[M]

	// Send puts a message with this text into the queue. Texts are UTF-8, not empty,
	// of at most a thousand bytes, and no two of a rule are the same.
	Send func(text string) error

	// Reopen makes another source over the same queue, as the next process does. nil:
	// Receive of the same source is called again, with another context.
	Reopen func() (oncepipe.Source[M], error)

	// End says that nothing more is sent: Receive answers io.EOF in the end.
	End func()

	// Left returns how many messages the queue has, those that are out included.
	Left func() int

	// RefuseSettlements makes the queue take no settlements, until it is told
	// otherwise.
	RefuseSettlements func(on bool)

	// LoseAnswers makes the queue take the next n settlements, and the source not
	// hear of it.
	LoseAnswers func(n int)

	// Advance lets the queue's clock go on by d. nil: time.Sleep.
	Advance func(d time.Duration)

	// Close gives back what New and Reopen opened.
	Close func()
}

// SourceConfig says how to make the source under test, and what it can do.
type SourceConfig[M any] struct {
	// New makes an env for one rule, in the goroutine that uses it.
	New func() (SourceEnv[M], error)

	// Text returns the text of a message that was sent.
	Text func(v M) string

	// Spoil overwrites what v points to, such as its bytes. nil: it points to nothing.
	Spoil func(v M)

	// Bubble runs each rule in a synctest bubble of its own, where waiting costs
	// nothing. Nothing that the env uses may then be outside of it, such as a
	// server.
	Bubble bool

	// Hold is what HoldLimit of the source returns. 0: its deliveries may be held for
	// ever.
	Hold time.Duration

	// MaxRedelivery is what MaxRedelivery of the source returns. 0: not known.
	MaxRedelivery time.Duration

	// Delay is one that the source keeps when a delivery is returned. 0: it keeps
	// none.
	Delay time.Duration

	// Keyed says that deliveries have a key, and those of different messages
	// different ones.
	Keyed bool

	// NoSettle says that deliveries have no Settle: what was received can't be given
	// back.
	NoSettle bool

	// ReturnsShed says that what is shed comes again.
	ReturnsShed bool

	// Patience is how long to wait for what has to happen. Default 5 s, in bubbles a
	// minute.
	Patience time.Duration

	// Quiet is how long to wait for what must not happen, twice the Hold on top of
	// it. Default 200 ms, in bubbles a minute.
	Quiet time.Duration

	// NotApplicable hears from CheckSource of the rules that were left out, and why.
	// Source skips their subtests.
	NotApplicable func(rule, why string)
}

// Source checks that a source does what oncepipe.Source asks of it, each rule in a
// subtest of its own: it hands over each message once and in full, ends with its
// context and loses nothing by that, acks what is final, delivers again what is
// returned or held too long, stands settlements that fail, are repeated or come
// late, and leaves no goroutine; and a pipeline over it conserves its items. The
// rules hold up to eight deliveries unsettled at once.
//
// A rule that needs what the source, by the configuration, has not is skipped
// with the reason.
func Source[M any](t *testing.T, cfg SourceConfig[M]) {
	t.Helper()
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	c := cfg.erased()
	for _, rule := range sourceRules() {
		t.Run(rule.name, func(t *testing.T) {
			why, err := rule.run(c)
			if err != nil {
				t.Error(err)
			} else if why != "" {
				t.Skip("not applicable: " + why)
			}
		})
	}
}

// CheckSource is Source without a T. The error names each rule that was broken.
func CheckSource[M any](cfg SourceConfig[M]) error {
	if err := cfg.check(); err != nil {
		return err
	}
	c := cfg.erased()
	var errs []error
	for _, rule := range sourceRules() {
		why, err := rule.run(c)
		switch {
		case err != nil:
			errs = append(errs, err)
		case why != "" && cfg.NotApplicable != nil:
			cfg.NotApplicable(rule.name, why)
		}
	}
	return errors.Join(errs...)
}

func sourceRules() []sourceRule {
	return slices.Concat(receiveRules, settleRules, redeliveryRules, pipelineRules)
}

func (c SourceConfig[M]) check() error {
	if c.New == nil || c.Text == nil {
		return errors.New("oncetest: SourceConfig needs New and Text")
	}
	return nil
}

// sourceItem is a value of the source under test, of whatever type.
type sourceItem struct {
	text  string        // as it came
	now   func() string // as it is
	spoil func()
}

// erased is c with the type of the values taken away, so that the rules need not
// know it.
func (c SourceConfig[M]) erased() SourceConfig[*sourceItem] {
	e := SourceConfig[*sourceItem]{
		Text: func(it *sourceItem) string { return it.text }, Bubble: c.Bubble,
		Hold: c.Hold, MaxRedelivery: c.MaxRedelivery, Delay: c.Delay,
		Keyed: c.Keyed, NoSettle: c.NoSettle, ReturnsShed: c.ReturnsShed, Patience: c.Patience, Quiet: c.Quiet,
	}
	patience, quiet := 5*time.Second, 200*time.Millisecond
	if c.Bubble {
		patience, quiet = time.Minute, time.Minute
	}
	if e.Patience <= 0 {
		e.Patience = patience
	}
	if e.Quiet <= 0 {
		e.Quiet = quiet
	}
	if c.Spoil != nil {
		e.Spoil = func(it *sourceItem) { it.spoil() }
	}
	e.New = c.erasedEnv
	return e
}

func (c SourceConfig[M]) erasedEnv() (SourceEnv[*sourceItem], error) {
	env, err := c.New()
	if err != nil {
		return SourceEnv[*sourceItem]{}, fmt.Errorf("SourceConfig.New: %w", err)
	}
	if env.Source == nil || env.Send == nil {
		return SourceEnv[*sourceItem]{}, errors.New("SourceEnv needs Source and Send")
	}
	e := SourceEnv[*sourceItem]{
		Source: erasedSource[M]{env.Source, c}, Send: env.Send, End: env.End, Left: env.Left,
		RefuseSettlements: env.RefuseSettlements, LoseAnswers: env.LoseAnswers, Advance: env.Advance, Close: env.Close,
	}
	if env.Reopen != nil {
		e.Reopen = func() (oncepipe.Source[*sourceItem], error) {
			src, err := env.Reopen()
			if err != nil {
				return nil, fmt.Errorf("SourceEnv.Reopen: %w", err)
			}
			return erasedSource[M]{src, c}, nil
		}
	}
	return e, nil
}

// erasedSource is src with other values. Of a limit that src doesn't have it says
// 0, which means the same.
type erasedSource[M any] struct {
	src oncepipe.Source[M]
	cfg SourceConfig[M]
}

func (s erasedSource[M]) Receive(ctx context.Context) (oncepipe.Delivery[*sourceItem], error) {
	d, err := s.src.Receive(ctx)
	if err != nil {
		return oncepipe.Delivery[*sourceItem]{}, err
	}
	it := &sourceItem{
		text:  s.cfg.Text(d.Value),
		now:   func() string { return s.cfg.Text(d.Value) },
		spoil: func() { s.cfg.Spoil(d.Value) },
	}
	return oncepipe.Delivery[*sourceItem]{Value: it, Key: d.Key, Settle: d.Settle}, nil
}

func (s erasedSource[M]) HoldLimit() time.Duration {
	if l, ok := s.src.(oncepipe.HoldLimiter); ok {
		return l.HoldLimit()
	}
	return 0
}

func (s erasedSource[M]) MaxRedelivery() time.Duration {
	if l, ok := s.src.(oncepipe.RedeliveryLimiter); ok {
		return l.MaxRedelivery()
	}
	return 0
}
