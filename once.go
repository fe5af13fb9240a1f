package oncepipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// Defaults of OnceConfig.
const (
	DefaultLease        = 30 * time.Second
	DefaultMaxTakeovers = 5
)

// OnceConfig adjusts OnceWith. The zero value is what Once uses.
type OnceConfig[A, B any] struct {
	// AtMostOnce makes the function never run again when it may have acted: after
	// any error but NotApplied and Snooze, a panic, a time-out, or a process that
	// died while it ran. What then became of the effect is asked of Resolve; without
	// it the item is a dead letter with reason unknown. By default the function is
	// run again (at least once), with Info.Takeover set when another process had begun.
	AtMostOnce bool

	// Resolve finds out whether the effect for v happened, and what its result
	// was, where that is unknown. The key is in InfoFrom(ctx).
	Resolve func(ctx context.Context, v A) (result B, happened bool, err error)

	// Fingerprint tells payloads of one key apart: another one than the first
	// is ErrMismatch. nil: payloads are not compared.
	Fingerprint func(v A) string

	// Encode and Decode turn results into what the store keeps and back. Default:
	// JSON. For a B of struct{} nothing is kept.
	Encode func(B) ([]byte, error)
	Decode func([]byte) (B, error)

	// Lease is how long a claim holds without being renewed, which happens every
	// third of it for as long as the function runs. When it can't be renewed in time
	// the function's context ends with cause ErrLeaseLost. 0: DefaultLease.
	Lease time.Duration

	// MaxTakeovers is how often a key whose owner vanished may be taken over,
	// before it is ErrMaxTakeovers. 0: DefaultMaxTakeovers. Negative: no limit.
	MaxTakeovers int
}

// Once makes fn act once per key, for effects that are outside of the store's
// database: it claims the key, runs fn, and records the result. Where the key is
// done already, by an earlier delivery or another process, the recorded result
// is returned and fn is not run.
//
// What is left is the gap between effect and record, should the process die in
// it: then fn is run again. Hand Info.Token on to whoever takes idempotency keys, or
// see OnceConfig.AtMostOnce.
//
// The key is that of the item, or of WithKey. The step is part of the record's
// name for ever: two steps of a handler have two names. Errors of fn are
// returned as they are. Further errors: ErrNoKey, ErrNoResult, ErrLeaseLost,
// ErrMaxTakeovers; ErrBusy as a Snooze when another process is at it; and the
// store's, when it can't be reached: then fn has not run, or its result is lost
// to the store and the item is tried again.
func Once[A, B any](st Store, step string, fn func(context.Context, A) (B, error)) func(context.Context, A) (B, error) {
	return OnceWith(st, step, OnceConfig[A, B]{}, fn)
}

// OnceDo is Once for a function without a result.
func OnceDo[A any](st Store, step string, fn func(context.Context, A) error) func(context.Context, A) error {
	return DoWith(st, step, OnceConfig[A, struct{}]{}, fn)
}

// DoWith is OnceWith for a function without a result.
func DoWith[A any](st Store, step string, cfg OnceConfig[A, struct{}], fn func(context.Context, A) error) func(context.Context, A) error {
	once := OnceWith(st, step, cfg, func(ctx context.Context, v A) (struct{}, error) {
		return struct{}{}, fn(ctx, v)
	})
	return func(ctx context.Context, v A) error {
		_, err := once(ctx, v)
		return err
	}
}

// OnceWith is Once with a configuration.
func OnceWith[A, B any](st Store, step string, cfg OnceConfig[A, B], fn func(context.Context, A) (B, error)) func(context.Context, A) (B, error) {
	if cfg.Lease <= 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.MaxTakeovers == 0 {
		cfg.MaxTakeovers = DefaultMaxTakeovers
	}
	var zero B
	_, none := any(zero).(struct{})
	if cfg.Encode == nil {
		cfg.Encode = func(v B) ([]byte, error) { return json.Marshal(v) }
	}
	if cfg.Decode == nil {
		cfg.Decode = func(b []byte) (v B, err error) { return v, json.Unmarshal(b, &v) }
	}
	o := &once[A, B]{st: st, step: step, cfg: cfg, fn: fn, none: none, owner: ownerName()}
	return o.call
}

// ownerName is what people see in the record of a claim.
func ownerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

type once[A, B any] struct {
	st    Store
	step  string
	cfg   OnceConfig[A, B]
	fn    func(context.Context, A) (B, error)
	none  bool // B is struct{}
	owner string
}

