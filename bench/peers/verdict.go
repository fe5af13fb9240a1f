package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// verdict is what became of the messages of a writer under a fault.
type verdict struct {
	Peer     string        `csv:"writer"`
	Means    string        `csv:"means"`
	Fault    string        `csv:"fault"`
	What     string        `csv:"what"`
	Counts   bool          `csv:"counts"`  // is one of the faults that are summed up
	Instead  string        `csv:"instead"` // what the writer did in place of what makes the fault
	Messages int           `csv:"messages"`
	Lost     int           `csv:"lost"`
	Doubled  int           `csv:"doubled"`
	Open     int           `csv:"open"`     // delivered and settled in no way when the writer had ended or was given up
	During   int           `csv:"during"`   // written while the first slow message waited; -1: does not apply
	Stuck    bool          `csv:"stuck"`    // nothing moved any more
	Took     time.Duration `csv:"duration"` // the whole
	Cannot   string        `csv:"cannot"`   // why there is nothing to count
	Error    string        `csv:"error"`    // how the writer ended, if badly
}

// harmed says whether messages were lost, doubled or left behind.
func (v verdict) harmed() bool { return v.Lost+v.Doubled+v.Open > 0 || v.Stuck || v.Error != "" }

// patience is how long nothing may move: ten times the longest backoff, for a machine
// that is busy.
const patience = 5 * time.Second

// judge lets a writer write n messages under a fault.
func judge(ctx context.Context, w writer, f fault, n int) verdict {
	v := verdict{Peer: w.Name, Means: w.Means, Fault: f.Name, What: f.What, Counts: !f.requeue, Messages: n, During: -1}
	if f.requeue {
		v.Instead = w.Instead
	}
	start := time.Now()
	run, stop := context.WithCancel(ctx)
	defer stop()
	l := newLedger(f, n, stop)
	err := v.attempt(run, w, l)
	if no, ok := errors.AsType[cannot](err); ok {
		v.Cannot = no.Error()
		return v
	}
	v.Open = l.b.takeBack()
	if f.stop && !v.Stuck {
		err = errors.Join(err, v.attempt(ctx, w, l))
	}
	v.Lost, v.Doubled, v.During = l.sums()
	v.Took = time.Since(start).Round(time.Millisecond)
	if err = over(err); err != nil {
		v.Error = err.Error()
	}
	return v
}

// attempt runs the writer, and gives it up when nothing moves.
func (v *verdict) attempt(ctx context.Context, w writer, l *ledger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				ended <- fmt.Errorf("panic: %v", r)
			}
		}()
		ended <- w.run(ctx, job{
			source: l.b, write: l.write, written: l.has,
			workers: workers, buffer: l.f.buffer,
			attempts: attempts, backoff: l.f.backoff, requeue: l.f.requeue,
		})
	}()
	const looks = 10
	tick := time.NewTicker(patience / looks)
	defer tick.Stop()
	moves := l.b.progress()
	for idle := 0; idle < looks; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		if now := l.b.progress(); now != moves {
			moves, idle = now, 0
		} else {
			idle++
		}
	}
	v.Stuck = true
	stop()
	select {
	case err := <-ended:
		return err
	case <-tick.C: // one that is stuck may not hear that it is stopped
		return nil
	}
}
