package oncepipe

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// queue is the bounded queue between stages: what a channel is, at half the
// price where several goroutines seldom meet, since its two ends have a lock
// each, and whoever finds nothing to do waits on a channel of tokens beside what
// else it waits for.
//
// A token says "look": it is sent by whoever changes something while somebody
// waits, after the change, and passed on by whoever takes it and leaves more to
// be had. Whoever waits announces itself before it looks a last time. So none is
// missed, and one too many is harmless.
type queue[T any] struct {
	size uint64 // places; 0: as many as readers wait
	mask uint64
	ring []item[T]

	filled chan struct{} // token for readers
	room   chan struct{} // token for writers
	closed atomic.Bool
	_      [64]byte

	write   sync.Mutex
	tail    atomic.Uint64 // written under write
	writers atomic.Int32  // that wait
	_       [64]byte

	read    sync.Mutex
	head    atomic.Uint64 // written under read
	readers atomic.Int32  // that wait
	_       [64]byte
}

// open makes room for size items, or for one to each reader.
func (q *queue[T]) open(size, readers int) {
	n := uint64(1) << bits.Len(uint(max(size, readers)-1))
	q.size, q.mask, q.ring = uint64(size), n-1, make([]item[T], n)
	q.filled, q.room = make(chan struct{}, 1), make(chan struct{}, 1)
}

func token(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (q *queue[T]) len() int { return int(q.tail.Load() - q.head.Load()) }

// put reports whether there was room.
func (q *queue[T]) put(it item[T]) bool {
	q.write.Lock()
	tail, limit := q.tail.Load(), q.size
	if limit == 0 {
		limit = uint64(q.readers.Load())
	}
	if tail-q.head.Load() >= limit {
		q.write.Unlock()
		return false
	}
	q.ring[tail&q.mask] = it
	q.tail.Store(tail + 1)
	q.write.Unlock()
	if q.readers.Load() > 0 {
		token(q.filled)
	}
	return true
}

// putWait waits for room until stop is closed.
func (q *queue[T]) putWait(it item[T], stop <-chan struct{}) bool {
	q.writers.Add(1)
	defer q.writers.Add(-1)
	for !q.put(it) {
		select {
		case <-q.room:
		case <-stop:
			return false
		}
	}
	if q.writers.Load() > 1 {
		token(q.room)
	}
	return true
}

// take reports whether there was an item.
func (q *queue[T]) take(it *item[T]) bool {
	q.read.Lock()
	head := q.head.Load()
	if head == q.tail.Load() {
		q.read.Unlock()
		return false
	}
	place := &q.ring[head&q.mask]
	*it = *place
	*place = item[T]{}
	q.head.Store(head + 1)
	q.read.Unlock()
	if q.writers.Load() > 0 {
		token(q.room)
	}
	return true
}

// await announces a reader and reports whether it has to wait for filled: that
// is when, at a last look, there is no item and there may still be one. In any
// case the reader has to call awake, and then to look.
func (q *queue[T]) await() bool {
	q.readers.Add(1)
	if q.size == 0 && q.writers.Load() > 0 {
		token(q.room)
	}
	return q.len() == 0 && !q.closed.Load()
}

// awake ends what await began. It comes before the look, and does not go on beside a
// put, so that a queue without places takes no item for a reader that is gone.
func (q *queue[T]) awake() {
	q.write.Lock()
	left := q.readers.Add(-1)
	q.write.Unlock()
	if left > 0 && (q.len() > 0 || q.closed.Load()) {
		token(q.filled)
	}
}

// ended reports whether there will be no item any more.
func (q *queue[T]) ended() bool { return q.closed.Load() && q.len() == 0 }

// close says that nothing more will be put.
func (q *queue[T]) close() {
	q.closed.Store(true)
	token(q.filled)
}