func (o *once[A, B]) call(ctx context.Context, v A) (B, error) {
	var zero B
	id, err := StepID(ctx, o.step)
	if err != nil {
		return zero, fmt.Errorf("once %s: %w", o.step, err)
	}
	for {
		b, again, err := o.try(ctx, id, v)
		if !again {
			return b, err
		}
	}
}

// try claims the key and acts on the answer. again says that an unknown record
// was resolved as not done.
func (o *once[A, B]) try(ctx context.Context, id RecordID, v A) (b B, again bool, err error) {
	req := ClaimRequest{
		RecordID: id, Claim: NewClaimID(), Lease: o.cfg.Lease,
		Owner: o.owner, NoTakeover: o.cfg.AtMostOnce,
	}
	if o.cfg.Fingerprint != nil {
		req.Fingerprint = o.cfg.Fingerprint(v)
	}
	sent := time.Now()
	answers, err := repeated(ctx, claimTries, func() ([]ClaimAnswer, error) {
		sent = time.Now()
		return o.st.Claim(ctx, []ClaimRequest{req})
	})
	if err != nil {
		return b, false, fmt.Errorf("once %s: claim: %w", o.step, err)
	}
	ans := answers[0]
	switch ans.Status {
	case ClaimAcquired:
		return o.own(ctx, req, ans, sent, v)
	case ClaimCompleted:
		Replayed(ctx)
		b, err = o.result(ans.Result, ans.HasResult)
		return b, false, err
	case ClaimBusy, ClaimWaiting:
		// A moment at least, so that a store whose clock is coarse isn't asked in a loop.
		return b, false, marked(markSnooze, max(ans.Wait, time.Millisecond), fmt.Errorf("once %s: %w", o.step, ErrBusy))
	case ClaimMismatch:
		return b, false, fmt.Errorf("once %s: %w", o.step, ErrMismatch)
	case ClaimUnknown:
		return o.resolve(ctx, id, v, nil)
	default:
		return b, false, fmt.Errorf("once %s: store answered a claim with status %v", o.step, ans.Status)
	}
}

func (o *once[A, B]) result(data []byte, has bool) (b B, err error) {
	switch {
	case o.none:
		return b, nil
	case !has:
		return b, fmt.Errorf("once %s: %w: none was recorded", o.step, ErrNoResult)
	}
	if b, err = o.cfg.Decode(data); err != nil {
		var zero B
		return zero, fmt.Errorf("once %s: %w: %w", o.step, ErrNoResult, err)
	}
	return b, nil
}

// errNoReturn is the reason in the record of a handler that panicked or called
// Goexit.
var errNoReturn = errors.New("handler did not return")

// own runs the function under the claim. Whatever way it ends, the claim is
// completed or released.
func (o *once[A, B]) own(ctx context.Context, req ClaimRequest, ans ClaimAnswer, sent time.Time, v A) (b B, again bool, err error) {
	if o.cfg.MaxTakeovers > 0 && ans.Takeovers > o.cfg.MaxTakeovers {
		err := fmt.Errorf("once %s: %w (%d times)", o.step, ErrMaxTakeovers, ans.Takeovers)
		return b, false, o.release(ctx, req, ReleaseRequest{To: ToFailed}, err)
	}
	lease := holdLease(ctx, o.st, req, sent)
	defer lease.end()
	returned := false
	defer func() {
		if !returned { // a panic or Goexit passes through
			rel := ReleaseRequest{To: ToWaiting}
			if o.cfg.AtMostOnce {
				rel.To = ToUnknown
			}
			// An error has nowhere to go from here; then the lease runs out instead.
			_ = o.release(ctx, req, rel, errNoReturn)
		}
	}()
	b, err = o.fn(withTakeover(lease.ctx, ans.Takeover), v)
	returned = true
	if err == nil {
		return b, false, o.complete(ctx, lease, req, b)
	}
	if context.Cause(lease.ctx) == ErrLeaseLost && !errors.Is(err, ErrLeaseLost) {
		err = fmt.Errorf("%w; handler said: %w", ErrLeaseLost, err)
	}
	var zero B
	j := judge(err)
	rel := ReleaseRequest{To: ToWaiting}
	switch {
	case j.kind == markSnooze:
		rel.Delay, rel.Uncounted = j.delay, true
	case context.Cause(ctx) == ErrDrainTimeout && !o.cfg.AtMostOnce:
		rel.Uncounted = true // a shutdown is no attempt
	case o.cfg.AtMostOnce && j.kind != markNotApplied:
		rel.To = ToUnknown
	case j.kind == markPermanent:
		rel.To = ToFailed
	}
	err = o.release(ctx, req, rel, err)
	if rel.To == ToUnknown && !errors.Is(err, ErrLeaseLost) {
		return o.resolve(ctx, req.RecordID, v, err)
	}
	return zero, false, err
}

