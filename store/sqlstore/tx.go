package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Tx makes fn happen once for each key: fn's writes and the record that they
// were made are one transaction. The function that it returns is for a stage; the
// key is that of the item, or what oncepipe.WithKey says, and step the durable
// name of what is done.
//
// When the key is complete, fn is not run and the recorded result is returned.
// Results are JSON; those of type struct{} are not recorded. One that is larger
// than Config.MaxResult, or that JSON can't express, is left out and doesn't fail
// the effect. A replay that finds none, or can't decode it, is
// oncepipe.ErrNoResult: never a zero value, and never a second run.
//
// When fn fails, panics or ends its goroutine, nothing has happened. When the
// database says by its code that the transaction met another one (a lock, a
// deadlock, a serialization failure), it is undone and fn is run again, a few
// times and within Config.BusyTimeout; so all that fn does has to be in its
// transaction. A commit that reports an error is looked up before it is believed.
// It is safe to call again after any error.
//
// fn must not end its transaction, and must not call the Store or another Tx on
// the same database: that fails at once with oncepipe.ErrInTx if it is done with
// the context that fn is given.
//
// A record that Once left under the same name is honoured: while it is claimed
// or not due, the error is oncepipe.ErrBusy with a Snooze until then, and
// oncepipe.ErrUnknownOutcome when it is unknown.
func Tx[A, B any](st *Store, step string, fn func(context.Context, *sql.Tx, A) (B, error)) func(context.Context, A) (B, error) {
	return TxFingerprint(st, step, nil, fn)
}

// TxFingerprint is Tx with a fingerprint of the payload. A key that is known with
// another one is oncepipe.ErrMismatch, and fn is not run.
func TxFingerprint[A, B any](st *Store, step string, fingerprint func(A) string, fn func(context.Context, *sql.Tx, A) (B, error)) func(context.Context, A) (B, error) {
	return func(ctx context.Context, a A) (B, error) {
		var b B
		e := effect{run: func(ctx context.Context, tx *sql.Tx) (result []byte, has bool, err error) {
			if b, err = fn(ctx, tx, a); err != nil {
				return nil, false, err
			}
			result, has = encode(b)
			return result, has, nil
		}}
		if fingerprint != nil {
			e.fingerprint = fingerprint(a)
		}
		found, err := st.once(ctx, step, e)
		if err == nil && found != nil {
			b, err = decode[B](found)
		}
		if err != nil {
			var none B
			return none, err
		}
		return b, nil
	}
}

// TxDo is Tx for effects without a result.
func TxDo[A any](st *Store, step string, fn func(context.Context, *sql.Tx, A) error) func(context.Context, A) error {
	do := Tx(st, step, func(ctx context.Context, tx *sql.Tx, a A) (struct{}, error) {
		return struct{}{}, fn(ctx, tx, a)
	})
	return func(ctx context.Context, a A) error {
		_, err := do(ctx, a)
		return err
	}
}

func encode[B any](b B) (result []byte, has bool) {
	if _, none := any(b).(struct{}); none {
		return nil, false
	}
	result, err := json.Marshal(b)
	return result, err == nil
}

func decode[B any](found *row) (b B, err error) {
	if _, none := any(b).(struct{}); none {
		return b, nil
	}
	if !found.hasResult {
		return b, fmt.Errorf("%w: none is recorded", oncepipe.ErrNoResult)
	}
	if err := json.Unmarshal(found.result, &b); err != nil {
		return b, fmt.Errorf("%w: %w", oncepipe.ErrNoResult, err)
	}
	return b, nil
}

// effect is one call of a function that Tx made.
type effect struct {
	id          storedID
	claim       oncepipe.ClaimID // of this call, in all its transactions
	fingerprint string
	run         func(context.Context, *sql.Tx) (result []byte, has bool, err error)
}

// maxRuns is how often fn is run in one call, when its transaction meets others.
const maxRuns = 10

// errKnown undoes a transaction that found its key complete.
var errKnown = errors.New("key is complete")

// once runs e, or returns the record of an earlier run. An error of e.run's is
// returned as it is, since it may carry an instruction for the stage.
func (st *Store) once(ctx context.Context, step string, e effect) (found *row, err error) {
	id, err := oncepipe.StepID(ctx, step)
	if err != nil {
		return nil, err
	}
	if st.inTx(ctx) {
		return nil, fmt.Errorf("sqlstore: step %q: %w", step, oncepipe.ErrInTx)
	}
	e.id, e.claim = stored(id), oncepipe.NewClaimID()
	if st.dialect.oneWriter {
		unlock, err := st.lock(ctx)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: step %q: %w", step, err)
		}
		defer unlock()
	}
	runs, failed := 0, false
	err = st.patiently(ctx, func() (bool, error) {
		failed = false
		err := inTx(ctx, st.db, func(tx *sql.Tx) (err error) {
			s := &session{st: st, tx: tx}
			if found, err = s.insert(ctx, e); err != nil {
				return err
			}
			runs++
			result, has, err := e.run(st.withTx(ctx), tx)
			if err != nil {
				failed = true
				return err
			}
			if !has || len(result) > st.cfg.MaxResult {
				return nil
			}
			return s.must(ctx, setResult, result, e.id.n(), e.id.k(), e.claim[:])
		})
		if lost := (commitError{}); errors.As(err, &lost) && !failed {
			landed, lookErr := st.landed(ctx, e)
			if landed {
				return false, nil
			}
			if lookErr != nil {
				return false, fmt.Errorf("%w, and it isn't known whether it happened: %w", err, lookErr)
			}
		}
		return runs < maxRuns && st.again(err) && !oncepipe.IsPermanent(err), err
	})
	switch {
	case errors.Is(err, errKnown):
		if found.claim == e.claim { // by this call; the commit came later than its error
			return nil, nil
		}
		oncepipe.Replayed(ctx)
		return found, nil
	case err != nil && !failed:
		return nil, fmt.Errorf("sqlstore: step %q: %w", step, because(ctx, err))
	}
	return nil, err
}

// insert records e as done, for as long as its transaction stands. The error is
// errKnown, beside the record, when it was done before.
func (s *session) insert(ctx context.Context, e effect) (*row, error) {
	keep := ms(s.st.cfg.Retention)
	for range maxVanished {
		fresh, err := s.change(ctx, insertCompleted, e.id.n(), e.id.k(), e.claim[:], keep, []byte(e.fingerprint))
		if err != nil || fresh {
			return nil, err
		}
		r, err := s.load(ctx, e.id)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return nil, err
		case differ(r.fp, e.fingerprint):
			return nil, oncepipe.ErrMismatch
		case r.state == oncepipe.StateCompleted:
			return &r, errKnown
		case r.state == oncepipe.StateUnknown:
			return nil, oncepipe.ErrUnknownOutcome
		case r.ready > 0:
			return nil, fmt.Errorf("%w (%v): %w", oncepipe.ErrBusy, r.state, oncepipe.Snooze(r.ready))
		}
		takeover := one(r.state == oncepipe.StateClaimed)
		return nil, s.must(ctx, acquireCompleted, e.claim[:], takeover, takeover, keep, e.id.n(), e.id.k(), r.state, r.fence)
	}
	return nil, errVanishing
}

// lookTimeout is how long the outcome of a commit is looked for, when the
// context that it had may be over.
const lookTimeout = 5 * time.Second

// landed tells whether e is committed.
func (st *Store) landed(ctx context.Context, e effect) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	r, err := st.find(ctx, e.id)
	return err == nil && r.state == oncepipe.StateCompleted && r.claim == e.claim, err
}
