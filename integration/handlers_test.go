package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// order is a message.
type order struct {
	ID   string
	Copy int
}

// String is what stories call it.
func (o order) String() string { return o.ID }

func newOrder(id, copy int) order { return order{fmt.Sprint("order-", id), copy} }

func orderID(o order) string { return o.ID }

// handle is what a program's Start returns.
type handle = func(ctx context.Context, o order) error

// A program makes its handler on a file's connections, and says where its
// effects are.
type benchProgram func(w *oncetest.World, b *bench) oncetest.Program[order]

// service makes what the kit checks.
func (b *bench) service(program benchProgram) oncetest.Service[order] {
	return oncetest.Service[order]{
		Message: newOrder,
		New: func(w *oncetest.World) oncetest.Program[order] {
			b.clear()
			return program(w, b)
		},
	}
}

// inTable is a program whose effects are rows of a table.
func inTable(table string, start func(p *oncetest.Process, db *sql.DB) handle) benchProgram {
	return func(_ *oncetest.World, b *bench) oncetest.Program[order] {
		return oncetest.Program[order]{
			Start:   func(p *oncetest.Process) handle { return start(p, oncetest.StepDB(p, b)) },
			Effects: func(o order) int { return b.rows(table, o.ID) },
		}
	}
}

// onStore is one with a store.
func onStore(start func(p *oncetest.Process, st *sqlstore.Store) handle) benchProgram {
	return inTable("effects", func(p *oncetest.Process, db *sql.DB) handle { return start(p, openBench(p, db)) })
}

// atProvider is one whose effects are charges at a provider.
func atProvider(start func(p *oncetest.Process, pr *provider) handle) benchProgram {
	return func(*oncetest.World, *bench) oncetest.Program[order] {
		pr := &provider{charges: map[string]string{}}
		return oncetest.Program[order]{
			Start:   func(p *oncetest.Process) handle { return start(p, pr) },
			Effects: func(o order) int { return pr.count(o.ID) },
		}
	}
}

// storeAndProvider is one with a store beside the provider.
func storeAndProvider(start func(p *oncetest.Process, st *sqlstore.Store, pr *provider) handle) benchProgram {
	return func(w *oncetest.World, b *bench) oncetest.Program[order] {
		return atProvider(func(p *oncetest.Process, pr *provider) handle {
			return start(p, openBench(p, oncetest.StepDB(p, b)), pr)
		})(w, b)
	}
}

func openBench(p *oncetest.Process, db *sql.DB) *sqlstore.Store {
	st, err := sqlstore.Open(p.Context(), db, benchConfig)
	if err != nil {
		panic(err)
	}
	return st
}

// provider is somebody else's service: its charges are in a table of its own. A
// charge with a key that was there before is not made again.
type provider struct {
	mu      sync.Mutex
	charges map[string]string // the order of each key
	anon    []string          // orders without a key
}

// charge is a call of the provider's.
func (pr *provider) charge(ctx context.Context, p *oncetest.Process, key, id string) error {
	return p.Step(ctx, "charge", func() error {
		pr.mu.Lock()
		defer pr.mu.Unlock()
		if key == "" {
			pr.anon = append(pr.anon, id)
		} else if _, known := pr.charges[key]; !known {
			pr.charges[key] = id
		}
		return nil
	})
}

// count is how often an order was charged.
func (pr *provider) count(id string) (n int) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	for _, charged := range pr.charges {
		if charged == id {
			n++
		}
	}
	for _, charged := range pr.anon {
		if charged == id {
			n++
		}
	}
	return n
}

func (pr *provider) charged(ctx context.Context, p *oncetest.Process, id string) (found bool, err error) {
	err = p.Step(ctx, "look for the charge", func() error {
		pr.mu.Lock()
		defer pr.mu.Unlock()
		found = slices.Contains(pr.anon, id)
		return nil
	})
	return found, err
}

// insertRow is the unique constraint: whoever comes second is told.
func insertRow(_ *oncetest.Process, db *sql.DB) handle {
	return func(ctx context.Context, o order) error {
		_, err := db.ExecContext(ctx, "INSERT INTO rows (k) VALUES (?)", o.ID)
		if code := sqlstore.DriverCode(err); code == "1555" {
			return nil
		}
		return err
	}
}

