package oncetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

func itself(s string) string { return s }

// consumer receives from a broker in a bubble.
type consumer struct {
	*testing.T
	b *oncetest.Broker[string]
}

func inBubble(t *testing.T, cfg oncetest.BrokerConfig[string], f func(c consumer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Key = itself
		f(consumer{t, oncetest.NewBroker(cfg)})
	})
}

func (c consumer) receive(want string) oncepipe.Delivery[string] {
	c.Helper()
	d, err := c.b.Receive(c.Context())
	if err != nil || d.Value != want || d.Key != want {
		c.Fatalf("received %q, key %q, %v; want %q", d.Value, d.Key, err, want)
	}
	return d
}

func (c consumer) nothing(d time.Duration) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), d)
	defer cancel()
	if d, err := c.b.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		c.Fatalf("received %q, %v; want nothing", d.Value, err)
	}
}

func (c consumer) end() {
	c.Helper()
	c.b.Close()
	for range 2 {
		if d, err := c.b.Receive(c.Context()); !errors.Is(err, io.EOF) {
			c.Fatalf("received %q, %v; want io.EOF", d.Value, err)
		}
	}
}

func (c consumer) settle(d oncepipe.Delivery[string], o oncepipe.Outcome, delay time.Duration) {
	c.Helper()
	if err := d.Settle(c.Context(), oncepipe.Settlement{Outcome: o, Delay: delay}); err != nil {
		c.Fatal(err)
	}
}

func (c consumer) good() {
	c.Helper()
	if err := c.b.Check(); err != nil {
		c.Error(err)
	}
}

func TestBroker_VisibilityTimeout(t *testing.T) {
	inBubble(t, oncetest.BrokerConfig[string]{Hold: time.Minute}, func(c consumer) {
		if c.b.HoldLimit() != time.Minute {
			c.Error("HoldLimit", c.b.HoldLimit())
		}
		c.b.Send("a")
		began := time.Now()
		late := c.receive("a")
		again := c.receive("a")
		if d := time.Since(began); d != time.Minute {
			c.Error("came again after", d)
		}
		c.settle(late, oncepipe.Done, 0)
		if c.b.Left() != 1 || c.b.Unsettled() != 1 {
			c.Errorf("%d left, %d unsettled, want 1", c.b.Left(), c.b.Unsettled())
		}
		time.Sleep(time.Minute - 1)
		c.settle(again, oncepipe.Done, 0)
		c.end()
		seen := c.b.Deliveries()
		if d := seen[0]; !d.Expired || !d.Late || d.Settled || d.Attempt != 1 || d.SettledAt.Sub(began) != time.Minute {
			c.Errorf("first: %+v", d)
		}
		if d := seen[1]; d.Expired || d.Late || !d.Settled || d.Attempt != 2 || d.Message != 1 || d.Number != 2 {
			c.Errorf("second: %+v", d)
		}
		c.good()
	})
}

// At the very moment that a hold ends it has ended, whoever looks first.
func TestBroker_LateSettlementIsRefused(t *testing.T) {
	late := errors.New("receipt is not valid")
	inBubble(t, oncetest.BrokerConfig[string]{Hold: time.Minute, LateError: late}, func(c consumer) {
		c.b.Send("a")
		d := c.receive("a")
		time.Sleep(time.Minute)
		for range 2 {
			if err := d.Settle(c.Context(), oncepipe.Settlement{Outcome: oncepipe.Done}); !errors.Is(err, late) {
				c.Errorf("late settlement: %v", err)
			}
		}
		c.settle(c.receive("a"), oncepipe.Done, 0)
		c.end()
		c.good()
	})
}

func TestBroker_ReturnsWithDelay(t *testing.T) {
	inBubble(t, oncetest.BrokerConfig[string]{RedeliveryDelay: time.Second}, func(c consumer) {
		c.b.Send("a", "b")
		c.settle(c.receive("a"), oncepipe.Returned, time.Minute)
		c.settle(c.receive("b"), oncepipe.Returned, 0)
		began := time.Now()
		c.settle(c.receive("b"), oncepipe.Done, 0)
		if d := time.Since(began); d != time.Second {
			c.Error("b came again after", d)
		}
		c.settle(c.receive("a"), oncepipe.Done, 0)
		if d := time.Since(began); d != time.Minute {
			c.Error("a came again after", d)
		}
		c.end()
		if got := c.b.Outcomes("a"); !slices.Equal(got, []oncepipe.Outcome{oncepipe.Returned, oncepipe.Done}) {
			c.Error("outcomes of a:", got)
		}
		if n := c.b.Count(oncepipe.Returned); n != 2 {
			c.Error("returned:", n)
		}
		c.good()
	})
}

