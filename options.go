package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Option adjusts a stage or a Dedup. One that has no meaning where it is given
// is refused by Run.
type Option func(*options)

type options struct {
	given map[string]bool

	workers      int
	buffer       BufferPolicy
	retry        *RetryPolicy
	timeout      time.Duration
	limiter      Limiter
	ordered      bool
	perPartition bool
	namespace    string
	batchSize    int // 0: no batches
	batchWait    time.Duration

	guard    Guard
	joinKey  int
	joinAll  int
	joinWait time.Duration
	store    Store
	claims   ClaimPolicy

	errs []error
}

func (o *options) set(name string) { o.given[name] = true }

func (o *options) wrong(format string, args ...any) {
	o.errs = append(o.errs, fmt.Errorf(format, args...))
}

func collect(opts []Option, allowed ...string) options {
	o := options{
		given:    map[string]bool{},
		workers:  1,
		buffer:   Fixed(DefaultBuffer),
		joinKey:  DefaultJoinPerKey,
		joinAll:  DefaultJoinTotal,
		joinWait: DefaultJoinWait,
	}
	for _, opt := range opts {
		opt(&o)
	}
	for name := range o.given {
		found := false
		for _, a := range allowed {
			found = found || a == name
		}
		if !found {
			o.wrong("option %s has no meaning here", name)
		}
	}
	if o.ordered && o.perPartition {
		o.wrong("Ordered and PerPartition exclude each other")
	}
	return o
}

func (o *options) check() error { return errors.Join(o.errs...) }

// slots is how many a stage has that isn't told.
func (o *options) slots() int {
	if o.batchSize > math.MaxInt32/2/max(o.workers, 1) {
		return math.MaxInt32
	}
	return max(DefaultSlots, 2*o.workers*o.batchSize)
}

// Workers is how many items a stage runs at the same time; 1 by default.
func Workers(n int) Option {
	return func(o *options) {
		o.set("Workers")
		if o.workers = n; n < 1 {
			o.wrong("Workers(%d)", n)
		}
	}
}

// Buffer is what waits in front of a stage; Fixed(DefaultBuffer) by default.
func Buffer(b BufferPolicy) Option {
	return func(o *options) {
		o.set("Buffer")
		o.buffer = b
		if err := b.check(); err != nil {
			o.wrong("Buffer: %w", err)
		}
	}
}

// Retry makes a stage try failed items again, by the policy. Without it a stage
// makes one attempt.
func Retry(r RetryPolicy) Option {
	return func(o *options) {
		o.set("Retry")
		if err := r.check(); err != nil {
			o.wrong("Retry: %w", err)
		}
		o.retry = &r
	}
}

// Timeout limits every attempt: after d the handler's context ends with cause
// ErrAttemptTimeout. The stage waits for the handler to return, since a second
// attempt must not run beside the first.
func Timeout(d time.Duration) Option {
	return func(o *options) {
		o.set("Timeout")
		if o.timeout = d; d <= 0 {
			o.wrong("Timeout(%v)", d)
		}
	}
}

// Limiter holds attempts back; golang.org/x/time/rate.Limiter is one.
type Limiter interface {
	Wait(ctx context.Context) error
}

// Limit asks l before every attempt. Its error counts as the attempt's.
func Limit(l Limiter) Option {
	return func(o *options) {
		o.set("Limit")
		if o.limiter = l; l == nil {
			o.wrong("Limit(nil)")
		}
	}
}

// Ordered makes a stage with several workers emit in the order of its input. An
// item that is done before its predecessors waits for them and holds its slot,
// so that RetryPolicy.Slots bounds the window.
func Ordered() Option {
	return func(o *options) { o.set("Ordered"); o.ordered = true }
}

// PerPartition makes a stage run the items of a partition (see PartitionBy) one
// after the other, in the order of its input: an item that waits for a retry
// holds back those behind it in its partition, and others only when these fill
// the slots. When an item is returned to its source, so are those that wait
// behind it. A stage before it that snoozes an item, as Once does for a busy key,
// changes the order unless it is Ordered itself.
func PerPartition() Option {
	return func(o *options) { o.set("PerPartition"); o.perPartition = true }
}

// BatchSize is how many items a batch holds at most; DefaultBatchSize by default.
// In a Transduce it is how many its steps may keep; DefaultKept by default.
// It can't be more than RetryPolicy.Slots. Where that is 0, a BatchStage has
// DefaultSlots, or as many as two batches for each worker need if that is more.
func BatchSize(n int) Option {
	return func(o *options) {
		o.set("BatchSize")
		if o.batchSize = n; n < 1 || n > math.MaxInt32 {
			o.wrong("BatchSize(%d)", n)
		}
	}
}

// BatchWait is how long a batch may wait to be filled, from its first item. By
// default, 0, it takes what is queued and runs. In a Transduce it is how long a
// step may keep a value; DefaultKeptFor by default.
func BatchWait(d time.Duration) Option {
	return func(o *options) {
		o.set("BatchWait")
		if o.batchWait = d; d < 0 {
			o.wrong("BatchWait(%v)", d)
		}
	}
}

// Namespace pins the name under which the records of a stage, or of a Dedup with
// a store, are kept.
// By default it is the pipeline's name; give it when that name changes and the
// keys must not be new.
func Namespace(name string) Option {
	return func(o *options) {
		o.set("Namespace")
		if o.namespace = name; name == "" {
			o.wrong("Namespace is empty")
		}
	}
}
