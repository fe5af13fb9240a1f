package oncetest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// In the kit itself: who writes two statements without a transaction is found out,
// with one he is not.
func TestStepDB_Handler(t *testing.T) {
	type start = func(db *sql.DB) func(ctx context.Context, id string) error
	service := func(newHandler start) Service[string] {
		return Service[string]{
			Schedules: 200,
			Message:   func(id, _ int) string { return fmt.Sprint("order-", id) },
			New: func(w *World) Program[string] {
				fake := &fakeDB{}
				w.Cleanup(func() {
					if fake.conns != 0 || fake.open != 0 {
						t.Errorf("left %d connections and %d statements", fake.conns, fake.open)
					}
				})
				return Program[string]{
					Start:   func(p *Process) func(context.Context, string) error { return newHandler(StepDB(p, fake)) },
					Effects: fake.has,
				}
			},
		}
	}
	marked := func(ctx context.Context, q interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}, id string,
	) error {
		rows, err := q.QueryContext(ctx, selectRows)
		if err != nil {
			return err
		}
		defer rows.Close()
		if slices.Contains(scan(t, rows), "mark of "+id) {
			return nil
		}
		if _, err := q.ExecContext(ctx, "INSERT INTO marks (id) VALUES (?)", "mark of "+id); err != nil {
			return err
		}
		_, err = q.ExecContext(ctx, insertRow, id)
		return err
	}
	beside := service(func(db *sql.DB) func(context.Context, string) error {
		return func(ctx context.Context, id string) error { return marked(ctx, db, id) }
	})
	within := service(func(db *sql.DB) func(context.Context, string) error {
		return func(ctx context.Context, id string) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := marked(ctx, tx, id); err != nil {
				return err
			}
			return tx.Commit()
		}
	})
	for _, faults := range []Faults{Crashes, Failures, Cuts} {
		beside.Faults, within.Faults = faults, faults
		if err := CheckHandler(beside); err == nil || !strings.Contains(err.Error(), "lost") || !strings.Contains(err.Error(), "insert marks") {
			t.Errorf("two statements: %v", err)
		}
		if err := CheckHandler(within); err != nil {
			t.Errorf("a transaction: %v", err)
		}
	}
}
