package oncepipe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// badCompletes is a store of which some completions fail, before or after.
type badCompletes struct {
	*memstore.Store
	refuses atomic.Bool
	lost    atomic.Int32
}

func (s *badCompletes) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	if s.refuses.Load() {
		return nil, errors.New("store is away")
	}
	held, err := s.Store.Complete(ctx, reqs)
	if s.lost.Add(-1) >= 0 {
		return nil, errors.New("store is away")
	}
	return held, err
}

// redrivenQueue is a store as a queue of records that were redriven.
type redrivenQueue struct {
	*badCompletes
	keep func(context.Context, oncepipe.DeadLetter) error
}

func newRedrivenQueue() *redrivenQueue {
	st := &badCompletes{Store: memstore.New(memstore.Config{})}
	return &redrivenQueue{st, oncepipe.DeadLettersIn(st, nil)}
}

func (q *redrivenQueue) source() oncepipe.Source[string] {
	return oncepipe.Redriven(q.badCompletes, shop, oncepipe.RedrivenConfig[string]{Key: func(v string) string { return v }})
}

func (q *redrivenQueue) send(text string) error {
	ctx := context.Background()
	letter := oncepipe.DeadLetter{
		Pipeline: "shop", Stage: "charge", Namespace: "shop",
		Key: text, Value: text, Reason: oncepipe.ReasonPermanent, Err: errBroken,
	}
	if err := q.keep(ctx, letter); err != nil {
		return err
	}
	id := oncepipe.RecordID{Namespace: shop, Key: text}
	recs, err := q.Lookup(ctx, []oncepipe.RecordID{id})
	if err != nil {
		return err
	}
	recs[0].RecordID = id
	_, err = oncepipe.Redrive(ctx, q, recs)
	return err
}

// left counts the records that wait, those that are out among them.
func (q *redrivenQueue) left() int {
	recs, err := q.List(context.Background(), oncepipe.Query{State: oncepipe.StateWaiting, Namespace: shop})
	if err != nil {
		return -1
	}
	return len(recs)
}

func redrivenConformance(reopen bool) oncetest.SourceConfig[string] {
	return oncetest.SourceConfig[string]{
		New: func() (oncetest.SourceEnv[string], error) {
			q := newRedrivenQueue()
			env := oncetest.SourceEnv[string]{
				Source: q.source(), Send: q.send, Left: q.left,
				RefuseSettlements: q.refuses.Store,
				LoseAnswers:       func(n int) { q.lost.Store(int32(n)) },
			}
			if reopen {
				env.Reopen = func() (oncepipe.Source[string], error) { return q.source(), nil }
			}
			return env, nil
		},
		Text:   func(v string) string { return v },
		Bubble: true, Keyed: true, ReturnsShed: true,
		Delay: time.Minute,
		// What one process took up is left alone by the next for five minutes.
		Patience: 10 * time.Minute, Quiet: 10 * time.Minute,
	}
}

func TestSourceConformance_Redriven(t *testing.T) {
	oncetest.Source(t, redrivenConformance(false))
}

func TestSourceConformance_RedrivenByTheNextProcess(t *testing.T) {
	if err := oncetest.CheckSource(redrivenConformance(true)); err != nil {
		t.Error(err)
	}
}
