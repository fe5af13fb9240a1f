package oncetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"pgregory.net/rapid"
)

// brokerStep is one thing that is done to a broker.
type brokerStep struct{ Do, Arg int }

const (
	stepSend = iota
	stepReceive
	stepSettle
	stepSleep
	stepDuplicate
	stepRefuse
	stepLose
	steps
)

// Whatever is done to it, in any order: a message has one delivery that is out at
// most, is settled for good once, or is a dead letter, and no limit is passed.
func TestBroker_Property(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := oncetest.BrokerConfig[string]{
			Key:           itself,
			Hold:          time.Duration(rapid.IntRange(0, 3).Draw(rt, "hold")) * 10 * time.Second,
			MaxDeliveries: rapid.IntRange(0, 3).Draw(rt, "deliveries"),
			Prefetch:      rapid.IntRange(0, 3).Draw(rt, "prefetch"),
			MaxRedelivery: time.Duration(rapid.IntRange(0, 2).Draw(rt, "redelivery")) * time.Minute,
			Reorder:       rapid.Bool().Draw(rt, "reorder"),
			Duplicates:    rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "duplicates"),
			Seed:          rapid.Uint64().Draw(rt, "seed"),
		}
		list := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) brokerStep {
			return brokerStep{rapid.IntRange(0, steps-1).Draw(rt, "do"), rapid.IntRange(0, 99).Draw(rt, "arg")}
		}), 0, 60).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) {
			w := &brokerWalk{cfg: cfg, b: oncetest.NewBroker(cfg), ctx: t.Context()}
			err = w.walk(list)
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

type brokerWalk struct {
	cfg  oncetest.BrokerConfig[string]
	b    *oncetest.Broker[string]
	ctx  context.Context
	sent int
	got  []oncepipe.Delivery[string]
}

func (w *brokerWalk) walk(list []brokerStep) error {
	for i, s := range list {
		if err := errors.Join(w.do(s), w.check()); err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, s, err)
		}
	}
	return w.end()
}

func (w *brokerWalk) do(s brokerStep) error {
	switch s.Do {
	case stepSend:
		w.sent++
		w.b.Send(fmt.Sprint(w.sent))
	case stepReceive:
		ctx, cancel := context.WithTimeout(w.ctx, time.Duration(s.Arg)*time.Second)
		defer cancel()
		d, err := w.b.Receive(ctx)
		if err == nil {
			w.got = append(w.got, d)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	case stepSettle:
		if len(w.got) > 0 {
			// Also one that was settled before, or has run out.
			_ = w.got[s.Arg%len(w.got)].Settle(w.ctx, oncepipe.Settlement{
				Outcome: oncepipe.Outcome(s.Arg%int(oncepipe.Returned) + 1), Delay: time.Duration(s.Arg%7) * time.Second,
			})
		}
	case stepSleep:
		time.Sleep(time.Duration(s.Arg) * time.Second)
	case stepDuplicate:
		w.b.Duplicate(s.Arg % 3)
	case stepRefuse:
		w.b.RefuseSettlements(s.Arg%3, nil)
	case stepLose:
		w.b.LoseAnswers(s.Arg%3, nil)
	}
	return nil
}

// check looks at what was seen so far.
func (w *brokerWalk) check() error {
	out, final, first := map[int]int{}, map[int]int{}, map[int]time.Time{}
	open := 0
	for _, d := range w.b.Deliveries() {
		if final[d.Message] > 0 {
			return fmt.Errorf("%v came after the message was settled for good", &d)
		}
		if out[d.Message] > 0 {
			return fmt.Errorf("%v came while another one is out", &d)
		}
		if d.Attempt == 1 {
			first[d.Message] = d.At
		}
		switch {
		case w.cfg.MaxDeliveries > 0 && d.Attempt > w.cfg.MaxDeliveries:
			return fmt.Errorf("%v is one too many", &d)
		case w.cfg.MaxRedelivery > 0 && d.At.Sub(first[d.Message]) > w.cfg.MaxRedelivery:
			return fmt.Errorf("%v came too late", &d)
		case d.Settled && d.Settlement.Outcome != oncepipe.Returned:
			final[d.Message]++
		case !d.Settled && !d.Expired:
			out[d.Message]++
			open++
		}
	}
	if open != w.b.Unsettled() || w.cfg.Prefetch > 0 && open > w.cfg.Prefetch {
		return fmt.Errorf("%d deliveries are out, Unsettled says %d, prefetch %d", open, w.b.Unsettled(), w.cfg.Prefetch)
	}
	return nil
}

// end works off what is left, and counts.
func (w *brokerWalk) end() error {
	w.b.RefuseSettlements(0, nil)
	w.b.LoseAnswers(0, nil)
	w.b.Close()
	settleAll := func() {
		for _, d := range w.got {
			_ = d.Settle(w.ctx, oncepipe.Settlement{Outcome: oncepipe.Done}) // no second time: it was taken
		}
	}
	for settleAll(); ; settleAll() {
		d, err := w.b.Receive(w.ctx)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		w.got = append(w.got, d)
	}
	messages, final := map[int]bool{}, 0
	for _, d := range w.b.Deliveries() {
		messages[d.Message] = true
		if d.Settled && d.Settlement.Outcome != oncepipe.Returned {
			final++
		}
	}
	if dead := len(w.b.DeadLetters()); final+dead != len(messages) || len(messages) < w.sent {
		return fmt.Errorf("%d messages were sent, %d came with their copies, %d are settled for good, %d dead", w.sent, len(messages), final, dead)
	}
	if w.b.Left() != 0 {
		return fmt.Errorf("%d are left", w.b.Left())
	}
	return w.check()
}
