package pgxstore

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncepipe/oncepipe"
)

func TestStatements_AreFilledIn(t *testing.T) {
	cfg := Config{Prefix: "p_", Clock: "CLOCK"}
	all := reflect.ValueOf(cfg.statements())
	for i := range all.NumField() {
		text := all.Field(i).String()
		if text == "" || strings.ContainsAny(text, "{}") || !strings.Contains(text, "p_records") {
			t.Errorf("%s: %q", all.Type().Field(i).Name, text)
		}
	}
}

func TestConfig_Refused(t *testing.T) {
	for _, cfg := range []Config{
		{Prefix: "a b"},
		{Prefix: "1a"},
		{Prefix: "a;--"},
		{Prefix: "ä"},
		{Prefix: strings.Repeat("a", 32)},
		{Retention: -1},
		{MaxResult: -1},
		{BusyTimeout: -1},
		{Isolation: "read committed; DROP TABLE x"},
	} {
		if _, err := Open(t.Context(), nil, cfg); err == nil {
			t.Errorf("%+v: opened", cfg)
		}
		if err := Migrate(t.Context(), nil, cfg); err == nil {
			t.Errorf("%+v: migrated", cfg)
		}
		if _, err := Schema(cfg.Prefix); err == nil && cfg.Prefix != "" {
			t.Errorf("%+v: a schema", cfg)
		}
	}
}

func TestConfig_Defaults(t *testing.T) {
	cfg := Config{Isolation: pgx.RepeatableRead}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	if cfg.Prefix != "oncepipe_" || cfg.Retention != 7*24*time.Hour || cfg.MaxResult != 1<<20 || cfg.BusyTimeout != 10*time.Second {
		t.Errorf("%+v", cfg)
	}
}

func TestR56_CodesDecide(t *testing.T) {
	d := &database{}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{&pgconn.PgError{Code: "40001"}, true},
		{fmt.Errorf("insert: %w", &pgconn.PgError{Code: "40P01"}), true},
		{errors.Join(io.EOF, &pgconn.PgError{Code: "55P03"}), true},
		{&pgconn.PgError{Code: "23505"}, false},
		{&pgconn.PgError{Code: "57P01", Message: "40001"}, false},
		{errors.New("deadlock detected (SQLSTATE 40P01)"), false},
		{io.EOF, false},
		{pgx.ErrTxCommitRollback, false},
	} {
		if got := d.Again(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// The numbers of the states are in the index and in the statements.
func TestStates_ThatAreListed(t *testing.T) {
	listed := fmt.Sprintf("state IN (%d, %d, %d)", oncepipe.StateWaiting, oncepipe.StateFailed, oncepipe.StateUnknown)
	for _, text := range []string{tables[2], listText, inText} {
		if !strings.Contains(text, listed) {
			t.Errorf("%q is without %s", text, listed)
		}
	}
}

func TestLent_IsClosedAfterwards(t *testing.T) {
	ctx := t.Context()
	l := &lent{closedTx}
	_, exec := l.Exec(ctx, "SELECT 1")
	_, begin := l.Begin(ctx)
	_, query := l.Query(ctx, "SELECT 1")
	_, prepare := l.Prepare(ctx, "", "SELECT 1")
	_, copied := l.CopyFrom(ctx, pgx.Identifier{"x"}, nil, nil)
	b := &pgx.Batch{}
	b.Queue("SELECT 1")
	var n int
	for _, err := range []error{
		exec, begin, query, prepare, copied, l.Rollback(ctx), l.SendBatch(ctx, b).Close(), l.QueryRow(ctx, "SELECT 1").Scan(&n),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("error %v", err)
		}
	}
}
