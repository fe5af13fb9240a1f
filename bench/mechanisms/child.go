package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// childVariable holds the task of a process that this program has started: it has a
// worker and nothing else. Deliveries are lines of its input, what it has to say
// lines of its output.
const childVariable = "ONCEPIPE_BENCH_MECHANISM"

// task is what a child is told. Its buffer is the usual one.
type task struct {
	Mechanism string
	File      string
	Lease     time.Duration
}

// toChild is a line that a child reads.
type toChild struct {
	Order *order `json:"order,omitempty"`
	Go    int    `json:"go,omitempty"` // the delivery that needn't wait any longer
}

// toParent is a line that a child writes.
type toParent struct {
	Ready      bool                 `json:"ready,omitempty"` // for deliveries
	Delivery   int                  `json:"delivery,omitempty"`
	Meet       bool                 `json:"meet,omitempty"` // it is about to have its effect
	Settlement *oncepipe.Settlement `json:"settlement,omitempty"`
}

// child runs if this process is one.
func child() (is bool, err error) {
	text, is := os.LookupEnv(childVariable)
	if !is {
		return false, nil
	}
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return true, fmt.Errorf("read the task: %w", err)
	}
	for _, m := range mechanisms {
		if m.name == t.Mechanism {
			l := newLine(os.Stdout)
			go l.read(os.Stdin)
			return true, serve(context.Background(), m, none.buffer, t.Lease, t.File, l)
		}
	}
	return true, fmt.Errorf("no mechanism is called %q", t.Mechanism)
}

// line is the child's end of the broker: a source and a desk.
type line struct {
	orders chan *order
	failed error // why orders is closed; nil at the end of input
	ready  bool  // it was said

	mu      sync.Mutex
	out     *json.Encoder
	waiting map[int]chan struct{}
	ended   bool // the input is: nobody waits any more
}

func newLine(out io.Writer) *line {
	return &line{orders: make(chan *order, prefetch), out: json.NewEncoder(out), waiting: map[int]chan struct{}{}}
}

// read takes lines until the parent has no more.
func (l *line) read(in io.Reader) {
	defer l.end()
	for lines := json.NewDecoder(in); ; {
		var got toChild
		switch err := lines.Decode(&got); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			l.failed = fmt.Errorf("read deliveries: %w", err)
			return
		case got.Order != nil:
			got.Order.desk = l
			l.orders <- got.Order
		default:
			l.release(got.Go)
		}
	}
}

func (l *line) release(delivery int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over := l.waiting[delivery]; over != nil {
		close(over)
		delete(l.waiting, delivery)
	}
}

// end lets go of all that wait. Where every message is settled the parent has
// closed the input, and tells nobody to go.
func (l *line) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, over := range l.waiting {
		close(over)
	}
	clear(l.waiting)
	close(l.orders)
}

// wait is what is closed when the delivery needn't wait any longer. It is nil if
// it needn't now.
func (l *line) wait(delivery int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	over := make(chan struct{})
	l.waiting[delivery] = over
	return over
}

// tell writes a line at once, so that the parent has the whole of it or nothing.
func (l *line) tell(say toParent) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(say)
}

// Receive implements oncepipe.Source.
func (l *line) Receive(ctx context.Context) (oncepipe.Delivery[*order], error) {
	if !l.ready {
		if err := l.tell(toParent{Ready: true}); err != nil {
			return oncepipe.Delivery[*order]{}, oncepipe.Permanent(err)
		}
		l.ready = true
	}
	select {
	case o, ok := <-l.orders:
		switch {
		case ok:
			return delivered(o, func(_ context.Context, s oncepipe.Settlement) error {
				s.Err = nil // errors don't go through JSON
				return l.tell(toParent{Delivery: o.Delivery, Settlement: &s})
			}), nil
		case l.failed != nil:
			return oncepipe.Delivery[*order]{}, oncepipe.Permanent(l.failed)
		}
		return oncepipe.Delivery[*order]{}, io.EOF
	case <-ctx.Done():
		return oncepipe.Delivery[*order]{}, fmt.Errorf("receive: %w", ctx.Err())
	}
}

// meet implements desk.
func (l *line) meet(ctx context.Context, delivery int) {
	over := l.wait(delivery)
	if over == nil || l.tell(toParent{Delivery: delivery, Meet: true}) != nil {
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
}
