package integration

import (
	"context"
	"database/sql"
	"fmt"
	"log"

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
