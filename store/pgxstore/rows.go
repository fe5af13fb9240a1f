package pgxstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// array is one argument for many rows.
type array[T any] = pgtype.FlatArray[T]

// columnsOf returns the arguments that make rows of recs, one for each column.
func columnsOf(recs []record.Record) []any {
	n := len(recs)
	ns, keys, claims, fps := make(array[[]byte], n), make(array[[]byte], n), make(array[[]byte], n), make(array[[]byte], n)
	payloads, results := make(array[[]byte], n), make(array[[]byte], n)
	states, tookOver, hasResult := make(array[int16], n), make(array[int16], n), make(array[int16], n)
	fences, attempts, takeovers := make(array[int64], n), make(array[int32], n), make(array[int32], n)
	ready, expires := make(array[pgtype.Int8], n), make(array[pgtype.Int8], n)
	owners, reasons := make(array[string], n), make(array[string], n)
	for i := range recs {
		r := &recs[i]
		ns[i], keys[i] = []byte(r.Namespace), []byte(r.Key)
		states[i], claims[i], fences[i] = int16(r.State), r.Claim[:], int64(r.Fence)
		attempts[i], takeovers[i], tookOver[i] = int32(r.Attempt), int32(r.Takeovers), one(r.TookOver)
		ready[i], expires[i] = moment(r.Ready), moment(r.Expires)
		owners[i], fps[i], reasons[i] = record.Text(r.Owner), []byte(r.Fingerprint), record.Text(r.Reason)
		payloads[i], hasResult[i], results[i] = r.Payload, one(r.HasResult), r.Result
	}
	return []any{
		ns, keys, states, claims, fences, attempts, takeovers, tookOver, ready, expires,
		owners, fps, reasons, payloads, hasResult, results,
	}
}

// columnsOfIDs returns the arguments that say which rows.
func columnsOfIDs(ids []record.ID) []any {
	ns, keys := make(array[[]byte], len(ids)), make(array[[]byte], len(ids))
	for i, id := range ids {
		ns[i], keys[i] = []byte(id.Namespace), []byte(id.Key)
	}
	return []any{ns, keys}
}

func idsOf(recs []record.Record) []record.ID {
	ids := make([]record.ID, len(recs))
	for i := range recs {
		ids[i] = recs[i].ID
	}
	return ids
}

func moment(t record.Time) pgtype.Int8 {
	if !t.Set {
		return pgtype.Int8{}
	}
	return pgtype.Int8{Int64: record.Milliseconds(t.In), Valid: true}
}

func distance(n pgtype.Int8) record.Time {
	if !n.Valid {
		return record.Time{}
	}
	return record.In(record.Duration(n.Int64))
}

func one(yes bool) int16 {
	if yes {
		return 1
	}
	return 0
}

// scanRecords reads all that a SELECT of records found.
func scanRecords(rows pgx.Rows) (recs []record.Record, err error) {
	var ns, key, claim, fp, payload, result []byte
	var owner, reason pgtype.Text
	var ready, expires pgtype.Int8
	var state, tookOver, hasResult int16
	var fence int64
	var attempt, takeovers int32
	fields := []any{
		&ns, &key, &state, &claim, &fence, &attempt, &takeovers, &tookOver, &ready, &expires,
		&owner, &fp, &reason, &payload, &hasResult, &result,
	}
	_, err = pgx.ForEachRow(rows, fields, func() error {
		r := record.Record{
			ID:    record.ID{Namespace: string(ns), Key: string(key)},
			State: oncepipe.State(state), Fence: uint64(fence), Attempt: int(attempt),
			Takeovers: int(takeovers), TookOver: tookOver != 0,
			Ready: distance(ready), Expires: distance(expires),
			Owner: owner.String, Fingerprint: string(fp), Reason: reason.String,
			Payload: payload, Result: result, HasResult: hasResult != 0,
		}
		if len(claim) == len(r.Claim) { // else it is nobody's
			r.Claim = oncepipe.ClaimID(claim)
		}
		recs = append(recs, r)
		return nil
	})
	return recs, err
}

// scanIDs reads all that a statement on ids returned.
func scanIDs(rows pgx.Rows) (ids []record.ID, err error) {
	var ns, key []byte
	_, err = pgx.ForEachRow(rows, []any{&ns, &key}, func() error {
		ids = append(ids, record.ID{Namespace: string(ns), Key: string(key)})
		return nil
	})
	return ids, err
}
