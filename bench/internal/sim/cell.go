// Package sim runs one cell: a sender that sends again, a pipeline of oncepipe, a
// guard against repeats, and an effect, all in fake time. The sender's messages,
// the service times and the failures are drawn from a seed, so a cell has one
// [Result], on every machine and with any GOMAXPROCS.
//
// What it counts is how often the effect happens more than once for a key, and in
// which window: while the first effect runs, after it, or after a crash.
package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Guard names what stands between a delivery and a second effect.
type Guard string

// The guards. All of them are built with the public API of oncepipe.
const (
	// None lets every delivery have its effect.
	None Guard = "none"
	// Entry marks a key when its delivery enters the pipeline, before the buffer.
	// A repeat is acknowledged there.
	Entry Guard = "entry"
	// Completed remembers the keys whose effect is done. It is asked and filled by
	// the worker.
	Completed Guard = "completed"
	// Ours is [oncepipe.Dedup]: a table of keys in flight, and a memory of keys done.
	// A copy beyond Dedup's default JoinLimit is returned.
	Ours Guard = "ours"
	// Store is [oncepipe.Once] on a store outside the process, asked by the worker.
	Store Guard = "store"
	// OursStore is Dedup with the store behind it.
	OursStore Guard = "ours+store"
)

// Guards returns all guards, in the order above.
func Guards() []Guard {
	return []Guard{None, Entry, Completed, Ours, Store, OursStore}
}

// Cell says what is run. The zero value of a field is its default, unless said
// otherwise.
type Cell struct {
	// Buffer is the number of deliveries that wait in front of the workers.
	// The source's goroutine holds one more while the buffer is full.
	Buffer int
	// Workers is the number of effects that run at the same time; it must be
	// 1 to 64.
	Workers int
	// Load is the rate of new messages over the capacity, which is
	// Workers/Service. It must be positive.
	Load float64
	// Service is the time an effect takes, at least 1 µs. The effect is visible at
	// its end. Exponential draws it anew for every attempt, with this mean.
	Service     time.Duration
	Exponential bool
	// Timeout is how long the sender waits for an ack after the pipeline has taken
	// a delivery; then it sends the message again, before any new message. One that
	// the pipeline has returned is not sent before the delay it was returned with. It
	// must be positive.
	Timeout time.Duration
	// Push lets the sender's clock run from the moment that it wants to send, so
	// also while the pipeline doesn't take anything. When it takes the message and
	// the time-out is over by then, the sender wants to send again at once.
	Push bool
	// Guard must be one of [Guards].
	Guard Guard
	// Capacity is the number of keys in the LRU of Completed, Ours and OursStore;
	// 0: unbounded. With Ring it is a [oncepipe.Ring], which needs a capacity.
	Capacity int
	Ring     bool
	// StoreTime is how long a call of the store takes. Lease is that of its claims;
	// the default is oncepipe.DefaultLease.
	StoreTime, Lease time.Duration
	// Keys is the number of messages; the first Warmup of them aren't measured.
	Keys, Warmup int
	// Burst is how many of the messages are there at once at the start, as after an
	// outage.
	Burst int
	// Fail is the share of attempts that fail before they have an effect. They are
	// tried again by the stage's Retry, after Backoff, twice that, and so on, at
	// most 64 times Backoff. It must be below 1.
	Fail    float64
	Backoff time.Duration // default: Service
	// AckLoss is the share of acks that the sender doesn't hear. It must be below 1.
	AckLoss float64
	// AckDelay is how much later than the settlement an ack is sent and heard. A
	// crash in between loses it.
	AckDelay time.Duration
	// Skew is the exponent of a Zipf distribution, above 1, from which the key of
	// every message is drawn, out of SkewKeys (default 1000). 0: every message has
	// a key of its own. With Skew, messages with equal keys are natural repeats:
	// one effect is meant for all of them.
	Skew     float64
	SkewKeys int
	// Crash is when the process is killed, after the start; 0: never. What it had
	// in memory is gone and what it hadn't finished never happens. A new process
	// starts at once, with the same sender and the same store.
	Crash time.Duration
	// Seed selects the random numbers.
	Seed uint64
}

func (c *Cell) check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(c.Workers >= 1 && c.Workers <= mostWorkers, "%d workers", c.Workers)
	must(c.Buffer >= 0 && c.Capacity >= 0, "buffer %d, capacity %d", c.Buffer, c.Capacity)
	must(!c.Ring || c.Capacity > 0, "a ring without a capacity")
	must(c.Load > 0, "load %v", c.Load)
	must(c.Service >= time.Microsecond, "service %v", c.Service)
	must(c.Timeout > 0, "timeout %v", c.Timeout)
	must(slices.Contains(Guards(), c.Guard), "guard %q", c.Guard)
	must(c.Keys > 0 && c.Warmup >= 0 && c.Warmup < c.Keys, "%d keys, %d of them warmup", c.Keys, c.Warmup)
	must(c.Burst >= 0, "burst %d", c.Burst)
	must(c.Fail >= 0 && c.Fail < 1, "fail %v", c.Fail)
	must(c.AckLoss >= 0 && c.AckLoss < 1, "ack loss %v", c.AckLoss)
	must(c.Skew == 0 || c.Skew > 1, "skew %v", c.Skew)
	must(c.SkewKeys >= 0, "skew over %d keys", c.SkewKeys)
	for _, d := range []time.Duration{c.StoreTime, c.Lease, c.Backoff, c.AckDelay, c.Crash} {
		must(d >= 0, "a time of %v", d)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sim: a cell can't have: %w", err)
	}
	return nil
}

// Result is what was measured of the keys whose first message came after the
// warmup; P, Goodput and the sojourn times are of the messages after it.
type Result struct {
	// Keys is the number of distinct keys, Effects how often they had an effect,
	// and Extra how many effects were more than a key's first.
	Keys, Effects, Extra int
	// Claim, Late and Restart are parts of Extra: the effect began while the key's
	// first one ran; it began after that; it began after a crash, and the
	// first effect was before it.
	Claim, Late, Restart int
	// Lost is the number of keys that the sender takes for done and that have no
	// effect.
	Lost int
	// Sends is the number of deliveries that the pipeline took, of all messages,
	// those sent again included.
	Sends int
	// P is the share of messages whose first ack came later than Timeout after the
	// first delivery was taken.
	P float64
	// Goodput is the rate of messages done for the first time, whether the sender
	// hears of it or not, over the capacity; the last hundredth of the messages isn't
	// counted. Where keys repeat it can be above 1.
	Goodput float64
	// Sojourn is the mean time from the first delivery of a message to the first ack
	// that the sender heard, and SojournP99 its 99th percentile.
	Sojourn, SojournP99 time.Duration
	// Collapsed says that most of the last tenth of the messages were sent more
	// than once.
	Collapsed bool
	// Simulated is the fake time from the start to the last ack, and Items the number
	// of deliveries that the pipeline settled.
	Simulated time.Duration
	Items     int
}
