// Package due keeps what is waiting for its time in order.
package due

// Index is a queue of places by the time at which each is due: earlier times
// first, equal ones in the order in which they came. The values that stand at
// the places are the caller's, in a slice. The zero Index is empty.
//
// It is a 4-ary heap: half as deep as a binary one, and the children of an entry
// share a cache line. An entry has 16 bytes and no pointer, so that a million of
// them are no work for the garbage collector.
type Index struct {
	heap []entry
	free []uint32 // places that were used and are not
	next uint32   // the first place that never was
	seq  uint32
}

type entry struct {
	at    int64
	seq   uint32
	place uint32
}

func (a entry) before(b entry) bool {
	return a.at < b.at || a.at == b.at && int32(a.seq-b.seq) < 0
}

// Len is the number of places in use.
func (x *Index) Len() int { return len(x.heap) }

// Bytes is the memory that the index takes.
func (x *Index) Bytes() int { return 16*cap(x.heap) + 4*cap(x.free) }

// Push takes a place, due at a time. Places are numbered from 0, and one that is free
// is taken before a new one. first says that nothing is due earlier.
func (x *Index) Push(at int64) (place uint32, first bool) {
	if n := len(x.free); n > 0 {
		place = x.free[n-1]
		x.free = x.free[:n-1]
	} else {
		place = x.next
		x.next++
	}
	e := entry{at: at, seq: x.seq, place: place}
	x.seq++
	i := len(x.heap)
	x.heap = append(x.heap, e)
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(x.heap[up]) {
			break
		}
		x.heap[i] = x.heap[up]
		i = up
	}
	x.heap[i] = e
	return place, i == 0
}

// First is the place that is due first. It must not be called when Len is 0.
func (x *Index) First() (place uint32, at int64) { return x.heap[0].place, x.heap[0].at }

// Pop gives the first place back. It must not be called when Len is 0.
func (x *Index) Pop() {
	last := len(x.heap) - 1
	place, e := x.heap[0].place, x.heap[last]
	x.heap = x.heap[:last]
	if last == 0 {
		x.free, x.next = x.free[:0], 0
		return
	}
	x.free = append(x.free, place)
	i := 0
	for {
		least := 4*i + 1
		if least >= last {
			break
		}
		for c := least + 1; c < min(4*i+5, last); c++ {
			if x.heap[c].before(x.heap[least]) {
				least = c
			}
		}
		if !x.heap[least].before(e) {
			break
		}
		x.heap[i] = x.heap[least]
		i = least
	}
	x.heap[i] = e
}
