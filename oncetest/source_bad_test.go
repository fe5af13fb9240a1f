package oncetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

type byteDelivery = oncepipe.Delivery[[]byte]

// wrongSource is a Broker with a fault.
type wrongSource struct {
	*Broker[[]byte]
	hold, redelivery time.Duration
	receive          func(ctx context.Context) (byteDelivery, error)
	settle           func(ctx context.Context, d byteDelivery, s oncepipe.Settlement) error
}

func (w *wrongSource) HoldLimit() time.Duration     { return w.hold }
func (w *wrongSource) MaxRedelivery() time.Duration { return w.redelivery }

func (w *wrongSource) Receive(ctx context.Context) (byteDelivery, error) {
	d, err := w.receive(ctx)
	if err == nil && w.settle != nil {
		inner := d
		d.Settle = func(ctx context.Context, s oncepipe.Settlement) error { return w.settle(ctx, inner, s) }
	}
	return d, err
}

// sourceMutant is one way to be wrong. Where nothing else is said, the broker and
// the configuration have all the limits.
type sourceMutant struct {
	name   string
	rule   string // that must catch it
	broker func(b *BrokerConfig[[]byte])
	spoil  func(w *wrongSource)
}

func (m sourceMutant) config() SourceConfig[[]byte] {
	limits := BrokerConfig[[]byte]{Hold: 30 * time.Second, MaxRedelivery: time.Hour}
	broker := limits
	if m.broker != nil {
		m.broker(&broker)
	}
	cfg, honest := brokerSource(broker), brokerSource(limits)
	cfg.Hold, cfg.MaxRedelivery, cfg.ReturnsShed = honest.Hold, honest.MaxRedelivery, honest.ReturnsShed
	made := cfg.New
	cfg.New = func() (SourceEnv[[]byte], error) {
		env, err := made()
		b := env.Source.(*Broker[[]byte])
		w := &wrongSource{Broker: b, hold: cfg.Hold, redelivery: cfg.MaxRedelivery, receive: b.Receive}
		if m.spoil != nil {
			m.spoil(w)
		}
		env.Source = w
		return env, err
	}
	return cfg
}

var ruleName = regexp.MustCompile(`source: rule "([^"]+)"`)

// blamedRules returns the rules that an error of CheckSource names.
func blamedRules(err error) (names []string) {
	if err == nil {
		return nil
	}
	for _, found := range ruleName.FindAllStringSubmatch(err.Error(), -1) {
		names = append(names, found[1])
	}
	return names
}

// Every mutant is caught by the rule that is about its fault, and every rule
// catches one.
func TestSource_Bad(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range sourceMutants {
		t.Run(m.name, func(t *testing.T) {
			err := CheckSource(m.config())
			blamed := blamedRules(err)
			if !slices.Contains(blamed, m.rule) {
				t.Fatalf("not caught by %q: %v", m.rule, err)
			}
			for _, rule := range blamed {
				caught[rule] = true
			}
			t.Logf("caught by %q", blamed)
		})
	}
	for _, rule := range sourceRules() {
		if !caught[rule.name] && !rule.alone { // that one has a test of its own
			t.Errorf("no mutant for %q", rule.name)
		}
	}
}

// settles makes a mutant of what it tells the broker.
func settles(change func(s oncepipe.Settlement) oncepipe.Settlement) func(w *wrongSource) {
	return func(w *wrongSource) {
		w.settle = func(ctx context.Context, d byteDelivery, s oncepipe.Settlement) error {
			return d.Settle(ctx, change(s))
		}
	}
}

// hands makes a mutant of what it hands over; again tells that it does so for a
// second time.
func hands(change func(d *byteDelivery, again bool)) func(w *wrongSource) {
	return func(w *wrongSource) {
		before := map[string]bool{}
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			if err == nil {
				text := string(d.Value)
				change(&d, before[text])
				before[text] = true
			}
			return d, err
		}
	}
}

func done(ctx context.Context, d byteDelivery) error {
	return d.Settle(ctx, oncepipe.Settlement{Outcome: oncepipe.Done})
}

