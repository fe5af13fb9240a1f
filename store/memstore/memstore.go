// Package memstore keeps the records of oncepipe in memory. It is the reference
// implementation of oncepipe.Store: read it to learn what a store must do. It
// serves tests, and processes whose memory of keys may end with them.
package memstore

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
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
	retention time.Duration
	maxResult int
	now       func() time.Time

	mu      sync.Mutex
	records map[oncepipe.RecordID]*record
}

var _ oncepipe.Store = (*Store)(nil)

// record is what is known of one key. The owner's right to it is claim: the
// zero id stands for nobody, and no request can carry it.
type record struct {
	state       oncepipe.State
	claim       oncepipe.ClaimID // of the latest acquisition
	fence       uint64
	attempt     int
	takeovers   int
	takeover    bool // the latest acquisition was one
	owner       string
	fingerprint string
	until       time.Time // claimed: end of the lease; waiting: when it is due
	expires     time.Time // completed, failed, waiting: when Prune may remove it
	reason      string
	payload     []byte
	result      []byte
	hasResult   bool
}

// New returns an empty Store.
func New(cfg Config) *Store {
	s := &Store{
		retention: cfg.Retention,
		maxResult: cfg.MaxResult,
		now:       cfg.Now,
		records:   make(map[oncepipe.RecordID]*record),
	}
	if s.retention <= 0 {
		s.retention = defaultRetention
	}
	if s.maxResult <= 0 {
		s.maxResult = defaultMaxResult
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Retention returns how long records are kept.
func (s *Store) Retention() time.Duration { return s.retention }

// Len returns the number of records.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

// Claim implements oncepipe.Store.
func (s *Store) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	for _, r := range reqs {
		switch {
		case r.Key == "":
			return nil, fmt.Errorf("memstore: claim: %w", oncepipe.ErrNoKey)
		case r.Claim == oncepipe.ClaimID{}:
			return nil, fmt.Errorf("memstore: claim %q: no claim id", r.Key)
		case r.Lease <= 0:
			return nil, fmt.Errorf("memstore: claim %q: lease of %v is not positive", r.Key, r.Lease)
		}
	}
	return each(ctx, s, reqs, s.claim)
}

func (s *Store) claim(now time.Time, req oncepipe.ClaimRequest) oncepipe.ClaimAnswer {
	r := s.records[req.RecordID]
	if r == nil {
		r = &record{state: oncepipe.StateAbsent, fingerprint: req.Fingerprint}
		s.records[req.RecordID] = r
	}
	status := r.meet(now, req)
	answer := oncepipe.ClaimAnswer{Status: status, Fence: r.fence, Takeovers: r.takeovers}
	switch status {
	case oncepipe.ClaimAcquired:
		answer.Attempt, answer.Takeover = r.attempt, r.takeover
	case oncepipe.ClaimBusy, oncepipe.ClaimWaiting:
		answer.Wait = max(r.until.Sub(now), 0)
	case oncepipe.ClaimCompleted:
		answer.Result, answer.HasResult = bytes.Clone(r.result), r.hasResult
	}
	return answer
}

// meet is the heart of the contract: what a claim finds, and what it makes of it.
func (r *record) meet(now time.Time, req oncepipe.ClaimRequest) oncepipe.ClaimStatus {
	if r.fingerprint != "" && req.Fingerprint != "" && r.fingerprint != req.Fingerprint {
		return oncepipe.ClaimMismatch
	}
	repeated := r.claim == req.Claim
	over := !r.until.After(now)
	switch r.state {
	case oncepipe.StateCompleted:
		return oncepipe.ClaimCompleted
	case oncepipe.StateUnknown:
		return oncepipe.ClaimUnknown
	case oncepipe.StateClaimed:
		switch {
		case repeated:
			r.until = now.Add(req.Lease)
			return oncepipe.ClaimAcquired
		case !over:
			return oncepipe.ClaimBusy
		case req.NoTakeover:
			r.state, r.claim, r.until = oncepipe.StateUnknown, oncepipe.ClaimID{}, time.Time{}
			return oncepipe.ClaimUnknown
		}
	case oncepipe.StateWaiting, oncepipe.StateFailed:
		if repeated || !over {
			return oncepipe.ClaimWaiting
		}
	}
	r.takeover = r.state == oncepipe.StateClaimed
	if r.takeover {
		r.takeovers++
	}
	r.state, r.claim, r.owner = oncepipe.StateClaimed, req.Claim, req.Owner
	r.fence++
	r.attempt++
	r.until, r.expires = now.Add(req.Lease), time.Time{}
	return oncepipe.ClaimAcquired
}

// Extend implements oncepipe.Store.
func (s *Store) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	for _, r := range reqs {
		if r.Lease <= 0 {
			return nil, fmt.Errorf("memstore: extend %q: lease of %v is not positive", r.Key, r.Lease)
		}
	}
	return each(ctx, s, reqs, func(now time.Time, req oncepipe.Extension) bool {
		r := s.owned(req.RecordID, req.Claim)
		if r == nil || r.state != oncepipe.StateClaimed {
			return false
		}
		r.until = now.Add(req.Lease)
		return true
	})
}

// Complete implements oncepipe.Store.
func (s *Store) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	return each(ctx, s, reqs, func(now time.Time, req oncepipe.Completion) bool {
		r := s.owned(req.RecordID, req.Claim)
		if r == nil || r.state != oncepipe.StateClaimed {
			return r != nil && r.state == oncepipe.StateCompleted
		}
		s.complete(r, now, req.Result, req.HasResult)
		return true
	})
}

