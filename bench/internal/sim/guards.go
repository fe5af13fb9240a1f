package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

type handler = func(context.Context, parcel) error

// guarded puts the cell's guard where it belongs: before the buffer or around
// the effect.
func (p *process) guarded(in oncepipe.Stream[parcel], st oncepipe.Store) (oncepipe.Stream[parcel], handler) {
	c := p.w.cell
	name := func(v parcel) string { return v.key.name }
	switch c.Guard {
	case Entry:
		return oncepipe.Filter(in, marked()), p.act
	case Completed:
		return in, remembered(c.memory(), p.act)
	case Ours:
		return oncepipe.Dedup(in, "dedup", name, oncepipe.WithGuard(c.memory())), p.act
	case Store:
		return in, oncepipe.DoWith(st, "effect", oncepipe.OnceConfig[parcel, struct{}]{Lease: c.Lease}, p.act)
	case OursStore:
		out := oncepipe.Dedup(in, "dedup", name, oncepipe.WithStore(st),
			oncepipe.WithGuard(&orderly{Guard: c.memory(), clock: p.w.clock}),
			oncepipe.Claims(oncepipe.ClaimPolicy{Lease: c.Lease}))
		return oncepipe.Filter(out, p.spaced), p.act
	default:
		return in, p.act
	}
}

// memory is the one of the keys that are done.
func (c *Cell) memory() oncepipe.Guard {
	switch {
	case c.Capacity == 0:
		return oncepipe.SyncMap()
	case c.Ring:
		return oncepipe.Ring(c.Capacity)
	default:
		return oncepipe.LRU(c.Capacity)
	}
}

// marked lets a key pass once.
func marked() func(parcel) bool {
	seen := map[*key]bool{}
	return func(v parcel) bool {
		again := seen[v.key]
		seen[v.key] = true
		return !again
	}
}

// remembered has no effect for a key that is done.
func remembered(done oncepipe.Guard, act handler) handler {
	return func(ctx context.Context, v parcel) error {
		if done.Lookup(v.key.name, "") == oncepipe.GuardHit {
			return nil
		}
		if err := act(ctx, v); err != nil {
			return err
		}
		done.Add(v.key.name, "")
		return nil
	}
}

// spaced lets what was claimed with one request come out of the claim window at
// instants of their own.
func (p *process) spaced(parcel) bool {
	p.w.clock.sleep(p.w.clock.now()+1, ofClaimed)
	return true
}

// orderly is a guard that doesn't depend on the order of keys that are added at
// one instant, as those that are recorded with one request are.
type orderly struct {
	oncepipe.Guard
	clock *clock

	mu    sync.Mutex
	at    time.Duration // of the keys in added
	added []string
}

// Lookup implements oncepipe.Guard.
func (o *orderly) Lookup(key, fingerprint string) oncepipe.GuardAnswer {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	return o.Guard.Lookup(key, fingerprint)
}

// Add implements oncepipe.Guard.
func (o *orderly) Add(key, _ string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.clock.now(); now != o.at {
		o.flush()
		o.at = now
	}
	o.added = append(o.added, key)
}

func (o *orderly) flush() {
	slices.Sort(o.added)
	for _, key := range o.added {
		o.Guard.Add(key, "")
	}
	o.added = o.added[:0]
}

// link is a process's way to the store.
type link struct {
	*memstore.Store
	p *process
}

// call takes the store's time. What a dead process asked for is not heard.
func (l *link) call(s *slots, class time.Duration) error {
	l.p.inside.Add(1)
	defer l.p.inside.Done()
	if d := l.p.w.cell.StoreTime; d > 0 && !l.p.dead.Load() {
		s.sleep(l.p.w.clock, d, class)
	}
	if l.p.dead.Load() {
		return errKilled
	}
	return nil
}

// Claim implements oncepipe.Store.
func (l *link) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	if err := l.call(&l.p.claims, ofClaims); err != nil {
		return nil, err
	}
	answers, err := l.Store.Claim(ctx, reqs)
	for i, a := range answers {
		if a.Status == oncepipe.ClaimBusy || a.Status == oncepipe.ClaimWaiting {
			answers[i].Wait = l.p.w.clock.park(max(a.Wait, time.Millisecond))
		}
	}
	return answers, err
}

// Complete implements oncepipe.Store.
func (l *link) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	if err := l.call(&l.p.records, ofRecords); err != nil {
		return nil, err
	}
	return l.Store.Complete(ctx, reqs)
}

// Release implements oncepipe.Store.
func (l *link) Release(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
	if err := l.call(&l.p.records, ofRecords); err != nil {
		return nil, err
	}
	return l.Store.Release(ctx, reqs)
}

// Extend implements oncepipe.Store. Renewals take no time: they go on beside the
// work and hold nothing up.
func (l *link) Extend(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
	if l.p.dead.Load() {
		return nil, errKilled
	}
	return l.Store.Extend(ctx, reqs)
}
