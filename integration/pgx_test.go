package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/pgxstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// pgxPool opens a pool that is closed at the end of the test.
func pgxPool(t testing.TB, dsn string, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// pgxStore makes the tables where they are missing and opens a store.
func pgxStore(t testing.TB, pool *pgxpool.Pool, cfg pgxstore.Config) *pgxstore.Store {
	t.Helper()
	if err := pgxstore.Migrate(t.Context(), pool, cfg); err != nil {
		t.Fatal(err)
	}
	st, err := pgxstore.Open(t.Context(), pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func pgxExec(t testing.TB, pool *pgxpool.Pool, query string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func pgxCount(t testing.TB, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// withParam adds a parameter to the URL of a database.
func withParam(t testing.TB, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // to libpq a plus is a plus
	return u.String()
}

// pgxModes are the ways in which pgx sends statements, for poolers that don't
// know all of them.
var pgxModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

func TestPgx_Contract(t *testing.T) {
	for _, conns := range []int32{1, 16} {
		t.Run(fmt.Sprint("conns=", conns), func(t *testing.T) {
			pgxContract(t, conns, "", func(dsn string) string { return dsn })
		})
	}
	for _, mode := range []string{"exec", "simple_protocol"} { // which take the types of arguments from Go's
		t.Run(mode, func(t *testing.T) {
			pgxContract(t, 16, "", func(dsn string) string { return withParam(t, dsn, "default_query_exec_mode", mode) })
		})
	}
}

// The races of claims, at all levels of isolation, in and outside of
// transactions that say theirs.
func TestPgx_Contract_Isolation(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			pgxContract(t, 16, level, func(dsn string) string {
				return withParam(t, dsn, "default_transaction_isolation", string(level))
			})
		})
	}
}

func pgxContract(t *testing.T, conns int32, level pgx.TxIsoLevel, with func(dsn string) string) {
	oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		dsn := servertest.PostgresSchema(t)
		advance := place{"pgx", dsn}.clocked(t)
		const maxResult = 1000
		st := pgxStore(t, pgxPool(t, with(dsn), conns), pgxstore.Config{
			Retention: time.Hour, MaxResult: maxResult, Clock: testClock, Isolation: level,
		})
		check(t, oncetest.StoreEnv{Store: st, Advance: advance, Retention: time.Hour, MaxResult: maxResult})
	})
}

