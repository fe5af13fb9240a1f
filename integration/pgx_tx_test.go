package integration

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/proxy"
	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/store/pgxstore"
)

// pgxLedger is a ledger in PostgreSQL.
type pgxLedger struct {
	*pgxstore.Store
	pool *pgxpool.Pool
}

func newPgxLedger(t testing.TB, dsn string, conns int32, cfg pgxstore.Config) *pgxLedger {
	t.Helper()
	pool := pgxPool(t, dsn, conns)
	pgxExec(t, pool, "CREATE TABLE IF NOT EXISTS ledger (k text, note text)")
	return &pgxLedger{pgxStore(t, pool, cfg), pool}
}

func simplePgxLedger(t testing.TB) *pgxLedger {
	t.Helper()
	return newPgxLedger(t, servertest.PostgresSchema(t), 4, pgxstore.Config{})
}

// pgxProxied is a place behind a proxy.
func pgxProxied(t testing.TB) (*proxy.Proxy, string) {
	t.Helper()
	return servertest.Proxy(t, servers.Postgres, withParam(t, servertest.PostgresSchema(t), "sslmode", "disable"), 1)
}

func bookPgx(ctx context.Context, tx pgx.Tx, key string) error {
	_, err := tx.Exec(ctx, "INSERT INTO ledger (k) VALUES ($1)", key)
	return err
}

// check looks at the effect and at its record.
func (l *pgxLedger) check(t testing.TB, key string, lines int, state oncepipe.State) {
	t.Helper()
	if n := pgxCount(t, l.pool, "SELECT count(*) FROM ledger WHERE k = $1", key); n != lines {
		t.Errorf("%d lines of %s, want %d", n, key, lines)
	}
	if s := stateOf(t, l, "book", key); s != state {
		t.Errorf("%s is %v, want %v", key, s, state)
	}
}

func TestPgxTx_SecondCallGetsTheFirstResult(t *testing.T) {
	l := simplePgxLedger(t)
	runs := 0
	charge := pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (map[string]int, error) {
		runs++
		return map[string]int{"receipt": runs}, bookPgx(ctx, tx, key)
	})
	for range 3 {
		if got, err := charge(oncepipe.WithKey(t.Context(), "k"), "k"); err != nil || got["receipt"] != 1 {
			t.Errorf("%v, %v", got, err)
		}
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
}

func TestPgxTx_R06_R10_RunThatEndsBadlyLeavesNothing(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 1, pgxstore.Config{}) // none that could be lost
	boom := errors.New("boom")
	ends := map[string]func() error{
		"error":  func() error { return oncepipe.RetryAfter(time.Second, boom) },
		"panic":  func() error { panic(boom) },
		"goexit": func() error { runtime.Goexit(); return nil },
	}
	for name, end := range ends {
		bad := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
			return errors.Join(bookPgx(ctx, tx, key), end())
		})
		ctx := oncepipe.WithKey(t.Context(), name)
		var err error
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			err = bad(ctx, name)
		}()
		if v := <-done; (v != nil) != (name == "panic") {
			t.Errorf("%s: recovered %v", name, v)
		}
		if errors.Is(err, boom) != (name == "error") {
			t.Errorf("%s: error %v", name, err)
		}
		l.check(t, name, 0, oncepipe.StateAbsent)
		if err := pgxstore.TxDo(l.Store, "book", bookPgx)(ctx, name); err != nil {
			t.Error(err)
		}
		l.check(t, name, 1, oncepipe.StateCompleted)
	}
}

func TestPgxTx_CancelledRunLeavesNothing(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 1, pgxstore.Config{})
	for name, during := range map[string]string{"between statements": "", "in a statement": "SELECT pg_sleep(60)"} {
		ctx, cancel := context.WithCancel(oncepipe.WithKey(t.Context(), name))
		do := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
			if err := bookPgx(ctx, tx, key); err != nil {
				return err
			}
			if during == "" {
				cancel()
				return nil
			}
			time.AfterFunc(10*time.Millisecond, cancel)
			_, err := tx.Exec(ctx, during)
			return err
		})
		for range 2 {
			if err := do(ctx, name); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		l.check(t, name, 0, oncepipe.StateAbsent)
	}
}

// A function can't commit without the store, and can't use the transaction
// afterwards, when its connection is somebody else's.
func TestPgxTx_ThatEndsItsTransaction(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 1, pgxstore.Config{})
	var kept pgx.Tx
	commit := pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (int, error) {
		kept = tx
		if err := bookPgx(ctx, tx, key); err != nil {
			return 0, err
		}
		if err := tx.Commit(ctx); err == nil {
			t.Error("committed")
		}
		return 1, nil
	})
	ctx := oncepipe.WithKey(t.Context(), "k")
	if _, err := commit(ctx, "k"); err != nil {
		t.Error(err)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
	_, queried := kept.Query(ctx, "SELECT 1")
	_, nested := kept.Begin(ctx)
	for _, err := range []error{bookPgx(ctx, kept, "late"), kept.Rollback(ctx), queried, nested} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("error %v", err)
		}
	}

	rollback := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
		return errors.Join(bookPgx(ctx, tx, key), tx.Rollback(ctx))
	})
	if err := rollback(oncepipe.WithKey(ctx, "back"), "back"); err == nil {
		t.Error("rolled back, and no error")
	}
	l.check(t, "back", 0, oncepipe.StateAbsent)
	deferred := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
		defer tx.Rollback(ctx) // as is usual
		return bookPgx(ctx, tx, key)
	})
	if err := deferred(oncepipe.WithKey(ctx, "deferred"), "deferred"); err != nil {
		t.Error(err)
	}
	l.check(t, "deferred", 1, oncepipe.StateCompleted)
}