func (s *Store) complete(r *record, now time.Time, result []byte, has bool) {
	r.state, r.until, r.expires = oncepipe.StateCompleted, time.Time{}, now.Add(s.retention)
	r.reason, r.payload = "", nil
	if has && len(result) <= s.maxResult {
		r.result, r.hasResult = bytes.Clone(result), true
	}
}

// Release implements oncepipe.Store.
func (s *Store) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	for _, r := range reqs {
		if r.To < oncepipe.ToWaiting || r.To > oncepipe.ToUnknown {
			return nil, fmt.Errorf("memstore: release %q: no state to release to (%d)", r.Key, r.To)
		}
	}
	return each(ctx, s, reqs, s.release)
}

var releasedTo = map[oncepipe.ReleaseTo]oncepipe.State{
	oncepipe.ToWaiting: oncepipe.StateWaiting,
	oncepipe.ToFailed:  oncepipe.StateFailed,
	oncepipe.ToUnknown: oncepipe.StateUnknown,
}

func (s *Store) release(now time.Time, req oncepipe.ReleaseRequest) bool {
	r := s.owned(req.RecordID, req.Claim)
	to := releasedTo[req.To]
	if r == nil || r.state != oncepipe.StateClaimed {
		return r != nil && r.state == to
	}
	r.state, r.reason = to, req.Reason
	switch req.To {
	case oncepipe.ToWaiting:
		// The payload of an earlier failure stays: until the key is complete it may
		// be the only copy.
		s.wait(r, now.Add(max(req.Delay, 0)))
		if req.Uncounted {
			r.attempt--
		}
	case oncepipe.ToFailed:
		r.until, r.expires, r.payload = time.Time{}, now.Add(s.retention), bytes.Clone(req.Payload)
	case oncepipe.ToUnknown:
		r.until, r.payload = time.Time{}, bytes.Clone(req.Payload)
	}
	return true
}

// wait keeps a record for the retention from when it is due, however far away
// that is.
func (s *Store) wait(r *record, due time.Time) {
	r.state, r.until, r.expires = oncepipe.StateWaiting, due, due.Add(s.retention)
}

// Lookup implements oncepipe.Store.
func (s *Store) Lookup(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
	return each(ctx, s, ids, func(now time.Time, id oncepipe.RecordID) oncepipe.Record {
		r := s.records[id]
		if r == nil {
			return oncepipe.Record{RecordID: id}
		}
		rec := oncepipe.Record{
			RecordID: id, State: r.state, Fence: r.fence, Attempt: r.attempt, Takeovers: r.takeovers,
			Owner: r.owner, Fingerprint: r.fingerprint, Reason: r.reason,
			Payload: bytes.Clone(r.payload), Result: bytes.Clone(r.result), HasResult: r.hasResult,
		}
		switch r.state {
		case oncepipe.StateClaimed:
			rec.Lease = r.until.Sub(now)
		case oncepipe.StateWaiting:
			rec.Wait = r.until.Sub(now)
		}
		if !r.expires.IsZero() {
			rec.Retention = r.expires.Sub(now)
		}
		return rec
	})
}

// Resolve implements oncepipe.Store.
func (s *Store) Resolve(ctx context.Context, reqs []oncepipe.Resolution) ([]bool, error) {
	for _, r := range reqs {
		switch r.To {
		case oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed:
		default:
			return nil, fmt.Errorf("memstore: resolve %q: can't be resolved to %v", r.Key, r.To)
		}
	}
	return each(ctx, s, reqs, func(now time.Time, req oncepipe.Resolution) bool {
		r := s.records[req.RecordID]
		if r == nil || r.state != oncepipe.StateUnknown {
			return false
		}
		r.claim = oncepipe.ClaimID{} // the claim that left it unknown has no say any more
		switch req.To {
		case oncepipe.StateCompleted:
			s.complete(r, now, req.Result, req.HasResult)
		case oncepipe.StateWaiting:
			s.wait(r, now)
		case oncepipe.StateFailed:
			r.state, r.expires = oncepipe.StateFailed, now.Add(s.retention)
		}
		return true
	})
}

// Forget implements oncepipe.Store.
func (s *Store) Forget(ctx context.Context, ids []oncepipe.RecordID, force bool) ([]bool, error) {
	return each(ctx, s, ids, func(now time.Time, id oncepipe.RecordID) bool {
		if r := s.records[id]; r != nil && r.state == oncepipe.StateClaimed && r.until.After(now) && !force {
			return false
		}
		delete(s.records, id)
		return true
	})
}

// Prune implements oncepipe.Store.
func (s *Store) Prune(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("memstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, pruned := s.now(), 0
	for id, r := range s.records {
		if pruned >= limit {
			break
		}
		if !r.expires.IsZero() && !r.expires.After(now) {
			delete(s.records, id)
			pruned++
		}
	}
	return pruned, nil
}

// owned returns the record if its latest acquisition was claim's.
func (s *Store) owned(id oncepipe.RecordID, claim oncepipe.ClaimID) *record {
	if r := s.records[id]; r != nil && r.claim == claim && claim != (oncepipe.ClaimID{}) {
		return r
	}
	return nil
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
