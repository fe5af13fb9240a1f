package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// Claims and transactions from many goroutines and two processes, without the
// driver's own waiting for locks: nobody sees an error.
func TestR57_FiftyGoroutinesOnOneFile(t *testing.T) {
	const goroutines, rounds = 50, 100
	file := newFile(t)
	ledgers := []*ledger{
		newLedger(t, openDB(t, dsn(file, "busy_timeout(0)"), 0), sqlstore.Config{}),
		newLedger(t, openDB(t, dsn(file, "busy_timeout(0)"), 0), sqlstore.Config{}),
	}
	var acquired atomic.Int32
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			l := ledgers[i%2]
			do := sqlstore.TxDo(l.Store, "book", book)
			for n := range rounds {
				req := newRequest(fmt.Sprint(n, "-", i/2)) // each is claimed by both processes
				answers, err := l.Claim(t.Context(), []oncepipe.ClaimRequest{req})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if answers[0].Status == oncepipe.ClaimAcquired {
					acquired.Add(1)
				}
				if n%10 != 0 {
					continue
				}
				if err := do(oncepipe.WithKey(t.Context(), req.Key), req.Key); err != nil {
					t.Errorf("transaction: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := acquired.Load(); n != goroutines/2*rounds {
		t.Errorf("%d acquired, want %d", n, goroutines/2*rounds)
	}
	if n := count(t, ledgers[0].db, "SELECT count(*) FROM ledger"); n != goroutines/2*rounds/10 {
		t.Errorf("%d effects, want %d", n, goroutines/2*rounds/10)
	}
}

func TestR58_OneConnection(t *testing.T) {
	l := newLedger(t, openDB(t, dsn(newFile(t)), 1), sqlstore.Config{})
	ctx, cancel := context.WithTimeout(oncepipe.WithKey(t.Context(), "k"), time.Minute) // for a hang
	defer cancel()

	// Between the calls no connection is held: the effect of a claim may use the
	// only one.
	req := newRequest("k")
	if _, err := l.Claim(ctx, []oncepipe.ClaimRequest{req}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.ExecContext(ctx, "INSERT INTO ledger (k) VALUES ('outside')"); err != nil {
		t.Fatal(err)
	}
	if held, err := l.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}}); err != nil || !held[0] {
		t.Fatal(held, err)
	}

	// Inside a transaction, a call that would wait for it fails.
	id := []oncepipe.RecordID{req.RecordID}
	calls := map[string]func(context.Context) error{
		"claim": func(ctx context.Context) error {
			_, err := l.Claim(ctx, []oncepipe.ClaimRequest{newRequest("k2")})
			return err
		},
		"extend": func(ctx context.Context) error {
			_, err := l.Extend(ctx, []oncepipe.Extension{{RecordID: id[0], Lease: 1}})
			return err
		},
		"complete": func(ctx context.Context) error {
			_, err := l.Complete(ctx, []oncepipe.Completion{{RecordID: id[0]}})
			return err
		},
		"release": func(ctx context.Context) error {
			_, err := l.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: id[0], To: oncepipe.ToFailed}})
			return err
		},
		"resolve": func(ctx context.Context) error {
			_, err := l.Resolve(ctx, []oncepipe.Resolution{{RecordID: id[0], To: oncepipe.StateFailed}})
			return err
		},
		"lookup": func(ctx context.Context) error { _, err := l.Lookup(ctx, id); return err },
		"forget": func(ctx context.Context) error { _, err := l.Forget(ctx, id, true); return err },
		"prune":  func(ctx context.Context) error { _, err := l.Prune(ctx, 1); return err },
		"nested": func(ctx context.Context) error { return sqlstore.TxDo(l.Store, "other", book)(ctx, "k") },
	}
	second := openStore(t, l.db, sqlstore.Config{Prefix: "second_"})
	calls["other store"] = func(ctx context.Context) error { return sqlstore.TxDo(second, "other", book)(ctx, "k") }
	do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
		for name, call := range calls {
			if err := call(ctx); !errors.Is(err, oncepipe.ErrInTx) {
				t.Errorf("%s: %v, want ErrInTx", name, err)
			}
		}
		return book(ctx, tx, key)
	})
	if err := do(ctx, "k"); err != nil {
		t.Error(err)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)

	// Another goroutine waits, and no longer than it wants to.
	blocked := sqlstore.TxDo(l.Store, "book", func(outer context.Context, tx *sql.Tx, key string) error {
		impatient, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if _, err := l.Claim(impatient, []oncepipe.ClaimRequest{newRequest("k3")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claim beside: %v", err)
		}
		return book(outer, tx, key)
	})
	if err := blocked(oncepipe.WithKey(ctx, "k3"), "k3"); err != nil {
		t.Error(err)
	}
	if s := stateOf(t, l, "step", "k3"); s != oncepipe.StateAbsent {
		t.Errorf("the claim that was given up is %v", s)
	}
}

