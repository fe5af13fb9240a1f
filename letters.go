package oncepipe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
)

// DeadLettersIn keeps dead letters in st, for Config.DeadLetters: each is a
// record in state failed, with the reason, the error and what encode makes of
// the letter. Without encode that is the value as JSON, as Once keeps it. List
// and Records find the letters, Redrive hands them back.
//
// The record's namespace is Key(l.Namespace, l.Stage) and its key the item's, so
// that in a stage whose step has the stage's name it is the record of Once or Tx
// itself. A letter that comes again takes the place of the one before. Where the
// item must not take the key's record, the letter is kept beside it:
//
//   - Reason mismatch: in Key(l.Namespace, l.Stage, "mismatch"), as Key(key, hash of
//     the payload). The key's own record is that of the other payload. A redrive
//     runs the value under this new key.
//   - Reason no key: in Key(l.Namespace, l.Stage, "no key"), under its payload's
//     content key, so that two items of the same content are one letter.
//   - The record is unknown and has no payload: in Key(l.Namespace, l.Stage,
//     "unknown"). One that has a payload is listed as it is and stays so.
//   - The record is completed, or waits out a time: in Key(l.Namespace, l.Stage,
//     "completed") or "waiting". To send the item back would not end: what made a
//     letter of it, such as ErrNoResult, would do so again.
//
// Letters are records like others: after the store's retention they are pruned.
//
// An error means that nothing was kept, and so the item goes back to its source:
// ErrBusy when another process acts on the key, or the store's error. A value
// that encode has an error for doesn't come back for ever: its letter is kept
// without payload, and its reason has the beginning of the value as text.
func DeadLettersIn(st Store, encode func(l DeadLetter) ([]byte, error)) func(context.Context, DeadLetter) error {
	if encode == nil {
		encode = func(l DeadLetter) ([]byte, error) { return json.Marshal(l.Value) }
	}
	k := &letterKeeper{clerk{st, ownerName()}, encode}
	return k.keep
}

type letterKeeper struct {
	clerk
	encode func(DeadLetter) ([]byte, error)
}

func (k *letterKeeper) keep(ctx context.Context, l DeadLetter) error {
	reason := fmt.Sprintf("%s: %v", l.Reason, l.Err)
	var payload []byte
	err := protect(func() (err error) { payload, err = k.encode(l); return err })
	if err != nil {
		payload = nil
		reason += fmt.Sprintf(" (no payload: %v; value: %.500s)", err, fmt.Sprintf("%+v", l.Value))
	}
	id := letterID(l, payload)
	status, err := k.write(ctx, id, reason, payload)
	switch {
	case err != nil:
	case status == ClaimUnknown:
		return k.besideUnknown(ctx, l, id, reason, payload)
	case status == ClaimCompleted, status == ClaimWaiting:
		return k.beside(ctx, l, status.String(), reason, payload)
	}
	return letterError(id, status, err)
}

func (k *letterKeeper) write(ctx context.Context, id RecordID, reason string, payload []byte) (ClaimStatus, error) {
	a := k.failing(id, reason, payload)
	status, err := a.do(ctx)
	if err != nil {
		a.undo(ctx)
	}
	return status, err
}

// besideUnknown keeps the letter of a key whose record is unknown: only a person
// may change that one.
func (k *letterKeeper) besideUnknown(ctx context.Context, l DeadLetter, id RecordID, reason string, payload []byte) error {
	recs, err := k.st.Lookup(ctx, []RecordID{id})
	if err != nil {
		return letterError(id, ClaimUnknown, err)
	}
	if len(recs[0].Payload) > 0 || len(payload) == 0 {
		return nil
	}
	return k.beside(ctx, l, "unknown", reason, payload)
}

// beside keeps a letter next to the key's record, which stays as it is.
func (k *letterKeeper) beside(ctx context.Context, l DeadLetter, why, reason string, payload []byte) error {
	id := RecordID{Namespace: Key(l.records(), l.Stage, why), Key: l.Key}
	status, err := k.write(ctx, id, reason, payload)
	return letterError(id, status, err)
}

func letterError(id RecordID, status ClaimStatus, err error) error {
	switch {
	case err != nil:
	case status == ClaimAcquired:
		return nil
	case status == ClaimBusy, status == ClaimWaiting:
		err = ErrBusy
	default:
		err = fmt.Errorf("the key's record is %v", status)
	}
	return fmt.Errorf("keep dead letter %s of %s: %w", id.Key, id.Namespace, err)
}

// letterID names the record of a letter.
func letterID(l DeadLetter, payload []byte) RecordID {
	switch {
	case l.Key == "":
		return RecordID{Namespace: Key(l.records(), l.Stage, "no key"), Key: payloadKey(payload)}
	case l.Reason == ReasonMismatch:
		return RecordID{Namespace: Key(l.records(), l.Stage, "mismatch"), Key: Key(l.Key, payloadKey(payload))}
	default:
		return RecordID{Namespace: Key(l.records(), l.Stage), Key: l.Key}
	}
}

