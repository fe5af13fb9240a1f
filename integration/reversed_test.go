package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// crossing tells a process to take batches of keys again and again, in one order
// or the other.
type crossing struct {
	Rounds  int
	Reverse bool
	Start   time.Time // the same for all, who so meet at the same keys
}

const (
	crossingBatch  = 6
	crossingCrew   = 4
	crossingWindow = 4 * time.Millisecond // how long a batch's keys are the ones to take
)

// cross runs the rounds. No error is expected: what others hold or have done is
// an answer.
func (c crossing) cross(ctx context.Context, w, short *work) error {
	var crew sync.WaitGroup
	errs := make([]error, crossingCrew)
	for i := range crossingCrew {
		crew.Go(func() {
			for n := range c.Rounds / crossingCrew {
				round := c.transact
				st := w
				if (n+i)%2 == 0 {
					round, st = c.claim, short
				}
				if errs[i] = round(ctx, st); errs[i] != nil {
					return
				}
			}
		})
	}
	crew.Wait()
	return errors.Join(errs...)
}

func (o orders) runCrossing(ctx context.Context) error {
	e, err := engineNamed(o.Engine)
	if err != nil {
		return err
	}
	w, err := e.open(ctx, o.DSN, 0, nowhere)
	if err != nil {
		return err
	}
	short, err := e.open(ctx, o.DSN, time.Millisecond, nowhere)
	if err != nil {
		return errors.Join(err, w.close())
	}
	return errors.Join(o.Crossing.cross(ctx, w, short), short.close(), w.close())
}

// keys are those to take at this moment. Neighbours in time have some in common.
func (c crossing) keys() []string {
	first := int(time.Since(c.Start) / crossingWindow)
	keys := make([]string, crossingBatch)
	for i := range keys {
		keys[i] = fmt.Sprintf("%06d", 2*first+i)
	}
	if c.Reverse {
		slices.Reverse(keys)
	}
	return keys
}

func (c crossing) transact(ctx context.Context, w *work) error {
	keys := c.keys()
	return w.batch(oncepipe.WithKeys(ctx, keys...), keys)
}

// claim takes claims, completes some and gives the others back, and prunes what
// is completed.
func (c crossing) claim(ctx context.Context, w *work) error {
	var reqs []oncepipe.ClaimRequest
	for _, key := range c.keys() {
		id := oncepipe.RecordID{Namespace: "crossing", Key: key}
		reqs = append(reqs, oncepipe.ClaimRequest{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: time.Minute})
	}
	answers, err := w.store.Claim(ctx, reqs)
	if err != nil {
		return err
	}
	var done []oncepipe.Completion
	var back []oncepipe.ReleaseRequest
	for i, a := range answers {
		switch {
		case a.Status != oncepipe.ClaimAcquired:
		case i%2 == 0:
			done = append(done, oncepipe.Completion{RecordID: reqs[i].RecordID, Claim: reqs[i].Claim})
		default:
			back = append(back, oncepipe.ReleaseRequest{RecordID: reqs[i].RecordID, Claim: reqs[i].Claim, To: oncepipe.ToWaiting})
		}
	}
	if _, err := w.store.Complete(ctx, done); err != nil {
		return err
	}
	if _, err := w.store.Release(ctx, back); err != nil {
		return err
	}
	_, err = w.store.Prune(ctx, crossingBatch)
	return err
}

// Two processes take the same batches, one of them in reversed order, in claims
// and in transactions. No deadlock is an error that anybody sees.
func TestTwoProcessesReversed(t *testing.T) {
	databases := engines[:len(engines)-1]
	rounds := 10_000 / len(databases)
	forEngines(t, databases, func(t *testing.T, e engine) {
		began := time.Now()
		dsn := e.shared(t)
		l := newLedgers(t, e, dsn)
		var crew sync.WaitGroup
		for _, reverse := range []bool{false, true} {
			crew.Go(func() {
				c := crossing{Rounds: rounds / 2, Reverse: reverse, Start: time.Now()}
				if err := runOrders(t.Context(), orders{Engine: e.name, DSN: dsn, Crossing: &c}); err != nil {
					t.Error(err)
				}
			})
		}
		crew.Wait()
		effects, err := l.check.booked(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		double := 0
		for key, n := range effects[inTxBatch] {
			if n != 1 {
				t.Errorf("%d effects of %s", n, key)
				double++
			}
		}
		fmt.Printf("%s: rounds=%d keys=%d double=%d in %v\n", t.Name(), rounds, len(effects[inTxBatch]), double, time.Since(began).Round(time.Millisecond))
		if len(effects[inTxBatch]) == 0 {
			t.Error("nothing was done")
		}
	})
}

// runOrders runs a worker to its end.
func runOrders(ctx context.Context, o orders) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(raw), "GORACE=atexit_sleep_ms=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("worker: %w\n%s", err, out)
	}
	return nil
}
