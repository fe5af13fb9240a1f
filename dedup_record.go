package oncepipe

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	recordBatch = 256
	concluders  = 64 // settlements that a Dedup with a store makes at a time
)

// verdictOf is a settled tenant, whose record has to be brought up to date first.
type verdictOf[T any] struct {
	t     *tenant[T]
	v     verdict
	until time.Time // for releases: when the lease may run out instead
}

// recorder tells the store what became of claimed keys: one goroutine, one
// request for all that has queued. Only then do the guard and the sources hear of
// it. What it has is bounded, since the claimer waits while it has much.
type recorder[T any] struct {
	w       *claimer[T]
	down    *outage
	wake    chan struct{}
	freed   chan struct{} // there is room again
	closing chan struct{}
	ended   chan struct{}
	places  chan struct{} // of conclusions
	acks    sync.WaitGroup
	hung    error // the store did not answer after a hard stop: it isn't asked again

	mu      sync.Mutex
	queue   []verdictOf[T]
	backlog int // queued, or tried again
	full    bool
}

func newRecorder[T any](w *claimer[T]) *recorder[T] {
	return &recorder[T]{
		w:    w,
		down: newOutage(w.d.p.log, "keys can't be recorded; those that are done are not acked", "dedup", w.d.name),
		wake: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		closing: make(chan struct{}), ended: make(chan struct{}),
		places: make(chan struct{}, concluders),
	}
}

// settle takes the verdict on a tenant.
func (r *recorder[T]) settle(t *tenant[T], v verdict) {
	r.w.leave(t)
	switch {
	case !t.claim.asked:
		r.later(t, v)
		return
	case v.abandoned:
		// The handler goes on: its claim is not given back, but runs out.
		v.delay = max(v.delay, t.claim.req.Lease)
		r.conclude(t, v)
		return
	case v.complete():
		t.claim.hold.record()
	default:
		t.claim.letGo()
	}
	r.mu.Lock()
	r.queue = append(r.queue, verdictOf[T]{t: t, v: v})
	r.backlog++
	r.mu.Unlock()
	token(r.wake)
}

// conclude settles the item, its delivery and the copies.
func (r *recorder[T]) conclude(t *tenant[T], v verdict) {
	t.claim.letGo()
	defer r.w.d.p.letItemGo()
	t.e.conclude(v)
}

// room tells whether further keys may be claimed; if not, freed will say when.
func (r *recorder[T]) room() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = r.backlog >= r.w.policy.Window
	return !r.full
}

// run ends when closing is closed and nothing is left.
func (r *recorder[T]) run() {
	defer close(r.ended)
	var done, back []verdictOf[T]
	delay := time.Duration(0)
	for {
		for _, k := range r.take() {
			if k.v.complete() {
				done = append(done, k)
			} else {
				back = append(back, k)
			}
		}
		if len(done)+len(back) == 0 {
			delay = 0
			if !r.await() {
				return
			}
			continue
		}
		var lost []verdictOf[T]
		before := len(done) + len(back)
		done, lost = r.complete(done)
		back = r.release(append(back, lost...))
		left := len(done) + len(back)
		r.free(before - left)
		if left == 0 {
			continue
		}
		delay = min(max(2*delay, repeatMin), repeatMax)
		if !r.w.d.p.hard.Load() {
			sleep(r.w.d.p.handlers, delay)
		} else {
			time.Sleep(delay)
		}
	}
}

func (r *recorder[T]) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backlog
}

func (r *recorder[T]) take() []verdictOf[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.queue
	r.queue = nil
	return list
}

// await returns false when there will be nothing more.
func (r *recorder[T]) await() bool {
	select {
	case <-r.wake:
		return true
	case <-r.closing:
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.queue) > 0
	}
}

func (r *recorder[T]) free(n int) {
	r.mu.Lock()
	r.backlog -= n
	wake := r.full && r.backlog < r.w.policy.Window
	r.mu.Unlock()
	if wake {
		token(r.freed)
	}
}

// later concludes in a goroutine of its own where there is a source to be told,
// which may take its time.
func (r *recorder[T]) later(t *tenant[T], v verdict) {
	if !t.takenBack() {
		r.conclude(t, v)
		return
	}
	r.places <- struct{}{}
	r.acks.Go(func() {
		defer func() { <-r.places }()
		r.conclude(t, v)
	})
}

