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
	// it the item is a dead letter with reason unknown. (After a Goexit there is
	// nobody to ask: Resolve is called when the item comes again.) A panic becomes a
	// *PanicError. By default the function is run again (at least once), with
	// Info.Takeover set when another process had begun.
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

	// Payload is what the record keeps of v when it is given up or unknown, for a
	// person to look at and for Redriven. Default: JSON, or nothing where v can't
	// be encoded.
	Payload func(v A) []byte

	// Lease is how long a claim holds without being renewed, which happens every
	// third of it for as long as the function runs. When it can't be renewed in time
	// the function's context ends with cause ErrLeaseLost. 0: DefaultLease.
	Lease time.Duration

	// MaxTakeovers is how often a key whose owner vanished may be taken over,
	// before it is ErrMaxTakeovers. With AtMostOnce that is asked once Resolve has
	// said that the effect did not happen. 0: DefaultMaxTakeovers. Negative: no limit.
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
	if cfg.Payload == nil {
		cfg.Payload = jsonPayload[A]
	}
	o := &once[A, B]{st: st, step: step, cfg: cfg, fn: fn, none: none, owner: ownerName()}
	return o.call
}

func jsonPayload[A any](v A) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return data
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
		ctx, cancel := context.WithTimeout(ctx, o.cfg.Lease/claimTries)
		defer cancel()
		sent = time.Now()
		return o.st.Claim(ctx, []ClaimRequest{req})
	})
	if err != nil {
		o.unclaim(ctx, req) // the answer may have been yes
		return b, false, fmt.Errorf("once %s: claim: %w", o.step, err)
	}
	ans := answers[0]
	switch ans.Status {
	case ClaimAcquired:
		return o.own(ctx, req, ans, sent, v)
	case ClaimCompleted:
		if b, err = o.result(ans.Result, ans.HasResult); err == nil {
			Replayed(ctx)
		}
		return b, false, err
	case ClaimBusy, ClaimWaiting:
		return b, false, fmt.Errorf("once %s: %w", o.step, busy(ans))
	case ClaimMismatch:
		return b, false, fmt.Errorf("once %s: %w", o.step, ErrMismatch)
	case ClaimUnknown:
		return o.resolve(ctx, id, ans, v, nil)
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
	if err = protect(func() (err error) { b, err = o.cfg.Decode(data); return err }); err != nil {
		var zero B
		return zero, Permanent(fmt.Errorf("once %s: %w: %w", o.step, ErrNoResult, err))
	}
	return b, nil
}

// encode returns what is recorded of a result: nothing when it can't be encoded,
// since a done effect does not fail for its result.
func (o *once[A, B]) encode(b B) (data []byte, has bool) {
	if o.none {
		return nil, false
	}
	if err := protect(func() (err error) { data, err = o.cfg.Encode(b); return err }); err != nil {
		return nil, false
	}
	return data, true
}

// errNoReturn is the reason in the record of a handler that panicked or called
// Goexit.
var errNoReturn = errors.New("handler did not return")

// own runs the function under the claim. Whatever way it ends, the claim is
// completed or released.
func (o *once[A, B]) own(ctx context.Context, req ClaimRequest, ans ClaimAnswer, sent time.Time, v A) (b B, again bool, err error) {
	if ans.Takeover && o.tooOften(ans) {
		return b, false, o.release(ctx, req, ReleaseRequest{To: ToFailed}, v, o.takenOverTooOften(ans))
	}
	if err := unfit(ctx, req, sent); err != nil {
		o.unclaim(ctx, req)
		return b, false, fmt.Errorf("once %s: not begun: %w", o.step, err)
	}
	lease := holdLease(ctx, o.st, req, sent)
	defer lease.end()
	acted, settled := false, false
	defer func() {
		// A panic or Goexit passes through. An error has nowhere to go from here; then
		// the lease runs out instead.
		switch {
		case settled:
		case acted: // Encode did not return
			_ = o.complete(ctx, lease, Completion{RecordID: req.RecordID, Claim: req.Claim})
		case o.cfg.AtMostOnce:
			_ = o.release(ctx, req, ReleaseRequest{To: ToUnknown}, v, errNoReturn)
		default:
			_ = o.release(ctx, req, ReleaseRequest{To: ToFailed}, v, errNoReturn)
		}
	}()
	b, err = o.run(withStep(lease.ctx, o.step, ans), v)
	if err == nil {
		acted = true
		done := Completion{RecordID: req.RecordID, Claim: req.Claim}
		done.Result, done.HasResult = o.encode(b)
		settled = true
		return b, false, o.complete(ctx, lease, done)
	}
	if context.Cause(lease.ctx) == ErrLeaseLost && !errors.Is(err, ErrLeaseLost) {
		err = fmt.Errorf("%w; handler said: %w", ErrLeaseLost, err)
	}
	rel := o.releaseOf(ctx, err)
	err = o.release(ctx, req, rel, v, err)
	settled = true
	if rel.To == ToUnknown && !errors.Is(err, ErrLeaseLost) {
		return o.resolve(ctx, req.RecordID, ans, v, err)
	}
	var zero B
	return zero, false, err
}

