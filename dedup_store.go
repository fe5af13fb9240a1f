package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Defaults of ClaimPolicy.
const (
	DefaultClaimWindow = 512
	DefaultClaimWait   = time.Minute
)

// parkMost is the longest wait that a source that takes items back is spared.
const parkMost = time.Second

// WithStore puts st behind Dedup's guard, as its lasting memory: a key that
// guard and table don't know is claimed in the store before it is let through, and
// recorded there as done before anybody hears of it. The record is that of
// StepID for Dedup's name, so that no step of Once may have that name.
//
//   - A key that is done, here or in another process, now or before a restart: the copy is
//     a Duplicate.
//   - One that another process has, or that waits out a backoff there: the copy is
//     returned to its source with that time as its delay. A copy whose source takes nothing
//     back, or one with less than a second to go, waits and asks again.
//   - One whose owner vanished is taken over, with Info.Takeover set: what it did
//     may have happened.
//   - While the store can't be reached nothing is let through and nothing acked.
//     Items wait, the source with them, for ClaimPolicy.Wait each; then they are returned.
//   - A record that a person has to look at (StateUnknown, which Dedup itself never
//     leaves) is a dead letter.
//
// An item that ends as Done, Filtered or Duplicate is acked once the store has
// recorded it; one that can't be recorded until its lease is lost, or the drain at
// its end, is returned. Items that are returned or shed give their claim back
// before the source has them; those of dead letters are recorded as failed, with
// the reason and the value as JSON.
//
// The lease is renewed for as long as the item is behind Dedup, by the pipeline,
// which cares for st as for one of Config.Stores. When it is lost, the contexts
// of handlers end with cause ErrLeaseLost and the item is returned.
func WithStore(st Store) Option {
	return func(o *options) {
		o.set("WithStore")
		if o.store = st; st == nil {
			o.wrong("WithStore(nil)")
		}
	}
}

// ClaimPolicy says how a Dedup claims keys in its store.
type ClaimPolicy struct {
	// Lease is how long a claim holds without being renewed, which happens every
	// third of it. 0: DefaultLease.
	Lease time.Duration

	// Wait is how long an item may wait for its claim, while the store can't be
	// reached or another process has the key. Then it is returned; only items that
	// their source can't take back wait on for a store that can't be reached. 0: DefaultClaimWait.
	Wait time.Duration

	// Window is how many items may wait for their claim; the source waits for a
	// place. Half of them are asked for with one request while the others queue.
	// 0: DefaultClaimWindow.
	Window int

	// MaxTakeovers is how often a key whose owner vanished may be taken over,
	// before it is a dead letter with ErrMaxTakeovers. 0: DefaultMaxTakeovers.
	// Negative: no limit.
	MaxTakeovers int
}

func (c ClaimPolicy) check() error {
	var errs []error
	if c.Lease < 0 {
		errs = append(errs, errors.New("negative Lease"))
	}
	if c.Wait < 0 {
		errs = append(errs, errors.New("negative Wait"))
	}
	if c.Window < 0 {
		errs = append(errs, errors.New("negative Window"))
	}
	return errors.Join(errs...)
}

func (c ClaimPolicy) withDefaults() ClaimPolicy {
	if c.Lease <= 0 {
		c.Lease = DefaultLease
	}
	if c.Wait <= 0 {
		c.Wait = DefaultClaimWait
	}
	if c.Window <= 0 {
		c.Window = DefaultClaimWindow
	}
	if c.MaxTakeovers == 0 {
		c.MaxTakeovers = DefaultMaxTakeovers
	}
	return c
}

// Claims gives a Dedup with a store another ClaimPolicy than the zero value.
func Claims(c ClaimPolicy) Option {
	return func(o *options) {
		o.set("Claims")
		if err := c.check(); err != nil {
			o.wrong("Claims: %w", err)
		}
		o.claims = c
	}
}

// tenant is a key in flight that needs a claim.
type tenant[T any] struct {
	e     *entry[T]
	v     T
	claim *claim
	since time.Duration // when it came, on the pipeline's clock
	due   time.Duration // when to ask (again)
	gone  bool          // out of the window
}

// claimer is the claim window of a Dedup with a store: what waits for a claim
// in order of arrival, and one goroutine that asks for all that has queued.
// Only that goroutine uses the fields without a lock.
type claimer[T any] struct {
	d      *dedup[T]
	st     Store
	policy ClaimPolicy
	ns     string
	owner  string
	rec    *recorder[T]
	down   *outage
	queue  chan *tenant[T]
	most   int          // in batch and parked
	within atomic.Int64 // in the window

	closed bool         // the queue is, and empty
	batch  []*tenant[T] // to be asked for
	parked []*tenant[T] // to be asked for later
	ready  []*tenant[T] // to be emitted
	delay  time.Duration
}

