package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// A fault of the commit before it happens: the key is as new, for the caller and
// for a redelivery.
func TestR02_FailedCommitLeavesNothing(t *testing.T) {
	db, f := openFaulty(t, dsn(newFile(t)), 0)
	l := newLedger(t, db, sqlstore.Config{})
	runs := 0
	do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
		runs++
		return book(ctx, tx, key)
	})
	ctx := oncepipe.WithKey(t.Context(), "k")
	f.set(times(1, codeIO), nil)
	if err := do(ctx, "k"); !errors.Is(err, codeIO) {
		t.Errorf("error %v", err)
	}
	l.check(t, "k", 0, oncepipe.StateAbsent)
	if err := do(ctx, "k"); err != nil || runs != 2 {
		t.Errorf("%v, %d runs", err, runs)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
}

// A fault of the commit after it happened: the effect is there, so it is no error.
func TestR49_CommitWhoseReplyIsLost(t *testing.T) {
	for _, conns := range []int{0, 1} {
		for _, fault := range []error{codeIO, codeBusy, errors.New("connection reset"), driver.ErrBadConn} {
			db, f := openFaulty(t, dsn(newFile(t)), conns)
			l := newLedger(t, db, sqlstore.Config{})
			runs := 0
			do := sqlstore.Tx(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) (int, error) {
				runs++
				return runs, book(ctx, tx, key)
			})
			ctx := oncepipe.WithKey(t.Context(), "k")
			f.set(nil, times(1, fault))
			for range 2 {
				if got, err := do(ctx, "k"); err != nil || got != 1 || runs != 1 {
					t.Errorf("%v: %d, %v, %d runs", fault, got, err, runs)
				}
			}
			l.check(t, "k", 1, oncepipe.StateCompleted)

			// The context ends in the same moment; what happened is found out all the same.
			ctx, cancel := context.WithCancel(oncepipe.WithKey(t.Context(), "k2"))
			f.set(nil, func() error { cancel(); return fault })
			if got, err := do(ctx, "k2"); err != nil || got != 2 {
				t.Errorf("%v: %d, %v", fault, got, err)
			}
			f.set(nil, nil)
			l.check(t, "k2", 1, oncepipe.StateCompleted)
		}
	}
}

// The store's own commits: an error is an outage, and the request can be repeated.
func TestR01_LostRepliesOfTheStore(t *testing.T) {
	for name, set := range map[string]func(*faults){
		"before": func(f *faults) { f.set(times(1, codeIO), nil) },
		"after":  func(f *faults) { f.set(nil, times(1, codeIO)) },
	} {
		t.Run(name, func(t *testing.T) {
			db, f := openFaulty(t, dsn(newFile(t)), 0)
			st := openStore(t, db, sqlstore.Config{})
			ctx := t.Context()
			req := newRequest("k")
			set(f)
			if answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{req}); !errors.Is(err, codeIO) || answers != nil {
				t.Errorf("claim: %v, %v", answers, err)
			}
			answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{req})
			if err != nil || answers[0].Status != oncepipe.ClaimAcquired || answers[0].Attempt != 1 || answers[0].Takeover {
				t.Errorf("claim, repeated: %+v, %v", answers, err)
			}
			done := []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim, Result: []byte("r"), HasResult: true}}
			set(f)
			if held, err := st.Complete(ctx, done); !errors.Is(err, codeIO) || held != nil {
				t.Errorf("complete: %v, %v", held, err)
			}
			if held, err := st.Complete(ctx, done); err != nil || !held[0] {
				t.Errorf("complete, repeated: %v, %v", held, err)
			}
		})
	}
}

func TestR61_TransactionThatMetAnotherIsRunAgain(t *testing.T) {
	db, f := openFaulty(t, dsn(newFile(t)), 0)
	l := newLedger(t, db, sqlstore.Config{})
	boom := errors.New("boom")
	for _, c := range []struct {
		key      string
		inCommit error
		inFn     error
		times    int
		runs     int
		want     error
	}{
		{key: "commit", inCommit: codeBusySnapshot, times: 2, runs: 3},
		{key: "fn", inFn: fmt.Errorf("insert: %w", codeBusy), times: 2, runs: 3},
		{key: "always", inFn: codeBusy, times: 1000, runs: 10, want: codeBusy},
		{key: "always at commit", inCommit: codeBusy, times: 1000, runs: 10, want: codeBusy},
		{key: "permanent", inFn: oncepipe.Permanent(codeBusy), times: 1, runs: 1, want: codeBusy},
		{key: "ordinary", inFn: boom, times: 1, runs: 1, want: boom},
		{key: "R56 text", inFn: errors.New("database is locked (5) (SQLITE_BUSY)"), times: 1, runs: 1, want: errAny},
	} {
		runs, fault := 0, times(c.times, c.inFn)
		if c.inFn == nil {
			fault = times(0, nil)
		}
		do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
			runs++
			if err := book(ctx, tx, key); err != nil {
				return err
			}
			return fault()
		})
		if c.inCommit != nil {
			f.set(times(c.times, c.inCommit), nil)
		}
		err := do(oncepipe.WithKey(t.Context(), c.key), c.key)
		f.set(nil, nil)
		if (err != nil) != (c.want != nil) || c.want != nil && c.want != errAny && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.key, err, c.want)
		}
		if runs != c.runs {
			t.Errorf("%s: %d runs, want %d", c.key, runs, c.runs)
		}
		if err == nil {
			l.check(t, c.key, 1, oncepipe.StateCompleted)
		} else {
			l.check(t, c.key, 0, oncepipe.StateAbsent)
		}
	}
}

var errAny = errors.New("any error")