func TestPgx_Schema(t *testing.T) {
	ctx := t.Context()
	pool := pgxPool(t, servertest.PostgresSchema(t), 4)
	if _, err := pgxstore.Open(ctx, pool, pgxstore.Config{}); !errors.Is(err, pgxstore.ErrSchema) {
		t.Errorf("no tables: %v", err)
	}
	for _, prefix := range []string{"", "byhand_"} {
		text, err := pgxstore.Schema(prefix)
		if err != nil {
			t.Fatal(err)
		}
		want, err := sqlstore.Schema(sqlstore.PostgreSQL, prefix)
		if err != nil || text != want {
			t.Errorf("%v, and sqlstore's schema is another one:\n%s\n%s", err, text, want)
		}
		for range 2 {
			pgxExec(t, pool, text)
		}
	}
	for _, prefix := range []string{"", "byhand_"} { // they don't see each other's records
		st, err := pgxstore.Open(ctx, pool, pgxstore.Config{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{newRequest("k")})
		if err != nil || answers[0].Status != oncepipe.ClaimAcquired {
			t.Errorf("%v, %v", answers, err)
		}
	}
	for _, name := range []string{"schema", "keys"} {
		pgxExec(t, pool, "UPDATE oncepipe_meta SET value = value + 1 WHERE name = $1", name)
		if _, err := pgxstore.Open(ctx, pool, pgxstore.Config{}); !errors.Is(err, pgxstore.ErrSchema) {
			t.Errorf("version of %s: %v", name, err)
		}
		if err := pgxstore.Migrate(ctx, pool, pgxstore.Config{}); !errors.Is(err, pgxstore.ErrSchema) {
			t.Errorf("version of %s: %v", name, err)
		}
		pgxExec(t, pool, "UPDATE oncepipe_meta SET value = value - 1 WHERE name = $1", name)
	}
}

func TestPgx_MigrateByManyAtOnce(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		dsn := withParam(t, servertest.PostgresSchema(t), "default_transaction_isolation", string(level))
		pool := pgxPool(t, dsn, 8)
		db := place{"pgx", dsn}.open(t, 8)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := pgxstore.Migrate(t.Context(), pool, pgxstore.Config{}); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if err := sqlstore.Migrate(t.Context(), db, sqlstore.Config{Dialect: sqlstore.PostgreSQL}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// A service may have both stores on the same tables.
func TestPgx_BesideSqlstore(t *testing.T) {
	ctx := t.Context()
	dsn := servertest.PostgresSchema(t)
	advance := place{"pgx", dsn}.clocked(t)
	pool := pgxPool(t, dsn, 4)
	stores := []oncepipe.Store{
		pgxStore(t, pool, pgxstore.Config{Clock: testClock}),
		openStore(t, place{"pgx", dsn}.open(t, 4), sqlstore.Config{Dialect: sqlstore.PostgreSQL, Clock: testClock}),
	}
	for i, one := range stores {
		other := stores[1-i]
		req := newRequest(fmt.Sprint("claimed", i))
		req.Fingerprint, req.Owner = "x", "somebody"
		claimed := func(st oncepipe.Store, req oncepipe.ClaimRequest, want oncepipe.ClaimStatus) oncepipe.ClaimAnswer {
			t.Helper()
			answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{req})
			if err != nil || answers[0].Status != want {
				t.Fatalf("%+v, %v, want %v", answers, err, want)
			}
			return answers[0]
		}
		claimed(one, req, oncepipe.ClaimAcquired)
		second := newRequest(req.Key)
		second.Fingerprint = "x"
		if a := claimed(other, second, oncepipe.ClaimBusy); a.Wait <= 29*time.Second || a.Wait > 31*time.Second {
			t.Errorf("wait %v", a.Wait)
		}
		advance(time.Minute)
		if a := claimed(other, second, oncepipe.ClaimAcquired); !a.Takeover || a.Attempt != 2 {
			t.Errorf("takeover %+v", a)
		}
		held, err := one.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: req.Claim}})
		if err != nil || held[0] {
			t.Errorf("complete without a claim: %v, %v", held, err)
		}
		held, err = other.Complete(ctx, []oncepipe.Completion{{RecordID: req.RecordID, Claim: second.Claim, Result: []byte("r"), HasResult: true}})
		if err != nil || !held[0] {
			t.Errorf("complete: %v, %v", held, err)
		}
		if a := claimed(one, req, oncepipe.ClaimCompleted); string(a.Result) != "r" || !a.HasResult {
			t.Errorf("answer %+v", a)
		}
		second.Fingerprint = "y"
		claimed(one, second, oncepipe.ClaimMismatch)
		a, errA := one.Lookup(ctx, []oncepipe.RecordID{req.RecordID})
		b, errB := other.Lookup(ctx, []oncepipe.RecordID{req.RecordID})
		if errA != nil || errB != nil || fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
			t.Errorf("%+v, %v\n%+v, %v", a, errA, b, errB)
		}
	}
}