// The driver's own errors are told by their codes: a constraint of the user's is
// his error, once, and leaves the connection fit for the next transaction.
func TestR54_R56_ConstraintsOfTheUser(t *testing.T) {
	l := newLedger(t, openDB(t, dsn(newFile(t)), 1), sqlstore.Config{})
	mustExec(t, l.db, "CREATE UNIQUE INDEX one_line ON ledger (k)")
	runs := 0
	do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
		runs++
		return errors.Join(book(ctx, tx, key), book(ctx, tx, key))
	})
	err := do(oncepipe.WithKey(t.Context(), "k"), "k")
	if code := sqlstore.DriverCode(err); code != "2067" || runs != 1 {
		t.Errorf("error %v with code %q, %d runs", err, code, runs)
	}
	l.check(t, "k", 0, oncepipe.StateAbsent)
	for range 2 { // fresh, and a duplicate: its insert conflicts, and nothing is aborted
		if err := sqlstore.TxDo(l.Store, "book", book)(oncepipe.WithKey(t.Context(), "k"), "k"); err != nil {
			t.Error(err)
		}
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
}

// Only the database's clock counts: where it stands still, no lease ends.
func TestR37_DatabaseClockJudges(t *testing.T) {
	file := newFile(t)
	still := openStore(t, openDB(t, dsn(file), 0), sqlstore.Config{Clock: "42"})
	ctx := t.Context()
	req := newRequest("k")
	req.Lease = 1
	for i := range 50 {
		answers, err := still.Claim(ctx, []oncepipe.ClaimRequest{req})
		want := oncepipe.ClaimBusy
		if i == 0 {
			want = oncepipe.ClaimAcquired
		}
		if err != nil || answers[0].Status != want {
			t.Fatalf("claim %d: %v, %v", i, answers, err)
		}
		req.Claim = oncepipe.NewClaimID()
	}
	// The same record, by a store that has the database's own clock.
	st := openStore(t, openDB(t, dsn(file), 0), sqlstore.Config{})
	answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{req})
	if err != nil || !answers[0].Takeover {
		t.Errorf("claim: %+v, %v", answers, err)
	}
}

// The database's own clock goes on by itself.
func TestR28_LeaseEndsByTheDatabaseClock(t *testing.T) {
	st := openStore(t, openDB(t, dsn(newFile(t)), 0), sqlstore.Config{Retention: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	const lease = 60 * time.Millisecond
	req := newRequest("k")
	req.Lease = lease
	if _, err := st.Claim(ctx, []oncepipe.ClaimRequest{req}); err != nil {
		t.Fatal(err)
	}
	claimed := time.Now()
	for {
		req.Claim = oncepipe.NewClaimID()
		answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{req})
		if err != nil {
			t.Fatal(err)
		}
		if answers[0].Status == oncepipe.ClaimBusy {
			if w := answers[0].Wait; w <= 0 || w > lease+2*time.Millisecond {
				t.Fatalf("wait %v", w)
			}
			continue
		}
		if !answers[0].Takeover {
			t.Fatalf("answer %+v", answers[0])
		}
		break
	}
	// A lease is never shorter than what was asked for, by the claimer's reckoning.
	if d := time.Since(begun); d < lease {
		t.Errorf("taken over after %v, %v after the reply", d, time.Since(claimed))
	}
	if _, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}}); err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; {
		var err error
		if n, err = st.Prune(ctx, 10); err != nil {
			t.Fatal(err)
		}
	}
}

