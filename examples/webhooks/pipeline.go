package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

const (
	drainTimeout = 5 * time.Second
	maxAttempts  = 12
)

// build makes the pipeline. Nothing starts before Run.
//
//	webhook ── decode ── dedup ──▶ handle ──▶ book
//	(HTTP)    (inline)  (inline)  (flaky)    (one transaction for each key)
func build(o options, books *ledger, dead *deadLetters) (*oncepipe.Pipeline, *webhook.Source) {
	p := oncepipe.New("webhooks", oncepipe.Config{
		DrainTimeout: drainTimeout,
		DeadLetters:  dead.write,
	})

	// A source settles what it delivers. This one is an http.Handler: it answers 200
	// when everything behind it is done, and 503 when it isn't, so that the sender
	// sends again. It never says that something is done which isn't.
	source := webhook.New(webhook.Config{MaxBody: maxBody})
	requests := oncepipe.From(p, "webhook", source)

	// An error of an inline operator is a dead letter: sending that request again is
	// of no use.
	events := oncepipe.TryMap(requests, decode)

	// Of the copies of a key one goes on. A copy of a key that is booked is a
	// duplicate and answered at once. One whose key is under way, running or
	// waiting for a retry, joins it: it waits for that one's outcome, and holds no
	// worker.
	if !o.unguarded {
		events = oncepipe.Dedup(events, "dedup", event.key)
	}

	// An item that failed is parked for its backoff and holds no worker meanwhile. It
	// is tried again under the same key, and does not pass dedup again.
	handled := oncepipe.Stage(events, "handle", flaky(o),
		oncepipe.Workers(o.workers),
		oncepipe.Buffer(oncepipe.Fixed(o.buffer)),
		oncepipe.Retry(retry))

	// The effect, and the record that it happened, are one transaction. This is what
	// survives kill -9: after a restart dedup knows nothing, the sender sends
	// everything again, and a key that has its record is not booked twice. SQLite
	// has one writer at a time, so one worker will do.
	oncepipe.Sink(handled, "book", books.book, oncepipe.Retry(retry))

	return p, source
}

// retry is short, for a demonstration. The zero RetryPolicy is one for services.
var retry = oncepipe.RetryPolicy{
	MaxAttempts: maxAttempts,
	Backoff: func() backoff.BackOff {
		return backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(20*time.Millisecond),
			backoff.WithMaxInterval(200*time.Millisecond),
		)
	},
}

func decode(r webhook.Request) (event, error) {
	e, err := parseEvent(r.Body)
	e.line = lineOf(r)
	return e, err
}

// lineOf is the line of the input that the request was made of.
func lineOf(r webhook.Request) int {
	n, _ := strconv.Atoi(r.Header.Get(lineHeader))
	return n
}

var errFlaky = errors.New("the service behind the handler is not available")

// flaky is a handler that takes up to a millisecond and fails at rate -fail.
// Whether it fails depends on seed, key and attempt, so that a run can be
// repeated.
func flaky(o options) func(context.Context, event) (event, error) {
	return func(ctx context.Context, e event) (event, error) {
		info, _ := oncepipe.InfoFrom(ctx)
		rnd := random(o.seed, e.ID, fmt.Sprint(info.Attempt))
		if !sleep(ctx, time.Duration(rnd.Int64N(int64(time.Millisecond)))) {
			return e, context.Cause(ctx)
		}
		if rnd.Float64() < o.fail {
			return e, errFlaky
		}
		return e, nil
	}
}
