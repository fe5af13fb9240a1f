package oncetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// brokerSource is the configuration for a Broker, which can do everything.
func brokerSource(cfg BrokerConfig[[]byte]) SourceConfig[[]byte] {
	cfg.Key = func(m []byte) string { return "key of " + string(m) }
	if cfg.Copy == nil {
		cfg.Copy = bytes.Clone
	}
	return SourceConfig[[]byte]{
		New: func() (SourceEnv[[]byte], error) {
			b := NewBroker(cfg)
			return SourceEnv[[]byte]{
				Source: b, Send: func(text string) error { b.Send([]byte(text)); return nil },
				End: b.Close, Left: b.Left,
				RefuseSettlements: func(on bool) {
					n := 0
					if on {
						n = math.MaxInt
					}
					b.RefuseSettlements(n, nil)
				},
				LoseAnswers: func(n int) { b.LoseAnswers(n, nil) },
			}, nil
		},
		Text: func(m []byte) string { return string(m) },
		Spoil: func(m []byte) {
			for i := range m {
				m[i] = '!'
			}
		},
		Bubble: true, Keyed: true, Delay: 10 * time.Second,
		Hold: cfg.Hold, MaxRedelivery: cfg.MaxRedelivery, ReturnsShed: cfg.ReturnsShed,
	}
}

var goodBrokers = map[string]BrokerConfig[[]byte]{
	"plain":         {},
	"hold":          {Hold: 30 * time.Second},
	"late refused":  {Hold: 30 * time.Second, LateError: errors.New("too late")},
	"limits":        {Hold: 30 * time.Second, MaxRedelivery: time.Hour, RedeliveryDelay: time.Second},
	"old or out":    {MaxRedelivery: time.Hour},
	"returns shed":  {ReturnsShed: true},
	"reorders":      {Reorder: true, Seed: 1},
	"just prefetch": {Prefetch: 8, Hold: time.Minute},
}