func TestBroker_DeliveryLimit(t *testing.T) {
	inBubble(t, oncetest.BrokerConfig[string]{MaxDeliveries: 2, Hold: time.Minute}, func(c consumer) {
		c.b.Send("returned", "run out")
		c.settle(c.receive("returned"), oncepipe.Returned, 0)
		c.receive("run out")
		c.settle(c.receive("returned"), oncepipe.Returned, 0)
		c.receive("run out")
		c.end()
		if got := c.b.DeadLetters(); !slices.Equal(got, []string{"returned", "run out"}) {
			c.Error("dead letters:", got)
		}
		c.good()
	})
}

func TestBroker_MaxRedelivery(t *testing.T) {
	inBubble(t, oncetest.BrokerConfig[string]{MaxRedelivery: time.Hour}, func(c consumer) {
		time.Sleep(2 * time.Hour) // in the queue: not a redelivery
		c.b.Send("a")
		c.settle(c.receive("a"), oncepipe.Returned, time.Hour)
		c.settle(c.receive("a"), oncepipe.Returned, 1)
		c.end()
		if got := c.b.DeadLetters(); !slices.Equal(got, []string{"a"}) {
			c.Error("dead letters:", got)
		}
		if c.b.MaxRedelivery() != time.Hour {
			c.Error("MaxRedelivery", c.b.MaxRedelivery())
		}
	})
}

func TestBroker_ShedAsConfigured(t *testing.T) {
	for _, returns := range []bool{false, true} {
		inBubble(t, oncetest.BrokerConfig[string]{ReturnsShed: returns}, func(c consumer) {
			c.b.Send("a")
			c.settle(c.receive("a"), oncepipe.Shed, 0)
			if returns {
				c.settle(c.receive("a"), oncepipe.Done, 0)
			}
			c.end()
		})
	}
}

func TestBroker_Prefetch(t *testing.T) {
	inBubble(t, oncetest.BrokerConfig[string]{Prefetch: 2, Hold: time.Hour}, func(c consumer) {
		c.b.Send("a", "b", "c")
		a := c.receive("a")
		c.receive("b")
		c.nothing(time.Minute)
		c.settle(a, oncepipe.Done, 0)
		c.settle(c.receive("c"), oncepipe.Done, 0)
		began := time.Now()
		c.receive("b") // as it ran out
		if d := time.Since(began); d != 59*time.Minute {
			c.Error("b came again after", d)
		}
	})
}

func TestBroker_Duplicates(t *testing.T) {
	inBubble(t, oncetest.BrokerConfig[string]{}, func(c consumer) {
		c.b.Duplicate(1)
		c.b.Send("a", "b")
		for _, want := range []string{"a", "b", "a"} {
			c.settle(c.receive(want), oncepipe.Done, 0)
		}
		c.end()
		if got := c.b.Deliveries()[2]; got.Message != 3 || got.Attempt != 1 {
			c.Errorf("the copy: %+v", got)
		}
		c.good()
	})
	inBubble(t, oncetest.BrokerConfig[string]{Duplicates: 1}, func(c consumer) {
		c.b.Send("a", "b")
		for _, want := range []string{"a", "b", "a", "b"} {
			c.settle(c.receive(want), oncepipe.Done, 0)
		}
		c.end()
	})
}

// The order and the copies are those of the seed, and another seed's are others.
func TestBroker_SeedRepeats(t *testing.T) {
	run := func(seed uint64) (order string) {
		inBubble(t, oncetest.BrokerConfig[string]{Reorder: true, Duplicates: 0.5, Seed: seed}, func(c consumer) {
			for i := range 20 {
				c.b.Send(fmt.Sprint(i))
			}
			c.b.Close()
			for {
				d, err := c.b.Receive(c.Context())
				if err != nil {
					break
				}
				order += d.Value + " "
				c.settle(d, oncepipe.Done, 0)
			}
			c.good()
		})
		return order
	}
	one := run(1)
	if n := strings.Count(one, " "); n <= 22 || n >= 38 {
		t.Errorf("%d deliveries of 20 messages, half of which have a copy", n)
	}
	if run(1) != one {
		t.Error("the same seed gives another order")
	}
	if run(2) == one {
		t.Error("another seed gives the same order")
	}
}

func TestBroker_RefusesAndLosesAnswers(t *testing.T) {
	away := errors.New("no route")
	inBubble(t, oncetest.BrokerConfig[string]{}, func(c consumer) {
		c.b.Send("a", "b")
		done := oncepipe.Settlement{Outcome: oncepipe.Done}
		a, b := c.receive("a"), c.receive("b")
		c.b.RefuseSettlements(2, away)
		for range 2 {
			if err := a.Settle(c.Context(), done); !errors.Is(err, away) || c.b.Left() != 2 {
				c.Errorf("refused: %v, %d left", err, c.b.Left())
			}
		}
		c.settle(a, oncepipe.Done, 0)
		c.b.LoseAnswers(1, nil)
		if err := b.Settle(c.Context(), done); err == nil || c.b.Left() != 0 {
			c.Errorf("lost: %v, %d left", err, c.b.Left())
		}
		c.settle(b, oncepipe.Done, 0)
		if d := c.b.Deliveries()[0]; d.Calls != 3 {
			c.Errorf("%d calls, want 3", d.Calls)
		}
		c.good()
	})
}

