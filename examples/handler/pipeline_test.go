package handler

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// onStore is a service whose effects and records are in one database.
func onStore(start func(p *oncetest.Process, store *sqlstore.Store) Handler) oncetest.Service[Order] {
	return oncetest.Service[Order]{
		Message:   newOrder,
		Schedules: schedules / 4,
		New: func(w *oncetest.World) oncetest.Program[Order] {
			file := newDatabase(w, "CREATE TABLE ledger (id TEXT, cents INTEGER)")
			must(sqlstore.Migrate(context.Background(), file.db, sqlstore.Config{}))
			return oncetest.Program[Order]{
				Start:   func(p *oncetest.Process) Handler { return start(p, openStore(p, oncetest.StepDB(p, file))) },
				Effects: func(o Order) int { return file.count("ledger", o) },
			}
		},
	}
}

func openStore(p *oncetest.Process, db *sql.DB) *sqlstore.Store {
	store, err := sqlstore.Open(p.Context(), db, sqlstore.Config{})
	must(err)
	return store
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func Example_bookInTx() {
	s := onStore(func(_ *oncetest.Process, store *sqlstore.Store) Handler { return BookInTx(store) })
	fmt.Println(oncetest.CheckHandler(s))
	// Output:
	// <nil>
}

func Example_pipeline() {
	s := onStore(func(p *oncetest.Process, store *sqlstore.Store) Handler {
		return oncetest.Pipeline(p, Order.Key, func(src oncepipe.Source[Order]) *oncepipe.Pipeline {
			return Pipeline(store, src, slog.New(slog.DiscardHandler))
		})
	})
	fmt.Println(oncetest.CheckHandler(s))
	// Output:
	// <nil>
}
