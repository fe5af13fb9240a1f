package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oncepipe/oncepipe"
)

// workerEnv tells a process that it is a worker, and has its orders.
const workerEnv = "ONCEPIPE_TEST_WORKER"

// orders are what a worker is told beside its keys, which come on its input:
// a line each, mode and key.
type orders struct {
	Engine  string
	DSN     string
	Service string // URL
	Limits  limits

	// It kills itself when Mode is at Point for the Count'th time. "" means never.
	Mode  mode
	Point string
	Count int

	Mutant mutant // how inTx is done wrongly; "" for rightly

	Crossing *crossing // what to do instead of all this, or nil
}

// runWorker works off its keys and says on its output which ones it has acked:
// a line each, mode, key and outcome.
func runWorker(raw string, in io.Reader, out io.Writer) error {
	var o orders
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		return err
	}
	if o.Crossing != nil {
		return o.runCrossing(context.Background())
	}
	at := o.executioner()
	brokers, err := readKeys(in, func(m mode) *broker {
		return newBroker(func(key string, s oncepipe.Settlement) error {
			at(m, beforeAck)
			// One write, so that the parent has the whole line or nothing.
			_, err := fmt.Fprintf(out, "%s %s %s\n", m, key, s.Outcome)
			at(m, afterAck)
			return err
		})
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	e, err := engineNamed(o.Engine)
	if err != nil {
		return err
	}
	w, err := e.open(ctx, o.DSN, 0, at)
	if err != nil {
		return err
	}
	if o.Mutant != "" {
		w.tx = o.Mutant.do(w)
	}
	cfg := oncepipe.Config{
		PruneGrace: -1, PruneEvery: 20 * time.Millisecond,
		DeadLetters: func(context.Context, oncepipe.DeadLetter) error { return nil }, // the outcome says it
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	return errors.Join(w.pipeline(cfg, brokers, o.Service, o.Limits).Run(ctx), w.close())
}

// executioner returns what kills the process at the point that the orders name.
func (o orders) executioner() pointFunc {
	var hits atomic.Int64
	return func(m mode, point string) {
		if m != o.Mode || point != o.Point || hits.Add(1) != int64(o.Count) {
			return
		}
		if point == inPrune { // it is about to begin
			time.AfterFunc(rand.N(2*time.Millisecond), die)
			return
		}
		die()
	}
}

// die does not return before the signal has arrived.
func die() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}

// readKeys gives the keys to a broker for each mode, in an order of this process's own.
func readKeys(in io.Reader, newBroker func(mode) *broker) (map[mode]*broker, error) {
	keys := map[mode][]string{}
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		m, key, _ := strings.Cut(scanner.Text(), " ")
		keys[mode(m)] = append(keys[mode(m)], key)
	}
	brokers := map[mode]*broker{}
	for m, list := range keys {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		brokers[m] = newBroker(m)
		brokers[m].Send(list...)
		brokers[m].Close()
	}
	return brokers, scanner.Err()
}

// mutant is a wrong way to make an effect and its record.
type mutant string

const (
	effectFirst mutant = "effect first"
	recordFirst mutant = "record first"
)

// do makes effect and record in two transactions, in one order or the other.
func (m mutant) do(w *work) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		found, err := w.store.Lookup(ctx, []oncepipe.RecordID{inTx.record(key)})
		if err != nil || found[0].State == oncepipe.StateCompleted {
			return err
		}
		steps := []func(context.Context, string) error{w.bareEffect, w.bareRecord}
		if m == recordFirst {
			steps[0], steps[1] = steps[1], steps[0]
		}
		if err := steps[0](ctx, key); err != nil {
			return err
		}
		w.at(inTx, beforeCommit)
		return steps[1](ctx, key)
	}
}

// bareRecord claims and completes a key, where it is new.
func (w *work) bareRecord(ctx context.Context, key string) error {
	req := oncepipe.ClaimRequest{RecordID: inTx.record(key), Claim: oncepipe.NewClaimID(), Lease: time.Minute}
	answers, err := w.store.Claim(ctx, []oncepipe.ClaimRequest{req})
	if err != nil || answers[0].Status != oncepipe.ClaimAcquired {
		return err
	}
	_, err = w.store.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
	return err
}
