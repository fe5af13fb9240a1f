package record

import (
	"context"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Core has the methods of oncepipe.Store that don't need to know the database.

// Retention returns how long records are kept.
func (c *Core[N]) Retention() time.Duration { return c.cfg.Retention }

// Claim is that of oncepipe.Store.
func (c *Core[N]) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	if err := CheckClaims(reqs); err != nil {
		return nil, c.refused(err)
	}
	return each(ctx, c, "claim", reqs,
		func(q oncepipe.ClaimRequest) oncepipe.RecordID { return q.RecordID }, (*Record).ClaimBy)
}

// Extend is that of oncepipe.Store.
func (c *Core[N]) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	if err := CheckExtensions(reqs); err != nil {
		return nil, c.refused(err)
	}
	return each(ctx, c, "extend", reqs,
		func(q oncepipe.Extension) oncepipe.RecordID { return q.RecordID }, (*Record).Extend)
}

// Complete is that of oncepipe.Store.
func (c *Core[N]) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return each(ctx, c, "complete", reqs,
		func(q oncepipe.Completion) oncepipe.RecordID { return q.RecordID },
		func(r *Record, q oncepipe.Completion) (held, changed bool) { return r.Complete(q, c.cfg.Rules) })
}

// Release is that of oncepipe.Store.
func (c *Core[N]) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	if err := CheckReleases(reqs); err != nil {
		return nil, c.refused(err)
	}
	return each(ctx, c, "release", reqs,
		func(q oncepipe.ReleaseRequest) oncepipe.RecordID { return q.RecordID },
		func(r *Record, q oncepipe.ReleaseRequest) (held, changed bool) { return r.Release(q, c.cfg.Rules) })
}

// Resolve is that of oncepipe.Store.
func (c *Core[N]) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	if err := CheckResolutions(reqs); err != nil {
		return nil, c.refused(err)
	}
	return each(ctx, c, "resolve", reqs,
		func(q oncepipe.Resolution) oncepipe.RecordID { return q.RecordID },
		func(r *Record, q oncepipe.Resolution) (done, changed bool) {
			done = r.Resolve(q, c.cfg.Rules)
			return done, done
		})
}

// Forget is that of oncepipe.Store.
func (c *Core[N]) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return each(ctx, c, "forget", ids,
		func(id oncepipe.RecordID) oncepipe.RecordID { return id },
		func(r *Record, _ oncepipe.RecordID) (gone, changed bool) {
			if !r.MayForget(force) {
				return false, false
			}
			there := r.State != oncepipe.StateAbsent
			*r = Record{ID: r.ID}
			return true, there
		})
}

// Lookup is that of oncepipe.Store.
func (c *Core[N]) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	if err := c.ready(ctx); err != nil {
		return nil, c.wrap("lookup", err)
	}
	found, err := c.read(ctx, distinct(ids))
	if err != nil {
		return nil, c.wrap("lookup", err)
	}
	recs := make([]oncepipe.Record, len(ids))
	for i, id := range ids {
		r := found[Stored(id)]
		recs[i] = r.Public(id)
	}
	return recs, nil
}

func distinct(ids []oncepipe.RecordID) []ID {
	seen := make(map[ID]bool, len(ids))
	var stored []ID
	for _, id := range ids {
		if s := Stored(id); !seen[s] {
			seen[s] = true
			stored = append(stored, s)
		}
	}
	return stored
}

func (c *Core[N]) read(ctx context.Context, ids []ID) (map[ID]Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var found []Record
	err := c.patiently(ctx, func() (err error) {
		found, err = c.db.Read(ctx, ids)
		return err
	})
	return byID(found), err
}

// List lets read find the records of q, and shows them.
func (c *Core[N]) List(ctx context.Context, q oncepipe.Query, read func(ctx context.Context, after ID, limit int) ([]Record, error)) ([]oncepipe.Record, error) {
	limit, err := CheckQuery(q)
	if err != nil {
		return nil, c.refused(err)
	}
	if err := c.ready(ctx); err != nil {
		return nil, c.wrap("list", err)
	}
	var found []Record
	err = c.patiently(ctx, func() (err error) {
		found, err = read(ctx, Stored(q.After), limit)
		return err
	})
	if err != nil {
		return nil, c.wrap("list", err)
	}
	recs := make([]oncepipe.Record, len(found))
	for i, r := range found {
		recs[i] = r.Public(r.RecordID())
	}
	return recs, nil
}

// Count lets count look.
func (c *Core[N]) Count(ctx context.Context, count func(context.Context) (map[oncepipe.State]int, error)) (n map[oncepipe.State]int, err error) {
	if err := c.ready(ctx); err != nil {
		return nil, c.wrap("count", err)
	}
	err = c.patiently(ctx, func() (err error) {
		n, err = count(ctx)
		return err
	})
	return n, c.wrap("count", err)
}

// pruneChunk is how many records are pruned in one transaction, which claims
// may have to wait for.
const pruneChunk = 500

// Prune is that of oncepipe.Store. Whatever the limit, it goes by small
// transactions, and lets others in between.
func (c *Core[N]) Prune(ctx context.Context, limit int) (int, error) {
	if err := c.ready(ctx); err != nil {
		return 0, c.wrap("prune", err)
	}
	pruned := 0
	for pruned < limit {
		chunk := min(limit-pruned, pruneChunk)
		n, err := c.pruneSome(ctx, chunk)
		pruned += n
		if err != nil {
			return pruned, c.wrap("prune", err)
		}
		if n < chunk {
			break
		}
	}
	return pruned, nil
}

func (c *Core[N]) pruneSome(ctx context.Context, limit int) (pruned int, err error) {
	if c.cfg.OneWriter {
		unlock, err := lock(ctx, c.changes.writer)
		if err != nil {
			return 0, err
		}
		defer unlock()
	}
	err = c.patiently(ctx, func() (err error) {
		pruned, err = c.db.Prune(ctx, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return pruned, nil
}