// The transaction is a real one of pgx's.
func TestPgxTx_Native(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 1, pgxstore.Config{})
	do := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
		undone := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
			return errors.Join(bookPgx(ctx, nested, "undone"), errAny)
		})
		if !errors.Is(undone, errAny) {
			t.Errorf("nested: %v", undone)
		}
		rows := [][]any{{"copied"}, {"copied"}}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"k"}, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue("INSERT INTO ledger (k) VALUES ($1)", "sent")
		large := tx.LargeObjects()
		_, err := large.Create(ctx, 0)
		return errors.Join(err, tx.SendBatch(ctx, b).Close(), pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
			return bookPgx(ctx, nested, key)
		}))
	})
	if err := do(oncepipe.WithKey(t.Context(), "k"), "k"); err != nil {
		t.Error(err)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
	for key, want := range map[string]int{"undone": 0, "copied": 2, "sent": 1} {
		l.check(t, key, want, oncepipe.StateAbsent)
	}
}

func TestPgxTx_R80_OtherFingerprintIsAMismatch(t *testing.T) {
	l := simplePgxLedger(t)
	cfg := oncepipe.TxConfig[string, string]{Fingerprint: func(amount string) string { return amount }}
	do := pgxstore.TxWith(l.Store, "book", cfg, func(ctx context.Context, tx pgx.Tx, amount string) (string, error) {
		return amount, bookPgx(ctx, tx, "k")
	})
	ctx := oncepipe.WithKey(t.Context(), "k")
	for range 2 {
		if got, err := do(ctx, "10"); err != nil || got != "10" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got, err := do(ctx, "11"); !errors.Is(err, oncepipe.ErrMismatch) || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)
}

// A replay never makes up a result and never runs again.
func TestPgxTx_ReplayWithoutResult(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 2, pgxstore.Config{MaxResult: 100})
	text := func(n int) func(context.Context, string) (string, error) {
		return pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (string, error) {
			return strings.Repeat("x", n), bookPgx(ctx, tx, key)
		})
	}
	for n, key := range map[int]string{0: "empty", 98: "fits", 99: "large"} { // and two quotes
		ctx := oncepipe.WithKey(t.Context(), key)
		if got, err := text(n)(ctx, key); err != nil || len(got) != n {
			t.Errorf("%q, %v", got, err)
		}
		got, err := text(1)(ctx, key)
		if large := key == "large"; errors.Is(err, oncepipe.ErrNoResult) != large || (err != nil) != large || !large && len(got) != n {
			t.Errorf("%s: %q, %v", key, got, err)
		}
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
}

