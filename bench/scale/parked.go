package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/ratio"
)

var errFirst = errors.New("the first attempt fails")

// Of a crowd, in all that is timed.
const (
	feeding = 6 * time.Microsecond  // for an item to fail, at first
	rush    = 100 * time.Nanosecond // between two that fall due: sooner than they can be run
	stroll  = 5 * time.Microsecond  // the same, where nothing but the timer makes them late
	looks   = 5                     // at Stats, of which the median counts
	tries   = 12                    // each with twice the time
)

func parked(s sizes) plan {
	var p plan
	for _, n := range s.parked {
		wait := 20*time.Millisecond + time.Duration(n)*feeding
		p.once = append(p.once, func(m *meter) error { return weigh(m, n) })
		p.rounds = append(p.rounds,
			func(m *meter) error { return comeAndGo(m, n, max(1, s.crowded/n), &wait) },
			func(m *meter) error { return lateness(m, n, &wait) },
		)
	}
	return p
}

// crowd is n items that fail once and are then parked together. One worker runs
// them, so that nothing here is shared.
type crowd struct {
	wait    time.Duration   // from the start until the first is due
	gaps    time.Duration   // between two that are due, on average
	due     []time.Duration // since the start, by item
	start   time.Time
	current int // the item that runs

	failed, back       int
	allFailed          time.Duration // since the start, as are these
	firstBack, allBack time.Duration
	late               []time.Duration
}

// newCrowd sends n items through a pipeline. Where the first was due before the
// last had failed, not all were parked: wait is doubled, for this and for later
// crowds, and it is done again.
func newCrowd(n int, gaps time.Duration, wait *time.Duration) (*crowd, error) {
	for range tries {
		c := &crowd{wait: *wait, gaps: gaps, due: make([]time.Duration, n)}
		if err := c.run(); err != nil {
			return nil, err
		}
		if c.allFailed < c.wait {
			return c, nil
		}
		*wait *= 2
	}
	return nil, fmt.Errorf("%d items are not all parked after %v", n, *wait/2)
}

func (c *crowd) run() error {
	n := len(c.due)
	p := oncepipe.New("parked", oncepipe.Config{})
	oncepipe.Sink(oncepipe.FromSeq(p, "numbers", count(n)), "work", c.work,
		oncepipe.Buffer(oncepipe.Fixed(buffer)),
		oncepipe.Retry(oncepipe.RetryPolicy{
			Slots:   n,
			Backoff: func() backoff.BackOff { return &gathered{backoff.NewExponentialBackOff(), c} },
		}))
	c.late = make([]time.Duration, 0, n)
	c.start = time.Now()
	return finish(p, n)
}

func (c *crowd) work(ctx context.Context, i int) error {
	now := time.Since(c.start)
	if info, _ := oncepipe.InfoFrom(ctx); info.Attempt == 1 {
		c.current = i
		c.failed++
		c.allFailed = now
		return errFirst
	}
	if c.back == 0 {
		c.firstBack = now
	}
	c.back++
	c.allBack = now
	c.late = append(c.late, now-c.due[i])
	return nil
}

// gathered is a backoff with which all items fall due at about the same time, in
// no order. It costs what a usual one does.
type gathered struct {
	backoff.BackOff
	c *crowd
}

func (t *gathered) NextBackOff() time.Duration {
	t.BackOff.NextBackOff()
	c := t.c
	due := c.wait + rand.N(time.Duration(len(c.due))*c.gaps)
	c.due[c.current] = due
	return max(0, due-time.Since(c.start)) // a negative one would give the item up
}

// comeAndGo measures what parking and coming back cost, in some crowds of n.
func comeAndGo(m *meter, n, crowds int, wait *time.Duration) error {
	var park, back time.Duration
	for range crowds {
		c, err := newCrowd(n, rush, wait)
		if err != nil {
			return err
		}
		park += c.allFailed
		back += c.allBack - c.firstBack
	}
	m.note("parked/park", n, each(park, crowds*n))
	m.note("parked/back", n, each(back, crowds*n))
	return nil
}

// lateness measures how much later than due an item is run.
func lateness(m *meter, n int, wait *time.Duration) error {
	c, err := newCrowd(n, stroll, wait)
	if err != nil {
		return err
	}
	slices.Sort(c.late)
	m.note("parked/late50", n, c.late[n/2].Seconds()*1000)
	m.note("parked/late99", n, c.late[n*99/100].Seconds()*1000)
	return nil
}

// weigh compares n items that are parked with as many that wait in a buffer.
func weigh(m *meter, n int) error {
	waiting, _, err := held(n, oncepipe.Buffer(oncepipe.Fixed(n)), nil)
	if err != nil {
		return err
	}
	hour := func() backoff.BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Hour), backoff.WithMaxElapsedTime(0))
	}
	parked, look, err := held(n, oncepipe.Retry(oncepipe.RetryPolicy{Slots: n, Backoff: hour}), errFirst)
	if err != nil {
		return err
	}
	m.note("parked/bytes", n, (parked-waiting)/float64(n))
	m.note("parked/stats", n, each(look, n))
	return nil
}

// held is the memory of a pipeline in which n items wait: in the buffer behind
// one that is running, or, when they fail, in the retry lane. look is the time of a
// look at its Stats then.
func held(n int, how oncepipe.Option, failure error) (took float64, look time.Duration, err error) {
	before := memory()
	full, letGo := make(chan struct{}), make(chan struct{})
	p := oncepipe.New("held", oncepipe.Config{})
	in := oncepipe.FromSeq(p, "numbers", func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
		if failure == nil {
			close(full)
		}
	})
	failed := 0
	oncepipe.Sink(in, "work", func(context.Context, int) error {
		if failure == nil {
			<-letGo
		} else if failed++; failed == n {
			close(full)
		}
		return failure
	}, how)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	select {
	case <-full:
	case err := <-ended:
		return 0, 0, fmt.Errorf("it has ended too early: %w", err)
	}
	took = memory() - before
	look = ratio.Rounds(looks, func() { p.Stats() })[0].Median()
	close(letGo)
	cancel()
	err = <-ended
	if returned := new(oncepipe.ReturnedError); failure != nil && errors.As(err, &returned) {
		err = nil // parked items go back, and their source can't take them
	}
	return took, look, err
}
