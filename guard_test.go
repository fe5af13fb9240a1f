package oncepipe

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// boundedGuards are those that forget.
var boundedGuards = map[string]struct {
	guard        func(capacity int) Guard
	lookupRenews bool
}{
	"ring": {Ring, false},
	"lru":  {LRU, true},
}

// eachGuard runs test for the bounded guards with this capacity and for the
// unbounded one.
func eachGuard(t *testing.T, capacity int, test func(t *testing.T, g Guard)) {
	for name, b := range boundedGuards {
		t.Run(name, func(t *testing.T) { test(t, b.guard(capacity)) })
	}
	t.Run("syncmap", func(t *testing.T) { test(t, SyncMap()) })
}

func wantGuardAnswer(t *testing.T, g Guard, key, fingerprint string, want GuardAnswer) {
	t.Helper()
	if got := g.Lookup(key, fingerprint); got != want {
		t.Errorf("Lookup(%q, %q) = %v, want %v", key, fingerprint, got, want)
	}
}

func wantGuardLen(t *testing.T, g Guard, want int) {
	t.Helper()
	if got := g.Len(); got != want {
		t.Errorf("Len() = %d, want %d", got, want)
	}
}

func numberedKeys(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	return keys
}

func addToGuard(g Guard, keys []string) {
	for _, k := range keys {
		g.Add(k, "")
	}
}

// deliverPastGuard is what stands around a guard: run what neither the guard nor the
// store knows, and remember it.
func deliverPastGuard(g Guard, store map[string]bool, key string) (ran bool) {
	if g.Lookup(key, "") == GuardHit {
		return false
	}
	ran = !store[key]
	store[key] = true
	g.Add(key, "")
	return ran
}

func TestGuardFingerprints(t *testing.T) {
	eachGuard(t, 4, func(t *testing.T, g Guard) {
		wantGuardAnswer(t, g, "k", "a", GuardMiss)
		g.Add("k", "a")
		wantGuardAnswer(t, g, "k", "a", GuardHit)
		wantGuardAnswer(t, g, "k", "", GuardHit)
		wantGuardAnswer(t, g, "k", "b", GuardMismatch)
		g.Add("k", "b")
		wantGuardAnswer(t, g, "k", "a", GuardMismatch)
		wantGuardAnswer(t, g, "k", "b", GuardHit)
		g.Add("k", "")
		wantGuardAnswer(t, g, "k", "a", GuardHit)
		wantGuardLen(t, g, 1)
		g.Remove("k")
		wantGuardAnswer(t, g, "k", "", GuardMiss)
		wantGuardLen(t, g, 0)
	})
}

// Keys that differ only where a hash might stop reading, and the empty one.
func TestGuardKeysOfAllLengths(t *testing.T) {
	eachGuard(t, 1000, func(t *testing.T, g Guard) {
		key := make([]byte, 0, 300)
		for range 300 {
			g.Add(string(key), "")
			wantGuardAnswer(t, g, string(key)+"\x00", "", GuardMiss)
			key = append(key, 0)
		}
		wantGuardLen(t, g, 300)
	})
}

func TestGuardCapacityOutOfRange(t *testing.T) {
	capacities := []int{0, -1, math.MinInt}
	if math.MaxInt > math.MaxUint32 {
		capacities = append(capacities, math.MaxInt)
	}
	for name, b := range boundedGuards {
		for _, capacity := range capacities {
			t.Run(fmt.Sprint(name, capacity), func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				b.guard(capacity)
			})
		}
	}
}

// guardModel is a boundedGuards guard as a plain list, oldest first.
type guardModel struct {
	capacity     int
	lookupRenews bool
	known        []modelKey
}

type modelKey struct{ key, fingerprint string }

func (m *guardModel) index(key string) int {
	return slices.IndexFunc(m.known, func(k modelKey) bool { return k.key == key })
}

func (m *guardModel) remove(key string) {
	if i := m.index(key); i >= 0 {
		m.known = slices.Delete(m.known, i, i+1)
	}
}

func (m *guardModel) add(key, fingerprint string) {
	m.remove(key)
	m.known = append(m.known, modelKey{key, fingerprint})
	if len(m.known) > m.capacity {
		m.known = m.known[1:]
	}
}

func (m *guardModel) lookup(key, fingerprint string) GuardAnswer {
	i := m.index(key)
	if i < 0 {
		return GuardMiss
	}
	k := m.known[i]
	if m.lookupRenews {
		m.add(key, k.fingerprint)
	}
	if fingerprint != "" && k.fingerprint != "" && fingerprint != k.fingerprint {
		return GuardMismatch
	}
	return GuardHit
}

