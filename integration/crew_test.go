package integration

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// crew are pipelines in this process that work off the same keys, each of them
// all, while a test does something to their store.
type crew struct {
	t       *testing.T
	l       *ledgers
	modes   []mode
	brokers []*broker
	ended   chan error // of each pipeline
	size    int
	fed     int
	all     []*oncepipe.Pipeline
}

// newCrew starts a pipeline for each of works.
func newCrew(t *testing.T, l *ledgers, works []*work, modes []mode, lim limits) *crew {
	t.Helper()
	c := &crew{t: t, l: l, modes: modes, size: len(works), ended: make(chan error, len(works))}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	for _, w := range works {
		brokers := map[mode]*broker{}
		for _, m := range modes {
			b := newBroker(func(key string, s oncepipe.Settlement) error { return l.acked(m, key, s.Outcome.String()) })
			brokers[m] = b
			c.brokers = append(c.brokers, b)
		}
		p := w.pipeline(oncepipe.Config{
			DrainTimeout: -1,
			DeadLetters:  func(context.Context, oncepipe.DeadLetter) error { return nil },
			Logger:       slog.New(slog.DiscardHandler),
		}, brokers, l.service.URL, lim)
		c.all = append(c.all, p)
		go func() { c.ended <- p.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range c.size { // none, where finish was called
			<-c.ended
		}
	})
	return c
}

// feed gives n new keys of each mode to every pipeline.
func (c *crew) feed(n int) {
	c.t.Helper()
	for range n {
		c.fed++
		key := fmt.Sprint("key", c.fed)
		for _, m := range c.modes {
			c.l.open(m, key)
		}
		for _, b := range c.brokers {
			b.Send(key)
		}
	}
}

// failures is how many attempts have failed, in the mode that has seen fewest.
func (c *crew) failures() int64 {
	least := int64(math.MaxInt64)
	for _, p := range c.all {
		for _, st := range p.Stats().Stages {
			least = min(least, st.Failed)
		}
	}
	return least
}

// awaitFailures waits until n more attempts have failed in every mode, and feeds a
// portion whenever one has nothing left to do.
func (c *crew) awaitFailures(n int64, portion int, limit time.Duration) {
	c.t.Helper()
	before := c.failures()
	eventually(c.t, limit, func() error {
		if slices.ContainsFunc(c.brokers, func(b *broker) bool { return b.Left() == 0 }) {
			c.feed(portion)
		}
		if now := c.failures(); now < before+n {
			return fmt.Errorf("%d failures, want %d:\n%s", now-before, n, c.stats())
		}
		return nil
	})
}

func (c *crew) stats() (text string) {
	for _, p := range c.all {
		text += fmt.Sprintf("%+v\n", p.Stats())
	}
	return text
}

// left is how many keys are not settled in some pipeline.
func (c *crew) left() (n int) {
	for _, b := range c.brokers {
		n += b.Left()
	}
	return n
}

// await waits until no more than n keys are left.
func (c *crew) await(n int, limit time.Duration) {
	c.t.Helper()
	eventually(c.t, limit, func() error {
		if left := c.left(); left > n {
			return fmt.Errorf("%d keys are left, want %d:\n%s", left, n, c.stats())
		}
		return nil
	})
}

// finish waits until all is done, and the pipelines have ended by themselves.
func (c *crew) finish(limit time.Duration) {
	c.t.Helper()
	for _, b := range c.brokers {
		b.Close()
	}
	c.await(0, limit)
	for ; c.size > 0; c.size-- {
		select {
		case err := <-c.ended:
			if err != nil {
				c.t.Error(err)
			}
		case <-time.After(limit):
			c.t.Fatal("a pipeline does not end")
		}
	}
}

// eventually looks again and again until ok returns nil.
func eventually(t testing.TB, limit time.Duration, ok func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := ok()
		if err == nil {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

// openWork opens a store until the end of the test. To be called before
// newCrew.
func openWork(t testing.TB, e engine, dsn string) *work {
	t.Helper()
	w, err := e.open(t.Context(), dsn, 0, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}
