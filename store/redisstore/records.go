package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

func itself(id oncepipe.RecordID) oncepipe.RecordID { return id }

func nothing(to []any, _ oncepipe.RecordID) []any { return to }

// Lookup implements oncepipe.Store.
func (st *Store) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	return call[oncepipe.RecordID, oncepipe.Record]{
		name: "lookup", script: st.scripts.lookup, id: itself, args: nothing, answer: shown,
	}.do(ctx, st, ids)
}

// shown reads what show.lua shows of the record of id.
func shown(id oncepipe.RecordID, reply any) (oncepipe.Record, error) {
	fields, ok := reply.([]any)
	if !ok || len(fields) != 11 {
		return oncepipe.Record{}, fmt.Errorf("%w: %T for a record", errReply, reply)
	}
	text := func(i int) string {
		s, _ := fields[i].(string) // nil where there is none
		return s
	}
	var bad error
	number := func(i int) int64 {
		if fields[i] == nil {
			return 0
		}
		n, err := strconv.ParseInt(text(i), 10, 64)
		if err != nil {
			bad = fmt.Errorf("%w: record of %.100q: %w", errReply, id.Key, err)
		}
		return n
	}
	when := func(i int) (t record.Time) {
		if n, ok := fields[i].(int64); ok {
			t = record.In(record.Duration(n))
		}
		return t
	}
	_, has := fields[8].(string)
	r := record.Record{
		State: oncepipe.State(number(0)), Fence: uint64(number(1)), Attempt: int(number(2)), Takeovers: int(number(3)),
		Owner: text(4), Fingerprint: text(5), Reason: text(6), Payload: []byte(text(7)),
		Result: []byte(text(8)), HasResult: has, Ready: when(9), Expires: when(10),
	}
	return r.Public(id), bad
}

// Resolve implements oncepipe.Store.
func (st *Store) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	if err := record.CheckResolutions(reqs); err != nil {
		return nil, refused(err)
	}
	return call[oncepipe.Resolution, bool]{
		name: "resolve", script: st.scripts.resolve, shared: []any{record.Milliseconds(st.cfg.Retention)},
		id: func(r oncepipe.Resolution) oncepipe.RecordID { return r.RecordID },
		args: func(to []any, r oncepipe.Resolution) []any {
			return st.appendResult(append(to, r.Fence, uint8(r.To)), r.Result, r.HasResult)
		},
		answer: yes[oncepipe.Resolution],
	}.do(ctx, st, reqs)
}

// Forget implements oncepipe.Store.
func (st *Store) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return call[oncepipe.RecordID, bool]{
		name: "forget", script: st.scripts.forget, shared: []any{flag(force)},
		id: itself, args: nothing, answer: yes[oncepipe.RecordID],
	}.do(ctx, st, ids)
}

// List implements oncepipe.Store.
func (st *Store) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	limit, err := record.CheckQuery(q)
	if err != nil {
		return nil, refused(err)
	}
	from, to := st.keys.record(record.Stored(q.After)), "+"
	if q.Namespace != "" {
		ns := st.keys.namespace(oncepipe.StorageKey(q.Namespace))
		from = max(from, ns)
		to = "(" + ns[:len(ns)-1] + "\x02" // what is behind nsEnd
	}
	cmd, err := st.run(ctx, st.scripts.list, st.keys.books, []any{uint8(q.State), "(" + from, to, limit})
	if err != nil {
		return nil, wrap("list", err)
	}
	found, err := cmd.Slice()
	if err != nil {
		return nil, wrap("list", err)
	}
	recs := make([]oncepipe.Record, len(found))
	for i, f := range found {
		if recs[i], err = st.listed(f); err != nil {
			return nil, wrap("list", err)
		}
	}
	return recs, nil
}

// listed reads a record of list.lua's: its name, and what show.lua shows.
func (st *Store) listed(reply any) (oncepipe.Record, error) {
	named, ok := reply.([]any)
	if ok && len(named) == 2 {
		if name, ok := named[0].(string); ok {
			return shown(st.keys.id(name).RecordID(), named[1])
		}
	}
	return oncepipe.Record{}, fmt.Errorf("%w: %T for a listed record", errReply, reply)
}

// Count implements oncepipe.Store. It is quick: the numbers are kept with the
// records.
func (st *Store) Count(ctx context.Context) (map[oncepipe.State]int, error) {
	cmd, err := st.run(ctx, st.scripts.count, st.keys.books, nil)
	if err != nil {
		return nil, wrap("count", err)
	}
	counts, err := cmd.Int64Slice()
	if err != nil {
		return nil, wrap("count", err)
	}
	n := map[oncepipe.State]int{}
	for i, count := range counts {
		if count > 0 {
			n[oncepipe.State(i+1)] = int(count)
		}
	}
	return n, nil
}

// pruneChunk is how many records are pruned by one script, which everybody else
// has to wait for.
const pruneChunk = 500

// Prune implements oncepipe.Store. Whatever the limit, it goes by small scripts,
// and lets others in between; where one of them fails, it tells how many the
// others have removed, beside the error.
func (st *Store) Prune(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, wrap("prune", err)
	}
	pruned := 0
	for pruned < limit {
		chunk := min(limit-pruned, pruneChunk)
		cmd, err := st.run(ctx, st.scripts.prune, st.keys.books, []any{chunk})
		if err != nil {
			return pruned, wrap("prune", err)
		}
		n, err := cmd.Int()
		if err != nil {
			return pruned, wrap("prune", err)
		}
		pruned += n
		if n < chunk {
			break
		}
	}
	return pruned, nil
}
