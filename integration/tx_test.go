package integration

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// ledger is a store beside a table that its effects are written to. The table
// has no constraint that could hide a second effect.
type ledger struct {
	*sqlstore.Store
	db *sql.DB
}

func newLedger(t testing.TB, db *sql.DB, cfg sqlstore.Config) *ledger {
	t.Helper()
	mustExec(t, db, "CREATE TABLE IF NOT EXISTS ledger (k TEXT, note TEXT)")
	return &ledger{openStore(t, db, cfg), db}
}

// simpleLedger is one on a new file.
func simpleLedger(t testing.TB) *ledger {
	t.Helper()
	return newLedger(t, openDB(t, dsn(newFile(t)), 0), sqlstore.Config{})
}

// book is the effect: one line.
func book(ctx context.Context, tx *sql.Tx, key string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (k) VALUES (?)", key)
	return err
}

func (l *ledger) lines(t testing.TB, key string) int {
	t.Helper()
	return count(t, l.db, "SELECT count(*) FROM ledger WHERE k = ?", key)
}

// check looks at the effect and at its record.
func (l *ledger) check(t testing.TB, key string, lines int, state oncepipe.State) {
	t.Helper()
	if n := l.lines(t, key); n != lines {
		t.Errorf("%d lines of %s, want %d", n, key, lines)
	}
	if s := stateOf(t, l, "book", key); s != state {
		t.Errorf("%s is %v, want %v", key, s, state)
	}
}

func TestTx_SecondCallGetsTheFirstResult(t *testing.T) {
	l := simpleLedger(t)
	runs := 0
	charge := sqlstore.Tx(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) (map[string]int, error) {
		runs++
		return map[string]int{"receipt": runs}, book(ctx, tx, key)
	})
	ctx := oncepipe.WithKey(t.Context(), "k")
	for range 3 {
		if got, err := charge(ctx, "k"); err != nil || got["receipt"] != 1 {
			t.Errorf("%v, %v", got, err)
		}
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
}

// R06 is about a copy that was judged a duplicate of a run that failed.
func TestR06_FailedRunLeavesNothing(t *testing.T) {
	l := simpleLedger(t)
	boom := errors.New("boom")
	fail := true
	do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
		if err := book(ctx, tx, key); err != nil || !fail {
			return err
		}
		return oncepipe.RetryAfter(time.Second, boom)
	})
	ctx := oncepipe.WithKey(t.Context(), "k")
	err := do(ctx, "k")
	if !errors.Is(err, boom) || err.Error() != "boom" { // as it is: the stage reads its mark
		t.Errorf("error %v", err)
	}
	l.check(t, "k", 0, oncepipe.StateAbsent)
	fail = false
	if err := do(ctx, "k"); err != nil {
		t.Error(err)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
}

func TestR10_PanicAndGoexitLeaveNothing(t *testing.T) {
	l := newLedger(t, openDB(t, dsn(newFile(t)), 1), sqlstore.Config{})
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		ended := false
		do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
			if err := book(ctx, tx, key); err != nil || ended {
				return err
			}
			ended = true
			end()
			return nil
		})
		ctx := oncepipe.WithKey(t.Context(), name)
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			t.Error("returned", do(ctx, name))
		}()
		if v := <-done; (v != nil) != (name == "panic") {
			t.Errorf("%s: recovered %v", name, v)
		}
		l.check(t, name, 0, oncepipe.StateAbsent)
		if err := do(ctx, name); err != nil { // neither the connection nor the writer's place is lost
			t.Error(err)
		}
		l.check(t, name, 1, oncepipe.StateCompleted)
	}
}