func newClaimer[T any](d *dedup[T], o *options) *claimer[T] {
	ns := o.namespace
	if ns == "" {
		ns = d.p.name
	}
	w := &claimer[T]{
		d: d, st: o.store, policy: o.claims.withDefaults(), ns: Key(ns, d.name), owner: ownerName(),
		down: newOutage(d.p.log, "keys can't be claimed; items wait", "dedup", d.name),
	}
	w.queue = make(chan *tenant[T], w.policy.Window/2)
	w.most = w.policy.Window - cap(w.queue)
	w.rec = newRecorder(w)
	return w
}

// enter puts a key into the window, and waits for a place.
func (w *claimer[T]) enter(e *entry[T], v T) {
	p := w.d.p
	p.holdItem() // until it is settled
	w.within.Add(1)
	t := &tenant[T]{e: e, v: v, since: p.now()}
	t.claim = &claim{p: p, st: w.st, policy: w.policy, outer: e.parent.scope.claim, scope: &e.scope, req: ClaimRequest{
		RecordID: RecordID{Namespace: w.ns, Key: e.key}, Claim: NewClaimID(), Lease: w.policy.Lease,
		Fingerprint: e.fingerprint, Owner: w.owner,
	}}
	e.tenant = t
	select {
	case w.queue <- t:
		if p.hard.Load() { // perhaps nobody reads any more
			w.sweep()
		}
	case <-p.stopped():
		t.settle(verdict{outcome: Returned, err: ErrDrainTimeout})
	}
}

func (t *tenant[T]) settle(v verdict) { t.e.ticket.settle(v) }

// takenBack tells whether the item can be returned to its source.
func (t *tenant[T]) takenBack() bool { return t.e.takesBack() }

// run claims and emits until there is nothing more to come.
func (w *claimer[T]) run() {
	ended := false
	defer func() {
		if !ended { // by Goexit in an operator
			w.d.p.spawn(w.run)
		}
	}()
	w.emit()
	for w.gather() {
		w.ask()
		w.emit()
	}
	ended = true
	if w.d.p.hard.Load() {
		// Somebody may still emit, so that the output is not closed.
		w.giveUp(w.batch, ErrDrainTimeout)
		w.giveUp(w.parked, ErrDrainTimeout)
		return
	}
	w.d.out.next.close()
}

// gather waits until there is something to ask for. It returns false when there
// will be nothing more.
func (w *claimer[T]) gather() bool {
	p := w.d.p
	timer := time.NewTimer(0)
	defer timer.Stop()
	draining := p.draining
	for !p.hard.Load() {
		if p.isDraining() { // nothing runs before it is due
			draining = nil
			w.giveUp(w.parked, ErrShutdown)
			w.parked = nil
		}
		next := w.unpark()
		queue := w.fill()
		room := w.rec.room()
		switch {
		case len(w.batch) > 0 && room:
			return true
		case w.closed && len(w.batch)+len(w.parked) == 0:
			return false
		}
		if timer.Stop(); len(w.parked) > 0 {
			timer.Reset(next)
		}
		select {
		case t, ok := <-queue:
			w.take(t, ok)
		case <-timer.C:
		case <-w.rec.freed:
		case <-draining:
		case <-p.stopped():
		}
	}
	return false
}

func (w *claimer[T]) take(t *tenant[T], ok bool) {
	if w.closed = !ok; ok {
		w.batch = append(w.batch, t)
	}
}

// fill takes what has queued. It returns the queue where there is still room for
// more of it.
func (w *claimer[T]) fill() <-chan *tenant[T] {
	for !w.closed && len(w.batch)+len(w.parked) < w.most {
		select {
		case t, ok := <-w.queue:
			w.take(t, ok)
		default:
			return w.queue
		}
	}
	return nil
}

// unpark moves what is due into the batch, and says when the next one will be.
func (w *claimer[T]) unpark() time.Duration {
	now, next := w.d.p.now(), time.Duration(math.MaxInt64)
	kept := w.parked[:0]
	for _, t := range w.parked {
		if t.due <= now {
			w.batch = append(w.batch, t)
			continue
		}
		next = min(next, t.due-now)
		kept = append(kept, t)
	}
	clear(w.parked[len(kept):])
	w.parked = kept
	return next
}

// giveUp returns items with the rest of their wait.
func (w *claimer[T]) giveUp(list []*tenant[T], err error) {
	for _, t := range list {
		t.settle(verdict{outcome: Returned, delay: max(t.due-w.d.p.now(), 0), err: err})
	}
}

// ask claims the batch with one request.
func (w *claimer[T]) ask() {
	p := w.d.p
	reqs := make([]ClaimRequest, len(w.batch))
	for i, t := range w.batch {
		t.claim.asked = true
		reqs[i] = t.claim.req
	}
	ctx, cancel := context.WithTimeout(p.handlers, w.policy.Lease/claimTries)
	sent := time.Now()
	answers, err := asked(len(reqs), func() ([]ClaimAnswer, error) { return w.st.Claim(ctx, reqs) })
	cancel()
	if p.hard.Load() {
		return // what was claimed is released with the batch
	}
	w.down.note(err)
	if err != nil {
		w.outOfReach(err)
		return
	}
	w.delay = 0
	batch := w.batch
	w.batch = nil
	for i, t := range batch {
		w.answered(t, answers[i], sent)
	}
}

