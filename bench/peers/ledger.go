package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
)

// ledger is the other side: it takes writes and counts them by message.
type ledger struct {
	f    fault
	b    *broker
	half func() // is called when as many writes have begun as a fault waits for

	mu       sync.Mutex
	begun    int // attempts, of all
	attempts []int
	writes   []int
	written  int // messages that have a write
	before   int // messages that had one when the first slow one was tried again; -1: none was
}

var (
	errFault     = errors.New("the write failed")
	errReplyLost = errors.New("the reply was lost")
)

func messages(n int) []msg {
	list := make([]msg, n)
	for i := range list {
		list[i] = msg{"write-" + strconv.Itoa(i), i}
	}
	return list
}

func newLedger(f fault, n int, half func()) *ledger {
	return &ledger{
		f: f, b: newBroker(messages(n), f.prefetch), half: half,
		attempts: make([]int, n), writes: make([]int, n), before: -1,
	}
}

// write is the work of a writer.
func (l *ledger) write(ctx context.Context, d *delivery) error {
	attempt, half := l.begin(d.N)
	if half {
		l.half()
	}
	if l.f.copyAtBegin && attempt == 1 {
		l.b.copy(d.msg)
	}
	if err := pause(ctx, l.f.work); err != nil {
		return err
	}
	if l.fails(d.N, attempt) {
		return errFault
	}
	l.count(d.N)
	if l.f.copyAtEnd && attempt == 1 {
		l.b.copy(d.msg)
	}
	if l.f.after != nil && l.f.after(d.N, attempt) {
		return errReplyLost
	}
	return nil
}

func (l *ledger) fails(n, attempt int) bool {
	return n < l.f.slow && attempt == 1 || l.f.before != nil && l.f.before(n, attempt)
}

// begin counts the attempt and says whether it is the one at which the run is to stop.
func (l *ledger) begin(n int) (attempt int, half bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	l.attempts[n]++
	if n < l.f.slow && l.attempts[n] == 2 && l.before < 0 {
		l.before = l.written
	}
	return l.attempts[n], l.f.stop && l.begun == len(l.writes)/2
}

func (l *ledger) count(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[n]++
	if l.writes[n] == 1 {
		l.written++
	}
}

// has answers one who asks whether a write is there.
func (l *ledger) has(_ context.Context, d *delivery) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes[d.N] > 0, nil
}

// sums are the messages that were never written, the writes beyond the first, and
// the messages written while the first slow one waited.
func (l *ledger) sums() (lost, doubled, before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.writes {
		if n == 0 {
			lost++
		} else {
			doubled += n - 1
		}
	}
	return lost, doubled, l.before
}