func TestR66_EveryTerminalRowExpires(t *testing.T) {
	l := simpleLedger(t)
	ctx := t.Context()
	for i, to := range []oncepipe.ReleaseTo{0, oncepipe.ToWaiting, oncepipe.ToFailed, oncepipe.ToUnknown} {
		req := newRequest(fmt.Sprint(i))
		if _, err := l.Claim(ctx, []oncepipe.ClaimRequest{req}); err != nil {
			t.Fatal(err)
		}
		var err error
		if to == 0 {
			_, err = l.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
		} else {
			_, err = l.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: req.RecordID, Claim: req.Claim, To: to}})
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{req.Key, "fresh" + req.Key} { // taken over where that may be, and new
			err := sqlstore.TxDo(l.Store, "book", book)(oncepipe.WithKey(ctx, key), key)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := count(t, l.db, "SELECT count(*) FROM oncepipe_records WHERE expires_at IS NULL AND state IN (2, 3, 4)"); n != 0 {
		t.Errorf("%d rows stay for ever", n)
	}
	if n := count(t, l.db, "SELECT count(*) FROM oncepipe_records WHERE expires_at IS NOT NULL AND state IN (1, 5)"); n != 0 {
		t.Errorf("%d rows in use would be pruned", n)
	}
}

// A disk that is full is an error, nothing is acknowledged, and when there is
// room again everything goes on.
func TestDiskFull(t *testing.T) {
	l := newLedger(t, openDB(t, dsn(newFile(t)), 1), sqlstore.Config{})
	pages := count(t, l.db, "PRAGMA page_count")
	count(t, l.db, fmt.Sprintf("PRAGMA max_page_count = %d", pages+20))
	const keys = 50
	note := strings.Repeat("x", 5000)
	do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO ledger (k, note) VALUES (?, ?)", key, note)
		return err
	})
	acked := map[string]bool{}
	for i := range keys {
		key := fmt.Sprint("k", i)
		switch err := do(oncepipe.WithKey(t.Context(), key), key); {
		case err == nil:
			acked[key] = true
		case sqlstore.DriverCode(err) != "13":
			t.Fatalf("%s: %v", key, err)
		}
	}
	if len(acked) == 0 || len(acked) == keys {
		t.Fatalf("%d of %d went in", len(acked), keys)
	}
	var claims []oncepipe.ClaimRequest // the store's own writes meet it as well
	for i := range 3000 {
		claims = append(claims, newRequest(fmt.Sprint("c", i)))
	}
	if _, err := l.Claim(t.Context(), claims); sqlstore.DriverCode(err) != "13" {
		t.Errorf("claims: %v", err)
	}
	for i := range keys {
		key := fmt.Sprint("k", i)
		if acked[key] {
			l.check(t, key, 1, oncepipe.StateCompleted)
		} else {
			l.check(t, key, 0, oncepipe.StateAbsent)
		}
	}

	count(t, l.db, "PRAGMA max_page_count = 100000")
	answers, err := l.Claim(t.Context(), claims)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.Status != oncepipe.ClaimAcquired || a.Attempt != 1 {
			t.Fatalf("claim %d: %+v", i, a)
		}
	}
	for i := range keys {
		key := fmt.Sprint("k", i)
		if err := do(oncepipe.WithKey(t.Context(), key), key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
}

// Callers that wait for the writer share its next commit.
func TestGathered_OneCommitForMany(t *testing.T) {
	db, f := openFaulty(t, dsn(newFile(t)), 0)
	l := newLedger(t, db, sqlstore.Config{})
	const callers = 64
	var started, ended sync.WaitGroup
	release := make(chan struct{})
	hold := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
		close(release)
		started.Wait()
		return book(ctx, tx, key)
	})
	started.Add(callers)
	for i := range callers {
		ended.Go(func() {
			<-release
			started.Done()
			if _, err := l.Claim(t.Context(), []oncepipe.ClaimRequest{newRequest(fmt.Sprint(i))}); err != nil {
				t.Error(err)
			}
		})
	}
	before := f.commits()
	if err := hold(oncepipe.WithKey(t.Context(), "k"), "k"); err != nil {
		t.Error(err)
	}
	ended.Wait()
	if n := f.commits() - before; n > 1+callers/4 {
		t.Errorf("%d commits for a transaction and %d claims", n, callers)
	}
}
