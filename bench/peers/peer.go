package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"
)

// peer is a library and what one writes with it. Each is a file of its own; to add
// one takes that file and a line in peers.
type peer interface {
	module() string    // whose version is shown; "" for none
	chains() []chain   // ways to put three functions one after the other
	writers() []writer // ways to write what a source delivers
}

func peers() []peer {
	return []peer{rawPeer{}, oncePeer{}, concPeer{}, pondPeer{}, antsPeer{}, roPeer{}, watermillPeer{}}
}

// buffer is the size of every channel where a size can be chosen.
const buffer = 64

// order is the item of the chains.
type order struct {
	ID string
	N  int
}

func step(o order) order {
	o.N++
	return o
}

func allSteps(o order) order { return step(step(step(o))) }

// The shapes of a chain.
const (
	threeHops = "3 hops" // source, three stages and consumer run on their own, with a queue in between
	oneHop    = "1 hop"  // the workers run all three functions
	inline    = "inline" // function calls, no queue
)

// chain is a way to bring orders from a source through three steps to a consumer.
type chain struct {
	Name    string
	Shape   string
	Does    string // beyond moving the items
	Workers []int  // of each stage; 0 where it is not for the program to say
	run     func(items, workers int) total
}

// label is the chain's name in benchmark lines. One whose workers are not for the
// program to say stands with those of one worker, which it is compared with.
func (c chain) label(workers int) string {
	return fmt.Sprintf("lib=%s/shape=%s/workers=%d", dashed(c.Name), dashed(c.Shape), max(1, workers))
}

// total is what a consumer has seen.
type total struct{ Items, Sum int }

func (t *total) add(o order) {
	t.Items++
	t.Sum += o.N
}

// totalOf is what it has to have seen of orders(items).
func totalOf(items int) total {
	return total{items, items*(items-1)/2 + 3*items}
}

// names are made beforehand: making them is not measured.
var names = func() (names [1024]string) {
	for i := range names {
		names[i] = "order-" + strconv.Itoa(i)
	}
	return names
}()

func orders(items int) iter.Seq[order] {
	return func(yield func(order) bool) {
		for i := range items {
			if !yield(order{ID: names[i%len(names)], N: i}) {
				return
			}
		}
	}
}

// writer is a way to write what a source delivers.
type writer struct {
	Name    string
	Means   string // what of retry, ack and deduplication is the library's own
	Instead string // what it does with an item that a job wants to be put back into the queue; "": that
	run     func(ctx context.Context, j job) error
}

func allWriters() (all []writer) {
	for _, p := range peers() {
		all = append(all, p.writers()...)
	}
	return all
}

// job is what a writer has to do: until the source is at its end or ctx ends, take
// deliveries, write each, and ack it when it is written.
type job struct {
	source  *broker
	write   func(ctx context.Context, d *delivery) error
	written func(ctx context.Context, d *delivery) (bool, error) // asks the other side

	workers, buffer int
	attempts        int           // in place, before the delivery goes back to the source
	backoff         time.Duration // between these
	requeue         bool          // a worker puts what failed back into the queue that it came from, in place of attempts
}

// cannot is the error of a writer whose library has no means for the job.
type cannot string

func (c cannot) Error() string { return string(c) }

// feed hands on each delivery.
func (j job) feed(ctx context.Context, hand func(*delivery)) error {
	for {
		d, err := j.source.receive(ctx)
		if err != nil {
			return over(err)
		}
		hand(d)
	}
}

// settle is what a task does by hand where its library has no retries.
func (j job) settle(ctx context.Context, d *delivery) {
	for attempt := 1; ; attempt++ {
		if j.write(ctx, d) == nil {
			d.ack()
			return
		}
		if attempt == j.attempts || pause(ctx, j.backoff) != nil {
			d.nack()
			return
		}
	}
}

// try writes once; again is told what failed.
func (j job) try(ctx context.Context, d *delivery, again func(*delivery)) {
	if j.write(ctx, d) == nil {
		d.ack()
		return
	}
	again(d)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