func TestSource_Good(t *testing.T) {
	for name, cfg := range goodBrokers {
		t.Run(name, func(t *testing.T) {
			if err := CheckSource(brokerSource(cfg)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("in subtests", func(t *testing.T) { Source(t, brokerSource(goodBrokers["limits"])) })
	t.Run("in real time", func(t *testing.T) {
		cfg := brokerSource(BrokerConfig[[]byte]{})
		cfg.Bubble, cfg.Delay, cfg.Quiet = false, 50*time.Millisecond, 10*time.Millisecond
		if err := CheckSource(cfg); err != nil {
			t.Error(err)
		}
	})
	t.Run("a clock of its own", func(t *testing.T) {
		cfg := brokerSource(BrokerConfig[[]byte]{Hold: 30 * time.Second})
		cfg.New = withAdvance(cfg.New)
		if err := CheckSource(cfg); err != nil {
			t.Error(err)
		}
	})
	t.Run("reopened", func(t *testing.T) {
		cfg := brokerSource(BrokerConfig[[]byte]{})
		made := cfg.New
		var opened atomic.Int32
		cfg.New = func() (SourceEnv[[]byte], error) {
			env, err := made()
			env.Reopen = func() (oncepipe.Source[[]byte], error) { opened.Add(1); return env.Source, nil }
			return env, err
		}
		if err := CheckSource(cfg); err != nil {
			t.Error(err)
		}
		if opened.Load() == 0 {
			t.Error("never reopened")
		}
	})
}

// What a pipeline waits out is no fault.
func TestSource_GoodWithOutages(t *testing.T) {
	cfg := brokerSource(goodBrokers["limits"])
	made := cfg.New
	cfg.New = func() (SourceEnv[[]byte], error) {
		env, err := made()
		b, calls := env.Source.(*Broker[[]byte]), 0
		env.Source = &wrongSource{Broker: b, hold: cfg.Hold, redelivery: cfg.MaxRedelivery, receive: func(ctx context.Context) (byteDelivery, error) {
			if calls++; calls%2 == 0 && ctx.Err() == nil && b.Left() > 0 {
				return byteDelivery{}, errors.New("connection is lost")
			}
			return b.Receive(ctx)
		}}
		return env, err
	}
	if err := CheckSource(cfg); err != nil {
		t.Error(err)
	}
}

// withAdvance lets the clock go on by Advance, which here is that of the bubble.
func withAdvance(made func() (SourceEnv[[]byte], error)) func() (SourceEnv[[]byte], error) {
	return func() (SourceEnv[[]byte], error) {
		env, err := made()
		env.Advance = time.Sleep
		return env, err
	}
}

// A source without anything but Receive meets the rules that are left, and is
// told which are not.
func TestSource_NoSettle(t *testing.T) {
	why := map[string]string{}
	cfg := SourceConfig[string]{
		New:      newChanEnv,
		Text:     func(s string) string { return s },
		Bubble:   true,
		NoSettle: true,
		NotApplicable: func(rule, reason string) {
			if why[rule] = reason; reason == "" {
				t.Errorf("%s: no reason", rule)
			}
		},
	}
	if err := CheckSource(cfg); err != nil {
		t.Error(err)
	}
	for _, rule := range slices.Concat(receiveRules, pipelineRules) {
		if why[rule.name] != "" {
			t.Errorf("%s: not applicable: %s", rule.name, why[rule.name])
		}
	}
	for _, rule := range settleRules {
		if !strings.Contains(why[rule.name], "NoSettle") {
			t.Errorf("%s: %q", rule.name, why[rule.name])
		}
	}
}

// newChanEnv is a source of what comes out of a channel.
func newChanEnv() (SourceEnv[string], error) {
	ch := make(chan string, 100)
	return SourceEnv[string]{
		Source: oncepipe.SourceFunc[string](func(ctx context.Context) (oncepipe.Delivery[string], error) {
			select {
			case v, ok := <-ch:
				if !ok {
					return oncepipe.Delivery[string]{}, io.EOF
				}
				return oncepipe.Delivery[string]{Value: v}, nil
			case <-ctx.Done():
				return oncepipe.Delivery[string]{}, ctx.Err()
			}
		}),
		Send: func(text string) error { ch <- text; return nil },
		End:  func() { close(ch) },
		Left: func() int { return len(ch) },
	}, nil
}

func TestSource_WhatIsMissingIsNamed(t *testing.T) {
	cfg := brokerSource(BrokerConfig[[]byte]{})
	made := cfg.New
	cfg.New = func() (SourceEnv[[]byte], error) {
		env, err := made()
		return SourceEnv[[]byte]{Source: env.Source, Send: env.Send}, err
	}
	cfg.Spoil, cfg.Delay = nil, 0
	why := map[string]string{}
	cfg.NotApplicable = func(rule, reason string) { why[rule] = reason }
	if err := CheckSource(cfg); err != nil {
		t.Error(err)
	}
	for rule, word := range map[string]string{
		"io.EOF comes at the end, and again":                               "End",
		"a settlement that was not taken is an error, and can be repeated": "RefuseSettlements",
		"a settlement whose answer was lost can be repeated":               "LoseAnswers",
		"what is returned comes again after its delay, not before":         "Delay",
		"a redelivery has a value of its own":                              "Spoil",
		"what is not settled comes again after HoldLimit, not before":      "Hold",
		"a late settlement does not settle the next delivery":              "Hold",
		"nothing comes again when MaxRedelivery is over":                   "MaxRedelivery",
	} {
		if !strings.Contains(why[rule], word) {
			t.Errorf("%s: %q, want the reason to name %s", rule, why[rule], word)
		}
		delete(why, rule)
	}
	if len(why) > 0 {
		t.Errorf("also not applicable: %v", why)
	}
}

func TestSource_WrongConfiguration(t *testing.T) {
	text := func(s string) string { return s }
	if err := CheckSource(SourceConfig[string]{Text: text}); err == nil {
		t.Error("no New, no error")
	}
	broken := errors.New("no server")
	err := CheckSource(SourceConfig[string]{Text: text, New: func() (SourceEnv[string], error) { return SourceEnv[string]{}, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("New failed, and the error is %v", err)
	}
	if err := CheckSource(SourceConfig[string]{Text: text, New: func() (SourceEnv[string], error) { return SourceEnv[string]{}, nil }}); err == nil {
		t.Error("no Source, no error")
	}
	cfg := SourceConfig[string]{Text: text, Bubble: true, NoSettle: true, New: func() (SourceEnv[string], error) {
		env, err := newChanEnv()
		env.Reopen = func() (oncepipe.Source[string], error) { return nil, broken }
		return env, err
	}}
	if err := CheckSource(cfg); !errors.Is(err, broken) {
		t.Errorf("Reopen failed, and the error is %v", err)
	}
	cfg.New = func() (SourceEnv[string], error) {
		env, err := newChanEnv()
		env.Send = func(string) error { return broken }
		return env, err
	}
	if err := CheckSource(cfg); !errors.Is(err, broken) {
		t.Errorf("Send failed, and the error is %v", err)
	}
}