// outOfReach waits before the batch is tried again, and returns what waited too
// long. The answer may have been yes, so that the delay is a lease.
func (w *claimer[T]) outOfReach(err error) {
	now := w.d.p.now()
	kept := w.batch[:0]
	for _, t := range w.batch {
		if !t.takenBack() || now-t.since < w.waitOf(t) {
			kept = append(kept, t)
			continue
		}
		w.d.unreached.Add(1)
		t.settle(verdict{outcome: Returned, delay: w.policy.Lease, err: fmt.Errorf("claim: %w", err)})
	}
	clear(w.batch[len(kept):])
	w.batch = kept
	w.delay = min(max(2*w.delay, repeatMin), repeatMax)
	sleep(w.d.p.handlers, w.delay)
}

// waitOf is how long the item may wait.
func (w *claimer[T]) waitOf(t *tenant[T]) time.Duration {
	wait := w.policy.Wait
	if hold := t.e.holdLimit(); hold > 0 {
		wait = min(wait, hold-(t.since-t.e.scope.admitted)-w.policy.Lease/claimTries)
	}
	return wait
}

// answered acts on the store's answer for one key.
func (w *claimer[T]) answered(t *tenant[T], ans ClaimAnswer, sent time.Time) {
	d := w.d
	if ans.Status != ClaimAcquired {
		t.claim.asked = false // there is nothing to give back
	}
	switch ans.Status {
	case ClaimAcquired:
		w.acquired(t, ans, sent)
	case ClaimCompleted:
		d.stored.Add(1)
		d.p.event(Event{Kind: EventDuplicate, Stage: d.name, Key: t.e.key, Reason: ReasonStore})
		t.settle(verdict{outcome: Duplicate})
	case ClaimBusy, ClaimWaiting:
		w.busy(t, max(ans.Wait, time.Millisecond))
	case ClaimMismatch:
		d.mismatched.Add(1)
		w.bury(t, ReasonMismatch, ErrMismatch)
	case ClaimUnknown:
		w.bury(t, ReasonUnknown, ErrUnknownOutcome)
	default:
		t.settle(verdict{outcome: Returned, delay: w.policy.Lease, err: badStatus(ans)})
	}
}

func (w *claimer[T]) acquired(t *tenant[T], ans ClaimAnswer, sent time.Time) {
	if leaseLeft(w.policy.Lease, sent) <= 0 {
		w.batch = append(w.batch, t) // to ask again renews it
		return
	}
	if err := t.claim.tooOften(ans); err != nil {
		w.fail(t, err)
		return
	}
	t.claim.acquired(ans, sent)
	t.e.scope.claim = t.claim
	w.ready = append(w.ready, t)
}

// fail gives the claim back before it writes the dead letter, which may be kept
// in the very same record.
func (w *claimer[T]) fail(t *tenant[T], err error) {
	v := verdict{outcome: Dead, err: err}
	ctx, cancel := w.d.p.settling(w.policy.Lease)
	defer cancel()
	_, failed := asked(1, func() ([]bool, error) {
		return w.st.Release(ctx, []ReleaseRequest{t.claim.release(&v, t.payload(&v))})
	})
	if failed != nil {
		t.settle(verdict{outcome: Returned, delay: w.policy.Lease, err: fmt.Errorf("%w; not recorded: %w", err, failed)})
		return
	}
	t.claim.asked = false
	w.bury(t, ReasonTakeovers, err)
}

// busy returns an item whose key somebody else has, or lets it wait.
func (w *claimer[T]) busy(t *tenant[T], wait time.Duration) {
	p := w.d.p
	w.d.busy.Add(1)
	t.due = p.now() + wait
	far := t.takenBack() && wait > parkMost
	if far || p.isDraining() || t.due-t.since > w.policy.Wait {
		t.settle(verdict{outcome: Returned, delay: wait, err: ErrBusy})
		return
	}
	w.parked = append(w.parked, t)
}

func (w *claimer[T]) bury(t *tenant[T], reason Reason, err error) {
	w.d.reject(&t.e.ticket, t.e.key, t.v, reason, err)
}

func (w *claimer[T]) emit() {
	for len(w.ready) > 0 {
		t := w.ready[0]
		w.ready = w.ready[1:]
		w.leave(t)
		w.d.fresh.Add(1)
		w.d.out.pass(item[T]{t.v, &t.e.ticket})
	}
}

// leave notes that t is not in the window any more.
func (w *claimer[T]) leave(t *tenant[T]) {
	if !t.gone {
		t.gone = true
		w.within.Add(-1)
	}
}

// sweep returns what a hard stop left in the queue.
func (w *claimer[T]) sweep() {
	for t := range queued(w.queue) {
		t.settle(verdict{outcome: Returned, err: ErrDrainTimeout})
	}
}
