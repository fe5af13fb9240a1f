package oncepipe

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultBatchSize is how many items a batch holds at most when no BatchSize
// option is given.
const DefaultBatchSize = 64

// BatchStage runs fn for many items at once and emits the results one by one.
// Each item keeps its own key, attempts, dead letter and settlement. See
// BatchSize, BatchWait, and the options of Stage; Ordered and PerPartition have no
// meaning here. Timeout and Limit count for each call of fn.
//
// A batch takes due retries first, then what the buffer holds: items with
// different attempt numbers meet in it. It runs when it is full, when BatchWait is
// over since its first item, when no slot is left for another item, when the
// input has ended, and when the pipeline drains. One worker at a time fills a
// batch. As in a Stage, it is a Dedup before it that keeps two items of one key
// apart. With Fixed(0) nothing is queued: only BatchWait fills a batch then.
//
// fn returns one result for each item, in their order; another number of results
// is ErrBatchResults for all of them. It may change the slice but must not keep it.
// What it is told of the items, BatchFrom has.
//
// With a *BatchError fn says which items failed; the others are done. Every
// other error is that of the whole batch, and so is a panic or a Goexit. Since a
// single item may have spoiled it, the batch is cut: fn runs at once for the first
// half, then for the second, and so on, until the item that is to blame stands
// alone with its error. So whatever fn did before it failed must be undone, as a
// transaction does, or bear to be done again. However often it is cut, a batch
// is one attempt for each of its items.
//
// A batch is not cut when the error says by itself what to do: RetryAfter, Snooze,
// WholeBatch, ErrLeaseLost; nor when fn's context has ended, or the limiter
// failed. All its items fail with that error then. An outage is recognised too:
// once two items have failed alone and no call for the batch succeeded, parts
// that fail are not cut any further, so that it costs two calls for each doubling
// of the size, not two for each item. That holds for errors which may be tried
// again, and for items that have another attempt.
func BatchStage[A, B any](in Stream[A], name string, fn func(context.Context, []A) ([]B, error), opts ...Option) Stream[B] {
	s := newBatchStage(in, "batchstage", name, fn, opts)
	return Stream[B]{s.out}
}

// BatchSink is BatchStage for a function without results: it ends the stream.
func BatchSink[A any](in Stream[A], name string, fn func(context.Context, []A) error, opts ...Option) {
	var run func(context.Context, []A) ([]struct{}, error)
	if fn != nil {
		run = func(ctx context.Context, v []A) ([]struct{}, error) { return make([]struct{}, len(v)), fn(ctx, v) }
	}
	s := newBatchStage(in, "batchsink", name, run, opts)
	s.out.next = discardOp[struct{}]{}
}

// BatchError is returned, as a pointer, by a batch function some of whose items
// failed. Errs has an error for each item, nil for one that is done; Permanent,
// RetryAfter and the other marks count for their item.
type BatchError struct{ Errs []error }

// Error counts the failed items and shows what the first of them said.
func (e *BatchError) Error() string {
	failed := e.Unwrap()
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d items failed", len(failed), len(e.Errs))
	if len(failed) > 0 {
		fmt.Fprintf(&b, "; the first: %v", failed[0])
	}
	return b.String()
}

// Unwrap returns the errors of the items that failed.
func (e *BatchError) Unwrap() []error {
	var failed []error
	for _, err := range e.Errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

func newBatchStage[A, B any](in Stream[A], kind, name string, fn func(context.Context, []A) ([]B, error), opts []Option) *stage[A, B] {
	o := collect(opts, "Workers", "Buffer", "Retry", "Timeout", "Limit", "Namespace", "BatchSize", "BatchWait")
	if o.batchSize == 0 {
		o.batchSize = DefaultBatchSize
	}
	if fn == nil {
		o.wrong("function is nil")
	}
	s := wireStage[A, B](in, kind, name, o)
	if slots := s.policy.Slots; slots > 0 && o.batchSize > slots {
		s.opt.wrong("batches of %d items don't fit into %d slots", o.batchSize, slots)
	}
	s.hire = func() crewman {
		b := &batcher[A, B]{worker: worker[A, B]{s: s}, fn: fn}
		b.hand.Store(&batchHand{})
		b.timer = time.AfterFunc(time.Hour, s.lane.wake)
		b.timer.Stop()
		return b
	}
	return s
}

// batchItem is what others than the worker may see of an item of a batch.
type batchItem struct {
	ticket   *ticket
	number   int32
	replayed atomic.Uint32 // in which call of its batch
	over     atomic.Bool   // handed on, parked or settled
}

// batchHand is the batch that a worker has in hand.
type batchHand struct {
	before int64 // items of the batches before it
	items  []batchItem
}

// batchCall is one call of a batch function, and the context it runs in. Like an
// attempt it is made for that call, so that a function may keep it.
type batchCall struct {
	context.Context // ends with the pipeline's handlers, and with the claim of any item
	stage           *stageCore
	number          uint32 // of its batch, from 1
	items           []batchItem
}

func (c *batchCall) Value(key any) any {
	if _, ok := key.(infoKey); ok {
		return c
	}
	return c.Context.Value(key)
}

func (c *batchCall) info() Info { return c.stage.info() }

func (c *batchCall) infos() []Info {
	out := make([]Info, len(c.items))
	for i := range out {
		out[i] = c.info()
		c.items[i].ticket.tell(&out[i], int(c.items[i].number))
	}
	return out
}

func (c *batchCall) replayed() {
	for i := range c.items {
		c.replayedItem(i)
	}
}

func (c *batchCall) replayedItem(i int) { c.items[i].replayed.Store(c.number) }

func (c *batchCall) keeper(st Store) *keeper { return c.stage.p.keeper(st) }
