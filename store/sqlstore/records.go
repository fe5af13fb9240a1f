package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Claim implements oncepipe.Store.
func (st *Store) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	for _, r := range reqs {
		switch {
		case r.Key == "":
			return nil, fmt.Errorf("sqlstore: claim: %w", oncepipe.ErrNoKey)
		case r.Claim == oncepipe.ClaimID{}:
			return nil, fmt.Errorf("sqlstore: claim %q: no claim id", r.Key)
		case r.Lease <= 0:
			return nil, fmt.Errorf("sqlstore: claim %q: lease of %v is not positive", r.Key, r.Lease)
		}
	}
	return each(ctx, st, "claim", reqs,
		func(r oncepipe.ClaimRequest) oncepipe.RecordID { return r.RecordID },
		func(ctx context.Context, s *session, id storedID, r oncepipe.ClaimRequest) (oncepipe.ClaimAnswer, error) {
			return s.claim(ctx, id, r)
		})
}

// maxVanished is how often a record may be there and then not, when others
// forget or prune it at the same time.
const maxVanished = 10

var errVanishing = errors.New("record comes and goes")

func (s *session) claim(ctx context.Context, id storedID, req oncepipe.ClaimRequest) (oncepipe.ClaimAnswer, error) {
	for range maxVanished {
		fresh, err := s.change(ctx, insertClaimed, id.n(), id.k(), req.Claim[:], ms(req.Lease), text(req.Owner), []byte(req.Fingerprint))
		if err != nil {
			return oncepipe.ClaimAnswer{}, err
		}
		if fresh {
			return oncepipe.ClaimAnswer{Status: oncepipe.ClaimAcquired, Fence: 1, Attempt: 1}, nil
		}
		r, err := s.load(ctx, id)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return oncepipe.ClaimAnswer{}, err
		}
		return s.claimKnown(ctx, id, req, r)
	}
	return oncepipe.ClaimAnswer{}, fmt.Errorf("claim %q: %w", req.Key, errVanishing)
}

// claimKnown decides on a claim of a record that is there and locked.
func (s *session) claimKnown(ctx context.Context, id storedID, req oncepipe.ClaimRequest, r row) (oncepipe.ClaimAnswer, error) {
	answer := oncepipe.ClaimAnswer{Fence: r.fence, Takeovers: r.takeovers}
	mine, over := r.claim == req.Claim, r.ready <= 0
	switch {
	case differ(r.fp, req.Fingerprint):
		answer.Status = oncepipe.ClaimMismatch
		return answer, nil
	case r.state == oncepipe.StateCompleted:
		answer.Status, answer.Result, answer.HasResult = oncepipe.ClaimCompleted, r.result, r.hasResult
		return answer, nil
	case r.state == oncepipe.StateUnknown:
		answer.Status = oncepipe.ClaimUnknown
		return answer, nil
	case r.state == oncepipe.StateClaimed && mine:
		answer.Status, answer.Attempt, answer.Takeover = oncepipe.ClaimAcquired, r.attempt, r.tookOver
		return answer, s.must(ctx, extend, ms(req.Lease), id.n(), id.k(), req.Claim[:])
	case r.state == oncepipe.StateClaimed && !over:
		answer.Status, answer.Wait = oncepipe.ClaimBusy, r.ready
		return answer, nil
	case r.state == oncepipe.StateClaimed && req.NoTakeover:
		answer.Status = oncepipe.ClaimUnknown
		return answer, s.must(ctx, lapse, id.n(), id.k(), r.fence)
	case r.state != oncepipe.StateClaimed && (mine || !over):
		answer.Status, answer.Wait = oncepipe.ClaimWaiting, max(r.ready, 0)
		return answer, nil
	}
	takeover := r.state == oncepipe.StateClaimed
	answer.Status, answer.Takeover = oncepipe.ClaimAcquired, takeover
	answer.Fence, answer.Attempt, answer.Takeovers = r.fence+1, r.attempt+1, r.takeovers+one(takeover)
	return answer, s.must(ctx, acquire, req.Claim[:], one(takeover), one(takeover), ms(req.Lease), text(req.Owner),
		id.n(), id.k(), r.state, r.fence)
}

// must makes a change to a record that was loaded in the same transaction and so
// can't fail to be made; that it was not is no answer.
func (s *session) must(ctx context.Context, which statement, args ...any) error {
	switch changed, err := s.change(ctx, which, args...); {
	case err != nil:
		return err
	case !changed:
		return errors.New("record changed under its lock")
	}
	return nil
}

