package sim

import (
	"fmt"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/internal/bubble"
	"github.com/oncepipe/oncepipe/store/memstore"
)

const (
	mostWorkers  = 64
	mostBackoffs = 64 // a backoff is at most so many times the first one
)

// world is all of a run; its sender, store and ledger outlive a crash.
type world struct {
	cell      Cell
	clock     *clock
	sender    *sender
	ledger    *ledger
	store     *memstore.Store
	processes int
}

// Run runs a cell until the sender has heard an ack for every message. The error
// says what is wrong with the cell, or what the pipeline could not do. Several
// cells may be run at the same time.
func Run(c Cell) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	c = c.withDefaults()
	var res Result
	err := bubble.Run(func() error {
		w := &world{
			cell: c, clock: newClock(), sender: newSender(c),
			ledger: &ledger{warmup: c.Warmup}, store: memstore.New(memstore.Config{}),
		}
		if err := w.run(); err != nil {
			return fmt.Errorf("the pipeline: %w", err)
		}
		res = w.result()
		return nil
	})
	if err != nil {
		return Result{}, fmt.Errorf("sim: %w", err)
	}
	return res, nil
}

func (w *world) run() error {
	p := w.start()
	if w.cell.Crash == 0 {
		return p.wait()
	}
	crash := time.NewTimer(aligned(w.cell.Crash, ofCrash))
	defer crash.Stop()
	select {
	case err := <-p.ended:
		return err
	case <-crash.C:
	}
	p.die()
	w.sender.cut(w.clock.now())
	err := w.start().wait()
	_ = p.wait() // what a dead process says is not heard
	return err
}

func (c Cell) withDefaults() Cell {
	if c.Backoff == 0 {
		c.Backoff = c.Service
	}
	if c.SkewKeys == 0 {
		c.SkewKeys = 1000
	}
	if c.Lease == 0 {
		c.Lease = oncepipe.DefaultLease
	}
	return c
}
