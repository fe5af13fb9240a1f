package oncepipe

import (
	"container/list"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Dedup's options.
const (
	DefaultGuard      = 100_000 // keys in the Ring
	DefaultJoinPerKey = 16
	DefaultJoinTotal  = 1024
	DefaultJoinWait   = time.Minute
)

// WithGuard gives Dedup a guard other than Ring(DefaultGuard). A guard belongs to
// one Dedup at a time; it may outlive the pipeline.
func WithGuard(g Guard) Option {
	return func(o *options) {
		o.set("WithGuard")
		if o.guard = g; g == nil {
			o.wrong("WithGuard(nil)")
		}
	}
}

// JoinLimit bounds the copies that wait for the first one: perKey and total of
// them, each for at most wait. A copy beyond that is returned to its source,
// with wait as its delay when it found no place. The defaults are
// DefaultJoinPerKey, DefaultJoinTotal and DefaultJoinWait; with perKey 0 no copy
// waits.
func JoinLimit(perKey, total int, wait time.Duration) Option {
	return func(o *options) {
		o.set("JoinLimit")
		o.joinKey, o.joinAll, o.joinWait = perKey, total, wait
		if perKey < 0 || total < 0 || wait <= 0 {
			o.wrong("JoinLimit(%d, %d, %v)", perKey, total, wait)
		}
	}
}

// Dedup lets one copy of each key through. It remembers keys in two places: a
// table of those in flight here, which is exact and forgets none, and a guard of
// those that are done. A key enters the table in the goroutine that delivers it,
// before any buffer, and leaves it when everything behind Dedup has settled it.
//
//   - A key that is done: the copy is a Duplicate.
//   - A key in flight, running, buffered or parked: the copy joins. It holds no
//     goroutine and no worker. When the first copy is done, it is a Duplicate;
//     when the first is dead or shed, so is it; when the first is lost, one
//     joined copy takes over and the others join that. During a drain none takes over.
//   - A key that was given up, or returned: it runs again.
//   - No key: a dead letter.
//
// The items behind Dedup have the key that key returns. What is known of a key
// ends with the process, or with the guard, unless there is a store: see WithStore.
func Dedup[T any, K ~string](in Stream[T], name string, key func(T) K, opts ...Option) Stream[T] {
	return newDedup(in, name, func(v T) string { return string(key(v)) }, nil, opts)
}

// DedupFingerprint is Dedup that also tells payloads of one key apart: a copy
// with another fingerprint than the key in flight or done is a dead letter with
// reason mismatch. An empty fingerprint matches any. See ContentKey.
func DedupFingerprint[T any, K ~string](in Stream[T], name string, key func(T) K, fingerprint func(T) string, opts ...Option) Stream[T] {
	return newDedup(in, name, func(v T) string { return string(key(v)) }, fingerprint, opts)
}

const dedupShards = 64

type dedup[T any] struct {
	p      *Pipeline
	name   string
	from   string
	copied bool // the tickets of items that come are read by others
	opt    options
	key    func(T) string
	fp     func(T) string
	out    *port[T]

	guard  Guard
	ring   *ringGuard  // the guard, if it is one: its hash serves the table too
	store  *claimer[T] // nil: none
	seed   maphash.Seed
	shards [dedupShards]dedupShard[T]

	// Copies that wait, the oldest first, and those that take over.
	mu       sync.Mutex
	waiting  *list.List // of *copied[T]
	takeover []item[T]
	wake     chan struct{}
	upEnded  chan struct{}

	joinedN atomic.Int64 // waiting and taking over

	fresh, committed, joined, acked, tookOver, overflowed, mismatched, noKey atomic.Int64

	stored, busy, unreached atomic.Int64
}

type dedupShard[T any] struct {
	mu   sync.Mutex
	keys int // more than len(m), where hashes are equal
	m    map[uint64]*entry[T]
	_    [40]byte
}

// entry is a key in flight. It owns the scope that settles it.
type entry[T any] struct {
	d           *dedup[T]
	key         string
	hash        digest
	next        *entry[T] // same hash
	fingerprint string
	ticket      ticket // of the item that it lets through; operators may relabel it
	scope       scope
	parent      *ticket // of the copy that runs
	joined      []*copied[T]
	tenant      *tenant[T] // with a store, once it has asked for a claim
}

// copied is a copy that waits for the first one.
type copied[T any] struct {
	it    item[T]
	hash  digest
	e     *entry[T] // under the shard's lock
	until time.Duration
	elem  *list.Element
}

func newDedup[T any](in Stream[T], name string, key, fp func(T) string, opts []Option) Stream[T] {
	mustBeWired(in)
	p := in.out.p
	d := &dedup[T]{
		p: p, name: name, from: in.out.from, copied: in.out.shared, key: key, fp: fp, seed: maphash.MakeSeed(),
		opt:     collect(opts, "WithGuard", "JoinLimit", "WithStore", "Claims", "Namespace"),
		waiting: list.New(),
		wake:    make(chan struct{}, 1),
		upEnded: make(chan struct{}),
	}
	if d.guard = d.opt.guard; d.guard == nil {
		d.guard = Ring(DefaultGuard)
	}
	d.ring, _ = d.guard.(*ringGuard)
	if d.opt.store != nil {
		p.care(d.opt.store)
		d.store = newClaimer(d, &d.opt)
	} else if d.opt.given["Claims"] || d.opt.given["Namespace"] {
		d.opt.wrong("Claims and Namespace have no meaning without WithStore")
	}
	t := in.out.traits
	t.shared = false // the tickets behind it are its own
	d.out = newPort[T](p, in.out.from, t)
	p.add(d)
	read(in, d)
	return Stream[T]{d.out}
}

func (d *dedup[T]) label() (string, string)     { return d.name, "dedup" }
func (d *dedup[T]) readsFrom() []string         { return []string{d.from} }
func (d *dedup[T]) check() error                { return d.opt.check() }
func (d *dedup[T]) abandon() []AbandonedHandler { return nil }
func (d *dedup[T]) drain()                      { d.nudge() }
func (d *dedup[T]) halt()                       {}
func (d *dedup[T]) close()                      { close(d.upEnded) }

func (d *dedup[T]) start() {
	d.p.spawn(d.tend)
	if d.store != nil {
		go d.store.rec.run()
		d.p.spawn(d.store.run)
	}
}

func (d *dedup[T]) open() {
	for i := range d.shards {
		d.shards[i].m = map[uint64]*entry[T]{}
	}
}

// digest is the hash of a key: for the table, and for a guard that is a Ring.
type digest struct {
	table uint64
	ring  ringKey
}

func (d *dedup[T]) digest(key string) digest {
	if d.ring == nil {
		return digest{table: maphash.String(d.seed, key)}
	}
	k := d.ring.hash(key)
	return digest{table: uint64(k[1])<<32 | uint64(k[0]), ring: k}
}

// known asks the guard.
func (d *dedup[T]) known(hash digest, key, fp string) GuardAnswer {
	if d.ring != nil {
		return d.ring.lookup(hash.ring, d.ring.tag(fp))
	}
	return d.guard.Lookup(key, fp)
}

// remember tells the guard of a key that is done. One of the user's that panics
// must not take the shard's lock with it.
func (d *dedup[T]) remember(e *entry[T]) {
	if d.ring != nil {
		d.ring.add(e.hash.ring, d.ring.tag(e.fingerprint))
		return
	}
	if err := protect(func() error { d.guard.Add(e.key, e.fingerprint); return nil }); err != nil {
		d.p.log.Error("oncepipe: guard", "dedup", d.name, "key", e.key, "error", err)
	}
}

func (d *dedup[T]) shard(hash digest) *dedupShard[T] { return &d.shards[hash.table%dedupShards] }

func (s *dedupShard[T]) find(hash digest, key string) *entry[T] {
	for e := s.m[hash.table]; e != nil; e = e.next {
		if e.key == key {
			return e
		}
	}
	return nil
}

func (s *dedupShard[T]) insert(e *entry[T]) {
	e.next = s.m[e.hash.table]
	s.m[e.hash.table] = e
}

func (s *dedupShard[T]) remove(e *entry[T]) {
	first := s.m[e.hash.table]
	switch {
	case first == e && e.next == nil:
		delete(s.m, e.hash.table)
	case first == e:
		s.m[e.hash.table] = e.next
	default:
		for ; first != nil; first = first.next {
			if first.next == e {
				first.next = e.next
				return
			}
		}
	}
}

func (d *dedup[T]) accept(it item[T]) {
	key := d.key(it.v)
	if key == "" {
		d.noKey.Add(1)
		d.reject(it.t, "", it.v, ReasonNoKey, ErrNoKey)
		return
	}
	if it.t.key == "" { // whoever hears of the delivery's end knows it by this
		it.t = it.t.own(d.copied)
		it.t.key = key
	}
	fp := ""
	if d.fp != nil {
		fp = d.fp(it.v)
	}
	hash := d.digest(key)
	e, met := d.enter(it, hash, key, fp)
	switch met {
	case metNothing:
		d.letThrough(e, it.v)
	case metDone:
		d.committed.Add(1)
		d.p.event(Event{Kind: EventDuplicate, Stage: d.name, Key: key, Reason: ReasonGuard})
		it.t.settle(verdict{outcome: Duplicate})
	case metJoined:
		d.joined.Add(1)
		d.p.event(Event{Kind: EventJoined, Stage: d.name, Key: key})
	case metFull:
		d.overflowed.Add(1)
		it.t.settle(verdict{outcome: Returned, delay: d.opt.joinWait, err: ErrFull})
	case metMismatch:
		d.mismatched.Add(1)
		d.reject(it.t, key, it.v, ReasonMismatch, ErrMismatch)
	}
}

// letThrough lets a copy run, if the store lets it.
func (d *dedup[T]) letThrough(e *entry[T], v T) {
	if d.store != nil {
		d.store.enter(e, v)
		return
	}
	d.fresh.Add(1)
	d.out.pass(item[T]{v, &e.ticket})
}

// reject makes a dead letter of an item that has no place behind Dedup.
func (d *dedup[T]) reject(t *ticket, key string, v T, reason Reason, err error) {
	t.settle(d.p.bury(DeadLetter{
		Stage: d.name, Namespace: d.opt.namespace, Key: key, Value: v, Reason: reason, Err: err,
		Age: d.p.now() - t.scope.admitted,
	}))
}

type met uint8

const (
	metNothing met = iota
	metDone
	metJoined
	metFull
	metMismatch
)

// enter looks for the key among those in flight and those done, and enters it
// if it is in neither, all in one step.
func (d *dedup[T]) enter(it item[T], hash digest, key, fp string) (*entry[T], met) {
	sh := d.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.find(hash, key); e != nil {
		if fp != "" && e.fingerprint != "" && fp != e.fingerprint {
			return nil, metMismatch
		}
		return nil, d.join(e, it)
	}
	switch d.known(hash, key, fp) {
	case GuardHit:
		return nil, metDone
	case GuardMismatch:
		return nil, metMismatch
	}
	e := &entry[T]{d: d, key: key, hash: hash, fingerprint: fp, ticket: ticket{key: key, partition: it.t.partition}}
	e.ticket.scope = &e.scope
	e.lead(it.t)
	sh.insert(e)
	sh.keys++
	return e, metNothing
}

// lead makes t the copy that runs.
func (e *entry[T]) lead(t *ticket) {
	e.parent = t
	e.scope.owner = e
	e.scope.admitted = t.scope.admitted
	e.scope.claim = t.scope.claim
	e.scope.open.Store(1)
}

func (e *entry[T]) holdLimit() time.Duration { return e.parent.scope.owner.holdLimit() }
func (e *entry[T]) takesBack() bool          { return e.parent.scope.owner.takesBack() }

// settled hears what became of the copy that ran. Where there is a store, it
// hears of it first.
func (e *entry[T]) settled(v verdict) {
	if e.tenant != nil {
		e.d.store.rec.settle(e.tenant, v)
		return
	}
	e.conclude(v)
}

// complete tells whether v means that nothing is left to do for the key.
func (v *verdict) complete() bool {
	return v.outcome == Done || v.outcome == Filtered || v.outcome == Duplicate
}

// conclude ends the key's time in the table. The guard learns of the key before
// that, under the same lock, so that no copy can come between; then the
// delivery is acked, then the joined ones.
func (e *entry[T]) conclude(v verdict) {
	d := e.d
	complete := v.complete()
	lost := v.outcome == Returned && v.delay == 0 && !v.given && !d.p.isDraining() && !d.p.hard.Load()
	parent := e.parent
	sh := d.shard(e.hash)
	sh.mu.Lock()
	joined := e.joined
	if lost && len(joined) > 0 {
		heir := joined[0]
		next := &entry[T]{
			d: d, key: e.key, hash: e.hash, fingerprint: e.fingerprint, joined: joined[1:],
			ticket: ticket{key: e.key, partition: heir.it.t.partition},
		}
		next.ticket.scope = &next.scope
		admitted := e.scope.admitted
		next.lead(heir.it.t)
		next.scope.admitted = admitted // no younger for the change
		for _, c := range next.joined {
			c.e = next
		}
		sh.remove(e)
		sh.insert(next)
		d.unlist(heir)
		e.joined = nil // whoever finds heir here must not take it for one that waits
		sh.mu.Unlock()
		parent.settle(v)
		d.tookOver.Add(1)
		d.p.event(Event{Kind: EventTakeover, Stage: d.name, Key: e.key})
		d.mu.Lock()
		d.takeover = append(d.takeover, item[T]{heir.it.v, &next.ticket})
		d.mu.Unlock()
		d.nudge()
		if d.p.hard.Load() { // perhaps nobody looks any more
			d.sweep()
		}
		return
	}
	if complete {
		d.remember(e)
	}
	sh.remove(e)
	sh.keys--
	e.joined = nil
	for _, c := range joined {
		d.unlist(c)
	}
	sh.mu.Unlock()
	v.apart = v.apart || len(joined) > 0
	parent.settle(v)
	if len(joined) == 0 {
		return
	}
	if complete {
		v.outcome = Duplicate
		d.acked.Add(int64(len(joined)))
	}
	for _, c := range joined {
		c.it.t.settle(v)
	}
	d.joinedN.Add(-int64(len(joined)))
	d.nudge()
}

// sweep returns copies that were to take over when the pipeline was stopped, and
// those that waited for a claim.
func (d *dedup[T]) sweep() {
	if d.store != nil {
		d.store.sweep()
	}
	for {
		it, ok := d.nextTakeover()
		if !ok {
			return
		}
		it.t.settle(verdict{outcome: Returned, err: ErrDrainTimeout})
	}
}

// finish ends what the store has to do with the keys, when nothing runs any more.
func (d *dedup[T]) finish() []AbandonedHandler {
	if d.store == nil {
		return nil
	}
	return d.store.rec.finish()
}

func (d *dedup[T]) entries() (list []*entry[T]) {
	for i := range d.shards {
		sh := &d.shards[i]
		sh.mu.Lock()
		for _, e := range sh.m {
			for ; e != nil; e = e.next {
				list = append(list, e)
			}
		}
		sh.mu.Unlock()
	}
	return list
}

func (d *dedup[T]) inFlight() (n int) {
	for i := range d.shards {
		sh := &d.shards[i]
		sh.mu.Lock()
		n += sh.keys
		sh.mu.Unlock()
	}
	return n
}

func (d *dedup[T]) stats() DedupStats {
	st := DedupStats{
		Name:     d.name,
		InFlight: d.inFlight(),
		Waiting:  int(d.joinedN.Load()),
		Guarded:  d.guard.Len(),
		Fresh:    d.fresh.Load(), Committed: d.committed.Load(), Joined: d.joined.Load(),
		Acked: d.acked.Load(), TookOver: d.tookOver.Load(), Overflowed: d.overflowed.Load(),
		Mismatched: d.mismatched.Load(), NoKey: d.noKey.Load(),
		Stored: d.stored.Load(), Busy: d.busy.Load(), Unreached: d.unreached.Load(),
	}
	if d.store != nil {
		st.Claiming, st.Recording = int(d.store.within.Load()), d.store.rec.waiting()
	}
	return st
}
