package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// ledgers know which keys of each mode were handed out and acked, and count the
// effects that are really there.
type ledgers struct {
	service *service
	check   *work // looks at the store, past all faults
	old     *work // the same with no retention

	// afterwards: the effect is not looked for at once when a key is acked, because
	// the store may be down.
	afterwards bool

	mu    sync.Mutex
	acks  map[mode]map[string]string // the outcome of each key; "" while it has none
	early map[mode]int               // acked when there was no effect
}

func newLedgers(t testing.TB, e engine, dsn string) *ledgers {
	t.Helper()
	l := &ledgers{service: newService(t), acks: map[mode]map[string]string{}, early: map[mode]int{}}
	if err := e.create(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	open := func(retention time.Duration) *work {
		w, err := e.open(t.Context(), dsn, retention, nowhere)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.close(); err != nil {
				t.Error(err)
			}
		})
		return w
	}
	l.check, l.old = open(0), open(time.Millisecond)
	return l
}

// open takes a key in.
func (l *ledgers) open(m mode, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acks[m] == nil {
		l.acks[m] = map[string]string{}
	}
	l.acks[m][key] = ""
}

// left returns the keys that have no ack.
func (l *ledgers) left() map[mode][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[mode][]string{}
	for m, keys := range l.acks {
		for key, outcome := range keys {
			if outcome == "" {
				all[m] = append(all[m], key)
			}
		}
	}
	return all
}

// acked notes an ack, and looks at once whether the effect is there.
func (l *ledgers) acked(m mode, key, outcome string) error {
	there := outcome == oncepipe.Dead.String() && m == atMostOnce // in doubt, and listed
	switch outcome {
	case oncepipe.Done.String(), oncepipe.Duplicate.String():
		if there = l.afterwards; there {
			break
		}
		n, err := l.effects(m, key)
		if err != nil {
			return err
		}
		there = n > 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.acks[m][key]; !known {
		return fmt.Errorf("ack of %s %q, which was never handed out", m, key)
	}
	if !there {
		l.early[m]++
	}
	l.acks[m][key] = outcome
	return nil
}

func (l *ledgers) effects(m mode, key string) (int, error) {
	if m == inTx || m == inTxBatch {
		return l.check.bookedOf(context.Background(), m, key)
	}
	return l.service.count(m, key), nil
}

// lookBack counts, in place of acked, what was acked and has no effect.
func (l *ledgers) lookBack(ctx context.Context) error {
	var effects map[mode]map[string]int
	if l.check.booked != nil {
		var err error
		if effects, err = l.check.booked(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, keys := range l.acks {
		l.early[m] = 0
		for key, outcome := range keys {
			n := l.service.count(m, key) + effects[m][key]
			if n == 0 && outcome != "" && (m != atMostOnce || outcome != oncepipe.Dead.String()) {
				l.early[m]++
			}
		}
	}
	return nil
}

// outdate makes a few records that may be pruned at once. No mode has them.
func (l *ledgers) outdate(ctx context.Context, n int) error {
	const records = 20
	reqs := make([]oncepipe.ClaimRequest, records)
	done := make([]oncepipe.Completion, records)
	for i := range records {
		id := oncepipe.RecordID{Namespace: "outdated", Key: fmt.Sprintf("%d-%d", n, i)}
		reqs[i] = oncepipe.ClaimRequest{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: time.Minute}
		done[i] = oncepipe.Completion{RecordID: id, Claim: reqs[i].Claim}
	}
	_, err := l.old.store.Claim(ctx, reqs)
	if err != nil {
		return err
	}
	_, err = l.old.store.Complete(ctx, done)
	return err
}

// sum is how a ledger stands.
type sum struct {
	keys, lost, double int
	unknown            int // listed as such
	open               int // not acked
	early              int // acked when there was no effect
	wrong              int // records that don't agree with their effect
}

func (s sum) String() string {
	return fmt.Sprintf("keys=%d lost=%d double=%d unknown=%d", s.keys, s.lost, s.double, s.unknown)
}

// summary compares keys, effects and records.
func (l *ledgers) summary(t testing.TB) map[mode]sum {
	t.Helper()
	ctx := t.Context()
	if err := pruneAll(ctx, l.check.store); err != nil {
		t.Error(err)
	}
	listed, err := unknownRecords(ctx, l.check.store)
	if err != nil {
		t.Error(err)
	}
	var effects map[mode]map[string]int
	if l.check.booked != nil {
		if effects, err = l.check.booked(ctx); err != nil {
			t.Error(err)
		}
	}
	sums := map[mode]sum{}
	records := 0
	for m, keys := range l.acks {
		s := sum{keys: len(keys), early: l.early[m]}
		records += len(keys)
		for key, outcome := range keys {
			n := l.service.count(m, key)
			if m == inTx || m == inTxBatch {
				n = effects[m][key]
			}
			s.add(n, outcome, listed[m.record(key)])
		}
		if s.wrong, err = l.disagreeing(ctx, m, listed); err != nil {
			t.Error(err)
		}
		sums[m] = s
	}
	counted, err := l.check.store.Count(ctx)
	if err != nil {
		t.Error(err)
	}
	total := 0
	for _, n := range counted {
		total += n
	}
	if total != records {
		t.Errorf("%d records of %d keys: %v", total, records, counted)
	}
	return sums
}

// add takes in a key with n effects.
func (s *sum) add(n int, outcome string, listed bool) {
	if outcome == "" {
		s.open++
	}
	if n > 1 {
		s.double++
	}
	if listed {
		s.unknown++
	} else if n == 0 {
		s.lost++
	}
}

// disagreeing counts the records that are not as they must be: completed, or
// listed as unknown.
func (l *ledgers) disagreeing(ctx context.Context, m mode, listed map[oncepipe.RecordID]bool) (wrong int, err error) {
	var ids []oncepipe.RecordID
	for key := range l.acks[m] {
		ids = append(ids, m.record(key))
	}
	found, err := l.check.store.Lookup(ctx, ids)
	for _, r := range found {
		if r.State != oncepipe.StateCompleted && !listed[r.RecordID] {
			wrong++
		}
	}
	return wrong, err
}

func pruneAll(ctx context.Context, st oncepipe.Store) error {
	for {
		n, err := st.Prune(ctx, 1000)
		if err != nil || n == 0 {
			return err
		}
	}
}

// unknownRecords lists them, page by page.
func unknownRecords(ctx context.Context, st oncepipe.Store) (map[oncepipe.RecordID]bool, error) {
	all := map[oncepipe.RecordID]bool{}
	q := oncepipe.Query{State: oncepipe.StateUnknown}
	for {
		page, err := st.List(ctx, q)
		if err != nil || len(page) == 0 {
			return all, err
		}
		for _, r := range page {
			all[r.RecordID] = true
		}
		q.After = page[len(page)-1].RecordID
	}
}

// judge holds a sum against what its mode promises.
func (s sum) judge(t testing.TB, m mode) {
	t.Helper()
	var errs []error
	wrong := func(n int, what string) {
		if n != 0 {
			errs = append(errs, fmt.Errorf("%d %s", n, what))
		}
	}
	wrong(s.open, "keys not acked")
	wrong(s.early, "acked without an effect")
	wrong(s.lost, "lost")
	wrong(s.wrong, "records that don't agree with their effect")
	if m != atLeastOnce {
		wrong(s.double, "double")
	}
	if m != atMostOnce {
		wrong(s.unknown, "unknown")
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("%s: %v", m, err)
	}
}
