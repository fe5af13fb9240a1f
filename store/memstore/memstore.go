// Package memstore keeps the records of oncepipe in memory. It is the reference
// implementation of oncepipe.Store, and serves tests, and processes whose memory
// of keys may end with them.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// Config configures a Store. The zero value is usable.
type Config struct {
	// Retention is how long a record is kept after it was completed, failed, or
	// became due again. 7 days when it is not positive.
	Retention time.Duration

	// MaxResult is the size in bytes of the largest result that is recorded. A
	// larger one is left out, and its record is completed without a result.
	// 1 MiB when it is not positive.
	MaxResult int

	// Now is the store's clock. time.Now when it is nil.
	Now func() time.Time
}

const (
	defaultRetention = 7 * 24 * time.Hour
	defaultMaxResult = 1 << 20
)

// Store is an oncepipe.Store in memory. It grows until Prune is called.
type Store struct {
	rules record.Rules
	now   func() time.Time

	mu      sync.Mutex
	records map[record.ID]*entry
}

var _ oncepipe.Store = (*Store)(nil)

// entry is a record whose moments are times of the store's clock.
type entry struct {
	record.Record  // its own moments are not set
	ready, expires time.Time
}

// New returns an empty Store.
func New(cfg Config) *Store {
	s := &Store{
		rules:   record.Rules{Retention: cfg.Retention, MaxResult: cfg.MaxResult},
		now:     cfg.Now,
		records: make(map[record.ID]*entry),
	}
	if s.rules.Retention <= 0 {
		s.rules.Retention = defaultRetention
	}
	if s.rules.MaxResult <= 0 {
		s.rules.MaxResult = defaultMaxResult
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Retention returns how long records are kept.
func (s *Store) Retention() time.Duration { return s.rules.Retention }

// Len returns the number of records.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

// at returns the record as it is seen at now.
func (e *entry) at(now time.Time) record.Record {
	r := e.Record
	r.Ready, r.Expires = until(e.ready, now), until(e.expires, now)
	return r
}

func until(t, now time.Time) record.Time {
	if t.IsZero() {
		return record.Time{}
	}
	return record.In(t.Sub(now))
}

func moment(t record.Time, now time.Time) time.Time {
	if !t.Set {
		return time.Time{}
	}
	return now.Add(t.In)
}

// read returns the record of id as it is seen at now; an absent one is one, too.
func (s *Store) read(id oncepipe.RecordID, now time.Time) record.Record {
	key := record.Stored(id)
	if e := s.records[key]; e != nil {
		return e.at(now)
	}
	return record.Record{ID: key}
}

func (s *Store) write(r record.Record, now time.Time) {
	e := &entry{Record: r, ready: moment(r.Ready, now), expires: moment(r.Expires, now)}
	e.Ready, e.Expires = record.Time{}, record.Time{}
	s.records[r.ID] = e
}

// each lets the requests of a batch act one after the other, at one time.
func each[Q, A any](ctx context.Context, s *Store, reqs []Q, act func(time.Time, Q) A) ([]A, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	answers := make([]A, len(reqs))
	for i, req := range reqs {
		answers[i] = act(now, req)
	}
	return answers, nil
}

// change is each for requests that may change their records.
func change[Q, A any](ctx context.Context, s *Store, reqs []Q, idOf func(Q) oncepipe.RecordID, act func(*record.Record, Q) (A, bool)) ([]A, error) {
	return each(ctx, s, reqs, func(now time.Time, req Q) A {
		r := s.read(idOf(req), now)
		answer, changed := act(&r, req)
		if changed {
			s.write(r, now)
		}
		return answer
	})
}

func refused(err error) error { return fmt.Errorf("memstore: %w", err) }

// Claim implements oncepipe.Store.
func (s *Store) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	if err := record.CheckClaims(reqs); err != nil {
		return nil, refused(err)
	}
	return change(ctx, s, reqs, func(q oncepipe.ClaimRequest) oncepipe.RecordID { return q.RecordID }, (*record.Record).ClaimBy)
}

// Extend implements oncepipe.Store.
func (s *Store) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	if err := record.CheckExtensions(reqs); err != nil {
		return nil, refused(err)
	}
	return change(ctx, s, reqs, func(q oncepipe.Extension) oncepipe.RecordID { return q.RecordID }, (*record.Record).Extend)
}

// Complete implements oncepipe.Store.
func (s *Store) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return change(ctx, s, reqs, func(q oncepipe.Completion) oncepipe.RecordID { return q.RecordID },
		func(r *record.Record, q oncepipe.Completion) (held, changed bool) { return r.Complete(q, s.rules) })
}

// Release implements oncepipe.Store.
func (s *Store) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	if err := record.CheckReleases(reqs); err != nil {
		return nil, refused(err)
	}
	return change(ctx, s, reqs, func(q oncepipe.ReleaseRequest) oncepipe.RecordID { return q.RecordID },
		func(r *record.Record, q oncepipe.ReleaseRequest) (held, changed bool) { return r.Release(q, s.rules) })
}

// Resolve implements oncepipe.Store.
func (s *Store) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	if err := record.CheckResolutions(reqs); err != nil {
		return nil, refused(err)
	}
	return change(ctx, s, reqs, func(q oncepipe.Resolution) oncepipe.RecordID { return q.RecordID },
		func(r *record.Record, q oncepipe.Resolution) (done, changed bool) {
			done = r.Resolve(q, s.rules)
			return done, done
		})
}

// Lookup implements oncepipe.Store.
func (s *Store) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	return each(ctx, s, ids, func(now time.Time, id oncepipe.RecordID) oncepipe.Record {
		r := s.read(id, now)
		return r.Public(id)
	})
}

// Forget implements oncepipe.Store.
func (s *Store) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return each(ctx, s, ids, func(now time.Time, id oncepipe.RecordID) bool {
		r := s.read(id, now)
		if !r.MayForget(force) {
			return false
		}
		delete(s.records, r.ID)
		return true
	})
}

// List implements oncepipe.Store.
func (s *Store) List(ctx context.Context, q oncepipe.Query) ([]oncepipe.Record, error) {
	limit, err := record.CheckQuery(q)
	if err != nil {
		return nil, refused(err)
	}
	if err := ctx.Err(); err != nil {
		return nil, refused(err)
	}
	after := record.Stored(q.After)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var found []record.Record
	for id, e := range s.records {
		if e.State == q.State && (q.Namespace == "" || id.Namespace == oncepipe.StorageKey(q.Namespace)) && compare(id, after) > 0 {
			found = append(found, e.at(now))
		}
	}
	slices.SortFunc(found, func(a, b record.Record) int { return compare(a.ID, b.ID) })
	found = found[:min(len(found), limit)]
	recs := make([]oncepipe.Record, len(found))
	for i, r := range found {
		recs[i] = r.Public(r.RecordID())
	}
	return recs, nil
}

func compare(a, b record.ID) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key))
}

// Count implements oncepipe.Store.
func (s *Store) Count(ctx context.Context) (map[oncepipe.State]int, error) {
	if err := ctx.Err(); err != nil {
		return nil, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[oncepipe.State]int{}
	for _, e := range s.records {
		n[e.State]++
	}
	return n, nil
}

// Prune implements oncepipe.Store.
func (s *Store) Prune(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, pruned := s.now(), 0
	for id, e := range s.records {
		if pruned >= limit {
			break
		}
		if !e.expires.IsZero() && !e.expires.After(now) {
			delete(s.records, id)
			pruned++
		}
	}
	return pruned, nil
}
