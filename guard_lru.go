package oncepipe

import (
	"container/list"
	"strings"
	"sync"
	"sync/atomic"
)

// LRU returns a guard that compares keys and fingerprints exactly and keeps the
// capacity keys that were used last. Add is a use, and so is a Lookup that
// finds its key. A key that was not removed is forgotten only when capacity
// other keys were used after its last use. It keeps copies of the strings,
// never what they are a part of.
//
// It panics if capacity is not from 1 to 2³¹-1.
func LRU(capacity int) Guard {
	checkGuardCapacity("LRU", capacity)
	return &lruGuard{capacity: capacity, known: make(map[string]*list.Element)}
}

type lruGuard struct {
	capacity int

	mu    sync.Mutex
	order list.List // of *lruEntry, the newest first
	known map[string]*list.Element
}

type lruEntry struct{ key, fingerprint string }

func (l *lruGuard) Lookup(key, fingerprint string) GuardAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.known[key]
	if e == nil {
		return GuardMiss
	}
	l.order.MoveToFront(e)
	return compareFingerprints(e.Value.(*lruEntry).fingerprint, fingerprint)
}

func (l *lruGuard) Add(key, fingerprint string) {
	fingerprint = strings.Clone(fingerprint)
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.known[key]; e != nil {
		l.order.MoveToFront(e)
		e.Value.(*lruEntry).fingerprint = fingerprint
		return
	}
	key = strings.Clone(key)
	if l.order.Len() < l.capacity {
		l.known[key] = l.order.PushFront(&lruEntry{key, fingerprint})
		return
	}
	e := l.order.Back()
	oldest := e.Value.(*lruEntry)
	delete(l.known, oldest.key)
	*oldest = lruEntry{key, fingerprint}
	l.order.MoveToFront(e)
	l.known[key] = e
}

func (l *lruGuard) Remove(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.known[key]; e != nil {
		l.order.Remove(e)
		delete(l.known, key)
	}
}

func (l *lruGuard) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.Len()
}

// SyncMap returns a guard that forgets nothing but what is removed: for tests
// and short runs, since it grows with every key. It compares keys and
// fingerprints exactly and keeps copies of the strings.
func SyncMap() Guard { return &mapGuard{} }

type mapGuard struct {
	fingerprints sync.Map // by key
	n            atomic.Int64
}

func (s *mapGuard) Lookup(key, fingerprint string) GuardAnswer {
	known, ok := s.fingerprints.Load(key)
	if !ok {
		return GuardMiss
	}
	return compareFingerprints(known.(string), fingerprint)
}

func (s *mapGuard) Add(key, fingerprint string) {
	if _, known := s.fingerprints.Swap(strings.Clone(key), strings.Clone(fingerprint)); !known {
		s.n.Add(1)
	}
}

func (s *mapGuard) Remove(key string) {
	if _, known := s.fingerprints.LoadAndDelete(key); known {
		s.n.Add(-1)
	}
}

// Len can be behind calls that run at the same time: a Remove may be counted
// before the Add that it undoes, which must not show as a negative number.
func (s *mapGuard) Len() int { return int(max(0, s.n.Load())) }
