package main

import (
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// broker delivers each message until it is settled for good, and makes the faults
// that are a broker's or a sender's.
type broker struct {
	fault  fault
	window *window // nil: it takes what it is sent

	mu       sync.Mutex
	messages []*message
	ready    []*entry
	held     []*entry // until the next restart
	restarts int      // still to come
	absent   int      // processes that have to be there before anything is delivered
	left     int      // entries that are not settled for good
	faults   int      // that were made
	next     int      // number of a delivery
	begun    time.Time
	ended    time.Time
	changed  chan struct{} // closed at the next change; nil: nobody waits
}

// message is what the sender wants done once, however often it sends it.
type message struct {
	key   string
	hit   bool
	open  int      // entries that are not settled for good
	meets *meeting // nil before anybody has come

	acked, shed, dead bool // how its entries were settled for good
}

// entry is a message in the queue. One that is sent twice is there twice.
type entry struct {
	message  *message
	attempts int
	not      *consumer // that has it already
}

// meeting is where two copies wait for one another.
type meeting struct {
	come int
	over chan struct{}
	done bool
}

func (m *meeting) end() {
	if m != nil && !m.done {
		m.done = true
		close(m.over)
	}
}

// change calls f under the lock and then wakes those who wait.
func (b *broker) change(f func()) {
	b.mu.Lock()
	f()
	waiting := b.changed
	b.changed = nil
	if b.left == 0 && b.ended.IsZero() {
		b.ended = time.Now()
	}
	b.mu.Unlock()
	if waiting != nil {
		close(waiting)
	}
}

// send puts m into the queue, unless the window remembers it.
func (b *broker) send(m *message, first bool) {
	if b.window != nil && b.window.knows(m.key) {
		return
	}
	b.left++
	m.open++
	if e := (&entry{message: m}); first {
		b.ready = slices.Insert(b.ready, 0, e)
	} else {
		b.ready = append(b.ready, e)
	}
}

// again puts e back, in front of the others.
func (b *broker) again(e *entry) { b.ready = slices.Insert(b.ready, 0, e) }

// restart delivers what was held for it.
func (b *broker) restart() {
	b.change(func() {
		b.restarts--
		b.ready = slices.Insert(b.ready, 0, b.held...)
		b.held = nil
	})
}

// join notes that one of the processes is there that all wait for.
func (b *broker) join() { b.change(func() { b.absent = max(0, b.absent-1) }) }

// settle takes the answer for a delivery of c's.
func (b *broker) settle(c *consumer, delivery int, s oncepipe.Settlement) {
	b.change(func() {
		e := c.out[delivery]
		if e == nil {
			return // its hold was over
		}
		delete(c.out, delivery)
		m := e.message
		switch {
		case s.Outcome == oncepipe.Returned, s.Outcome == oncepipe.Shed && b.fault.returnsShed:
			time.AfterFunc(max(s.Delay, time.Millisecond), func() {
				b.change(func() { b.ready = append(b.ready, e) })
			})
			return
		case b.losesAck(e):
			b.faults++
			if b.fault.restarts > 0 {
				b.held = append(b.held, e)
			} else {
				b.again(e)
			}
			return
		case s.Outcome == oncepipe.Dead:
			m.dead = true
		case s.Outcome == oncepipe.Shed:
			m.shed = true
		default:
			m.acked = true
		}
		b.left--
		m.open--
		m.meets.end()
	})
}

func (b *broker) losesAck(e *entry) bool {
	return b.fault.ackLost && e.message.hit && e.attempts == 1 && (b.fault.restarts == 0 || b.restarts > 0)
}

// arrive notes that a delivery is about to have its effect, and makes the other
// copy come. Who wants to meet it waits for the end of over.
func (b *broker) arrive(c *consumer, delivery int) (over <-chan struct{}) {
	b.change(func() {
		e := c.out[delivery]
		if e == nil {
			return // its hold was over
		}
		m := e.message
		if m.meets == nil {
			m.meets = &meeting{over: make(chan struct{})}
		}
		m.meets.come++
		over = m.meets.over
		if m.meets.come > 1 {
			m.meets.end()
			return
		}
		alone := false
		switch b.fault.come {
		case sentAgain:
			b.faults++
			b.send(m, true)
			alone = m.open == 1
		case holdsOver:
			b.faults++
			delete(c.out, delivery)
			e.not = c
			b.again(e)
		case sentBehind:
			alone = m.open == 1
		}
		if alone {
			m.meets.end()
		}
	})
	return over
}

// window is the memory of a broker that drops what it was sent before, as SQS FIFO
// and JetStream do. It has the last keys.
type window struct {
	size int
	keys map[string]bool
	old  []string
}

func newWindow(size int) *window { return &window{size: size, keys: map[string]bool{}} }

// knows reports whether key is there, and remembers it.
func (w *window) knows(key string) bool {
	if w.keys[key] {
		return true
	}
	w.keys[key] = true
	w.old = append(w.old, key)
	if len(w.old) > w.size {
		delete(w.keys, w.old[0])
		w.old = w.old[1:]
	}
	return false
}