// Effects of both on the same keys at the same time.
func TestPgx_R12_ManyCopiesAtOnceActOnce(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			dsn := withParam(t, servertest.PostgresSchema(t), "default_transaction_isolation", string(level))
			l := newPgxLedger(t, dsn, 8, pgxstore.Config{})
			db := place{"pgx", dsn}.open(t, 8)
			st := openStore(t, db, sqlstore.Config{Dialect: sqlstore.PostgreSQL})
			byPgx := pgxstore.TxDo(l.Store, "book", bookPgx)
			bySQL := sqlstore.TxDo(st, "book", func(ctx context.Context, tx *sql.Tx, key string) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO ledger (k) VALUES ($1)", key)
				return err
			})
			const keys, copies = 5, 8
			var wg sync.WaitGroup
			for i := range keys * copies {
				key := fmt.Sprint("k", i%keys)
				do := byPgx
				if i/keys%2 == 1 {
					do = bySQL
				}
				wg.Go(func() {
					if err := do(oncepipe.WithKey(t.Context(), key), key); err != nil {
						t.Errorf("%s: %v", key, err)
					}
				})
			}
			wg.Wait()
			for i := range keys {
				l.check(t, fmt.Sprint("k", i), 1, oncepipe.StateCompleted)
			}
		})
	}
}

// Whatever the planner believes of a table, it must not read all of it for some
// rows: at serializable isolation that would be a conflict with everybody.
// (Prune and Forget may, while it is small.)
func TestPgx_PlansUseTheIndex(t *testing.T) {
	ctx := t.Context()
	pool := pgxPool(t, withParam(t, servertest.PostgresSchema(t), "plan_cache_mode", "force_generic_plan"), 1)
	if pgxCount(t, pool, "SELECT current_setting('server_version_num')::int") < 150000 {
		t.Skip("before release 15 the server counts scans some time later")
	}
	st := pgxStore(t, pool, pgxstore.Config{})
	var reqs []oncepipe.ClaimRequest
	for _, size := range []int{1, 100, 1500} { // of a table that was never analysed, too
		for len(reqs) < size {
			reqs = append(reqs, newRequest(fmt.Sprint("k", len(reqs))))
		}
		claimAll(t, st, reqs)
		claimAll(t, st, reqs)
		pgxExec(t, pool, "SELECT pg_stat_force_next_flush()")
		before := pgxCount(t, pool, seqScans)
		var ids []oncepipe.RecordID
		var done []oncepipe.Completion
		for _, r := range reqs {
			ids = append(ids, r.RecordID)
			done = append(done, oncepipe.Completion{RecordID: r.RecordID, Claim: r.Claim})
		}
		claimAll(t, st, reqs)
		if _, err := st.Lookup(ctx, ids); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Complete(ctx, done); err != nil {
			t.Fatal(err)
		}
		if _, err := st.List(ctx, oncepipe.Query{State: oncepipe.StateFailed}); err != nil {
			t.Fatal(err)
		}
		pgxExec(t, pool, "SELECT pg_stat_force_next_flush()")
		if n := pgxCount(t, pool, seqScans) - before; n != 0 {
			t.Errorf("%d sequential scans with %d rows", n, size)
		}
	}
}

const seqScans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'oncepipe_records'::regclass"