// call makes one request, on a context that the shutdown doesn't end.
func call[T, Q, A any](r *recorder[T], reqs []Q, fn func(context.Context, []Q) ([]A, error)) ([]A, error) {
	if r.hung != nil {
		return nil, r.hung
	}
	p := r.w.d.p
	last := p.hard.Load()
	ctx, cancel := p.settling(r.w.policy.Lease)
	defer cancel()
	answers, err := asked(len(reqs), func() ([]A, error) { return fn(ctx, reqs) })
	r.down.note(err)
	if err != nil && last && ctx.Err() != nil {
		r.hung = err
	}
	return answers, err
}

// complete records keys as done. It returns those to try again, and those that
// can't be recorded any more: their lease is lost, or the drain at its end.
func (r *recorder[T]) complete(list []verdictOf[T]) (again, lost []verdictOf[T]) {
	for len(list) > 0 {
		part := list[:min(len(list), recordBatch)]
		list = list[len(part):]
		reqs := make([]Completion, len(part))
		for i, k := range part {
			reqs[i] = Completion{RecordID: k.t.claim.req.RecordID, Claim: k.t.claim.req.Claim}
		}
		last := r.w.d.p.hard.Load() // before the call: one comes after it
		held, err := call(r, reqs, r.w.st.Complete)
		for i, k := range part {
			switch {
			case err == nil && held[i]:
				r.later(k.t, k.v)
			case err == nil:
				r.later(k.t, verdict{outcome: Returned, err: fmt.Errorf("done but not recorded: %w", ErrLeaseLost)})
			case last:
				k.v = verdict{outcome: Returned, err: fmt.Errorf("done but not recorded: %w: %w", ErrDrainTimeout, err)}
				lost = append(lost, k)
			case k.t.claim.lost():
				k.v = verdict{outcome: Returned, err: fmt.Errorf("done but not recorded: %w: %w", ErrLeaseLost, err)}
				lost = append(lost, k)
			default:
				again = append(again, k)
			}
		}
	}
	return again, lost
}

// release gives claims back. It returns those to try again, for SettleTimeout in
// all; then the lease runs out instead.
func (r *recorder[T]) release(list []verdictOf[T]) (again []verdictOf[T]) {
	for len(list) > 0 {
		part := list[:min(len(list), recordBatch)]
		list = list[len(part):]
		reqs := make([]ReleaseRequest, len(part))
		for i := range part {
			k := &part[i]
			if k.until.IsZero() {
				k.until = time.Now().Add(r.w.d.p.cfg.SettleTimeout)
				k.t.claim.letGo()
			}
			reqs[i] = k.t.claim.release(&k.v, k.t.payload(&k.v))
		}
		_, err := call(r, reqs, r.w.st.Release)
		for _, k := range part {
			if err == nil || r.hung != nil || !time.Now().Before(k.until) {
				if err != nil && k.v.outcome == Returned { // it would only meet its own claim
					k.v.delay = max(k.v.delay, r.w.policy.Lease)
				}
				r.later(k.t, k.v)
			} else {
				again = append(again, k)
			}
		}
	}
	return again
}

// payload is what a redrive of a dead letter needs: the value, where it can be
// encoded.
func (t *tenant[T]) payload(v *verdict) (b []byte) {
	if v.outcome == Dead {
		_ = protect(func() (err error) { b, err = json.Marshal(t.v); return err }) // not every value can be
	}
	return b
}

// finish works off what is left, and forces what nobody would settle any more:
// a source, or a store, that doesn't honour its context has it.
func (r *recorder[T]) finish() []AbandonedHandler {
	d := r.w.d
	if d.p.hard.Load() {
		for _, e := range d.entries() {
			e.scope.force(verdict{outcome: Returned, err: ErrDrainTimeout})
		}
	}
	close(r.closing)
	limit := 2*d.p.cfg.SettleTimeout + d.p.cfg.AbandonAfter
	if !within(limit, func() { <-r.ended; r.acks.Wait() }) {
		d.p.log.Error("oncepipe: claims were not given back in time", "dedup", d.name)
		return []AbandonedHandler{{Stage: d.name}}
	}
	return nil
}
