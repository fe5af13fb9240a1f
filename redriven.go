package oncepipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// DefaultRedrivenInterval is how often Redriven looks into the store.
const DefaultRedrivenInterval = 5 * time.Second

const (
	// redrivenHold is how long a record that one process has taken up is left
	// alone by the others.
	redrivenHold = 5 * time.Minute

	// redrivenSettling is longer than a pipeline repeats a settlement.
	redrivenSettling = 5 * time.Minute

	// maxRedriven is how many records a source has delivered and not heard of, or
	// got back. Beyond it looks for no more.
	maxRedriven = 10_000

	// redrivenNotes begins the namespaces of the notes. No namespace that Key made
	// begins so.
	redrivenNotes = "%redriven/"
)

// RedrivenConfig adjusts Redriven. The zero value is usable.
type RedrivenConfig[T any] struct {
	// Decode turns a record's payload into the value. Default: JSON. What it has an
	// error for becomes failed again, with that reason.
	Decode func(payload []byte) (T, error)

	// Key returns a value's key. It is needed for keys that are longer than
	// MaxStorageKey only, since their records have just a hash; without it, these
	// become failed again.
	Key func(v T) string

	// Interval is how often to look into the store. 0: DefaultRedrivenInterval.
	Interval time.Duration
}

// Redriven is a source of the records of a namespace that were redriven: by
// Redrive, here or in any other process. The namespace is that of the letters,
// Key(pipeline, stage) for those of DeadLettersIn and Once, and the values are
// what went into that stage: let the source join in front of it, with Merge.
//
// A record is delivered with its key, and in one process not again before it is
// settled. When the delivery is done, so is the record, by the stage's Once or Tx
// or else by this source; when it is dead and the new letter was not written over
// the record, this source makes it failed again. One that is returned, or whose
// process died, is delivered again: by this process after the delay, by another
// one no sooner than five minutes after it was taken up. So it may run twice,
// and in two processes at once, unless Once or Tx stand behind it whose step
// has the name of the stage.
//
// To deliver what a dead process had, the source keeps a note of each record
// until it is settled: a waiting record in a namespace that begins with
// "%redriven/".
//
// Receive ends only with its context.
func Redriven[T any](st Store, namespace string, cfg RedrivenConfig[T]) Source[T] {
	if cfg.Decode == nil {
		cfg.Decode = func(payload []byte) (v T, err error) { return v, json.Unmarshal(payload, &v) }
	}
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultRedrivenInterval
	}
	return &redriven[T]{
		clerk: clerk{st, ownerName()}, cfg: cfg,
		namespace: namespace, notes: redrivenNotes + namespace,
		held: map[string]time.Time{},
	}
}

type redriven[T any] struct {
	clerk
	cfg              RedrivenConfig[T]
	namespace, notes string

	// Of Receive alone.
	ready []Record // to be delivered
	part  int      // of the round
	after RecordID // in the part's list

	mu   sync.Mutex
	held map[string]time.Time // by stored key: not to be delivered before; zero while in flight
}

// id and note name the records of a stored key.
func (s *redriven[T]) id(key string) RecordID {
	return RecordID{Namespace: StorageKey(s.namespace), Key: key, Stored: true}
}

func (s *redriven[T]) note(key string) RecordID {
	return RecordID{Namespace: StorageKey(s.notes), Key: key, Stored: true}
}

// Receive implements Source.
func (s *redriven[T]) Receive(ctx context.Context) (Delivery[T], error) {
	for {
		for len(s.ready) > 0 {
			r := s.ready[0]
			s.ready = s.ready[1:]
			v, key, err := s.read(r)
			if err == nil {
				s.hold(r.Key, time.Time{})
				d := &redrivenSettlement[T]{redriven: s, r: r}
				return Delivery[T]{Value: v, Key: key, Settle: d.settle}, nil
			}
			if err := s.finishWith(ctx, r.Key, s.failingAgain(r, err)); err != nil {
				return Delivery[T]{}, s.wrap(r.Key, err)
			}
		}
		over, err := s.look(ctx)
		if err != nil {
			return Delivery[T]{}, fmt.Errorf("redriven records of %s: %w", s.namespace, err)
		}
		if over && !sleep(ctx, s.cfg.Interval) {
			return Delivery[T]{}, ctx.Err()
		}
	}
}

