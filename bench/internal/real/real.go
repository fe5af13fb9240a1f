// Package real measures the duplicate window in real time: a sender that sends a
// key again when it has no ack in time, a pipeline with a bounded buffer, and an
// effect that is a row in a database, committed before the ack. What happened is
// counted in the database.
package real

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Guard names what stands between a delivery and a second row.
type Guard = string

// The guards.
const (
	None      Guard = "none"      // every delivery inserts a row
	Completed Guard = "completed" // an LRU of keys that are done, asked and filled by the worker
	Ours      Guard = "ours"      // oncepipe.Dedup
	Tx        Guard = "tx"        // row and record of the key in one transaction, and nothing before it
	OursTx    Guard = "ours+tx"   // both
)

// Guards returns all guards, in the order above.
func Guards() []Guard { return []Guard{None, Completed, Ours, Tx, OursTx} }

// holds tells whether a guard promises that no key has two rows.
func holds(g Guard) bool { return g == Ours || g == Tx || g == OursTx }

// completedKeys is the capacity of the LRU of Completed.
const completedKeys = 4096

// services is the sender's timeout, in service times.
const services = 40

// patience is how long a cell may take, beside its For, until all is acked.
const patience = time.Minute

// Cell says what is run.
type Cell struct {
	Store   string        // name of the Backend
	Buffer  int           // deliveries that wait in front of the workers
	Workers int           // effects at the same time; 0: the Backend's
	Load    float64       // rate of new keys over the capacity that is measured first
	Guard   Guard         // one of Guards
	For     time.Duration // how long there are new keys
	Seed    uint64        // of the arrivals
}

func (c Cell) check(b Backend) error {
	switch {
	case c.Store != b.Name:
		return fmt.Errorf("store %q on %q", c.Store, b.Name)
	case c.Buffer < 0 || c.Workers < 1 || c.Workers > conns:
		return fmt.Errorf("buffer %d, %d workers of at most %d", c.Buffer, c.Workers, conns)
	case c.Load <= 0 || c.For <= 0:
		return fmt.Errorf("load %v for %v", c.Load, c.For)
	case !slices.Contains(Guards(), c.Guard):
		return fmt.Errorf("guard %q", c.Guard)
	}
	return nil
}

// Result is what was measured.
type Result struct {
	Store   string  `csv:"store"`
	Guard   Guard   `csv:"guard"`
	Buffer  int     `csv:"buffer"`
	Workers int     `csv:"workers"`
	Load    float64 `csv:"load"`

	Service   time.Duration `csv:"service"`   // of one effect, commit included, while all workers are busy
	Capacity  float64       `csv:"capacity"`  // effects per second of all workers
	Timeout   time.Duration `csv:"timeout"`   // after which the sender sends again
	Threshold float64       `csv:"threshold"` // B*, the buffer beyond which duplicates begin

	Keys       int           `csv:"keys"`       // distinct ones that were sent
	Deliveries int           `csv:"deliveries"` // copies included
	Rows       int           `csv:"rows"`       // in the database, at the end
	Extra      int           `csv:"extra"`      // rows that are not the first of their key
	Lost       int           `csv:"lost"`       // keys that were acked and have no row
	Goodput    float64       `csv:"goodput"`    // keys done per second, while new ones came
	Share      float64       `csv:"share"`      // Goodput over Capacity
	Took       time.Duration `csv:"took"`       // until all was acked
}

// Run runs a cell on a database of its own. It returns an error when a guard that
// promises it has let a second row through, or lost one, and when ctx ends before
// all keys are acked; it waits a minute for that.
func Run(ctx context.Context, b Backend, c Cell) (r Result, err error) {
	if c.Workers == 0 {
		c.Workers = b.Workers
	}
	if err := c.check(b); err != nil {
		return Result{}, fmt.Errorf("real: a cell can't have %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("real: %s, guard %s, buffer %d: %w", c.Store, c.Guard, c.Buffer, err)
		}
	}()
	p, err := b.open(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	effect := p.insert
	if c.Guard == Tx || c.Guard == OursTx {
		effect = p.tx
	}
	capacity, err := measure(ctx, effect, c.Workers)
	if err != nil {
		return Result{}, fmt.Errorf("measure the capacity: %w", err)
	}
	r = expect(c, capacity)
	if err := r.send(ctx, c, effect); err != nil {
		return Result{}, err
	}
	rows, distinct, err := p.count(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("count rows: %w", err)
	}
	r.Rows, r.Extra, r.Lost = rows, rows-distinct, r.Keys-distinct
	if holds(c.Guard) && (r.Extra != 0 || r.Lost != 0) {
		return r, fmt.Errorf("%w: %d rows of %d keys, %d lost", ErrBroken, r.Rows, r.Keys, r.Lost)
	}
	return r, nil
}

// ErrBroken says that a guard has not held its promise.
var ErrBroken = errors.New("not one row for each key")

// expect is what follows from the capacity.
func expect(c Cell, capacity float64) Result {
	service := time.Duration(float64(c.Workers) / capacity * float64(time.Second))
	return Result{
		Store: c.Store, Guard: c.Guard, Buffer: c.Buffer, Workers: c.Workers, Load: c.Load,
		Service: service, Capacity: capacity, Timeout: services * service,
		Threshold: float64(c.Workers) * (services - 1),
	}
}

// send runs the sender and the pipeline until all keys are acked.
func (r *Result) send(ctx context.Context, c Cell, effect effect) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.For+patience, errTooLong)
	defer cancel()
	s := newSender(c, r.Capacity, r.Timeout)
	begun := time.Now()
	err := pipeline(c, s, effect).Run(ctx)
	r.Took = time.Since(begun)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%d keys are not acked: %w", s.unacked.Load(), err)
	}
	r.Keys, r.Deliveries = s.keys, s.deliveries
	r.Goodput = float64(s.inTime.Load()) / c.For.Seconds()
	r.Share = r.Goodput / r.Capacity
	return nil
}

var errTooLong = fmt.Errorf("the cell takes more than %v longer than it should", patience)