var sourceMutants = []sourceMutant{
	{name: "cuts texts", rule: "each message comes once and in full", spoil: hands(func(d *byteDelivery, _ bool) {
		d.Value, _, _ = bytes.Cut(d.Value, []byte("\n"))
	})},
	{name: "hands over twice", rule: "each message comes once and in full", spoil: func(w *wrongSource) {
		var last *byteDelivery
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			if d := last; d != nil {
				last = nil
				return *d, nil
			}
			d, err := w.Broker.Receive(ctx)
			if err == nil {
				last = &d
			}
			return d, err
		}
	}},
	{name: "uses one buffer", rule: "values stay as they came", spoil: func() func(*wrongSource) {
		return func(w *wrongSource) {
			var mu sync.Mutex
			buffer := make([]byte, 10)
			w.receive = func(ctx context.Context) (byteDelivery, error) {
				d, err := w.Broker.Receive(ctx)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && len(d.Value) <= len(buffer) {
					d.Value = buffer[:copy(buffer, d.Value)]
				}
				return d, err
			}
		}
	}()},
	{name: "ends on an empty queue", rule: "Receive waits for a message", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			if w.Left() == 0 {
				return byteDelivery{}, io.EOF
			}
			return w.Broker.Receive(ctx)
		}
	}},
	{name: "says it in words of its own", rule: "Receive ends with its context and says so", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			if err != nil && ctx.Err() != nil {
				err = errors.New("stopped")
			}
			return d, err
		}
	}},
	{name: "goes on without its context", rule: "Receive ends with its context and says so", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			return w.Broker.Receive(bounded)
		}
	}},
	{name: "acks, and then looks at its context", rule: "a context that ends loses nothing", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			if err != nil {
				return d, err
			}
			time.Sleep(2 * time.Millisecond)
			if ctx.Err() != nil {
				return byteDelivery{}, errors.Join(ctx.Err(), done(context.Background(), d))
			}
			return d, nil
		}
	}},
	{name: "takes from the queue on a context that had ended", rule: "a context that ends loses nothing", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			if ctx.Err() != nil && w.Left() > 0 {
				d, err := w.Broker.Receive(context.Background())
				return byteDelivery{}, errors.Join(ctx.Err(), err, done(context.Background(), d))
			}
			return w.Broker.Receive(ctx)
		}
	}},
	{name: "ends once", rule: "io.EOF comes at the end, and again", spoil: func(w *wrongSource) {
		ended := false
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			if ended {
				<-ctx.Done()
				return byteDelivery{}, ctx.Err()
			}
			d, err := w.Broker.Receive(ctx)
			ended = errors.Is(err, io.EOF)
			return d, err
		}
	}},
	{name: "returns the dead", rule: "done, duplicate, filtered and dead are acks", spoil: settles(func(s oncepipe.Settlement) oncepipe.Settlement {
		if s.Outcome == oncepipe.Dead {
			s.Outcome = oncepipe.Returned
		}
		return s
	})},
	{
		name: "returns what is shed", rule: "shed is an ack or a return, as configured",
		broker: func(b *BrokerConfig[[]byte]) { b.ReturnsShed = true },
	},
	{name: "keeps a failure for itself", rule: "a settlement that was not taken is an error, and can be repeated", spoil: func(w *wrongSource) {
		w.settle = func(ctx context.Context, d byteDelivery, s oncepipe.Settlement) error {
			_ = d.Settle(ctx, s)
			return nil
		}
	}},
	{name: "settles but once", rule: "a settlement that was not taken is an error, and can be repeated", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			inner, spent := d.Settle, false
			d.Settle = func(ctx context.Context, s oncepipe.Settlement) error {
				if spent {
					return errors.New("already settled")
				}
				spent = true
				return inner(ctx, s)
			}
			return d, err
		}
	}},
	{name: "sends a copy to return a delivery again", rule: "a settlement whose answer was lost can be repeated", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			inner, failed := d.Settle, false
			d.Settle = func(ctx context.Context, s oncepipe.Settlement) error {
				if failed {
					w.Send(d.Value)
					return nil
				}
				err := inner(ctx, s)
				failed = err != nil
				return err
			}
			return d, err
		}
	}},
	{name: "acks another one when it is settled twice", rule: "to settle twice does no harm", spoil: acksAnother},
	{name: "takes one settlement at a time", rule: "deliveries can be settled all at once", spoil: func(w *wrongSource) {
		var busy atomic.Bool
		w.settle = func(ctx context.Context, d byteDelivery, s oncepipe.Settlement) error {
			if !busy.CompareAndSwap(false, true) {
				return errors.New("busy")
			}
			defer busy.Store(false)
			time.Sleep(time.Microsecond)
			return d.Settle(ctx, s)
		}
	}},
	{name: "settles within Receive's context", rule: "deliveries can be settled when the context of Receive has ended", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			inner := d.Settle
			d.Settle = func(_ context.Context, s oncepipe.Settlement) error { return inner(ctx, s) }
			return d, err
		}
	}},
	{name: "acks what is returned", rule: "what is returned comes again", spoil: settles(func(s oncepipe.Settlement) oncepipe.Settlement {
		if s.Outcome == oncepipe.Returned {
			s.Outcome = oncepipe.Done
		}
		return s
	})},
	{name: "gives up at the second delivery", rule: "what is returned comes again", broker: func(b *BrokerConfig[[]byte]) { b.MaxDeliveries = 2 }},
	{name: "forgets the delay", rule: "what is returned comes again after its delay, not before", spoil: settles(func(s oncepipe.Settlement) oncepipe.Settlement {
		s.Delay = 0
		return s
	})},
	{name: "comes a bit early", rule: "what is returned comes again after its delay, not before", spoil: settles(func(s oncepipe.Settlement) oncepipe.Settlement {
		s.Delay -= s.Delay / 10
		return s
	})},
	{name: "comes again tomorrow", rule: "what is returned comes again", broker: func(b *BrokerConfig[[]byte]) {
		b.RedeliveryDelay = 24 * time.Hour
	}},
	{name: "has a key for the first delivery alone", rule: "a redelivery has the key of the first delivery", spoil: hands(func(d *byteDelivery, again bool) {
		if again {
			d.Key = ""
		}
	})},
	{name: "has one key for all", rule: "a redelivery has the key of the first delivery", spoil: hands(func(d *byteDelivery, _ bool) { d.Key = "k" })},
	{name: "shares the value", rule: "a redelivery has a value of its own", broker: func(b *BrokerConfig[[]byte]) {
		b.Copy = func(m []byte) []byte { return m }
	}},
	{name: "promises too long a hold", rule: "the limits are as configured", spoil: func(w *wrongSource) { w.hold *= 2 }},
	{name: "promises too short a redelivery", rule: "the limits are as configured", spoil: func(w *wrongSource) { w.redelivery /= 2 }},
	{name: "holds for ever", rule: "what is not settled comes again after HoldLimit, not before", broker: func(b *BrokerConfig[[]byte]) { b.Hold = 0 }},
	{name: "holds too short", rule: "what is not settled comes again after HoldLimit, not before", broker: func(b *BrokerConfig[[]byte]) { b.Hold = 20 * time.Second }},
	{name: "takes the late for the next", rule: "a late settlement does not settle the next delivery", spoil: func(w *wrongSource) {
		var mu sync.Mutex
		latest := map[string]byteDelivery{}
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			mu.Lock()
			defer mu.Unlock()
			latest[d.Key] = d
			return d, err
		}
		w.settle = func(ctx context.Context, d byteDelivery, s oncepipe.Settlement) error {
			mu.Lock()
			last := latest[d.Key]
			mu.Unlock()
			return last.Settle(ctx, s)
		}
	}},
	{name: "delivers for ever", rule: "nothing comes again when MaxRedelivery is over", broker: func(b *BrokerConfig[[]byte]) { b.MaxRedelivery = 0 }},
	{name: "acks without a word when it hands over", rule: "a pipeline that drains loses nothing", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			d, err := w.Broker.Receive(ctx)
			if err == nil {
				err = done(context.Background(), d)
			}
			return d, err
		}
		w.settle = func(context.Context, byteDelivery, oncepipe.Settlement) error { return nil }
	}},
	{name: "never acks", rule: "a pipeline conserves its items", spoil: func(w *wrongSource) {
		w.settle = func(_ context.Context, d byteDelivery, s oncepipe.Settlement) error { return nil }
	}},
	{name: "has no Settle", rule: "each message comes once and in full", spoil: hands(func(d *byteDelivery, _ bool) { d.Settle = nil })},
	{name: "panics", rule: "what is returned comes again", spoil: func(w *wrongSource) {
		w.settle = func(ctx context.Context, d byteDelivery, s oncepipe.Settlement) error { panic("no channel") }
	}},
	{name: "panics in Receive", rule: "each message comes once and in full", spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) { panic("no connection") }
	}},
}

