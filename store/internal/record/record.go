// Package record is the life of a record, as the contract of oncepipe.Store
// tells it, without the database: what a request finds and what it makes of it.
// Stores read a Record, let requests act on it, and write it back.
package record

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
)

// ID names a record in the form in which it is stored.
type ID struct{ Namespace, Key string }

// Stored returns the stored form of id.
func Stored(id oncepipe.RecordID) ID {
	ns, key := id.StorageForm()
	return ID{ns, key}
}

// RecordID returns what people call the record.
func (id ID) RecordID() oncepipe.RecordID { return oncepipe.StoredID(id.Namespace, id.Key) }

// Time is a moment as the distance from now, or no moment at all.
type Time struct {
	In  time.Duration
	Set bool
}

// In is the moment at d from now.
func In(d time.Duration) Time { return Time{d, true} }

// over tells whether the moment is over, as one that isn't set always is.
func (t Time) over() bool { return !t.Set || t.In <= 0 }

// Milliseconds is d in milliseconds, rounded up, and one more, since a clock of
// milliseconds doesn't show how much of its own one is over: no lease and no wait
// ends too early.
func Milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 2
}

// Duration is n milliseconds; a time that is too far away is as far as there is.
func Duration(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}

// Text makes s fit for a text column of any database.
func Text(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\ufffd"), "\ufffd")
}

// Record is what is known of one key. The zero value is that of a key which is
// absent. Its owner's right is Claim: the zero id stands for nobody.
type Record struct {
	ID
	State       oncepipe.State
	Claim       oncepipe.ClaimID // of the latest acquisition
	Fence       uint64
	Attempt     int
	Takeovers   int
	TookOver    bool // the latest acquisition was a takeover
	Ready       Time // claimed: the end of the lease; waiting: when it is due
	Expires     Time // completed, failed, waiting: when Prune may remove it
	Owner       string
	Fingerprint string
	Reason      string
	Payload     []byte
	Result      []byte
	HasResult   bool
}

// Rules are what a store was configured with.
type Rules struct {
	Retention time.Duration
	MaxResult int
}

// differ compares fingerprints; an empty one is like any other.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// ClaimNew is the record that a claim makes where there was none.
func ClaimNew(req oncepipe.ClaimRequest) Record {
	r := Record{ID: Stored(req.RecordID)}
	r.claim(req)
	return r
}

// ClaimBy lets a claim act.
func (r *Record) ClaimBy(req oncepipe.ClaimRequest) (answer oncepipe.ClaimAnswer, changed bool) {
	status, changed := r.claim(req)
	answer = oncepipe.ClaimAnswer{Status: status, Fence: r.Fence, Takeovers: r.Takeovers}
	switch status {
	case oncepipe.ClaimAcquired:
		answer.Attempt, answer.Takeover = r.Attempt, r.TookOver
	case oncepipe.ClaimBusy, oncepipe.ClaimWaiting:
		answer.Wait = max(r.Ready.In, 0)
	case oncepipe.ClaimCompleted:
		answer.Result, answer.HasResult = bytes.Clone(r.Result), r.HasResult
	}
	return answer, changed
}

// claim is the heart of the contract.
func (r *Record) claim(req oncepipe.ClaimRequest) (status oncepipe.ClaimStatus, changed bool) {
	if differ(r.Fingerprint, req.Fingerprint) {
		return oncepipe.ClaimMismatch, false
	}
	repeated := r.Claim == req.Claim
	switch r.State {
	case oncepipe.StateCompleted:
		return oncepipe.ClaimCompleted, false
	case oncepipe.StateUnknown:
		return oncepipe.ClaimUnknown, false
	case oncepipe.StateClaimed:
		switch {
		case repeated:
			r.Ready = In(req.Lease)
			return oncepipe.ClaimAcquired, true
		case !r.Ready.over():
			return oncepipe.ClaimBusy, false
		case req.NoTakeover:
			r.State, r.Claim, r.Ready = oncepipe.StateUnknown, oncepipe.ClaimID{}, Time{}
			r.Takeovers++
			return oncepipe.ClaimUnknown, true
		}
	case oncepipe.StateWaiting, oncepipe.StateFailed:
		if repeated || !r.Ready.over() {
			return oncepipe.ClaimWaiting, false
		}
	case oncepipe.StateAbsent:
		r.Fingerprint = req.Fingerprint
	}
	r.acquire(req.Claim, oncepipe.StateClaimed)
	r.Owner, r.Ready, r.Expires = req.Owner, In(req.Lease), Time{}
	return oncepipe.ClaimAcquired, true
}

// acquire makes claim the owner.
func (r *Record) acquire(claim oncepipe.ClaimID, state oncepipe.State) {
	r.TookOver = r.State == oncepipe.StateClaimed
	if r.TookOver {
		r.Takeovers++
	}
	r.State, r.Claim = state, claim
	r.Fence++
	r.Attempt++
}

// heldBy tells whether claim is the owner's, and the record still claimed. said is the
// answer where it isn't: an operation that led to the state after it is held
// again when it is repeated.
func (r *Record) heldBy(claim oncepipe.ClaimID, after oncepipe.State) (held, said bool) {
	if r.Claim != claim || claim == (oncepipe.ClaimID{}) {
		return false, false
	}
	return r.State == oncepipe.StateClaimed, r.State == after
}

