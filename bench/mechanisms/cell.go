package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// row is what was counted of a mechanism under a fault.
type row struct {
	Mechanism string        `csv:"mechanism"`
	Fault     string        `csv:"fault"`
	Waits     bool          `csv:"waits"` // orders waited for the other copy, which tells of their number and spoils the time
	Messages  int           `csv:"messages"`
	Faults    int           `csv:"faults"`     // that were made
	Lost      int           `csv:"lost"`       // messages that were acked, or settled for good, and have no effect
	Doubled   int           `csv:"doubled"`    // effects beyond the first of a message
	Asked     int           `csv:"asked"`      // messages that became dead letters
	Shed      int           `csv:"shed"`       // messages without an effect that a buffer gave up and the source took for acked
	Time      time.Duration `csv:"time"`       // from the first delivery to the last settlement
	PerSecond float64       `csv:"per_second"` // messages that were not shed
}

// cellTimeout is far beyond what any takes.
const cellTimeout = 2 * time.Minute

// measure runs a mechanism under a fault, in a new file.
func measure(ctx context.Context, m mechanism, f fault, messages int, rng *rand.Rand) (r row, err error) {
	ctx, cancel := context.WithTimeout(ctx, cellTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, %s: %w", m.name, f.name, err)
		}
	}()
	dir, err := os.MkdirTemp("", "oncepipe-mechanisms-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "effects.db")
	db := openDB(file)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := makeTables(ctx, db); err != nil {
		return r, err
	}
	b := newBroker(m, f, messages, rng)
	if err := work(ctx, b, m, file, rng); err != nil {
		return r, err
	}
	effects, err := effectsOf(ctx, db)
	if err != nil {
		return r, err
	}
	return b.count(m, effects)
}

// newBroker has been sent all messages.
func newBroker(m mechanism, f fault, messages int, rng *rand.Rand) *broker {
	b := &broker{fault: f, restarts: f.restarts}
	if m.window > 0 {
		b.window = newWindow(m.window)
	}
	for i := range messages {
		msg := &message{key: fmt.Sprintf("order-%06d", i)}
		b.messages = append(b.messages, msg)
		b.send(msg, false)
		if f.come == sentBehind {
			b.faults++
			b.send(msg, false)
			// Those at both ends of a burst: one of them gets through.
			at := i % (burst / 2)
			msg.hit = at == 0 || at == burst/2-1
		}
	}
	if f.every > 0 {
		for _, i := range rng.Perm(messages)[:messages/f.every] {
			b.messages[i].hit = true
		}
	}
	return b
}

// work runs the pipeline, in as many processes and lives as the fault says.
func work(ctx context.Context, b *broker, m mechanism, file string, rng *rand.Rand) error {
	f, t := b.fault, task{m.name, file, b.fault.lease()}
	switch {
	case f.kills > 0:
		return kill(ctx, b, t, rng)
	case f.restarts > 0:
		for range f.restarts {
			if _, err := runProcess(ctx, t, b.consumer(len(b.messages)/(f.restarts+1), doom{})); err != nil {
				return err
			}
			b.restart()
		}
		_, err := runProcess(ctx, t, b.consumer(-1, doom{}))
		return err
	case f.processes > 0:
		b.absent = f.processes
		group, ctx := errgroup.WithContext(ctx)
		for range f.processes {
			group.Go(func() error {
				_, err := runProcess(ctx, t, b.consumer(-1, doom{}))
				return err
			})
		}
		return group.Wait()
	}
	return serve(ctx, m, f.buffer, t.Lease, file, b.consumer(-1, doom{}))
}

// kill lets processes die one after the other, and the last one live.
func kill(ctx context.Context, b *broker, t task, rng *rand.Rand) error {
	for i := range b.fault.kills {
		nth := 1 + rng.IntN(20)
		d := [...]doom{
			{nth: nth, do: dieAfter},
			{after: 1 + time.Duration(rng.Int64N(int64(6*time.Millisecond)))},
			{nth: nth, do: dieBefore},
		}[i%3]
		killed, err := runProcess(ctx, t, b.consumer(-1, d))
		switch {
		case err != nil:
			return err
		case !killed:
			return nil // everything was done first
		}
		b.faults++
	}
	_, err := runProcess(ctx, t, b.consumer(-1, doom{}))
	return err
}

// count compares what the broker was told with the effects that are there.
func (b *broker) count(m mechanism, effects map[string]int) (row, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := row{Mechanism: m.name, Fault: b.fault.name, Waits: b.fault.patience > 0, Messages: len(b.messages), Faults: b.faults}
	if b.left > 0 {
		return r, fmt.Errorf("%d deliveries were not settled", b.left)
	}
	for _, msg := range b.messages {
		n := effects[msg.key]
		r.Doubled += max(0, n-1)
		switch {
		case msg.dead:
			r.Asked++
		case n > 0:
		case msg.acked:
			r.Lost++
		case msg.shed:
			r.Shed++
		}
	}
	r.Time = b.ended.Sub(b.begun)
	r.PerSecond = float64(r.Messages-r.Shed) / r.Time.Seconds()
	return r, nil
}
