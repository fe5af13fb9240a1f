package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/oncepipe/oncepipe"
)

// backend is a store on a database.
type backend struct {
	name string
	dir  string // of the files of a database that has no server
	disk string // a directory whose disk it is shown beside

	claimsOnly bool // it has no transactions: its places have a store, and a claim by hand

	// Which limits it is held to; the other ratios are only reported.
	tx    bool // those of transactions one by one, and of gathering; it is the database's main store
	batch bool // those of batches, and of pruning

	// open makes an empty place on the database.
	open func(ctx context.Context, o options) (*place, error)

	// trips opens a store there, with a count of the round trips to the server. nil:
	// they can't be counted.
	trips func(ctx context.Context) (*counted, error)
}

// options say what is put in a place.
type options struct {
	sizes  []int         // how many items a batch may have
	slower time.Duration // what a commit takes longer: batches, and effects one by one, sleep before it
}

// place is a store in an empty database, with effects that are rows of a table
// whose primary key is the item's key. What is done by hand has the same
// statements, prepared like those of the store.
type place struct {
	store oncepipe.Store

	// Effects in transactions of the store.
	tx     func(ctx context.Context, key string) error
	shared func(ctx context.Context, key string) error    // with others'
	many   func(ctx context.Context, keys []string) error // one insertion of many rows
	singly func(ctx context.Context, keys []string) error // many insertions

	// By hand: transactions with nothing but the effects, and a key that is written
	// down by one statement.
	bareTx    func(ctx context.Context, key string) error
	bareMany  func(ctx context.Context, keys []string) error
	bareClaim func(ctx context.Context, key string) error

	// overdue makes records whose retention is over.
	overdue func(ctx context.Context, keys []string) error

	close func() error // and removes everything
}

// counted is a store, and the number of round trips so far.
type counted struct {
	store oncepipe.Store
	trips func() int64
	close func() error
}

// step is the durable name of what all effects do.
const step = "effect"

// effect is what is written for the i-th of some keys.
func effect(i int) (account, amount int64) { return int64(i % 100), 100 }

// newName names a place that nobody has.
func newName() string {
	var random [6]byte
	rand.Read(random[:]) // never fails
	return "bench_" + hex.EncodeToString(random[:])
}
