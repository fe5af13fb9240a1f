package redisstore

import (
	"context"
	"fmt"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// Claim implements oncepipe.Store.
func (st *Store) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	if err := record.CheckClaims(reqs); err != nil {
		return nil, refused(err)
	}
	return call[oncepipe.ClaimRequest, oncepipe.ClaimAnswer]{
		name: "claim", script: st.scripts.claim,
		id: func(r oncepipe.ClaimRequest) oncepipe.RecordID { return r.RecordID },
		args: func(to []any, r oncepipe.ClaimRequest) []any {
			return append(to, token(r.Claim), record.Milliseconds(r.Lease), r.Fingerprint, r.Owner, flag(r.NoTakeover))
		},
		answer: claimAnswer,
	}.do(ctx, st, reqs)
}

// token is a claim id as it is stored.
func token(id oncepipe.ClaimID) string { return string(id[:]) }

// claimAnswer reads what claim.lua answers: status, fence, takeovers, attempt,
// whether it is a takeover, wait, result. What is of no use is left out at the end.
func claimAnswer(_ oncepipe.ClaimRequest, reply any) (a oncepipe.ClaimAnswer, err error) {
	fields, ok := reply.([]any)
	if !ok || len(fields) < 3 {
		return a, fmt.Errorf("%w: %T for an answer", errReply, reply)
	}
	var n [6]int64
	for i := range min(len(fields), len(n)) {
		if n[i], ok = fields[i].(int64); !ok {
			return a, fmt.Errorf("%w: %T for a number", errReply, fields[i])
		}
	}
	a = oncepipe.ClaimAnswer{
		Status: oncepipe.ClaimStatus(n[0]), Fence: uint64(n[1]), Takeovers: int(n[2]),
		Attempt: int(n[3]), Takeover: n[4] == 1, Wait: record.Duration(n[5]),
	}
	if len(fields) > len(n) {
		var result string
		if result, a.HasResult = fields[len(n)].(string); a.HasResult {
			a.Result = []byte(result)
		}
	}
	return a, nil
}

// Extend implements oncepipe.Store.
func (st *Store) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	if err := record.CheckExtensions(reqs); err != nil {
		return nil, refused(err)
	}
	return call[oncepipe.Extension, bool]{
		name: "extend", script: st.scripts.extend,
		id: func(r oncepipe.Extension) oncepipe.RecordID { return r.RecordID },
		args: func(to []any, r oncepipe.Extension) []any {
			return append(to, token(r.Claim), record.Milliseconds(r.Lease))
		},
		answer: yes[oncepipe.Extension],
	}.do(ctx, st, reqs)
}

// Complete implements oncepipe.Store.
func (st *Store) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return call[oncepipe.Completion, bool]{
		name: "complete", script: st.scripts.complete, shared: []any{record.Milliseconds(st.cfg.Retention)},
		id: func(r oncepipe.Completion) oncepipe.RecordID { return r.RecordID },
		args: func(to []any, r oncepipe.Completion) []any {
			return st.appendResult(append(to, token(r.Claim)), r.Result, r.HasResult)
		},
		answer: yes[oncepipe.Completion],
	}.do(ctx, st, reqs)
}

// appendResult writes down a result, or that there is none, which a too large one
// is. It is copied: its caller may leave, and use it again, while it is being sent.
func (st *Store) appendResult(to []any, result []byte, has bool) []any {
	if !has || len(result) > st.cfg.MaxResult {
		return append(to, flag(false), "")
	}
	return append(to, flag(true), string(result))
}

var releasedTo = [...]oncepipe.State{
	oncepipe.ToWaiting: oncepipe.StateWaiting,
	oncepipe.ToFailed:  oncepipe.StateFailed,
	oncepipe.ToUnknown: oncepipe.StateUnknown,
}

// Release implements oncepipe.Store.
func (st *Store) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	if err := record.CheckReleases(reqs); err != nil {
		return nil, refused(err)
	}
	return call[oncepipe.ReleaseRequest, bool]{
		name: "release", script: st.scripts.release, shared: []any{record.Milliseconds(st.cfg.Retention)},
		id: func(r oncepipe.ReleaseRequest) oncepipe.RecordID { return r.RecordID },
		args: func(to []any, r oncepipe.ReleaseRequest) []any {
			return append(to, token(r.Claim), uint8(releasedTo[r.To]), record.Milliseconds(r.Delay), flag(r.Uncounted), r.Reason, string(r.Payload))
		},
		answer: yes[oncepipe.ReleaseRequest],
	}.do(ctx, st, reqs)
}