// complete records that the effect is done, and tries for as long as the lease
// can be held: to fail now would be to run the function again.
func (o *once[A, B]) complete(ctx context.Context, lease *leaseHold, req ClaimRequest, b B) error {
	done := Completion{RecordID: req.RecordID, Claim: req.Claim}
	if !o.none {
		if data, err := o.cfg.Encode(b); err == nil { // a done effect does not fail for its result
			done.Result, done.HasResult = data, true
		}
	}
	held, err := repeated(lease.ctx, 0, func() ([]bool, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.Lease)
		defer cancel()
		return o.st.Complete(ctx, []Completion{done})
	})
	switch {
	case err != nil:
		return fmt.Errorf("once %s: effect done but not recorded: %w: %w", o.step, context.Cause(lease.ctx), err)
	case !held[0]:
		return fmt.Errorf("once %s: effect done but not recorded: %w", o.step, ErrLeaseLost)
	}
	return nil
}

// release gives the claim back because of err, which it returns. The handler's
// context may have ended; the release must not.
func (o *once[A, B]) release(ctx context.Context, req ClaimRequest, rel ReleaseRequest, err error) error {
	rel.RecordID, rel.Claim, rel.Reason = req.RecordID, req.Claim, strip(err).Error()
	ctx = context.WithoutCancel(ctx)
	_, rerr := repeated(ctx, claimTries, func() ([]bool, error) {
		ctx, cancel := context.WithTimeout(ctx, o.cfg.Lease/claimTries)
		defer cancel()
		return o.st.Release(ctx, []ReleaseRequest{rel})
	})
	if rerr != nil {
		// The lease will run out instead.
		return &releaseError{err: err, release: rerr}
	}
	return err
}

// releaseError keeps the marks of err visible: errors.As finds them first.
type releaseError struct{ err, release error }

func (e *releaseError) Error() string {
	return fmt.Sprintf("%v (and the claim was not released: %v)", e.err, e.release)
}
func (e *releaseError) Unwrap() []error { return []error{e.err, e.release} }

// resolve settles an unknown record by asking Resolve. cause is the handler's
// error, if it just ran.
func (o *once[A, B]) resolve(ctx context.Context, id RecordID, v A, cause error) (b B, again bool, err error) {
	unknown := fmt.Errorf("once %s: %w", o.step, ErrUnknownOutcome)
	if cause != nil {
		unknown = fmt.Errorf("%w: %w", unknown, strip(cause))
	}
	if o.cfg.Resolve == nil {
		return b, false, unknown
	}
	b, happened, err := o.cfg.Resolve(ctx, v)
	if err != nil {
		var zero B
		return zero, false, fmt.Errorf("once %s: resolve: %w", o.step, err)
	}
	res := Resolution{RecordID: id, To: StateWaiting}
	if happened {
		res.To = StateCompleted
		if !o.none {
			if data, err := o.cfg.Encode(b); err == nil {
				res.Result, res.HasResult = data, true
			}
		}
	}
	if _, err := repeated(ctx, claimTries, func() ([]bool, error) {
		return o.st.Resolve(ctx, []Resolution{res})
	}); err != nil {
		var zero B
		return zero, false, fmt.Errorf("once %s: resolve: %w", o.step, err)
	}
	if !happened && cause != nil {
		var zero B
		return zero, false, strip(cause) // the stage's backoff decides when it runs again
	}
	return b, !happened, nil
}

// withTakeover makes InfoFrom say that another owner may have begun.
func withTakeover(ctx context.Context, takeover bool) context.Context {
	if !takeover {
		return ctx
	}
	c, ok := ctx.Value(infoKey{}).(infoCarrier)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, infoKey{}, takenOver{c})
}

type takenOver struct{ infoCarrier }

func (t takenOver) info() Info {
	i := t.infoCarrier.info()
	i.Takeover = true
	return i
}