func TestTx_CancelledRunLeavesNothing(t *testing.T) {
	l := simpleLedger(t)
	ctx, cancel := context.WithCancel(oncepipe.WithKey(t.Context(), "k"))
	do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
		if err := book(ctx, tx, key); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if err := do(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	l.check(t, "k", 0, oncepipe.StateAbsent)
	if err := do(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestR12_ManyCopiesAtOnceActOnce(t *testing.T) {
	file := newFile(t)
	// Two processes, as far as the database can tell.
	ledgers := []*ledger{
		newLedger(t, openDB(t, dsn(file), 0), sqlstore.Config{}),
		newLedger(t, openDB(t, dsn(file), 0), sqlstore.Config{}),
	}
	var runs atomic.Int32
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			l := ledgers[i%2]
			do := sqlstore.Tx(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) (int32, error) {
				return runs.Add(1), book(ctx, tx, key)
			})
			if got, err := do(oncepipe.WithKey(t.Context(), "k"), "k"); err != nil || got != 1 {
				t.Errorf("copy %d: %v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	ledgers[0].check(t, "k", 1, oncepipe.StateCompleted)
}

func TestR77_StepsHaveRecordsOfTheirOwn(t *testing.T) {
	l := simpleLedger(t)
	ctx := oncepipe.WithKey(t.Context(), "k")
	for _, step := range []string{"book", "mail", "book"} {
		if err := sqlstore.TxDo(l.Store, step, book)(ctx, "k"); err != nil {
			t.Error(err)
		}
	}
	l.check(t, "k", 2, oncepipe.StateCompleted)
}

func TestTx_WithoutKey(t *testing.T) {
	l := simpleLedger(t)
	for _, ctx := range []context.Context{t.Context(), oncepipe.WithKey(t.Context(), "")} {
		if err := sqlstore.TxDo(l.Store, "book", book)(ctx, ""); !errors.Is(err, oncepipe.ErrNoKey) {
			t.Errorf("error %v", err)
		}
	}
}

// A replay never makes up a result and never runs again.
func TestTx_ReplayWithoutResult(t *testing.T) {
	l := newLedger(t, openDB(t, dsn(newFile(t)), 0), sqlstore.Config{MaxResult: 100})
	ctx := func(key string) context.Context { return oncepipe.WithKey(t.Context(), key) }
	tooLarge := sqlstore.Tx(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) (string, error) {
		return strings.Repeat("x", 100), book(ctx, tx, key)
	})
	if got, err := tooLarge(ctx("large"), "large"); err != nil || len(got) != 100 {
		t.Errorf("%q, %v", got, err)
	}
	notJSON := sqlstore.Tx(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) (chan int, error) {
		return make(chan int), book(ctx, tx, key)
	})
	if _, err := notJSON(ctx("chan"), "chan"); err != nil {
		t.Error(err)
	}
	if err := sqlstore.TxDo(l.Store, "book", book)(ctx("none"), "none"); err != nil {
		t.Error(err)
	}
	if _, err := sqlstore.Tx(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) (int, error) {
		return 7, book(ctx, tx, key)
	})(ctx("int"), "int"); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"large", "chan", "none", "int"} {
		got, err := tooLarge(ctx(key), key)
		if !errors.Is(err, oncepipe.ErrNoResult) || !oncepipe.IsPermanent(err) || got != "" {
			t.Errorf("%s: %q, %v", key, got, err)
		}
		if err := sqlstore.TxDo(l.Store, "book", book)(ctx(key), key); err != nil { // wants none
			t.Errorf("%s: %v", key, err)
		}
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
}

func TestTx_ZeroValuesAreResults(t *testing.T) {
	l := simpleLedger(t)
	ctx := oncepipe.WithKey(t.Context(), "k")
	text := sqlstore.Tx(l.Store, "text", func(context.Context, *sql.Tx, int) (string, error) { return "", nil })
	pointer := sqlstore.Tx(l.Store, "pointer", func(context.Context, *sql.Tx, int) (*int, error) { return nil, nil })
	for range 2 {
		if got, err := text(ctx, 0); got != "" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := pointer(ctx, 0); got != nil || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
}

func TestR80_OtherFingerprintIsAMismatch(t *testing.T) {
	l := simpleLedger(t)
	do := sqlstore.TxWith(l.Store, "book", oncepipe.TxConfig[string, string]{Fingerprint: func(amount string) string { return amount }},
		func(ctx context.Context, tx *sql.Tx, amount string) (string, error) {
			return amount, book(ctx, tx, "k")
		})
	ctx := oncepipe.WithKey(t.Context(), "k")
	for _, amount := range []string{"10", "10"} {
		if got, err := do(ctx, amount); err != nil || got != "10" {
			t.Errorf("%s: %q, %v", amount, got, err)
		}
	}
	if got, err := do(ctx, "11"); !errors.Is(err, oncepipe.ErrMismatch) || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
}

// What Once, or a person, left of the key decides whether Tx runs.
func TestTx_AfterOtherStates(t *testing.T) {
	db := openDB(t, dsn(newFile(t)), 0)
	advance := newClock(t, db)
	l := newLedger(t, db, sqlstore.Config{Clock: testClock})
	ctx := t.Context()
	claim := func(key string) oncepipe.ClaimRequest {
		req := newRequest(key)
		req.Namespace = "book"
		answers, err := l.Claim(ctx, []oncepipe.ClaimRequest{req})
		if err != nil || answers[0].Status != oncepipe.ClaimAcquired {
			t.Fatalf("claim: %v, %v", answers, err)
		}
		return req
	}
	release := func(key string, to oncepipe.ReleaseTo) oncepipe.ClaimRequest {
		req := claim(key)
		held, err := l.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: req.RecordID, Claim: req.Claim, To: to, Delay: time.Minute, Payload: []byte("p")}})
		if err != nil || !held[0] {
			t.Fatalf("release: %v, %v", held, err)
		}
		return req
	}
	do := func(key string) error { return sqlstore.TxDo(l.Store, "book", book)(oncepipe.WithKey(ctx, key), key) }

	live := claim("claimed")
	release("waiting", oncepipe.ToWaiting)
	release("failed", oncepipe.ToFailed)
	release("unknown", oncepipe.ToUnknown)

	for key, state := range map[string]oncepipe.State{"claimed": oncepipe.StateClaimed, "waiting": oncepipe.StateWaiting} {
		if err := do(key); !errors.Is(err, oncepipe.ErrBusy) || oncepipe.IsPermanent(err) {
			t.Errorf("%s: %v", key, err)
		}
		l.check(t, key, 0, state)
	}
	if err := do("unknown"); !errors.Is(err, oncepipe.ErrUnknownOutcome) || !oncepipe.IsPermanent(err) {
		t.Errorf("unknown: %v", err)
	}
	l.check(t, "unknown", 0, oncepipe.StateUnknown)

	failing := sqlstore.TxDo(l.Store, "book", func(context.Context, *sql.Tx, string) error { return errors.New("boom") })
	if err := failing(oncepipe.WithKey(ctx, "failed"), "failed"); err == nil {
		t.Error("no error")
	}
	l.check(t, "failed", 0, oncepipe.StateFailed)
	if err := do("failed"); err != nil {
		t.Error(err)
	}
	l.check(t, "failed", 1, oncepipe.StateCompleted)

	advance(2 * time.Minute) // lease over, backoff due
	for _, key := range []string{"claimed", "waiting"} {
		if err := do(key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
	held, err := l.Complete(ctx, []oncepipe.Completion{{RecordID: live.RecordID, Claim: live.Claim}})
	if err != nil || held[0] {
		t.Errorf("the claim that was taken over is held: %v, %v", held, err)
	}
	recs, err := l.Lookup(ctx, []oncepipe.RecordID{{Namespace: "book", Key: "claimed"}, {Namespace: "book", Key: "failed"}})
	if err != nil || recs[0].Takeovers != 1 || recs[0].Attempt != 2 || recs[0].Fence != 2 || recs[1].Takeovers != 0 || len(recs[1].Payload) != 0 {
		t.Errorf("records %+v, %v", recs, err)
	}
}

// fn has to leave the transaction to the store; if it doesn't, it is told so,
// and the effect still isn't there without its record, nor twice.
func TestTx_ThatEndsItsTransaction(t *testing.T) {
	l := simpleLedger(t)
	ends := map[string]func(*sql.Tx) error{"rollback": (*sql.Tx).Rollback, "commit": (*sql.Tx).Commit}
	for name, end := range ends {
		do := sqlstore.TxDo(l.Store, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
			return errors.Join(book(ctx, tx, key), end(tx))
		})
		ctx := oncepipe.WithKey(t.Context(), name)
		switch err := do(ctx, name); name {
		case "rollback":
			if !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s: %v", name, err)
			}
			l.check(t, name, 0, oncepipe.StateAbsent)
		case "commit":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := do(ctx, name); err != nil {
				t.Errorf("%s, again: %v", name, err)
			}
			l.check(t, name, 1, oncepipe.StateCompleted)
		}
	}
}

func TestTx_LongKeys(t *testing.T) {
	l := simpleLedger(t)
	long := strings.Repeat("x", 1000)
	for _, key := range []string{long + "a", long + "b", long + "a"} {
		if err := sqlstore.TxDo(l.Store, "book", book)(oncepipe.WithKey(t.Context(), key), key); err != nil {
			t.Error(err)
		}
	}
	if n := count(t, l.db, "SELECT count(*) FROM ledger"); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
	if n := count(t, l.db, "SELECT max(length(k)) FROM oncepipe_records"); n > oncepipe.MaxStorageKey {
		t.Errorf("a stored key has %d bytes", n)
	}
}