// markAndInsert has the mark and the effect in one transaction.
func markAndInsert(_ *oncetest.Process, db *sql.DB) handle {
	return func(ctx context.Context, o order) error {
		book := func(tx *sql.Tx) error { return bookOrder(ctx, tx, o) }
		return marking(ctx, db, o, book, (*sql.Tx).Commit)
	}
}

func bookOrder(ctx context.Context, tx *sql.Tx, o order) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (k) VALUES (?)", o.ID)
	return err
}

func bookOrders(ctx context.Context, tx *sql.Tx, batch []order) error {
	for _, o := range batch {
		if err := bookOrder(ctx, tx, o); err != nil {
			return err
		}
	}
	return nil
}

// selectAndInsert looks in the transaction of the effect.
func selectAndInsert(_ *oncetest.Process, db *sql.DB) handle {
	return func(ctx context.Context, o order) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // it may be over
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM effects WHERE k = ?", o.ID).Scan(&n); err != nil || n > 0 {
			return err
		}
		if err := bookOrder(ctx, tx, o); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// keyed gives a function the key that it has in a pipeline.
func keyed(do handle) handle {
	return func(ctx context.Context, o order) error { return do(oncepipe.WithKey(ctx, o.ID), o) }
}

func txDo(_ *oncetest.Process, st *sqlstore.Store) handle {
	return keyed(sqlstore.TxDo(st, "book", bookOrder))
}

func txBatchDo(_ *oncetest.Process, st *sqlstore.Store) handle {
	do := sqlstore.TxBatchDo(st, "book", bookOrders)
	return func(ctx context.Context, o order) error {
		// The copy in the batch is one that a sender has sent twice in a row.
		return do(oncepipe.WithKeys(ctx, o.ID, o.ID), []order{o, o})
	}
}

// retry is a policy without chance, so that schedules take the same course each
// time.
var retry = oncepipe.Retry(oncepipe.RetryPolicy{
	Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) },
})

// pipelined makes a handler of what build makes of the orders.
func pipelined(p *oncetest.Process, build func(in oncepipe.Stream[order])) handle {
	return oncetest.Pipeline(p, orderID, func(src oncepipe.Source[order]) *oncepipe.Pipeline {
		pipe := oncepipe.New("orders", oncepipe.Config{DeadLetters: letters, Logger: slog.New(slog.DiscardHandler)})
		build(oncepipe.From(pipe, "source", src))
		return pipe
	})
}

// letters take dead letters; what becomes of these is for a person.
var letters = func(context.Context, oncepipe.DeadLetter) error { return nil }

func dedupTx(p *oncetest.Process, st *sqlstore.Store) handle {
	return pipelined(p, func(in oncepipe.Stream[order]) {
		fresh := oncepipe.Dedup(in, "dedup", orderID)
		oncepipe.Sink(fresh, "book", sqlstore.TxDo(st, "book", bookOrder), retry, oncepipe.Workers(2))
	})
}

func dedupTxBatch(p *oncetest.Process, st *sqlstore.Store) handle {
	return pipelined(p, func(in oncepipe.Stream[order]) {
		fresh := oncepipe.Dedup(in, "dedup", orderID)
		oncepipe.BatchSink(fresh, "book", sqlstore.TxBatchDo(st, "book", bookOrders), retry, oncepipe.BatchSize(2))
	})
}

func dedupStore(p *oncetest.Process, st *sqlstore.Store, pr *provider) handle {
	return pipelined(p, func(in oncepipe.Stream[order]) {
		fresh := oncepipe.Dedup(in, "dedup", orderID, oncepipe.WithStore(st))
		oncepipe.Sink(fresh, "charge", func(ctx context.Context, o order) error {
			info, _ := oncepipe.InfoFrom(ctx)
			return pr.charge(ctx, p, info.Token(), o.ID)
		}, retry)
	})
}

func withOrderAsKey(p *oncetest.Process, pr *provider) handle {
	return func(ctx context.Context, o order) error { return pr.charge(ctx, p, o.ID, o.ID) }
}

