package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/oncepipe/oncepipe"
)

// commitError is an error of a commit: the one kind after which it isn't known
// what has happened.
type commitError struct{ err error }

func (e commitError) Error() string { return "commit: " + e.err.Error() }
func (e commitError) Unwrap() error { return e.err }

// because adds to err that ctx is over, where that ended the transaction and err
// only says that it was ended.
func because(ctx context.Context, err error) error {
	if over := ctx.Err(); errors.Is(err, sql.ErrTxDone) && over != nil {
		return fmt.Errorf("%w: %w", over, err)
	}
	return err
}

// inTx runs f in a transaction, which is undone when f fails, panics or ends its
// goroutine. An error of f's is returned as it is.
func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if !open {
			return
		}
		// One that is over, because its context is, is as good as rolled back.
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, fmt.Errorf("roll back: %w", undo))
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	open = false
	if err := tx.Commit(); err != nil {
		return commitError{err}
	}
	return nil
}

// session is a transaction of the store, with its statements.
type session struct {
	st    *Store
	tx    *sql.Tx
	bound [statements]*sql.Stmt
}

func (s *session) stmt(ctx context.Context, which statement) *sql.Stmt {
	if s.bound[which] == nil {
		s.bound[which] = s.tx.StmtContext(ctx, s.st.prepared[which])
	}
	return s.bound[which]
}

// exec runs a statement and returns the number of rows that it changed.
func (s *session) exec(ctx context.Context, which statement, args ...any) (int64, error) {
	res, err := s.stmt(ctx, which).ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// change runs a statement on one record and tells whether it changed it.
func (s *session) change(ctx context.Context, which statement, args ...any) (bool, error) {
	n, err := s.exec(ctx, which, args...)
	return n == 1, err
}

// storedID is a RecordID as it is stored, and ordered.
type storedID struct{ ns, key string }

func stored(id oncepipe.RecordID) storedID {
	return storedID{oncepipe.StorageKey(id.Namespace), oncepipe.StorageKey(id.Key)}
}

func (id storedID) n() []byte { return []byte(id.ns) }
func (id storedID) k() []byte { return []byte(id.key) }

// row is a record as it is in the table.
type row struct {
	state     oncepipe.State
	claim     oncepipe.ClaimID
	fence     uint64
	attempt   int
	takeovers int
	tookOver  bool
	ready     time.Duration // from now; not positive when there is no such time
	expires   sql.NullInt64 // milliseconds from now
	owner     string
	fp        string
	reason    string
	payload   []byte
	hasResult bool
	result    []byte
}

// scan reads what load selected; the error is sql.ErrNoRows when it is not there.
func scan(from *sql.Row) (row, error) {
	var r row
	var claim, fp []byte
	var owner, reason sql.NullString
	var ready sql.NullInt64
	err := from.Scan(&r.state, &claim, &r.fence, &r.attempt, &r.takeovers, &r.tookOver, &ready, &r.expires,
		&owner, &fp, &reason, &r.payload, &r.hasResult, &r.result)
	if err != nil {
		return row{}, err
	}
	if len(claim) == len(r.claim) { // else it is nobody's
		r.claim = oncepipe.ClaimID(claim)
	}
	r.ready = time.Duration(ready.Int64) * time.Millisecond
	r.owner, r.fp, r.reason = owner.String, string(fp), reason.String
	return r, nil
}

// load reads a record that is going to be written.
func (s *session) load(ctx context.Context, id storedID) (row, error) {
	return scan(s.stmt(ctx, loadLocked).QueryRowContext(ctx, id.n(), id.k()))
}

// ms is d in milliseconds, rounded up, and one more, since the clock doesn't show
// how much of its own millisecond is over: no lease and no wait ends too early.
func ms(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 2
}
