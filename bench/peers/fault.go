package main

import (
	"hash/fnv"
	"strconv"
	"time"
)

// fault is what goes wrong while messages are written.
type fault struct {
	Name string // of a column
	What string // a sentence

	prefetch, buffer int
	work             time.Duration // of a write
	backoff          time.Duration
	requeue          bool // not a fault that a writer meets, but how it is written: it counts for nobody

	copyAtBegin bool                        // each message comes again while it is first written
	copyAtEnd   bool                        // each message comes again when it has been written
	before      func(key, attempt int) bool // the write fails and does nothing
	after       func(key, attempt int) bool // the write is done, and its reply lost
	slow        int                         // the first so many messages fail once and have a long backoff
	stop        bool                        // the writer is stopped in the middle, and begins anew
}

// What all faults have in common.
const (
	workers  = 4
	attempts = 4
)

func faults() []fault {
	common := fault{prefetch: 16, buffer: 16, work: time.Millisecond, backoff: 2 * time.Millisecond}
	with := func(name, what string, change func(*fault)) fault {
		f := common
		f.Name, f.What = name, what
		change(&f)
		return f
	}
	return []fault{
		with("copy in flight", "each message comes again while it is being written", func(f *fault) {
			f.copyAtBegin, f.prefetch, f.work = true, workers/2, 5*time.Millisecond
		}),
		with("copy afterwards", "each message comes again after it was written", func(f *fault) {
			f.copyAtEnd = true
		}),
		with("fails before", "one write in five fails and has done nothing", func(f *fault) {
			f.before = oneIn(5)
		}),
		with("outage", "one message in twenty fails ten times on end, which is longer than attempts in place go on", func(f *fault) {
			f.before = func(key, attempt int) bool { return key%20 == 7 && attempt <= 10 }
		}),
		with("reply lost", "one write in five is done and then reports an error", func(f *fault) {
			f.after = oneIn(5)
		}),
		with("slow item", "the first four messages fail once and wait half a second: as many as there are workers", func(f *fault) {
			f.slow, f.backoff = workers, 500*time.Millisecond
		}),
		with("re-queue, full", "every write fails once, and the worker puts the message back into the queue, which is full", func(f *fault) {
			f.requeue, f.prefetch, f.buffer = true, 0, 8
			f.before = func(_, attempt int) bool { return attempt == 1 }
		}),
		with("stopped half-way", "the context ends when half of the writes have begun, in the middle of some; then a new run gets what was not acked", func(f *fault) {
			f.stop = true
		}),
	}
}

// oneIn is true for about one attempt in n, for the same ones every time.
func oneIn(n uint32) func(key, attempt int) bool {
	return func(key, attempt int) bool {
		h := fnv.New32a()
		h.Write([]byte(strconv.Itoa(key) + "/" + strconv.Itoa(attempt)))
		return h.Sum32()%n == 0
	}
}