// A guard and the list always know the same keys and no others, so that the
// eviction of a wrong key shows twice.
func TestP23_GuardIsItsModel(t *testing.T) {
	keys := numberedKeys("k", 12)
	fingerprints := []string{"", "a", "b"}
	for name, b := range boundedGuards {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			m := &guardModel{capacity: rapid.IntRange(1, 8).Draw(t, "capacity"), lookupRenews: b.lookupRenews}
			g := b.guard(m.capacity)
			key := func() string { return rapid.SampledFrom(keys).Draw(t, "key") }
			fingerprint := func() string { return rapid.SampledFrom(fingerprints).Draw(t, "fingerprint") }
			t.Repeat(map[string]func(*rapid.T){
				"add": func(*rapid.T) {
					k, f := key(), fingerprint()
					g.Add(k, f)
					m.add(k, f)
				},
				"remove": func(*rapid.T) {
					k := key()
					g.Remove(k)
					m.remove(k)
				},
				"lookup": func(t *rapid.T) {
					k, f := key(), fingerprint()
					if got, want := g.Lookup(k, f), m.lookup(k, f); got != want {
						t.Fatalf("Lookup(%q, %q) = %v, want %v", k, f, got, want)
					}
				},
				// A step of its own, since it makes an LRU's order the model's.
				"all": func(t *rapid.T) {
					for _, k := range m.known {
						if got := g.Lookup(k.key, k.fingerprint); got != GuardHit {
							t.Fatalf("%q is lost: %v; known are %v", k.key, got, m.known)
						}
					}
					for _, k := range keys {
						if m.index(k) < 0 && g.Lookup(k, "") != GuardMiss {
							t.Fatalf("%q should be forgotten; known are %v", k, m.known)
						}
					}
				},
				"": func(t *rapid.T) {
					if g.Len() != len(m.known) {
						t.Fatalf("Len() = %d, want %d", g.Len(), len(m.known))
					}
				},
			})
		}))
	}
}

// The window at a size where buckets, slots and the order all wrap many times.
func TestGuardWindow(t *testing.T) {
	const capacity = 1000
	keys := numberedKeys("k", 10*capacity)
	for name, b := range boundedGuards {
		t.Run(name, func(t *testing.T) {
			g := b.guard(capacity)
			for i, k := range keys {
				g.Add(k, "")
				if i%97 != 0 && i != len(keys)-1 {
					continue
				}
				from := max(0, i+1-capacity)
				for _, k := range keys[from : i+1] {
					wantGuardAnswer(t, g, k, "", GuardHit)
				}
				for _, k := range keys[:from] {
					wantGuardAnswer(t, g, k, "", GuardMiss)
				}
				wantGuardLen(t, g, i+1-from)
			}
		})
	}
}

// Several goroutines add, add again, look up and remove at once. A key may be
// missing only if capacity other uses can have come after its own: those begun
// since then, and those of the other workers that had begun before.
func TestGuardWindowConcurrent(t *testing.T) {
	const (
		workers  = 4
		capacity = 256
		rounds   = 20_000
	)
	for name, b := range boundedGuards {
		t.Run(name, func(t *testing.T) {
			g := b.guard(capacity)
			var begun, checked atomic.Int64
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					keys := numberedKeys(fmt.Sprintf("w%d-", w), rounds)
					since := make([]int64, rounds) // begun, before the key's last Add
					add := func(i int) {
						since[i] = begun.Add(1)
						g.Add(keys[i], "")
					}
					for i := range rounds {
						add(i)
						if i < 50 {
							continue
						}
						switch old := i - 1 - i%50; i % 10 {
						case 3: // again, so that it leaves the middle of the order
							add(old)
						case 6: // gone and back
							g.Remove(keys[old])
							if g.Lookup(keys[old], "") != GuardMiss {
								t.Errorf("%s is there after Remove", keys[old])
							}
							add(old)
						}
						look := i - i%37
						if b.lookupRenews {
							begun.Add(1)
						}
						answer := g.Lookup(keys[look], "")
						if begun.Load()-since[look]+workers-1 >= capacity {
							continue
						}
						checked.Add(1)
						if answer != GuardHit {
							t.Errorf("%s is missing inside the window", keys[look])
						}
					}
				})
			}
			wg.Wait()
			wantGuardLen(t, g, capacity)
			if least := int64(workers * rounds / 10); checked.Load() < least {
				t.Errorf("only %d of %d lookups were surely inside the window", checked.Load(), workers*rounds)
			}
		})
	}
}

// 64 goroutines at one key: it is one key afterwards, whatever came last.
func TestGuardOneKeyConcurrent(t *testing.T) {
	eachGuard(t, 8, func(t *testing.T, g Guard) {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for range 100 {
					g.Add("k", "")
					if i%2 == 0 {
						g.Remove("k")
					}
					g.Lookup("k", "")
					if n := g.Len(); n < 0 {
						t.Errorf("Len() = %d", n)
					}
				}
			})
		}
		wg.Wait()
		g.Add("k", "")
		wantGuardAnswer(t, g, "k", "", GuardHit)
		wantGuardLen(t, g, 1)
		g.Remove("k")
		wantGuardLen(t, g, 0)
	})
}

// A miss means that the store is asked, so a guard much too small runs nothing
// twice.
func TestR41_MissIsNotAbsent(t *testing.T) {
	keys := numberedKeys("k", 2000)
	eachGuard(t, 1, func(t *testing.T, g Guard) {
		store := map[string]bool{}
		for _, k := range keys {
			if !deliverPastGuard(g, store, k) {
				t.Fatalf("first delivery of %s was taken for a duplicate", k)
			}
		}
		for _, k := range keys {
			if deliverPastGuard(g, store, k) {
				t.Fatalf("second delivery of %s ran", k)
			}
		}
	})
}

