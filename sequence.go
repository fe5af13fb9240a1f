package oncepipe

import (
	"errors"
	"sync"
)

var errPredecessor = errors.New("oncepipe: an item before it in its partition was returned")

// sequencer stands in front of the workers of an Ordered or PerPartition stage:
// one goroutine reads the input, so that there is an order to keep. Every item
// that it lets in holds a slot until it is over, so that nothing here blocks for
// want of room.
type sequencer[A, B any] struct {
	s    *stage[A, B]
	work chan job[A] // as large as there are slots

	mu sync.Mutex

	// Ordered: finished items by their place, until all before them are emitted.
	count    uint64 // places given
	next     uint64 // place to emit
	ring     []emission[B]
	emitting bool

	// PerPartition: items that wait for the one before them, by partition. A
	// partition with an item in the stage has an entry.
	waiting map[uint64][]job[A]
	broken  map[uint64]bool // partitions of which an item was returned by the drain
}

type emission[B any] struct {
	full bool
	emit bool // false: the item is settled, its place is skipped
	item item[B]
}

func newSequencer[A, B any](s *stage[A, B]) *sequencer[A, B] {
	return &sequencer[A, B]{
		s:       s,
		work:    make(chan job[A], s.policy.Slots),
		ring:    make([]emission[B], s.policy.Slots),
		waiting: map[uint64][]job[A]{},
		broken:  map[uint64]bool{},
	}
}

// dispatch hands the input to the workers until it ends.
func (q *sequencer[A, B]) dispatch() {
	s := q.s
	for {
		select {
		case s.slots <- struct{}{}:
		case <-s.p.handlers.Done():
			return
		}
		var it item[A]
		if !q.receive(&it) {
			return
		}
		j := job[A]{item: it}
		q.enroll(&j)
		q.enter(j)
	}
}

// receive returns false when the input has ended or the pipeline stopped.
func (q *sequencer[A, B]) receive(it *item[A]) bool {
	s := q.s
	for !s.in.take(it) {
		if s.in.ended() {
			s.inputClosed.Store(true)
			s.release()
			return false
		}
		if s.in.await() {
			select {
			case <-s.in.filled:
			case <-s.p.handlers.Done():
			}
		}
		s.in.awake()
		if s.p.hard.Load() {
			return false
		}
	}
	return true
}

// enroll gives j its place in the order.
func (q *sequencer[A, B]) enroll(j *job[A]) {
	if !q.s.opt.ordered {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	j.retry = &retryState{seq: q.count}
	q.count++
}

// enter lets j run, or wait for those before it in its partition. During a
// drain, an item whose predecessor was returned is returned too.
func (q *sequencer[A, B]) enter(j job[A]) {
	part := j.t.partition
	if q.s.opt.ordered || part == 0 {
		q.work <- j
		return
	}
	q.mu.Lock()
	line, busy := q.waiting[part]
	broken := q.broken[part]
	switch {
	case broken:
	case busy:
		q.waiting[part] = append(line, j)
	default:
		q.waiting[part] = nil
	}
	q.mu.Unlock()
	switch {
	case broken:
		q.s.returned(j.item, 0, ErrShutdown)
		q.s.release()
	case !busy:
		q.work <- j
	}
}

// over ends an item's stay.
func (q *sequencer[A, B]) over(j job[A], returned bool) {
	if q.s.opt.ordered {
		q.put(j.retry.seq, emission[B]{full: true})
		return
	}
	if part := j.t.partition; part != 0 {
		q.leave(part, returned)
	}
	q.s.release()
}

// leave lets the next item of a partition run, or returns all of them with the
// one that was.
func (q *sequencer[A, B]) leave(part uint64, returned bool) {
	q.mu.Lock()
	line := q.waiting[part]
	switch {
	case len(line) == 0 || returned:
		delete(q.waiting, part)
		if returned && q.s.p.isDraining() {
			q.broken[part] = true
		}
	default:
		q.waiting[part] = line[1:]
	}
	q.mu.Unlock()
	if !returned && len(line) > 0 {
		q.work <- line[0]
		return
	}
	for _, j := range line {
		err := errPredecessor
		if q.s.p.isDraining() {
			err = q.s.leftover(j)
		}
		q.s.returned(j.item, 0, err)
		q.s.release()
	}
}

// put notes that the item at a place is finished, and emits what is next in
// order, unless another worker is at it.
func (q *sequencer[A, B]) put(seq uint64, e emission[B]) {
	q.mu.Lock()
	q.ring[seq%uint64(len(q.ring))] = e
	busy := q.emitting
	q.emitting = true
	q.mu.Unlock()
	if !busy {
		q.emitReady()
	}
}

func (q *sequencer[A, B]) emitReady() {
	ended := false
	defer func() {
		if !ended { // by Goexit in an operator: somebody has to go on
			q.s.release()
			q.s.p.spawn(q.emitReady)
		}
	}()
	for {
		q.mu.Lock()
		place := &q.ring[q.next%uint64(len(q.ring))]
		e := *place
		if !e.full {
			q.emitting = false
			q.mu.Unlock()
			ended = true
			return
		}
		*place = emission[B]{}
		q.next++
		q.mu.Unlock()
		if e.emit {
			q.s.out.pass(e.item)
		}
		q.s.release()
	}
}

// sweep returns what waits here after a hard stop.
func (q *sequencer[A, B]) sweep() []job[A] {
	var left []job[A]
	for j := range queued(q.work) {
		left = append(left, j)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, line := range q.waiting {
		left = append(left, line...)
	}
	clear(q.waiting)
	for i, e := range q.ring {
		if e.emit {
			left = append(left, job[A]{item: item[A]{t: e.item.t}})
		}
		q.ring[i] = emission[B]{}
	}
	return left
}