// payloadKey is a random one where there is no payload: letters that can't be
// compared are not the same.
func payloadKey(payload []byte) string {
	if len(payload) == 0 {
		return NewClaimID().String()
	}
	if key, err := ContentKeyJSON(payload); err == nil {
		return key
	}
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

// clerk acts on single records for want of a step that does.
type clerk struct {
	st    Store
	owner string
}

// action claims a record and ends the claim at once. It can be repeated until it
// has no error; its status is what the claim met.
type action struct {
	clerk
	req     ClaimRequest
	claimed bool
	give    func(context.Context) ([]bool, error)
}

// failing is the action that makes a record failed. A claim that its owner left
// becomes unknown: whether there was an effect isn't known here.
func (c clerk) failing(id RecordID, reason string, payload []byte) *action {
	a := c.action(id)
	a.req.NoTakeover = true
	a.give = func(ctx context.Context) ([]bool, error) {
		return c.st.Release(ctx, []ReleaseRequest{{RecordID: id, Claim: a.req.Claim, To: ToFailed, Reason: reason, Payload: payload}})
	}
	return a
}

// completing is the action that completes a record, without a result.
func (c clerk) completing(id RecordID) *action {
	a := c.action(id)
	a.give = func(ctx context.Context) ([]bool, error) {
		return c.st.Complete(ctx, []Completion{{RecordID: id, Claim: a.req.Claim}})
	}
	return a
}

func (c clerk) action(id RecordID) *action {
	return &action{clerk: c, req: ClaimRequest{RecordID: id, Claim: NewClaimID(), Lease: DefaultLease, Owner: c.owner}}
}

func (a *action) do(ctx context.Context) (ClaimStatus, error) {
	if !a.claimed {
		answers, err := repeated(ctx, claimTries, func() ([]ClaimAnswer, error) {
			return a.st.Claim(ctx, []ClaimRequest{a.req})
		})
		if err != nil {
			return 0, fmt.Errorf("claim: %w", err)
		}
		if status := answers[0].Status; status != ClaimAcquired {
			return status, nil
		}
		a.claimed = true
	}
	held, err := repeated(ctx, claimTries, func() ([]bool, error) { return a.give(ctx) })
	switch {
	case err != nil:
		return ClaimAcquired, fmt.Errorf("give the claim back: %w", err)
	case !held[0]:
		return ClaimAcquired, ErrLeaseLost
	}
	return ClaimAcquired, nil
}

// undo gives the claim of an action back that had an error, if there is one. Else
// it ends with its lease.
func (a *action) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.req.Lease/claimTries)
	defer cancel()
	_, _ = a.st.Release(ctx, []ReleaseRequest{{
		RecordID: a.req.RecordID, Claim: a.req.Claim, To: ToWaiting, Uncounted: true, Reason: "not begun",
	}})
}

// Records lists the records of a query page by page, in the order of List. The
// query's Limit is the size of a page. A record that comes into the state behind
// the place where the listing is will be seen, one before it will not, and none
// is seen twice. An error ends the listing.
func Records(ctx context.Context, st Store, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for page, err := range pages(ctx, st, q) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// pages never yields an empty page.
func pages(ctx context.Context, st Store, q Query) iter.Seq2[[]Record, error] {
	return func(yield func([]Record, error) bool) {
		for {
			page, err := st.List(ctx, q)
			if err != nil {
				yield(nil, fmt.Errorf("list %v records: %w", q.State, err))
				return
			}
			if len(page) == 0 || !yield(page, nil) {
				return
			}
			q.After = page[len(page)-1].RecordID
		}
	}
}

// Redrive puts dead letters back to be run again: failed records, and unknown
// ones, of which that says that their effect has not happened. They wait then,
// their attempts counted anew. done[i] is false, and nothing is changed, when
// recs[i] has no payload, since there is nothing to run, when it is in another
// state, or when somebody has acted on it since it was read. After an error it
// is not known of the rest; to redrive them again does no harm.
//
// The way back into a pipeline is the source Redriven, in any process. Where the
// pipeline runs in this one, Pipeline.Inject with the record's key and decoded
// payload is another: Once and Tx take a failed record up without Redrive. The
// letter of a stage without them stays failed then, until it is resolved.
func Redrive(ctx context.Context, st Store, recs []Record) (done []bool, err error) {
	done = make([]bool, len(recs))
	for from := 0; from < len(recs); from += DefaultListLimit {
		to := min(from+DefaultListLimit, len(recs))
		if err := redrive(ctx, st, recs[from:to], done[from:to]); err != nil {
			return done, err
		}
	}
	return done, nil
}

func redrive(ctx context.Context, st Store, recs []Record, done []bool) error {
	var reqs []Resolution
	var last []int // of each record's resolutions
	of := make([]int, 0, len(recs))
	for i, r := range recs {
		if len(r.Payload) == 0 || r.State != StateFailed && r.State != StateUnknown {
			continue
		}
		res := Resolution{RecordID: r.RecordID, Fence: r.Fence, To: StateFailed}
		if r.State == StateUnknown { // only what has failed begins anew
			reqs = append(reqs, res)
		}
		res.To = StateWaiting
		reqs = append(reqs, res)
		last, of = append(last, len(reqs)-1), append(of, i)
	}
	if len(reqs) == 0 {
		return nil
	}
	answers, err := st.Resolve(ctx, reqs)
	if err != nil {
		return fmt.Errorf("redrive: %w", err)
	}
	for j, i := range of {
		done[i] = answers[last[j]]
	}
	return nil
}

// RedriveAll redrives every failed record of a namespace, or of all where that
// is empty, each once: what fails again meanwhile is not met a second time. It
// returns how many it redrove, and how many it left since they have no payload.
func RedriveAll(ctx context.Context, st Store, namespace string) (redriven, left int, err error) {
	for page, err := range pages(ctx, st, Query{State: StateFailed, Namespace: namespace}) {
		if err != nil {
			return redriven, left, err
		}
		done, err := Redrive(ctx, st, page)
		for i, r := range page {
			switch {
			case done[i]:
				redriven++
			case len(r.Payload) == 0:
				left++
			}
		}
		if err != nil {
			return redriven, left, err
		}
	}
	return redriven, left, nil
}
