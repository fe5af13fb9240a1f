package oncepipe

import (
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Errors that handlers, stores and Run return; test for them with errors.Is.
var (
	// ErrNoKey: an item came without a key to a place that needs one. Permanent.
	ErrNoKey = errors.New("oncepipe: item has no key")

	// ErrMismatch: the key is known with another payload. Permanent.
	ErrMismatch = errors.New("oncepipe: key is known with another payload")

	// ErrLeaseLost: the claim ran out or was taken over. It is the cause of the
	// handler's context, and the reason why the item was returned.
	ErrLeaseLost = errors.New("oncepipe: lease lost")

	// ErrBusy: somebody else holds the claim on the key, or it waits out a backoff.
	// It comes as a Snooze for as long as that may last. A stage asks again sooner, when the
	// item is twice as old, and after 100 ms at the soonest.
	ErrBusy = errors.New("oncepipe: key is claimed by another process")

	// ErrUnknownOutcome: nobody knows whether the effect of the key happened; a
	// Resolver or a person decides. Permanent.
	ErrUnknownOutcome = errors.New("oncepipe: unknown whether the effect happened")

	// ErrNoResult: the effect is done, and its result can't be had again: none
	// was recorded, it was too large, or it doesn't decode. Permanent.
	ErrNoResult = errors.New("oncepipe: effect is done but its result is not available")

	// ErrInTx: a store was called from inside a transaction on the same store,
	// which would wait for itself. Permanent.
	ErrInTx = errors.New("oncepipe: call on the store from inside its own transaction")

	// ErrAttemptTimeout is the cause of a handler's context whose time limit is over.
	ErrAttemptTimeout = errors.New("oncepipe: time limit of the attempt is over")

	// ErrShutdown: the pipeline is draining and the item was not finished.
	ErrShutdown = errors.New("oncepipe: pipeline is shutting down")

	// ErrDrainTimeout is the cause of the handlers' contexts when
	// Config.DrainTimeout is over.
	ErrDrainTimeout = errors.New("oncepipe: drain timeout is over")

	// ErrGoexit: a handler ended its goroutine with runtime.Goexit. Permanent.
	ErrGoexit = errors.New("oncepipe: handler called runtime.Goexit")

	// ErrMaxAttempts, ErrMaxAge and ErrBackoffStopped: why a retried item was
	// given up. They stand beside the last attempt's error.
	ErrMaxAttempts    = errors.New("oncepipe: attempts used up")
	ErrMaxAge         = errors.New("oncepipe: item is too old to retry")
	ErrBackoffStopped = errors.New("oncepipe: backoff says stop")

	// ErrMaxTakeovers: the key was taken over too often; its handler may kill the
	// process. Permanent.
	ErrMaxTakeovers = errors.New("oncepipe: key was taken over too often")

	// ErrBatchResults: a batch function returned results, or errors of a
	// BatchError, in another number than it got items. Permanent.
	ErrBatchResults = errors.New("oncepipe: batch function does not answer for each of its items")

	// ErrFull: Inject found no room.
	ErrFull = errors.New("oncepipe: no room")

	// ErrNotRunning: the call needs a running pipeline.
	ErrNotRunning = errors.New("oncepipe: pipeline is not running")

	// ErrReturnedFull: more items than Config.MaxReturned could not be given back
	// to their source; the pipeline drains.
	ErrReturnedFull = errors.New("oncepipe: too many items could not be given back")
)

// mark is an error with an instruction for the stage. Stages take it off, so
// that dead letters and observers see the cause.
type mark struct {
	kind  markKind
	delay time.Duration
	err   error
}

type markKind uint8

const (
	markPermanent markKind = iota + 1
	markRetryAfter
	markSnooze
	markUnknown
	markNotApplied
	markWholeBatch
)

func (m *mark) Error() string {
	if m.err == nil {
		return fmt.Sprintf("snoozed for %v", m.delay)
	}
	return m.err.Error()
}

func (m *mark) Unwrap() error { return m.err }

func marked(kind markKind, delay time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &mark{kind: kind, delay: delay, err: err}
}

// Permanent says that trying again is of no use: the item becomes a dead
// letter. Permanent(nil) is nil. A backoff.PermanentError means the same.
func Permanent(err error) error { return marked(markPermanent, 0, err) }

// RetryAfter says when to try again, in place of the backoff. It counts as an
// attempt. A negative delay means at once; RetryPolicy.MaxDelay caps it.
// RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error { return marked(markRetryAfter, max(d, 0), err) }

// Snooze parks the item for d without counting an attempt: "not yet", rather
// than "failed". It counts towards RetryPolicy.MaxAge.
func Snooze(d time.Duration) error { return &mark{kind: markSnooze, delay: max(d, 0)} }

// Unknown says that the effect may have happened in spite of the error. Under
// AtMostOnce that ends the attempts (see Once); elsewhere it is an ordinary
// error. Unknown(nil) is nil.
func Unknown(err error) error { return marked(markUnknown, 0, err) }

// NotApplied says that the effect has certainly not happened, which is what
// AtMostOnce needs to know before it tries again. NotApplied(nil) is nil.
func NotApplied(err error) error { return marked(markNotApplied, 0, err) }

// WholeBatch says that an error of a batch function, such as that of a database
// which can't be reached, has nothing to do with any single item: the batch is
// not cut to look for one, and all its items fail with err. What else err says
// counts for each of them. Elsewhere it changes nothing. WholeBatch(nil) is nil.
func WholeBatch(err error) error { return marked(markWholeBatch, 0, err) }

// IsPermanent reports whether err is marked by Permanent or is a
// backoff.PermanentError.
func IsPermanent(err error) bool {
	v := judge(err)
	return v.kind == markPermanent
}

// judgement is an error with its marks taken off.
type judgement struct {
	kind  markKind // 0: an ordinary error
	delay time.Duration
	err   error // the cause; nil for Snooze
}

// permanentErrors are those of our own that no retry can mend.
var permanentErrors = []error{ErrNoKey, ErrMismatch, ErrUnknownOutcome, ErrNoResult, ErrGoexit, ErrMaxTakeovers, ErrInTx, ErrBatchResults}

// judge reads the outermost mark of err and takes the marks off.
func judge(err error) judgement {
	j := judgement{err: err}
	var m *mark
	var bp *backoff.PermanentError
	_, panicked := err.(*PanicError)
	switch {
	case panicked: // whatever was passed to panic
		j.kind = markPermanent
	case isWholeBatch(err):
		errors.As(err, &m)
		j = judge(m.err)
	case errors.As(err, &m):
		j.kind, j.delay = m.kind, m.delay
	case errors.As(err, &bp):
		j.kind = markPermanent
	default:
		for _, p := range permanentErrors {
			if errors.Is(err, p) {
				j.kind = markPermanent
			}
		}
		var pe *PanicError
		if errors.As(err, &pe) {
			j.kind = markPermanent
		}
	}
	j.err = strip(err)
	return j
}

// IsWholeBatch tells whether err is of a batch as a whole, so that to run a part
// of it is of no use: it bears WholeBatch, RetryAfter or Snooze, or is ErrLeaseLost.
// For implementations of TxBatch.
func IsWholeBatch(err error) bool {
	kind := judge(err).kind
	return isWholeBatch(err) || kind == markSnooze || kind == markRetryAfter || errors.Is(err, ErrLeaseLost)
}

func isWholeBatch(err error) bool {
	var m *mark
	return errors.As(err, &m) && m.kind == markWholeBatch
}

// strip takes marks off the outside of err, however many there are, and hides
// one that was wrapped: the text around it is part of the cause, but the mark
// is for the stage that saw it and for no other.
func strip(err error) error {
	for {
		switch e := err.(type) {
		case *mark:
			err = e.err
		case *backoff.PermanentError:
			err = e.Err
		default:
			var m *mark
			var bp *backoff.PermanentError
			if _, panicked := err.(*PanicError); !panicked && (errors.As(err, &m) || errors.As(err, &bp)) {
				return &unmarked{err}
			}
			return err
		}
	}
}

// unmarked is an error that no longer shows the marks inside it.
type unmarked struct{ err error }

func (u *unmarked) Error() string { return u.err.Error() }

func (u *unmarked) Is(target error) bool { return errors.Is(u.err, target) }

func (u *unmarked) As(target any) bool {
	switch target.(type) {
	case **mark, **backoff.PermanentError:
		return false
	}
	return errors.As(u.err, target)
}

// PanicError is a panic in a handler, as an error. It is permanent.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // the stack of the panic
}

// Error returns the panic's value; the stack is in Stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value where that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