func (s *redriven[T]) wrap(key string, err error) error {
	return fmt.Errorf("redriven record %s of %s: %w", key, s.namespace, err)
}

// read decodes a record.
func (s *redriven[T]) read(r Record) (v T, key string, err error) {
	err = protect(func() (err error) { v, err = s.cfg.Decode(r.Payload); return err })
	if err != nil {
		return v, "", fmt.Errorf("payload can't be decoded: %w", err)
	}
	if !strings.HasPrefix(r.Key, storageHash) {
		return v, r.Key, nil
	}
	if s.cfg.Key == nil {
		return v, "", errors.New("the record has only a hash of its key, and RedrivenConfig has no Key")
	}
	err = protect(func() error { key = s.cfg.Key(v); return nil })
	if err == nil && StorageKey(key) != r.Key {
		err = fmt.Errorf("RedrivenConfig.Key returns another key, %.300q", key)
	}
	return v, key, err
}

// look makes one step of a round, which puts records into ready: those that came
// back to this process and are due; those that were redriven; and those of which
// there is a note and no sign of life. over says that the round is.
func (s *redriven[T]) look(ctx context.Context) (over bool, err error) {
	if s.full() {
		s.part, s.after = 0, RecordID{}
	}
	switch s.part {
	case 0:
		keys := s.due()
		if len(keys) == 0 {
			s.part++
			return s.full(), nil
		}
		return false, s.takeAgain(ctx, keys)
	case 1:
		page, err := s.page(ctx, s.namespace)
		if err != nil {
			return false, err
		}
		return false, s.take(ctx, page)
	default:
		page, err := s.page(ctx, s.notes)
		if err != nil {
			return false, err
		}
		var keys []string
		for _, note := range page {
			if note.Wait <= 0 && !s.has(note.Key) {
				keys = append(keys, note.Key)
			}
		}
		return s.part == 0, s.takeAgain(ctx, keys)
	}
}

// page reads the next page of a part, and with the last one goes on to the next part.
func (s *redriven[T]) page(ctx context.Context, namespace string) ([]Record, error) {
	page, err := s.st.List(ctx, Query{State: StateWaiting, Namespace: namespace, After: s.after})
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		s.part, s.after = (s.part+1)%3, RecordID{}
	} else {
		s.after = page[len(page)-1].RecordID
	}
	return page, nil
}

// take takes up records that were redriven, after a note was made of each. Where
// there is a note already, another process was quicker.
func (s *redriven[T]) take(ctx context.Context, page []Record) error {
	var fresh []Record
	var claims []ClaimRequest
	for _, r := range page {
		if r.Attempt > 0 || r.Wait > 0 || len(r.Payload) == 0 || s.has(r.Key) {
			continue
		}
		fresh = append(fresh, r)
		claims = append(claims, ClaimRequest{RecordID: s.note(r.Key), Claim: NewClaimID(), Lease: DefaultLease, Owner: s.owner})
	}
	if len(fresh) == 0 {
		return nil
	}
	answers, err := s.st.Claim(ctx, claims)
	if err != nil {
		return fmt.Errorf("claim notes: %w", err)
	}
	var ours []Record
	var releases []ReleaseRequest
	for i, c := range claims {
		if answers[i].Status == ClaimAcquired {
			ours = append(ours, fresh[i])
			releases = append(releases, ReleaseRequest{RecordID: c.RecordID, Claim: c.Claim, To: ToWaiting, Delay: redrivenHold, Uncounted: true, Reason: "delivered"})
		}
	}
	if len(ours) == 0 {
		return nil
	}
	held, err := s.st.Release(ctx, releases)
	if err != nil {
		return fmt.Errorf("make notes: %w", err)
	}
	for i, r := range ours {
		if held[i] {
			s.ready = append(s.ready, r)
		}
	}
	return nil
}

