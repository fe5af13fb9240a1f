package oncepipe

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
)

// Ring returns the guard to use where nothing speaks against it: the newest
// capacity keys, first in, first out. Lookup doesn't make a key newer, Add
// does. The promise is exact: a key that was not removed is forgotten only when
// capacity other keys were added after its last Add.
//
// It takes about 25 bytes a key, free of pointers and all at once; after that no
// call allocates. Every call takes the same short time, except that after
// capacity/16 keys were removed or added again an Add may put the ring in order
// for all of them, which takes some 10 ms in a ring of a million keys.
//
// Instead of a key it keeps 96 bits of a hash with a random seed of this ring.
// So a key that was never added can be taken for a known one: the odds are
// capacity in 2⁹⁶ for a lookup, which at a million keys and a million lookups
// a second makes one in 2 500 million years, and a sender can't raise them
// without the seed. Of a fingerprint it keeps 32 bits: a mismatch is missed in
// one case of 2³². LRU and SyncMap compare both exactly.
//
// It panics if capacity is not from 1 to 2³¹-1.
func Ring(capacity int) Guard {
	checkGuardCapacity("Ring", capacity)
	return &ringGuard{
		seeds:    [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		capacity: capacity,
		entries:  make([]ringEntry, 1+capacity+capacity/16),
		buckets:  make([]uint32, capacity),
		oldest:   1,
		end:      1,
	}
}

// ringGuard is under one lock: shards, each with an order of its own, could
// promise the newest capacity keys only on average. Hashing is done outside it.
//
// A key that is removed or added again leaves a hole in the ring. Holes are not
// counted as keys, which would push others out before their time; there is room
// for some, and when that is used up they are closed. A Dedup stage adds a key
// once and removes none, so it pays nothing for this, where the links of a list
// would cost it a quarter more memory.
type ringGuard struct {
	seeds    [2]maphash.Seed
	capacity int

	mu      sync.Mutex
	entries []ringEntry // the ring; 0 is not in it, so that 0 can mean none
	buckets []uint32    // first entry of each bucket's chain
	oldest  uint32      // first entry in use
	end     uint32      // the entry after the last one in use
	used    int         // entries in use, holes included
	known   int         // keys
}

type ringEntry struct {
	key  ringKey
	tag  uint32 // of the fingerprint; 0 for the empty one
	next uint32 // in the chain; 0 at its end
}

// ringHole is the next of an entry that holds no key.
const ringHole = math.MaxUint32

// ringKey is an array of words, since a uint64 and a uint32 would be padded.
type ringKey [3]uint32

func (r *ringGuard) hash(key string) ringKey {
	a, b := maphash.String(r.seeds[0], key), maphash.String(r.seeds[1], key)
	return ringKey{uint32(a), uint32(a >> 32), uint32(b)}
}

func (r *ringGuard) tag(fingerprint string) uint32 {
	if fingerprint == "" {
		return 0
	}
	return max(1, uint32(maphash.String(r.seeds[0], fingerprint)))
}

func (r *ringGuard) Lookup(key, fingerprint string) GuardAnswer {
	return r.lookup(r.hash(key), r.tag(fingerprint))
}

// lookup and add are for a caller that needs the hash more than once.
func (r *ringGuard) lookup(k ringKey, tag uint32) GuardAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(k)
	if i == 0 {
		return GuardMiss
	}
	return compareFingerprints(r.entries[i].tag, tag)
}

func (r *ringGuard) Add(key, fingerprint string) {
	r.add(r.hash(key), r.tag(fingerprint))
}

func (r *ringGuard) add(k ringKey, tag uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(k); i != 0 {
		r.drop(i)
	}
	if r.known == r.capacity {
		r.evict()
	}
	if r.used == len(r.entries)-1 {
		r.closeHoles()
	}
	r.append(k, tag)
}

func (r *ringGuard) Remove(key string) {
	k := r.hash(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(k); i != 0 {
		r.drop(i)
	}
}

func (r *ringGuard) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// bucket is the head of the chain that k belongs to.
func (r *ringGuard) bucket(k ringKey) *uint32 {
	i, _ := bits.Mul64(uint64(k[1])<<32|uint64(k[0]), uint64(len(r.buckets)))
	return &r.buckets[i]
}

// find returns the entry of k, or 0.
func (r *ringGuard) find(k ringKey) uint32 {
	i := *r.bucket(k)
	for i != 0 && r.entries[i].key != k {
		i = r.entries[i].next
	}
	return i
}

// append makes k, which must not be known, the newest key. There must be room.
// It goes to the end of its chain, so that the one to be evicted stands at the
// beginning of its own.
func (r *ringGuard) append(k ringKey, tag uint32) {
	last := r.bucket(k)
	for *last != 0 {
		last = &r.entries[*last].next
	}
	i := r.end
	*last = i
	r.entries[i] = ringEntry{key: k, tag: tag}
	r.end = r.after(i)
	r.used++
	r.known++
}

// drop makes an entry that holds a key a hole.
func (r *ringGuard) drop(i uint32) {
	p := r.bucket(r.entries[i].key)
	for *p != i {
		p = &r.entries[*p].next
	}
	*p = r.entries[i].next
	r.entries[i].next = ringHole
	r.known--
}

// evict forgets the oldest key, and the holes before it.
func (r *ringGuard) evict() {
	for evicted := false; !evicted; r.used-- {
		i := r.oldest
		if r.entries[i].next != ringHole {
			r.drop(i)
			evicted = true
		}
		r.oldest = r.after(i)
	}
}

// closeHoles moves the keys together and chains them anew, from the newest to
// the oldest: so each goes to the head of its chain, without a walk along it,
// which at a million keys would take ten times as long.
func (r *ringGuard) closeHoles() {
	i := r.oldest
	r.end = r.oldest
	for range r.used {
		if e := &r.entries[i]; e.next != ringHole {
			r.entries[r.end] = *e
			r.end = r.after(r.end)
		}
		i = r.after(i)
	}
	r.used = r.known
	clear(r.buckets)
	i = r.end
	for range r.used {
		i = r.before(i)
		e := &r.entries[i]
		first := r.bucket(e.key)
		e.next, *first = *first, i
	}
}

func (r *ringGuard) before(i uint32) uint32 {
	if i > 1 {
		return i - 1
	}
	return uint32(len(r.entries) - 1)
}

func (r *ringGuard) after(i uint32) uint32 {
	if i++; int(i) < len(r.entries) {
		return i
	}
	return 1
}