// Extend implements oncepipe.Store.
func (st *Store) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	for _, r := range reqs {
		if r.Lease <= 0 {
			return nil, fmt.Errorf("sqlstore: extend %q: lease of %v is not positive", r.Key, r.Lease)
		}
	}
	return each(ctx, st, "extend", reqs,
		func(r oncepipe.Extension) oncepipe.RecordID { return r.RecordID },
		func(ctx context.Context, s *session, id storedID, r oncepipe.Extension) (bool, error) {
			return s.held(ctx, id, r.Claim, oncepipe.StateClaimed, extend, ms(r.Lease), id.n(), id.k(), r.Claim[:])
		})
}

// Complete implements oncepipe.Store.
func (st *Store) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return each(ctx, st, "complete", reqs,
		func(r oncepipe.Completion) oncepipe.RecordID { return r.RecordID },
		func(ctx context.Context, s *session, id storedID, r oncepipe.Completion) (bool, error) {
			has, result := st.result(r.HasResult, r.Result)
			return s.held(ctx, id, r.Claim, oncepipe.StateCompleted,
				complete, ms(st.cfg.Retention), has, result, id.n(), id.k(), r.Claim[:])
		})
}

// Release implements oncepipe.Store.
func (st *Store) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	for _, r := range reqs {
		if r.To < oncepipe.ToWaiting || r.To > oncepipe.ToUnknown {
			return nil, fmt.Errorf("sqlstore: release %q: no state to release to (%d)", r.Key, r.To)
		}
	}
	return each(ctx, st, "release", reqs,
		func(r oncepipe.ReleaseRequest) oncepipe.RecordID { return r.RecordID },
		func(ctx context.Context, s *session, id storedID, r oncepipe.ReleaseRequest) (bool, error) {
			keep, delay := ms(st.cfg.Retention), ms(r.Delay)
			switch r.To {
			case oncepipe.ToWaiting:
				return s.held(ctx, id, r.Claim, oncepipe.StateWaiting,
					releaseWaiting, delay, delay+keep, one(r.Uncounted), text(r.Reason), id.n(), id.k(), r.Claim[:])
			case oncepipe.ToFailed:
				return s.held(ctx, id, r.Claim, oncepipe.StateFailed,
					releaseFailed, keep, text(r.Reason), r.Payload, id.n(), id.k(), r.Claim[:])
			default:
				return s.held(ctx, id, r.Claim, oncepipe.StateUnknown,
					releaseUnknown, text(r.Reason), r.Payload, id.n(), id.k(), r.Claim[:])
			}
		})
}

// held makes a change that only the owner of the claim may make. It is held as
// well when it was made before, so that the record is in the state after it.
func (s *session) held(ctx context.Context, id storedID, claim oncepipe.ClaimID, after oncepipe.State, which statement, args ...any) (bool, error) {
	changed, err := s.change(ctx, which, args...)
	if err != nil || changed {
		return changed, err
	}
	r, err := s.load(ctx, id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil && r.state == after && r.claim == claim && claim != oncepipe.ClaimID{}, err
}

// Resolve implements oncepipe.Store.
func (st *Store) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	for _, r := range reqs {
		switch r.To {
		case oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed:
		default:
			return nil, fmt.Errorf("sqlstore: resolve %q: can't be resolved to %v", r.Key, r.To)
		}
	}
	return each(ctx, st, "resolve", reqs,
		func(r oncepipe.Resolution) oncepipe.RecordID { return r.RecordID },
		func(ctx context.Context, s *session, id storedID, r oncepipe.Resolution) (bool, error) {
			if r.To == oncepipe.StateCompleted {
				has, result := st.result(r.HasResult, r.Result)
				return s.change(ctx, resolveCompleted, ms(st.cfg.Retention), has, result, id.n(), id.k())
			}
			return s.change(ctx, resolveOpen, r.To, ms(st.cfg.Retention), id.n(), id.k())
		})
}

// Forget implements oncepipe.Store.
func (st *Store) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return each(ctx, st, "forget", ids,
		func(id oncepipe.RecordID) oncepipe.RecordID { return id },
		func(ctx context.Context, s *session, id storedID, _ oncepipe.RecordID) (bool, error) {
			changed, err := s.change(ctx, forget, id.n(), id.k(), one(force))
			if err != nil || changed {
				return changed, err
			}
			_, err = s.load(ctx, id)
			if errors.Is(err, sql.ErrNoRows) {
				return true, nil
			}
			return false, err
		})
}

