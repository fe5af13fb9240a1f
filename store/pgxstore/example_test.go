package pgxstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/pgxstore"
)

// A redelivery gets the number of the first booking; there is no second one.
func ExampleTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgxstore.Migrate(ctx, pool, pgxstore.Config{}); err != nil {
		log.Fatal(err)
	}
	st, err := pgxstore.Open(ctx, pool, pgxstore.Config{})
	if err != nil {
		log.Fatal(err)
	}

	type order struct {
		ID     string
		Amount int
	}
	book := pgxstore.Tx(st, "book", func(ctx context.Context, tx pgx.Tx, o order) (number int, err error) {
		err = tx.QueryRow(ctx, "INSERT INTO bookings (id, amount) VALUES ($1, $2) RETURNING number", o.ID, o.Amount).Scan(&number)
		return number, err
	})
	o := order{"order-1", 10}
	for range 2 {
		number, err := book(oncepipe.WithKey(ctx, o.ID), o) // in a stage the item brings its key
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(o.ID, "is booking", number)
	}
}