func claimAll(t *testing.T, st oncepipe.Store, reqs []oncepipe.ClaimRequest) {
	t.Helper()
	if _, err := st.Claim(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
}

// The price of an operation is its round trips.
func TestPgx_RoundTrips(t *testing.T) {
	p, dsn := pgxProxied(t)
	l := newPgxLedger(t, dsn, 1, pgxstore.Config{})
	ctx := t.Context()
	n := 0
	claim := func() []oncepipe.ClaimRequest {
		var reqs []oncepipe.ClaimRequest
		for range 3 {
			n++
			reqs = append(reqs, newRequest(fmt.Sprint("k", n)))
		}
		return reqs
	}
	last := claim()
	withResult := pgxstore.Tx(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) (int, error) {
		return 1, bookPgx(ctx, tx, key)
	})
	effect := func(do func(context.Context, string) error) error {
		n++
		key := fmt.Sprint("k", n)
		return do(oncepipe.WithKey(ctx, key), key)
	}
	for _, c := range []struct {
		name string
		want int
		do   func() error
	}{
		{"claims that are new", 1, func() error { last = claim(); _, err := l.Claim(ctx, last); return err }},
		{"claims that are known", 1, func() error {
			again := make([]oncepipe.ClaimRequest, len(last))
			for i := range last {
				again[i] = newRequest(last[i].Key)
			}
			_, err := l.Claim(ctx, again)
			return err
		}},
		{"completions", 2, func() error {
			done := make([]oncepipe.Completion, len(last))
			for i, r := range last {
				done[i] = oncepipe.Completion{RecordID: r.RecordID, Claim: r.Claim}
			}
			_, err := l.Complete(ctx, done)
			return err
		}},
		{"an effect", 3, func() error { return effect(pgxstore.TxDo(l.Store, "book", bookPgx)) }},
		{"an effect with a result", 3, func() error {
			return effect(func(ctx context.Context, key string) error { _, err := withResult(ctx, key); return err })
		}},
	} {
		for round := range 2 { // in the first one, statements are prepared
			before := p.Counts().Requests
			if err := c.do(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if got := p.Counts().Requests - before; got != c.want && round > 0 {
				t.Errorf("%s: %d round trips, want %d", c.name, got, c.want)
			}
		}
	}
}

// R58 is about a store that waits for a second connection.
func TestPgx_R58_OneConnection(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 1, pgxstore.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a hang
	defer cancel()
	second := pgxStore(t, l.pool, pgxstore.Config{Prefix: "second_"})
	id := []oncepipe.RecordID{{Namespace: "book", Key: "k"}}
	calls := map[string]func(context.Context) error{
		"claim": func(ctx context.Context) error {
			_, err := l.Claim(ctx, []oncepipe.ClaimRequest{newRequest("k2")})
			return err
		},
		"lookup":      func(ctx context.Context) error { _, err := l.Lookup(ctx, id); return err },
		"forget":      func(ctx context.Context) error { _, err := l.Forget(ctx, id, true); return err },
		"prune":       func(ctx context.Context) error { _, err := l.Prune(ctx, 1); return err },
		"count":       func(ctx context.Context) error { _, err := l.Count(ctx); return err },
		"nested":      func(ctx context.Context) error { return pgxstore.TxDo(l.Store, "other", bookPgx)(ctx, "k") },
		"other store": func(ctx context.Context) error { return pgxstore.TxDo(second, "other", bookPgx)(ctx, "k") },
	}
	do := pgxstore.TxDo(l.Store, "book", func(ctx context.Context, tx pgx.Tx, key string) error {
		for name, call := range calls {
			if err := call(ctx); !errors.Is(err, oncepipe.ErrInTx) {
				t.Errorf("%s: %v, want ErrInTx", name, err)
			}
		}
		return bookPgx(ctx, tx, key)
	})
	if err := do(oncepipe.WithKey(ctx, "k"), "k"); err != nil {
		t.Error(err)
	}
	l.check(t, "k", 1, oncepipe.StateCompleted)

	// Another goroutine waits, and no longer than it wants to.
	blocked := pgxstore.TxDo(l.Store, "book", func(outer context.Context, tx pgx.Tx, key string) error {
		impatient, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if _, err := l.Claim(impatient, []oncepipe.ClaimRequest{newRequest("k3")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claim beside: %v", err)
		}
		return bookPgx(outer, tx, key)
	})
	if err := blocked(oncepipe.WithKey(ctx, "k3"), "k3"); err != nil {
		t.Error(err)
	}
	l.check(t, "k3", 1, oncepipe.StateCompleted)

	// Each way of using the only connection has given it back.
	if n := l.pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still held", n)
	}
}

// A large batch is a few statements, whatever its keys are.
func TestPgx_LargeBatch(t *testing.T) {
	l := newPgxLedger(t, servertest.PostgresSchema(t), 2, pgxstore.Config{})
	var reqs []oncepipe.ClaimRequest
	for i := range 5000 {
		reqs = append(reqs, newRequest(fmt.Sprint(strings.Repeat("\x00\xff'\\{},\"", i%3), i)))
	}
	claimAll(t, l, reqs)
	answers, err := l.Claim(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.Status != oncepipe.ClaimAcquired || a.Attempt != 1 {
			t.Fatalf("claim %d: %+v", i, a)
		}
	}
}
