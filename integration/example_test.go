package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// exampleDB is a database with a table of the application's.
func exampleDB() *sql.DB {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1) // an in-memory database is that of its connection
	if _, err := db.Exec("CREATE TABLE bookings (order_id TEXT, amount INTEGER)"); err != nil {
		log.Fatal(err)
	}
	return db
}

func ExampleOpen() {
	ctx := context.Background()
	db := exampleDB()
	defer db.Close()

	cfg := sqlstore.Config{}
	if err := sqlstore.Migrate(ctx, db, cfg); err != nil {
		log.Fatal(err)
	}
	st, err := sqlstore.Open(ctx, db, cfg)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("records are kept for", st.Retention())
	// Output: records are kept for 168h0m0s
}

// A redelivery gets the number of the first booking; there is no second one.
func ExampleTx() {
	ctx := context.Background()
	db := exampleDB()
	defer db.Close()
	st := exampleStore(ctx, db)

	type order struct {
		ID     string
		Amount int
	}
	book := sqlstore.Tx(st, "book", func(ctx context.Context, tx *sql.Tx, o order) (int64, error) {
		res, err := tx.ExecContext(ctx, "INSERT INTO bookings VALUES (?, ?)", o.ID, o.Amount)
		if err != nil {
			return 0, err
		}
		return res.LastInsertId()
	})

	for _, o := range []order{{"order-1", 10}, {"order-2", 20}, {"order-1", 10}} {
		number, err := book(oncepipe.WithKey(ctx, o.ID), o) // in a stage the item brings its key
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(o.ID, "is booking", number)
	}
	// Output:
	// order-1 is booking 1
	// order-2 is booking 2
	// order-1 is booking 1
}

func ExampleTxDo() {
	ctx := context.Background()
	db := exampleDB()
	defer db.Close()
	st := exampleStore(ctx, db)

	book := sqlstore.TxDo(st, "book", func(ctx context.Context, tx *sql.Tx, id string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO bookings VALUES (?, 10)", id)
		return err
	})
	for range 3 {
		if err := book(oncepipe.WithKey(ctx, "order-1"), "order-1"); err != nil {
			log.Fatal(err)
		}
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM bookings").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "booking")
	// Output: 1 booking
}

func exampleStore(ctx context.Context, db *sql.DB) *sqlstore.Store {
	if err := sqlstore.Migrate(ctx, db, sqlstore.Config{}); err != nil {
		log.Fatal(err)
	}
	st, err := sqlstore.Open(ctx, db, sqlstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return st
}

// One transaction for many; who is done already does not reach the function.
func ExampleTxBatch() {
	ctx := context.Background()
	db := exampleDB()
	defer db.Close()
	st := exampleStore(ctx, db)

	book := sqlstore.TxBatch(st, "book", func(ctx context.Context, tx *sql.Tx, ids []string) ([]string, error) {
		fmt.Println("booking", ids)
		receipts := make([]string, len(ids))
		for i, id := range ids {
			if _, err := tx.ExecContext(ctx, "INSERT INTO bookings VALUES (?, 10)", id); err != nil {
				return nil, err
			}
			receipts[i] = "receipt for " + id
		}
		return receipts, nil
	})
	for _, ids := range [][]string{{"order-1"}, {"order-1", "order-2", "order-3"}} {
		receipts, err := book(oncepipe.WithKeys(ctx, ids...), ids) // in a BatchStage the items bring their keys
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(receipts)
	}
	// Output:
	// booking [order-1]
	// [receipt for order-1]
	// booking [order-2 order-3]
	// [receipt for order-1 receipt for order-2 receipt for order-3]
}

// The usual shape: what the source delivers again is known, and what is new is
// booked with one commit for all that has queued.
func ExampleTxBatchDo() {
	ctx := context.Background()
	db := exampleDB()
	defer db.Close()
	st := exampleStore(ctx, db)

	p := oncepipe.New("shop", oncepipe.Config{Stores: []oncepipe.Store{st}})
	in := oncepipe.FromSeq(p, "orders", slices.Values([]string{"order-1", "order-2", "order-1"}))
	fresh := oncepipe.Dedup(in, "dedup", func(id string) string { return id })
	oncepipe.BatchSink(fresh, "book", sqlstore.TxBatchDo(st, "book", func(ctx context.Context, tx *sql.Tx, ids []string) error {
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, "INSERT INTO bookings VALUES (?, 10)", id); err != nil {
				return err
			}
		}
		return nil
	}), oncepipe.BatchSize(256), oncepipe.Retry(oncepipe.RetryPolicy{Slots: 1024}))
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
	s := p.Stats()
	fmt.Println("done", s.Done, "duplicate", s.Duplicate)
	// Output: done 2 duplicate 1
}

// Another payload under the same key is refused, also long after.
func ExampleTxWith() {
	ctx := context.Background()
	db := exampleDB()
	defer db.Close()
	st := exampleStore(ctx, db)

	cfg := oncepipe.TxConfig[int, int64]{Fingerprint: func(amount int) string { return fmt.Sprint(amount) }}
	book := sqlstore.TxWith(st, "book", cfg, func(ctx context.Context, tx *sql.Tx, amount int) (int64, error) {
		res, err := tx.ExecContext(ctx, "INSERT INTO bookings VALUES ('order-1', ?)", amount)
		if err != nil {
			return 0, err
		}
		return res.LastInsertId()
	})
	ctx = oncepipe.WithKey(ctx, "order-1")
	fmt.Println(book(ctx, 10))
	_, err := book(ctx, 20)
	fmt.Println(errors.Is(err, oncepipe.ErrMismatch))
	// Output:
	// 1 <nil>
	// true
}