// acksAnother settles a delivery that is out when one is settled twice.
func acksAnother(w *wrongSource) {
	var mu sync.Mutex
	out := map[string]byteDelivery{}
	w.receive = func(ctx context.Context) (byteDelivery, error) {
		d, err := w.Broker.Receive(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			out[d.Key] = d
		}
		return d, err
	}
	w.settle = func(ctx context.Context, d byteDelivery, s oncepipe.Settlement) error {
		mu.Lock()
		defer mu.Unlock()
		if _, first := out[d.Key]; !first {
			for key, other := range out {
				delete(out, key)
				return done(ctx, other)
			}
		}
		delete(out, d.Key)
		return d.Settle(ctx, s)
	}
}

// A goroutine that is left is found in real time, where nothing else would notice.
func TestSource_BadLeavesAGoroutine(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	m := sourceMutant{spoil: func(w *wrongSource) {
		w.receive = func(ctx context.Context) (byteDelivery, error) {
			go func() { <-end }()
			return w.Broker.Receive(ctx)
		}
	}}
	cfg := m.config()
	cfg.Bubble, cfg.Patience = false, 50*time.Millisecond
	for _, rule := range pipelineRules {
		if !rule.alone {
			continue
		}
		_, err := rule.run(cfg.erased())
		if blamed := blamedRules(err); !slices.Equal(blamed, []string{rule.name}) {
			t.Errorf("blamed: %q: %v", blamed, err)
		}
	}
}