func TestBroker_OnSettleRefuses(t *testing.T) {
	refused := errors.New("ledger is closed")
	var asked []string
	cfg := oncetest.BrokerConfig[string]{OnSettle: func(m string, s oncepipe.Settlement) error {
		if asked = append(asked, m+" "+s.Outcome.String()); len(asked) == 1 {
			return refused
		}
		return nil
	}}
	inBubble(t, cfg, func(c consumer) {
		c.b.Send("a")
		d := c.receive("a")
		if err := d.Settle(c.Context(), oncepipe.Settlement{Outcome: oncepipe.Dead}); !errors.Is(err, refused) {
			c.Error(err)
		}
		c.settle(d, oncepipe.Dead, 0)
		c.end()
		if !slices.Equal(asked, []string{"a dead", "a dead"}) {
			c.Error(asked)
		}
		c.good()
	})
}

func TestBroker_CheckBlames(t *testing.T) {
	done := oncepipe.Settlement{Outcome: oncepipe.Done}
	for name, test := range map[string]struct {
		want string
		do   func(c consumer, d oncepipe.Delivery[string])
	}{
		"twice": {"second time", func(c consumer, d oncepipe.Delivery[string]) {
			c.settle(d, oncepipe.Done, 0)
			c.settle(d, oncepipe.Done, 0)
		}},
		"another outcome": {"after an error", func(c consumer, d oncepipe.Delivery[string]) {
			c.b.RefuseSettlements(1, nil)
			if d.Settle(c.Context(), done) == nil {
				c.Error("not refused")
			}
			c.settle(d, oncepipe.Returned, 0)
		}},
		"ended context": {"had ended", func(c consumer, d oncepipe.Delivery[string]) {
			ctx, cancel := context.WithCancel(c.Context())
			cancel()
			if err := d.Settle(ctx, done); !errors.Is(err, context.Canceled) {
				c.Error(err)
			}
			c.settle(d, oncepipe.Done, 0)
		}},
		"no outcome":     {"without an outcome", func(c consumer, d oncepipe.Delivery[string]) { c.settle(d, 0, 0) }},
		"negative delay": {"delay of -1ns", func(c consumer, d oncepipe.Delivery[string]) { c.settle(d, oncepipe.Returned, -1) }},
		"never":          {"never settled", func(consumer, oncepipe.Delivery[string]) {}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, oncetest.BrokerConfig[string]{}, func(c consumer) {
				c.b.Send("a")
				test.do(c, c.receive("a"))
				if err := c.b.Check(); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
					c.Errorf("Check: %v, want %q and nothing else", err, test.want)
				}
			})
		})
	}
}

func TestBroker_SendAfterClosePanics(t *testing.T) {
	b := oncetest.NewBroker(oncetest.BrokerConfig[string]{})
	b.Close()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.Send("a")
}

// Two pipelines that share a broker, with everything that it can do to them,
// handle every message, and settle as they should.
func TestBroker_SharedByTwoPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 300
		b := oncetest.NewBroker(oncetest.BrokerConfig[string]{
			Key: itself, Hold: time.Minute, RedeliveryDelay: time.Second, Prefetch: 50, Reorder: true, Duplicates: 0.2, Seed: 7,
		})
		for i := range messages {
			b.Send(fmt.Sprint(i))
		}
		b.RefuseSettlements(20, nil)
		b.LoseAnswers(20, nil)
		b.Close()
		var mu sync.Mutex
		runs := map[string]int{}
		ended := make(chan error, 2)
		for _, name := range []string{"one", "two"} {
			p := oncepipe.New(name, oncepipe.Config{Logger: slog.New(slog.DiscardHandler)})
			oncepipe.Sink(oncepipe.From(p, "broker", b), "work", func(_ context.Context, m string) error {
				mu.Lock()
				defer mu.Unlock()
				if runs[m]++; runs[m] == 1 {
					return errors.New("the first time fails")
				}
				return nil
			}, oncepipe.Workers(4), oncepipe.Retry(oncepipe.RetryPolicy{}))
			go func() { ended <- p.Run(t.Context()) }()
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		if len(runs) != messages || b.Left() != 0 {
			t.Errorf("%d of %d messages were handled, %d are left", len(runs), messages, b.Left())
		}
	})
}
