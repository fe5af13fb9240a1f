// Package guard measures the guards of oncepipe beside hashicorp/golang-lru, as
// the Dedup stage uses them: a claim looks its key up and adds it when it is
// missing. 90 % of the keys are new, 10 % repeat one of the last thousand; keys
// are 36 bytes long, as UUIDs are.
package guard

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/ratio"
)

const (
	capacity = 100_000
	recent   = 1_000
	claims   = 1 << 18 // in one pass: more than enough to turn the guard over
)

// guard is as much of an oncepipe.Guard as a claim needs.
type guard interface {
	Lookup(key, fingerprint string) oncepipe.GuardAnswer
	Add(key, fingerprint string)
}

// golangLRU has no room for fingerprints, which is to its advantage.
type golangLRU struct {
	cache *lru.Cache[string, struct{}]
}

func newGolangLRU(capacity int) guard {
	cache, err := lru.New[string, struct{}](capacity)
	if err != nil {
		panic(err) // only for a capacity below one
	}
	return golangLRU{cache}
}

func (g golangLRU) Lookup(key, _ string) oncepipe.GuardAnswer {
	if _, ok := g.cache.Get(key); ok {
		return oncepipe.GuardHit
	}
	return oncepipe.GuardMiss
}

func (g golangLRU) Add(key, _ string) { g.cache.Add(key, struct{}{}) }

func newRing(capacity int) guard { return oncepipe.Ring(capacity) }

// distinct returns n random keys in the form of UUIDs.
func distinct(n int, random *rand.Rand) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = newKey(random)
	}
	return keys
}

func newKey(random *rand.Rand) string {
	var id [16]byte
	for i := range id {
		id[i] = byte(random.Uint32())
	}
	var key [36]byte
	at := 0
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			key[at] = '-'
			at++
		}
		at += hex.Encode(key[at:], part)
	}
	return string(key[:])
}

// stream returns the keys of n claims.
func stream(n int, random *rand.Rand) []string {
	keys := make([]string, n)
	for i := range keys {
		if i >= recent && random.IntN(10) == 0 {
			keys[i] = keys[i-1-random.IntN(recent)]
		} else {
			keys[i] = newKey(random)
		}
	}
	return keys
}

// claim tells whether key was known, and makes it known.
func claim(g guard, key string) (known bool) {
	if g.Lookup(key, "") == oncepipe.GuardHit {
		return true
	}
	g.Add(key, "")
	return false
}

// pass makes a claim for each key, each worker on a part of its own, and
// returns how many keys were known.
func pass(g guard, keys []string, workers int) (hits int) {
	perWorker := make([]int, workers)
	var wg sync.WaitGroup
	for w := range workers {
		part := keys[w*len(keys)/workers : (w+1)*len(keys)/workers]
		wg.Go(func() {
			known := 0
			for _, k := range part {
				if claim(g, k) {
					known++
				}
			}
			perWorker[w] = known
		})
	}
	wg.Wait()
	for _, n := range perWorker {
		hits += n
	}
	return hits
}

// Report holds Ring to its goals: the time of a claim with one and with four
// workers, the bytes of a key in a guard of a million, both over those of
// golang-lru; allocations per claim, and keys missed inside the window.
func Report() ([]ratio.Row, error) { return report(21) }

func report(rounds int) ([]ratio.Row, error) {
	var rows []ratio.Row
	for _, workers := range []int{1, 4} {
		over, err := timeRatio(rounds, workers)
		if err != nil {
			return nil, err
		}
		rows = append(rows, ratio.AtMost(fmt.Sprintf("guard/time/%d", workers), over, 0.5))
	}
	const million = 1_000_000
	keys := distinct(million, rand.New(rand.NewPCG(2, 0)))
	return append(
		rows,
		ratio.AtMost("guard/bytes", bytesPerKey(newRing, keys)/bytesPerKey(newGolangLRU, keys), 0.2),
		ratio.AtMost("guard/allocs", allocsPerClaim(newRing(capacity), keys), 0),
		ratio.AtMost("guard/missed", float64(missed(newRing(capacity), keys[:5*capacity])), 0),
	), nil
}

// timeRatio is Ring's time for a pass over golang-lru's.
func timeRatio(rounds, workers int) (float64, error) {
	random := rand.New(rand.NewPCG(1, uint64(workers)))
	// Two streams in turn: a guard still knows the end of its last pass.
	streams := [2][]string{stream(claims, random), stream(claims, random)}
	var odd error
	run := func(g guard) func() {
		pass(g, streams[1], 1) // a guard that is full, as it is for most of its life
		turn := 0
		return func() {
			hits := pass(g, streams[turn], workers)
			turn = 1 - turn
			if share := float64(hits) / claims; share < 0.09 || share > 0.11 {
				odd = fmt.Errorf("guard: %T knew %.3f of the keys, the repeats are 0.1", g, share)
			}
		}
	}
	times := ratio.Rounds(rounds, run(newRing(capacity)), run(newGolangLRU(capacity)))
	return times[0].Over(times[1]), odd
}

// bytesPerKey is what a guard full of keys adds to the heap. The keys themselves
// are not counted, although golang-lru keeps them from being collected and Ring
// doesn't: that would flatter Ring.
func bytesPerKey(newGuard func(capacity int) guard, keys []string) float64 {
	before := heap()
	g := newGuard(len(keys))
	for _, k := range keys {
		g.Add(k, "")
	}
	after := heap()
	runtime.KeepAlive(g)
	runtime.KeepAlive(keys)
	return float64(after-before) / float64(len(keys))
}

// heap is the live heap. The second collection frees what the first one has
// only finalized.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// allocsPerClaim fills the guard with half of the keys and counts with the rest.
func allocsPerClaim(g guard, keys []string) float64 {
	half := len(keys) / 2
	pass(g, keys[:half], 1)
	next := half
	return testing.AllocsPerRun(half/2, func() {
		claim(g, keys[next])
		next++
	})
}

// missed adds distinct keys and looks for the newest capacity of them now and
// then.
func missed(g guard, keys []string) (n int) {
	for i, k := range keys {
		g.Add(k, "")
		if (i+1)%(capacity/4) != 0 {
			continue
		}
		for _, k := range keys[max(0, i+1-capacity) : i+1] {
			if g.Lookup(k, "") != oncepipe.GuardHit {
				n++
			}
		}
	}
	return n
}