// payload returns what the record keeps of v.
func (o *once[A, B]) payload(v A) (data []byte) {
	err := protect(func() error { data = o.cfg.Payload(v); return nil })
	if err != nil {
		return nil // what is given up must not be held up by its description
	}
	return data
}

func (o *once[A, B]) tooOften(ans ClaimAnswer) bool {
	return o.cfg.MaxTakeovers > 0 && ans.Takeovers > o.cfg.MaxTakeovers
}

func (o *once[A, B]) takenOverTooOften(ans ClaimAnswer) error {
	return fmt.Errorf("once %s: %w (%d times)", o.step, ErrMaxTakeovers, ans.Takeovers)
}

// unfit says why nothing may begin under a claim, if so: ctx has ended, or the
// store's answer took so long that the lease may be over.
func unfit(ctx context.Context, req ClaimRequest, sent time.Time) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case leaseLeft(req.Lease, sent) <= 0:
		return ErrLeaseLost
	}
	return nil
}

// run calls the function. AtMostOnce needs a panic as an error, to ask Resolve.
func (o *once[A, B]) run(ctx context.Context, v A) (b B, err error) {
	if o.cfg.AtMostOnce {
		defer func() {
			if r := recover(); r != nil {
				err = crashError(r)
			}
		}()
	}
	return o.fn(ctx, v)
}

// releaseOf says what becomes of the claim after an error of the function.
func (o *once[A, B]) releaseOf(ctx context.Context, err error) ReleaseRequest {
	j := judge(err)
	switch {
	case j.kind == markSnooze && errors.Is(err, ErrBusy): // of a step inside this one; the stage says when to ask again
		return ReleaseRequest{To: ToWaiting, Uncounted: true}
	case j.kind == markSnooze:
		return ReleaseRequest{To: ToWaiting, Delay: j.delay, Uncounted: true}
	case o.cfg.AtMostOnce && j.kind != markNotApplied:
		return ReleaseRequest{To: ToUnknown}
	case context.Cause(ctx) == ErrDrainTimeout:
		return ReleaseRequest{To: ToWaiting, Uncounted: true} // a shutdown is no attempt
	case j.kind == markPermanent:
		return ReleaseRequest{To: ToFailed}
	default:
		return ReleaseRequest{To: ToWaiting}
	}
}

