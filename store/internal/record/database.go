package record

import "context"

// Database is a database in which every record is a row. N is what its driver
// calls a transaction.
type Database[N any] interface {
	// Introduce inserts records whose keys are new, in a transaction of its own,
	// and returns those that were there already, without a lock on them. The
	// records are in the order of their ids, and no id occurs twice.
	Introduce(ctx context.Context, recs []Record) (known []Record, err error)

	// Transact runs f in a transaction, in which f may write what it has loaded. It
	// is undone when f fails, panics or ends its goroutine; an error of f's is returned as it
	// is, one of the commit as a CommitError.
	Transact(ctx context.Context, f func(Tx[N]) error) error

	// TransactWith is Transact that first inserts those of first whose keys are new,
	// and says which.
	TransactWith(ctx context.Context, first []Record, f func(tx Tx[N], inserted []ID) error) error

	// Read reads records without a lock, those that are there, in any order.
	Read(ctx context.Context, ids []ID) ([]Record, error)

	// Prune removes up to limit records whose retention is over, in one
	// transaction, and leaves alone those that others have locked.
	Prune(ctx context.Context, limit int) (int, error)

	// Refused tells whether err is what the database itself said, so that what failed
	// is undone. Of an error of the connection nobody knows what it ended.
	Refused(err error) bool

	// Again tells whether a transaction that ended with err is worth repeating: it
	// met another one, and was undone.
	Again(err error) bool
}

// Tx is a transaction. Ids are in their order, and none occurs twice.
type Tx[N any] interface {
	// Insert inserts those whose keys are new and returns their ids, or none where
	// the database doesn't say which of several it was.
	Insert(ctx context.Context, recs []Record) (inserted []ID, err error)

	Load(ctx context.Context, ids []ID) ([]Record, error) // those that are there, locked
	Write(ctx context.Context, recs []Record) error       // over those that were loaded
	Delete(ctx context.Context, ids []ID) error
	Native() N
}

// CommitError is an error of a commit: the one kind after which it isn't known
// what has happened.
type CommitError struct{ Err error }

func (e CommitError) Error() string { return "commit: " + e.Err.Error() }
func (e CommitError) Unwrap() error { return e.Err }