// A guard's entry can't be expired when a record is not: it has no clock.
func TestR44_GuardHasNoClock(t *testing.T) {
	eachGuard(t, 2, func(t *testing.T, g Guard) {
		synctest.Test(t, func(t *testing.T) {
			g.Add("k", "a")
			for _, d := range []time.Duration{24*time.Hour - 1, 1, 1, 10 * 365 * 24 * time.Hour} {
				time.Sleep(d)
				wantGuardAnswer(t, g, "k", "a", GuardHit)
				wantGuardAnswer(t, g, "k", "b", GuardMismatch)
				wantGuardAnswer(t, g, "other", "a", GuardMiss)
			}
		})
	})
}

// Keys of others push a key out after the window and not before.
func TestP21_EvictionByOtherKeys(t *testing.T) {
	for name, b := range boundedGuards {
		t.Run(name, func(t *testing.T) {
			g := b.guard(4)
			g.Add("slow", "")
			addToGuard(g, numberedKeys("k", 3))
			wantGuardAnswer(t, g, "slow", "", GuardHit)
			g.Add("slow", "")
			addToGuard(g, numberedKeys("l", 4))
			wantGuardAnswer(t, g, "slow", "", GuardMiss)
			addToGuard(g, numberedKeys("m", 20))
			wantGuardLen(t, g, 4)
		})
	}
}

// A key that was removed or added again a thousand times has one place in the
// order, the last one.
func TestP24_ReaddedKeyIsNotEvictedByItsPast(t *testing.T) {
	const capacity = 1000
	old, fill := numberedKeys("old", capacity-1), numberedKeys("fill", capacity-1)
	for name, b := range boundedGuards {
		for _, remove := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/remove=%v", name, remove), func(t *testing.T) {
				g := b.guard(capacity)
				g.Add("k", "")
				addToGuard(g, old)
				for range 1001 {
					if remove {
						g.Remove("k")
						wantGuardAnswer(t, g, "k", "", GuardMiss)
					}
					g.Add("k", "")
				}
				wantGuardLen(t, g, capacity)
				for _, k := range old {
					wantGuardAnswer(t, g, k, "", GuardHit)
				}
				g.Add("k", "") // the lookups have made an LRU's other keys newer
				addToGuard(g, fill)
				wantGuardAnswer(t, g, "k", "", GuardHit)
				g.Add("k", "")
				g.Remove("k")
				addToGuard(g, fill)
				wantGuardAnswer(t, g, "k", "", GuardMiss)
				wantGuardLen(t, g, capacity-1)
				addToGuard(g, []string{"new", "newer"})
				wantGuardAnswer(t, g, fill[0], "", GuardMiss)
				wantGuardAnswer(t, g, fill[1], "", GuardHit)
				wantGuardLen(t, g, capacity)
			})
		}
	}
}

// A batch that is larger than the guard pushes out its own first keys: they are
// missed, never wrong, and the rest is there.
func TestP25_BatchLargerThanGuard(t *testing.T) {
	const capacity = 10
	batch := numberedKeys("k", 3*capacity)
	batch = append(batch, batch[2*capacity:]...)
	for name, b := range boundedGuards {
		t.Run(name, func(t *testing.T) {
			g := b.guard(capacity)
			store := map[string]bool{}
			for range 2 {
				for _, k := range batch {
					deliverPastGuard(g, store, k)
				}
				if len(store) != 3*capacity {
					t.Errorf("%d keys ran, want %d", len(store), 3*capacity)
				}
				for _, k := range batch[:2*capacity] {
					wantGuardAnswer(t, g, k, "", GuardMiss)
				}
				for _, k := range batch[2*capacity:] {
					wantGuardAnswer(t, g, k, "", GuardHit)
				}
				wantGuardLen(t, g, capacity)
			}
		})
	}
}

func TestRingAllocatesNothing(t *testing.T) {
	keys := numberedKeys("6ba7b810-9dad-11d1-80b4-00c04fd430c", 1000)
	g := Ring(100)
	i := 0
	allocs := testing.AllocsPerRun(5000, func() {
		k := keys[i%len(keys)]
		if g.Lookup(k, "fingerprint") == GuardMiss {
			g.Add(k, "fingerprint")
		}
		if i%7 == 0 {
			g.Remove(k)
		}
		i++
	})
	if allocs != 0 {
		t.Errorf("%v allocations per call, want 0", allocs)
	}
}

// A guard that keeps a part of a large string would keep all of it.
func TestGuardKeepsCopies(t *testing.T) {
	const keys, size = 100, 1 << 20
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	eachGuard(t, keys, func(t *testing.T, g Guard) {
		before := heap()
		for i := range keys {
			body := strconv.Itoa(1000+i) + strings.Repeat("x", size)
			g.Add(body[:4], body[4:8])
		}
		if grown := heap() - before; grown > keys*size/10 {
			t.Errorf("%d keys hold %d bytes", keys, grown)
		}
		runtime.KeepAlive(g)
	})
}