// What Once, or a person, left of the key decides whether Tx runs.
func TestPgxTx_AfterOtherStates(t *testing.T) {
	dsn := servertest.PostgresSchema(t)
	advance := place{"pgx", dsn}.clocked(t)
	l := newPgxLedger(t, dsn, 2, pgxstore.Config{Clock: testClock})
	ctx := t.Context()
	for key, to := range map[string]oncepipe.ReleaseTo{
		"claimed": 0, "waiting": oncepipe.ToWaiting, "failed": oncepipe.ToFailed, "unknown": oncepipe.ToUnknown,
	} {
		req := newRequest(key)
		req.Namespace = "book"
		claimAll(t, l, []oncepipe.ClaimRequest{req})
		if to == 0 {
			continue
		}
		held, err := l.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: req.RecordID, Claim: req.Claim, To: to, Delay: time.Minute}})
		if err != nil || !held[0] {
			t.Fatal(held, err)
		}
	}
	do := func(key string) error {
		_, err := pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (int, error) {
			return 1, bookPgx(ctx, tx, key)
		})(oncepipe.WithKey(ctx, key), key)
		return err
	}
	for _, key := range []string{"claimed", "waiting"} {
		if err := do(key); !errors.Is(err, oncepipe.ErrBusy) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := do("unknown"); !errors.Is(err, oncepipe.ErrUnknownOutcome) {
		t.Errorf("unknown: %v", err)
	}
	advance(2 * time.Minute)
	for _, key := range []string{"claimed", "waiting", "failed"} {
		if err := do(key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
	l.check(t, "unknown", 0, oncepipe.StateUnknown)
}

func bookAll(ctx context.Context, tx pgx.Tx, keys []string) error {
	for _, key := range keys {
		if err := bookPgx(ctx, tx, key); err != nil {
			return err
		}
	}
	return nil
}

func TestPgxTxBatch_KnownItemsAndCopies(t *testing.T) {
	l := simplePgxLedger(t)
	var calls [][]string
	upper := pgxstore.TxBatch(l.Store, "book", func(ctx context.Context, tx pgx.Tx, keys []string) ([]string, error) {
		calls = append(calls, slices.Sorted(slices.Values(keys)))
		out := make([]string, len(keys))
		for i, key := range keys {
			out[i] = strings.ToUpper(key)
		}
		return out, bookAll(ctx, tx, keys)
	})
	for _, batch := range [][]string{{"c", "a", "c"}, {"a", "b", "c", "b"}, {"a", "b"}} {
		got, err := upper(oncepipe.WithKeys(t.Context(), batch...), slices.Clone(batch))
		if want := strings.ToUpper(strings.Join(batch, "")); err != nil || strings.Join(got, "") != want {
			t.Errorf("%v: %v, %v", batch, got, err)
		}
	}
	if got := fmt.Sprint(calls); got != "[[a c] [b]]" {
		t.Errorf("called for %v", got)
	}
	for _, key := range []string{"a", "b", "c"} {
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
}

// One item's error of the database undoes the transaction of all; the others
// come through all the same.
func TestPgxTxBatch_PoisonIsFound(t *testing.T) {
	l := simplePgxLedger(t)
	pgxExec(t, l.pool, "ALTER TABLE ledger ADD CHECK (k NOT LIKE 'poison%')")
	var batch []string
	for i := range 20 {
		batch = append(batch, fmt.Sprint("k", i))
	}
	batch[3], batch[16] = "poison1", "poison2"
	err := pgxstore.TxBatchDo(l.Store, "book", bookAll)(oncepipe.WithKeys(t.Context(), batch...), slices.Clone(batch))
	var each *oncepipe.BatchError
	if !errors.As(err, &each) || len(each.Errs) != len(batch) {
		t.Fatalf("error %v", err)
	}
	for i, key := range batch {
		var said *pgconn.PgError
		if poison := strings.HasPrefix(key, "poison"); poison {
			if !errors.As(each.Errs[i], &said) || said.Code != "23514" {
				t.Errorf("%s: %v", key, each.Errs[i])
			}
			l.check(t, key, 0, oncepipe.StateAbsent)
		} else {
			if each.Errs[i] != nil {
				t.Errorf("%s: %v", key, each.Errs[i])
			}
			l.check(t, key, 1, oncepipe.StateCompleted)
		}
	}
}

// Callers that come at the same time share commits, and one that fails harms
// nobody.
func TestPgxTx_Shared(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 4, pgxstore.Config{})
	pgxExec(t, l.pool, "CREATE TABLE born (k text, tx bigint)")
	pgxExec(t, l.pool, "ALTER TABLE ledger ADD CHECK (k NOT LIKE 'poison%')")
	boom := errors.New("boom")
	do := pgxstore.TxWith(l.Store, "book", oncepipe.TxConfig[string, string]{Shared: true},
		func(ctx context.Context, tx pgx.Tx, key string) (string, error) {
			if err := bookPgx(ctx, tx, key); err != nil {
				return "", err
			}
			switch key {
			case "boom":
				return "", boom
			case "panic":
				panic(boom)
			}
			_, err := tx.Exec(ctx, "INSERT INTO born VALUES ($1, txid_current())", key)
			return key + "!", err
		})
	callAll := func(keys []string) {
		var wg sync.WaitGroup
		for _, key := range keys {
			wg.Go(func() {
				defer func() {
					if v := recover(); (v != nil) != (key == "panic") {
						t.Errorf("%s: recovered %v", key, v)
					}
				}()
				got, err := do(oncepipe.WithKey(t.Context(), key), key)
				var said *pgconn.PgError
				switch key {
				case "poison":
					if !errors.As(err, &said) || said.Code != "23514" {
						t.Errorf("%s: %v", key, err)
					}
				case "boom":
					if !errors.Is(err, boom) {
						t.Errorf("%s: %v", key, err)
					}
				default:
					if err != nil || got != key+"!" {
						t.Errorf("%s: %q, %v", key, got, err)
					}
				}
			})
		}
		wg.Wait()
	}
	var good []string
	for i := range 200 {
		good = append(good, fmt.Sprint("k", i))
	}
	callAll(good[:100])
	if n := pgxCount(t, l.pool, "SELECT count(DISTINCT tx) FROM born"); n > 50 {
		t.Errorf("%d transactions for 100 callers", n)
	}
	callAll(slices.Concat(good[100:], []string{"boom", "poison", "panic"}))
	for _, key := range good {
		l.check(t, key, 1, oncepipe.StateCompleted)
	}
	for _, key := range []string{"poison", "boom", "panic"} {
		l.check(t, key, 0, oncepipe.StateAbsent)
	}
}