// takeAgain takes up records that were taken up before. Notes of those about
// which there is nothing left to do are removed.
func (s *redriven[T]) takeAgain(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	ids := make([]RecordID, len(keys))
	for i, key := range keys {
		ids[i] = s.id(key)
	}
	recs, err := s.st.Lookup(ctx, ids)
	if err != nil {
		return fmt.Errorf("look up: %w", err)
	}
	var over []RecordID
	for i, r := range recs {
		r.RecordID = ids[i]
		switch {
		case idle(r) && len(r.Payload) > 0:
			s.ready = append(s.ready, r)
		case r.State == StateClaimed || r.State == StateWaiting: // somebody is at it
			s.postpone(r.Key)
		default:
			over = append(over, s.note(r.Key))
			s.free(r.Key)
		}
	}
	if len(over) == 0 {
		return nil
	}
	if _, err := s.st.Forget(ctx, over, true); err != nil {
		return fmt.Errorf("remove notes: %w", err)
	}
	return nil
}

// idle tells that nobody acts on a record which is not at its end.
func idle(r Record) bool {
	return r.State == StateWaiting && r.Wait <= 0 || r.State == StateClaimed && r.Lease <= 0
}

// redrivenSettlement is the end of one delivery. Its calls come one after the other.
type redrivenSettlement[T any] struct {
	*redriven[T]
	r   Record  // as it was delivered
	end *action // once it is decided
}

func (d *redrivenSettlement[T]) settle(ctx context.Context, out Settlement) error {
	if out.Outcome == Returned || out.Outcome == Shed {
		d.hold(d.r.Key, time.Now().Add(out.Delay))
		return nil
	}
	if err := d.finish(ctx, out); err != nil {
		d.hold(d.r.Key, time.Now().Add(redrivenSettling)) // when this was the last time that it is tried
		return d.wrap(d.r.Key, err)
	}
	d.free(d.r.Key)
	return nil
}

// finish leads the record to its end, if nobody has done so, and removes the
// note, unless somebody still acts on the record.
func (d *redrivenSettlement[T]) finish(ctx context.Context, out Settlement) error {
	if d.end == nil {
		recs, err := d.st.Lookup(ctx, []RecordID{d.id(d.r.Key)})
		if err != nil {
			return fmt.Errorf("look up: %w", err)
		}
		now := recs[0]
		switch {
		case now.State == StateClaimed && now.Lease > 0:
			return nil
		case idle(now) && out.Outcome == Dead:
			d.end = d.failingAgain(now, out.Err)
		case idle(now) && now.Fence == d.r.Fence:
			d.end = d.completing(d.id(d.r.Key))
		}
	}
	return d.finishWith(ctx, d.r.Key, d.end)
}

func (s *redriven[T]) failingAgain(r Record, why error) *action {
	return s.failing(s.id(r.Key), fmt.Sprintf("redriven: %v", why), r.Payload)
}

// finishWith ends a record, where there is something to do for that.
func (s *redriven[T]) finishWith(ctx context.Context, key string, end *action) error {
	if end != nil {
		status, err := end.do(ctx)
		if err != nil || status == ClaimBusy || status == ClaimWaiting {
			return err
		}
	}
	return s.removeNote(ctx, key)
}

func (s *redriven[T]) removeNote(ctx context.Context, key string) error {
	if _, err := s.st.Forget(ctx, []RecordID{s.note(key)}, true); err != nil {
		return fmt.Errorf("remove note: %w", err)
	}
	return nil
}

func (s *redriven[T]) hold(key string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[key] = until
}

func (s *redriven[T]) free(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, key)
}

// postpone looks at a record again in the next round, if it is one of ours.
func (s *redriven[T]) postpone(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ours := s.held[key]; ours {
		s.held[key] = time.Now().Add(s.cfg.Interval)
	}
}

func (s *redriven[T]) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ours := s.held[key]
	return ours
}

func (s *redriven[T]) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) >= maxRedriven
}

// due returns some keys that came back and whose delay is over.
func (s *redriven[T]) due() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var keys []string
	for key, at := range s.held {
		if !at.IsZero() && !now.Before(at) {
			if keys = append(keys, key); len(keys) == DefaultListLimit {
				break
			}
		}
	}
	return keys
}
