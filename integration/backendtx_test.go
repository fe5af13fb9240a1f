package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// Tx functions on every database that sqlstore knows.

// office is a ledger on any of them.
type office struct {
	*sqlstore.Store
	db      *sql.DB
	place   place
	dialect sqlstore.Dialect
}

func newOffice(t testing.TB, b backend, p place) *office {
	t.Helper()
	db := p.open(t, 0)
	if p.driver == "sqlite" {
		db = p.open(t, 1)
	}
	mustExec(t, db, "CREATE TABLE IF NOT EXISTS outbox (k VARCHAR(100))")
	return &office{openStore(t, db, sqlstore.Config{Dialect: b.dialect}), db, p, b.dialect}
}

// second is another process at the same place.
func (o *office) second(t testing.TB) *office {
	t.Helper()
	db := o.place.open(t, 1)
	return &office{openStore(t, db, sqlstore.Config{Dialect: o.dialect}), db, o.place, o.dialect}
}

// send is the effect: a row of the outbox.
func (o *office) send(ctx context.Context, tx *sql.Tx, key string) error {
	text := "INSERT INTO outbox (k) VALUES (?)"
	if o.dialect == sqlstore.PostgreSQL {
		text = "INSERT INTO outbox (k) VALUES ($1)"
	}
	_, err := tx.ExecContext(ctx, text, key)
	return err
}

func (o *office) sendAll(ctx context.Context, tx *sql.Tx, keys []string) error {
	for _, key := range keys {
		if err := o.send(ctx, tx, key); err != nil {
			return err
		}
	}
	return nil
}

// sent are the rows of the outbox, sorted.
func (o *office) sent(t testing.TB) []string {
	t.Helper()
	rows, err := o.db.Query("SELECT k FROM outbox ORDER BY k")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

func (o *office) wantSent(t testing.TB, want ...string) {
	t.Helper()
	if got := o.sent(t); !slices.Equal(got, want) {
		t.Errorf("outbox %v, want %v", got, want)
	}
}

func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%03d", i)
	}
	return keys
}

// Many copies of each key race, in two processes, one by one, shared and in
// batches: one row of the outbox each.
func TestR15_CopiesThatRaceSendOnce(t *testing.T) {
	forBackends(t, backends, func(t *testing.T, b backend) {
		places := map[string]place{"default": b.place(t)}
		if b.dialect != sqlstore.SQLite {
			for _, level := range []string{"repeatable read", "serializable"} {
				places[level] = b.place(t).isolated(t, level)
			}
		}
		for name, p := range places {
			t.Run(name, func(t *testing.T) { raceCopies(t, newOffice(t, b, p)) })
		}
	})
}

func raceCopies(t *testing.T, o *office) {
	keys := numbered(24)
	var runs atomic.Int32
	var wg sync.WaitGroup
	for i, o := range []*office{o, o.second(t)} {
		one := sqlstore.TxDo(o.Store, "send", func(ctx context.Context, tx *sql.Tx, key string) error {
			runs.Add(1)
			return o.send(ctx, tx, key)
		})
		shared := sqlstore.TxDoWith(o.Store, "send", oncepipe.TxConfig[string, struct{}]{Shared: true}, o.send)
		batch := sqlstore.TxBatchDo(o.Store, "send", o.sendAll)
		for worker := range 4 {
			order := slices.Clone(keys)
			if (i+worker)%2 == 1 {
				slices.Reverse(order)
			}
			wg.Go(func() {
				for n, key := range order {
					var err error
					switch ctx := oncepipe.WithKey(t.Context(), key); worker {
					case 0:
						err = one(ctx, key)
					case 1, 2:
						err = shared(ctx, key)
					default:
						part := order[n:min(n+7, len(order))]
						err = batch(oncepipe.WithKeys(t.Context(), part...), part)
					}
					if err != nil {
						t.Errorf("%s: %v", key, err)
					}
				}
			})
		}
	}
	wg.Wait()
	o.wantSent(t, keys...)
}

// What fn leaves behind when it fails, panics, or swallows an error that the
// database had.
func TestTx_FailuresOnEveryDatabase(t *testing.T) {
	boom := errors.New("boom")
	forBackends(t, backends, func(t *testing.T, b backend) {
		o := newOffice(t, b, b.place(t))
		fault := func(kind string) func(context.Context, *sql.Tx, string) error {
			return func(ctx context.Context, tx *sql.Tx, key string) error {
				if err := o.send(ctx, tx, key); err != nil {
					return err
				}
				switch kind {
				case "error":
					return boom
				case "panic":
					panic(boom)
				case "statement":
					if _, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)"); err == nil {
						return errors.New("no error")
					} else if b.dialect != sqlstore.PostgreSQL {
						return err // elsewhere the transaction could go on
					}
				}
				return nil
			}
		}
		for _, kind := range []string{"error", "panic", "statement"} {
			do := sqlstore.TxDo(o.Store, "send", fault(kind))
			err := func() (err error) {
				defer func() {
					if r := recover(); r != nil {
						err = r.(error)
					}
				}()
				return do(oncepipe.WithKey(t.Context(), kind), kind)
			}()
			if err == nil || kind != "statement" && !errors.Is(err, boom) {
				t.Errorf("%s: %v", kind, err)
			}
			if s := stateOf(t, o, "send", kind); s != oncepipe.StateAbsent {
				t.Errorf("%s: %v", kind, s)
			}
		}
		o.wantSent(t)
	})
}