// complete records that the effect is done, and tries for as long as the lease
// can be held, and a little longer: to fail now would be to run the function again.
func (o *once[A, B]) complete(ctx context.Context, lease *leaseHold, done Completion) error {
	ctx = context.WithoutCancel(ctx)
	began := time.Now()
	call := func() ([]bool, error) {
		if time.Since(began) > o.cfg.Lease {
			// Renewing works and this does not: it may be the result that the store refuses.
			done.Result, done.HasResult = nil, false
		}
		ctx, cancel := context.WithTimeout(ctx, o.cfg.Lease/claimTries)
		defer cancel()
		return o.st.Complete(ctx, []Completion{done})
	}
	lease.record()
	held, err := repeated(lease.ctx, 0, call)
	if err != nil { // the claim may still be ours, or completed with the reply lost
		held, err = repeated(ctx, claimTries, call)
	}
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
func (o *once[A, B]) release(ctx context.Context, req ClaimRequest, rel ReleaseRequest, v A, err error) error {
	rel.RecordID, rel.Claim, rel.Reason = req.RecordID, req.Claim, err.Error()
	if rel.To != ToWaiting {
		rel.Payload = o.payload(v)
	}
	ctx = context.WithoutCancel(ctx)
	held, rerr := repeated(ctx, claimTries, func() ([]bool, error) {
		ctx, cancel := context.WithTimeout(ctx, o.cfg.Lease/claimTries)
		defer cancel()
		return o.st.Release(ctx, []ReleaseRequest{rel})
	})
	switch {
	case rerr != nil: // the lease will run out instead
		return &releaseError{err: err, release: rerr}
	case !held[0] && !errors.Is(err, ErrLeaseLost): // another owner decides what becomes of the key
		return fmt.Errorf("%w; handler said: %w", ErrLeaseLost, err)
	}
	return err
}

// unclaim gives back a claim under which nothing has begun, if it is one. That
// it is not known whether it was a takeover does no harm: see withStep.
func (o *once[A, B]) unclaim(ctx context.Context, req ClaimRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.cfg.Lease/claimTries)
	defer cancel()
	_, _ = o.st.Release(ctx, []ReleaseRequest{{
		RecordID: req.RecordID, Claim: req.Claim, To: ToWaiting, Uncounted: true, Reason: "not begun",
	}})
}

// releaseError keeps the marks of err visible: errors.As finds them first.
type releaseError struct{ err, release error }

func (e *releaseError) Error() string {
	return fmt.Sprintf("%v (and the claim was not released: %v)", e.err, e.release)
}
func (e *releaseError) Unwrap() []error { return []error{e.err, e.release} }

// resolve settles an unknown record by asking Resolve. cause is the handler's
// error, if it just ran. again says that the store has to be asked again.
func (o *once[A, B]) resolve(ctx context.Context, id RecordID, ans ClaimAnswer, v A, cause error) (b B, again bool, err error) {
	var zero B
	if o.cfg.Resolve == nil {
		unknown := fmt.Errorf("once %s: %w", o.step, ErrUnknownOutcome)
		if cause != nil {
			unknown = fmt.Errorf("%w: %w", unknown, strip(cause))
		}
		return zero, false, Permanent(unknown) // whatever cause says
	}
	b, happened, err := o.cfg.Resolve(ctx, v)
	if err != nil {
		return zero, false, fmt.Errorf("once %s: resolve: %w", o.step, err)
	}
	res := Resolution{RecordID: id, Fence: ans.Fence, To: StateWaiting}
	switch {
	case happened:
		res.To = StateCompleted
		res.Result, res.HasResult = o.encode(b)
	case cause != nil && IsPermanent(cause):
		res.To = StateFailed
	case cause == nil && o.tooOften(ans):
		res.To = StateFailed
		cause = o.takenOverTooOften(ans)
	}
	ctx = context.WithoutCancel(ctx) // an answer is not to be thrown away
	done, err := repeated(ctx, claimTries, func() ([]bool, error) {
		ctx, cancel := context.WithTimeout(ctx, o.cfg.Lease/claimTries)
		defer cancel()
		return o.st.Resolve(ctx, []Resolution{res})
	})
	switch {
	case err != nil:
		return zero, false, fmt.Errorf("once %s: resolve: %w", o.step, err)
	case !happened && cause != nil:
		return zero, false, cause // the stage decides whether and when it runs again
	case !happened || !done[0]: // not done: it is no longer unknown, or not yet
		return zero, true, nil
	}
	return b, false, nil
}

// withStep tells InfoFrom of the step and what the store knows of its record. A
// takeover is remembered until the key is complete: who ran since may not have
// looked.
func withStep(ctx context.Context, step string, ans ClaimAnswer) context.Context {
	c, ok := ctx.Value(infoKey{}).(infoCarrier)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, infoKey{}, &stepInfo{c, step, ans.Attempt, ans.Takeovers > 0})
}

type stepInfo struct {
	infoCarrier
	step     string
	attempt  int
	takeover bool
}

func (s *stepInfo) info() Info {
	i := s.infoCarrier.info()
	i.Step = s.step
	i.Attempt = max(i.Attempt, s.attempt)
	i.Takeover = i.Takeover || s.takeover
	return i
}
