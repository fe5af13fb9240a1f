package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	_ "modernc.org/sqlite"

	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// ledger is the database: a table of effects, and beside it the records of the
// store. The table has no constraint that would hide a second effect.
type ledger struct {
	db    *sql.DB
	store *sqlstore.Store
	table string
	book  func(context.Context, event) error

	booked atomic.Int64 // keys of this input, of earlier runs too
}

func openLedger(ctx context.Context, o options, in *input) (*ledger, error) {
	file, err := filepath.Abs(o.db)
	if err != nil {
		return nil, err
	}
	query := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	l := &ledger{db: db, table: "effects"}
	if o.unguarded {
		l.table = "effects_unguarded" // not to spoil the other
	}
	if err := l.prepare(ctx, o, in); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return l, nil
}

func (l *ledger) prepare(ctx context.Context, o options, in *input) error {
	if o.unguarded {
		if _, err := l.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+l.table); err != nil {
			return err
		}
	}
	for _, text := range []string{
		"CREATE TABLE IF NOT EXISTS " + l.table + " (key TEXT NOT NULL, event TEXT NOT NULL, size INTEGER NOT NULL)",
		"CREATE INDEX IF NOT EXISTS " + l.table + "_key ON " + l.table + " (key)",
	} {
		if _, err := l.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if o.unguarded {
		l.book = func(ctx context.Context, e event) error { return l.insert(ctx, l.db, e) }
	} else {
		if err := sqlstore.Migrate(ctx, l.db, sqlstore.Config{}); err != nil {
			return err
		}
		store, err := sqlstore.Open(ctx, l.db, sqlstore.Config{})
		if err != nil {
			return err
		}
		l.store = store
		l.book = sqlstore.TxDo(store, "book", func(ctx context.Context, tx *sql.Tx, e event) error {
			return l.insert(ctx, tx, e)
		})
	}
	found, err := l.count(ctx, in)
	if err != nil {
		return err
	}
	l.booked.Store(int64(found.keys))
	if o.crashAfter > 0 {
		l.crashWhen(int64(math.Ceil(o.crashAfter*float64(in.keyCount()))), o.temporary)
	}
	return nil
}

// insert is the effect.
func (l *ledger) insert(ctx context.Context, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, e event,
) error {
	_, err := on.ExecContext(ctx, "INSERT INTO "+l.table+" (key, event, size) VALUES (?, ?, ?)", e.ID, e.Kind, len(e.Body))
	if err == nil {
		l.booked.Add(1)
	}
	return err
}

// crashWhen makes book kill the process at the worst moment: when so many keys
// are booked and committed, and the sender has not been told of the last one. A
// temporary directory is removed first: there is nothing in it for a restart.
func (l *ledger) crashWhen(keys int64, temporary string) {
	if l.booked.Load() >= keys {
		return // an earlier run was there already
	}
	book := l.book
	l.book = func(ctx context.Context, e event) error {
		err := book(ctx, e)
		if err == nil && l.booked.Load() >= keys {
			if temporary != "" {
				_ = os.RemoveAll(temporary)
			}
			kill()
		}
		return err
	}
}

// kill ends the process as kill -9 does.
func kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
		select {}
	}
	panic("can't kill this process")
}

// counted is what the table says of this input's keys.
type counted struct {
	effects int
	keys    int // that have an effect
	most    int // effects of one key
	without []string
}

func (l *ledger) count(ctx context.Context, in *input) (counted, error) {
	var c counted
	rows, err := l.db.QueryContext(ctx, "SELECT key, count(*) FROM "+l.table+" GROUP BY key")
	if err != nil {
		return c, err
	}
	defer rows.Close()
	effects := map[string]int{}
	for rows.Next() {
		var key string
		var n int
		if err := rows.Scan(&key, &n); err != nil {
			return c, err
		}
		effects[key] = n
	}
	if err := rows.Err(); err != nil {
		return c, fmt.Errorf("count effects: %w", err)
	}
	for key := range in.keys() {
		n := effects[key]
		if n == 0 {
			c.without = append(c.without, key)
			continue
		}
		c.keys++
		c.effects += n
		c.most = max(c.most, n)
	}
	return c, nil
}

func (l *ledger) close() {
	if l.store != nil {
		_ = l.store.Close()
	}
	_ = l.db.Close()
}