// R54: what meets a key that is there doesn't spoil the transaction.
func TestR54_KnownKeySpoilsNothing(t *testing.T) {
	forBackends(t, backends, func(t *testing.T, b backend) {
		o := newOffice(t, b, b.place(t))
		batch := sqlstore.TxBatchDo(o.Store, "send", o.sendAll)
		for _, keys := range [][]string{{"b", "d"}, {"a", "b", "c", "d", "e"}, {"a", "e"}} {
			if err := batch(oncepipe.WithKeys(t.Context(), keys...), keys); err != nil {
				t.Errorf("%v: %v", keys, err)
			}
		}
		o.wantSent(t, "a", "b", "c", "d", "e")
	})
}

// A batch of any size, with results, duplicates and a poison item.
func TestTxBatch_OnEveryDatabase(t *testing.T) {
	forBackends(t, backends, func(t *testing.T, b backend) {
		o := newOffice(t, b, b.place(t))
		keys := numbered(300)
		poison := errors.New("poison")
		batch := sqlstore.TxBatch(o.Store, "send", func(ctx context.Context, tx *sql.Tx, keys []string) ([]string, error) {
			if err := o.sendAll(ctx, tx, keys); err != nil {
				return nil, err
			}
			if slices.Contains(keys, "k123") {
				return nil, poison
			}
			return keys, nil
		})
		got, err := batch(oncepipe.WithKeys(t.Context(), keys...), keys)
		var each *oncepipe.BatchError
		if !errors.As(err, &each) {
			t.Fatalf("error %v", err)
		}
		for i, err := range each.Errs {
			if bad := keys[i] == "k123"; errors.Is(err, poison) != bad || !bad && (err != nil || got[i] != keys[i]) {
				t.Errorf("%s: %q, %v", keys[i], got[i], err)
			}
		}
		want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == "k123" })
		o.wantSent(t, want...)
		again, err := batch(oncepipe.WithKeys(t.Context(), want...), want)
		if err != nil || !slices.Equal(again, want) {
			t.Errorf("again: %.60v, %v", again, err)
		}
		o.wantSent(t, want...)
	})
}

// R61: transactions that can't be put in an order are run again.
func TestR61_SerializationFailures(t *testing.T) {
	forBackends(t, servedBackends(), func(t *testing.T, b backend) {
		o := newOffice(t, b, b.place(t).isolated(t, "serializable"))
		mustExec(t, o.db, "CREATE TABLE counter (n INTEGER)")
		mustExec(t, o.db, "INSERT INTO counter VALUES (0)")
		var runs atomic.Int32
		do := sqlstore.TxDo(o.Store, "count", func(ctx context.Context, tx *sql.Tx, _ string) error {
			runs.Add(1)
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET n = %d", n+1))
			return err
		})
		var wg sync.WaitGroup
		const workers, each = 3, 8
		for worker := range workers {
			wg.Go(func() {
				for n := range each {
					key := fmt.Sprint(worker, "-", n)
					for {
						err := do(oncepipe.WithKey(t.Context(), key), key)
						if err == nil {
							break
						}
						// After ten runs in a row it gives up, as documented; the stage would retry.
						if code := sqlstore.DriverCode(err); code == "" || !strings.Contains("40001 40P01 1213 1205", code) {
							t.Errorf("%s: %v", key, err)
							break
						}
					}
				}
			})
		}
		wg.Wait()
		if n := count(t, o.db, "SELECT n FROM counter"); n != workers*each {
			t.Errorf("counted %d of %d", n, workers*each)
		}
		if runs.Load() == workers*each {
			t.Log("no transaction met another")
		}
	})
}

// R58: a pool of one connection is enough, and a call from within fails at once.
func TestR58_OneConnectionIsEnough(t *testing.T) {
	forBackends(t, backends, func(t *testing.T, b backend) {
		o := newOffice(t, b, b.place(t))
		o = o.second(t)
		do := sqlstore.TxDo(o.Store, "send", func(ctx context.Context, tx *sql.Tx, key string) error {
			if _, err := o.Lookup(ctx, []oncepipe.RecordID{{Namespace: "send", Key: key}}); !errors.Is(err, oncepipe.ErrInTx) {
				t.Errorf("lookup: %v", err)
			}
			if err := sqlstore.TxDo(o.Store, "other", o.send)(ctx, key); !errors.Is(err, oncepipe.ErrInTx) {
				t.Errorf("nested: %v", err)
			}
			return o.send(ctx, tx, key)
		})
		if err := do(oncepipe.WithKey(t.Context(), "k"), "k"); err != nil {
			t.Error(err)
		}
		req := newRequest("k")
		if answers, err := o.Claim(t.Context(), []oncepipe.ClaimRequest{req}); err != nil || answers[0].Status != oncepipe.ClaimAcquired {
			t.Errorf("%+v, %v", answers, err)
		}
		o.wantSent(t, "k")
	})
}