// Extend renews the lease.
func (r *Record) Extend(req oncepipe.Extension) (held, changed bool) {
	if held, _ := r.heldBy(req.Claim, oncepipe.StateAbsent); !held {
		return false, false
	}
	r.Ready = In(req.Lease)
	return true, true
}

// Complete records that the effect is done.
func (r *Record) Complete(req oncepipe.Completion, rules Rules) (held, changed bool) {
	if held, said := r.heldBy(req.Claim, oncepipe.StateCompleted); !held {
		return said, false
	}
	r.complete(req.Result, req.HasResult, rules)
	return true, true
}

func (r *Record) complete(result []byte, has bool, rules Rules) {
	r.State, r.Ready, r.Expires = oncepipe.StateCompleted, Time{}, In(rules.Retention)
	r.Reason, r.Payload = "", nil
	r.SetResult(result, has, rules)
}

// SetResult records a result, or that there is none, which a too large one is.
func (r *Record) SetResult(result []byte, has bool, rules Rules) {
	r.Result, r.HasResult = nil, has && len(result) <= rules.MaxResult
	if r.HasResult {
		r.Result = bytes.Clone(result)
	}
}

var releasedTo = [...]oncepipe.State{
	oncepipe.ToWaiting: oncepipe.StateWaiting,
	oncepipe.ToFailed:  oncepipe.StateFailed,
	oncepipe.ToUnknown: oncepipe.StateUnknown,
}

// Release gives the claim back.
func (r *Record) Release(req oncepipe.ReleaseRequest, rules Rules) (held, changed bool) {
	to := releasedTo[req.To]
	if held, said := r.heldBy(req.Claim, to); !held {
		return said, false
	}
	r.Reason = req.Reason
	switch req.To {
	case oncepipe.ToWaiting:
		// The payload of an earlier failure stays: until the key is complete it may
		// be the only copy.
		r.wait(max(req.Delay, 0), rules)
		if req.Uncounted {
			r.Attempt--
		}
	case oncepipe.ToFailed:
		r.State, r.Ready, r.Expires, r.Payload = to, Time{}, In(rules.Retention), bytes.Clone(req.Payload)
	case oncepipe.ToUnknown:
		r.State, r.Ready, r.Payload = to, Time{}, bytes.Clone(req.Payload)
	}
	return true, true
}

// wait keeps the record for the retention from when it is due, however far away
// that is.
func (r *Record) wait(delay time.Duration, rules Rules) {
	r.State, r.Ready, r.Expires = oncepipe.StateWaiting, In(delay), In(delay+rules.Retention)
}

// Resolve settles an unknown or failed record.
func (r *Record) Resolve(req oncepipe.Resolution, rules Rules) (changed bool) {
	failed := r.State == oncepipe.StateFailed
	if !failed && r.State != oncepipe.StateUnknown || r.Fence != req.Fence {
		return false
	}
	r.Claim = oncepipe.ClaimID{} // who had it has no say any more
	switch req.To {
	case oncepipe.StateCompleted:
		r.complete(req.Result, req.HasResult, rules)
	case oncepipe.StateWaiting:
		r.wait(0, rules)
		if failed {
			r.Attempt, r.Takeovers = 0, 0
		}
	case oncepipe.StateFailed:
		r.State, r.Ready, r.Expires = oncepipe.StateFailed, Time{}, In(rules.Retention)
	}
	return true
}

// errKnown says that the key is complete.
var errKnown = errors.New("key is complete")

// completedBy is the record that an effect makes where there was none.
func completedBy(id ID, claim oncepipe.ClaimID, fingerprint string, rules Rules) Record {
	return Record{
		ID: id, State: oncepipe.StateCompleted, Claim: claim, Fence: 1, Attempt: 1,
		Expires: In(rules.Retention), Fingerprint: fingerprint,
	}
}

// takeBy makes an effect's claim the owner of a record that nobody holds, and completes
// it in the same step.
func (r *Record) takeBy(claim oncepipe.ClaimID, fingerprint string, rules Rules) error {
	switch {
	case differ(r.Fingerprint, fingerprint):
		return oncepipe.ErrMismatch
	case r.State == oncepipe.StateCompleted:
		return errKnown
	case r.State == oncepipe.StateUnknown:
		return oncepipe.ErrUnknownOutcome
	case !r.Ready.over():
		return fmt.Errorf("%w (%v): %w", oncepipe.ErrBusy, r.State, oncepipe.Snooze(r.Ready.In))
	}
	r.acquire(claim, oncepipe.StateCompleted)
	r.complete(nil, false, rules)
	r.Owner = ""
	return nil
}

// MayForget tells whether the record may go: not while a claim on it is live.
func (r *Record) MayForget(force bool) bool {
	return force || r.State != oncepipe.StateClaimed || r.Ready.over()
}

// Public returns what the store's callers see.
func (r *Record) Public(id oncepipe.RecordID) oncepipe.Record {
	p := oncepipe.Record{
		RecordID: id, State: r.State, Fence: r.Fence, Attempt: r.Attempt, Takeovers: r.Takeovers,
		Owner: r.Owner, Fingerprint: r.Fingerprint, Reason: r.Reason,
		Payload: bytes.Clone(r.Payload), Result: bytes.Clone(r.Result), HasResult: r.HasResult,
	}
	switch r.State {
	case oncepipe.StateClaimed:
		p.Lease = r.Ready.In
	case oncepipe.StateWaiting:
		p.Wait = r.Ready.In
	}
	if r.Expires.Set {
		p.Retention = r.Expires.In
	}
	return p
}