func onceToken(p *oncetest.Process, st *sqlstore.Store, pr *provider) handle {
	return keyed(oncepipe.OnceDo(st, "charge", func(ctx context.Context, o order) error {
		info, _ := oncepipe.InfoFrom(ctx)
		return pr.charge(ctx, p, info.Token(), o.ID)
	}))
}

// chargeOnce is Once at a provider that takes no keys.
func chargeOnce(p *oncetest.Process, st oncepipe.Store, pr *provider, cfg oncepipe.OnceConfig[order, struct{}]) handle {
	return keyed(oncepipe.DoWith(st, "charge", cfg, func(ctx context.Context, o order) error {
		return pr.charge(ctx, p, "", o.ID)
	}))
}

func onceAtMostOnce(p *oncetest.Process, st *sqlstore.Store, pr *provider) handle {
	return chargeOnce(p, st, pr, oncepipe.OnceConfig[order, struct{}]{AtMostOnce: true})
}

func onceResolved(p *oncetest.Process, st *sqlstore.Store, pr *provider) handle {
	return chargeOnce(p, st, pr, oncepipe.OnceConfig[order, struct{}]{
		AtMostOnce: true,
		Resolve: func(ctx context.Context, o order) (struct{}, bool, error) {
			found, err := pr.charged(ctx, p, o.ID)
			return struct{}{}, found, err
		},
	})
}

// Handlers that hold on SQLite. The first six are the answers that people give,
// and stand all schedules; the others a part of them.
var goodHandlers = []struct {
	name    string
	program benchProgram
	part    int
}{
	{"unique constraint", inTable("rows", insertRow), 1},
	{"on conflict in the transaction", inTable("effects", markAndInsert), 1},
	{"provider idempotency key", atProvider(withOrderAsKey), 1},
	{"Tx", onStore(txDo), 1},
	{"TxBatch", onStore(txBatchDo), 1},
	{"Once AtMostOnce", storeAndProvider(onceAtMostOnce), 1},
	{"Once AtMostOnce with Resolve", storeAndProvider(onceResolved), 25},
	{"Once with the provider's key", storeAndProvider(onceToken), 25},
	{"select then insert in a transaction", inTable("effects", selectAndInsert), 25},
	{"pipeline of Dedup and Tx", onStore(dedupTx), 25},
	{"pipeline of Dedup and TxBatch", onStore(dedupTxBatch), 25},
	{"pipeline of Dedup with a store", storeAndProvider(dedupStore), 25},
}

// schedulesEnv asks for so many schedules of each good handler; 10 000, and 1 000
// with the race detector, are what each of the first six has stood.
const schedulesEnv = "ONCEPIPE_SCHEDULES"

// schedules is how many a good handler has to stand.
func schedules(t *testing.T) int {
	if text := os.Getenv(schedulesEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", schedulesEnv, err)
		}
		return n
	}
	switch {
	case testing.Short():
		return 200
	case raceEnabled:
		return 250
	}
	return 2_500
}

func TestHandler(t *testing.T) {
	for _, h := range goodHandlers {
		t.Run("good/"+h.name, func(t *testing.T) {
			s := newBench(t).service(h.program)
			s.Schedules = schedules(t) / h.part
			began := time.Now()
			oncetest.Handler(t, s)
			t.Logf("%.0f schedules a second", float64(s.Schedules)/time.Since(began).Seconds())
		})
	}
	for _, h := range badHandlers {
		t.Run("bad/"+h.name, func(t *testing.T) {
			f := failure(t, oncetest.CheckHandler(newBench(t).service(h.program)))
			if f.Blame != h.blame || len(f.Story) > 8 {
				t.Errorf("want %q and at most 8 lines of\n%v", h.blame, f)
			}
			t.Logf("after %d schedules: %v", f.Tried, f)
		})
	}
}

// failure is what the kit blames a program for.
func failure(t *testing.T, err error) *oncetest.Failure {
	t.Helper()
	var f *oncetest.Failure
	if !errors.As(err, &f) {
		t.Fatalf("not blamed: %v", err)
	}
	return f
}