// Lookup implements oncepipe.Store.
func (st *Store) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	if st.inTx(ctx) {
		return nil, fmt.Errorf("sqlstore: lookup: %w", oncepipe.ErrInTx)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sqlstore: lookup: %w", err)
	}
	recs := make([]oncepipe.Record, len(ids))
	for i, id := range ids {
		r, err := st.find(ctx, stored(id))
		if err != nil {
			return nil, fmt.Errorf("sqlstore: lookup %.100q: %w", id.Key, err)
		}
		recs[i] = r.record(id)
	}
	return recs, nil
}

// find reads a record outside of any transaction.
func (st *Store) find(ctx context.Context, id storedID) (r row, err error) {
	err = st.patiently(ctx, func() (bool, error) {
		r, err = scan(st.prepared[load].QueryRowContext(ctx, id.n(), id.k()))
		return st.again(err), err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, nil
	}
	return r, err
}

func (r row) record(id oncepipe.RecordID) oncepipe.Record {
	rec := oncepipe.Record{
		RecordID: id, State: r.state, Fence: r.fence, Attempt: r.attempt, Takeovers: r.takeovers,
		Owner: r.owner, Fingerprint: r.fp, Reason: r.reason, Payload: r.payload, Result: r.result, HasResult: r.hasResult,
	}
	switch r.state {
	case oncepipe.StateClaimed:
		rec.Lease = r.ready
	case oncepipe.StateWaiting:
		rec.Wait = r.ready
	}
	if r.expires.Valid {
		rec.Retention = time.Duration(r.expires.Int64) * time.Millisecond
	}
	return rec
}

// pruneChunk is how many records are pruned in one transaction, which claims
// have to wait for.
const pruneChunk = 500

// Prune implements oncepipe.Store. Whatever the limit, it goes by small
// transactions, and lets others in between.
func (st *Store) Prune(ctx context.Context, limit int) (int, error) {
	if st.inTx(ctx) {
		return 0, fmt.Errorf("sqlstore: prune: %w", oncepipe.ErrInTx)
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("sqlstore: prune: %w", err)
	}
	pruned := 0
	for pruned < limit {
		chunk := min(limit-pruned, pruneChunk)
		n, err := st.pruneSome(ctx, chunk)
		pruned += n
		if err != nil {
			return pruned, fmt.Errorf("sqlstore: prune: %w", err)
		}
		if n < chunk {
			break
		}
	}
	return pruned, nil
}

func (st *Store) pruneSome(ctx context.Context, limit int) (pruned int, err error) {
	unlock, err := st.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	err = st.transact(ctx, func(s *session) error {
		n, err := s.exec(ctx, prune, limit)
		pruned = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return pruned, nil
}

// each makes an item of every request and returns the answers in their order.
func each[Q, A any](ctx context.Context, st *Store, what string, reqs []Q, idOf func(Q) oncepipe.RecordID,
	act func(context.Context, *session, storedID, Q) (A, error),
) ([]A, error) {
	answers := make([]A, len(reqs))
	items := make([]item, len(reqs))
	for i, req := range reqs {
		id := stored(idOf(req))
		req = own(req)
		items[i] = item{id, func(ctx context.Context, s *session) (err error) {
			answers[i], err = act(ctx, s, id, req)
			return err
		}}
	}
	if err := st.write(ctx, items); err != nil {
		return nil, fmt.Errorf("sqlstore: %s: %w", what, err)
	}
	return answers, nil
}

// own copies the bytes of a request: its caller may leave, and use them again,
// while another one is writing them.
func own[Q any](req Q) Q {
	switch r := any(&req).(type) {
	case *oncepipe.Completion:
		r.Result = bytes.Clone(r.Result)
	case *oncepipe.ReleaseRequest:
		r.Payload = bytes.Clone(r.Payload)
	case *oncepipe.Resolution:
		r.Result = bytes.Clone(r.Result)
	}
	return req
}

// result returns what is recorded of a result.
func (st *Store) result(has bool, result []byte) (int, []byte) {
	if !has || len(result) > st.cfg.MaxResult {
		return 0, nil
	}
	return 1, result
}

// differ compares fingerprints; an empty one is like any other.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// text makes s fit for a text column anywhere.
func text(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\ufffd"), "\ufffd")
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
