package sim

import (
	"math/bits"
	"sync"
	"time"
)

// What happens at one instant of fake time happens in any order, and on several
// cores at once. So there is at most one event at an instant: a sleep ends at an
// instant whose rest, divided by the period, is that of the sleeper's class.
// All that an event sets off without a sleep is over before the next one.
const period = 200 * time.Nanosecond

// The classes.
const (
	ofServices time.Duration = 0   // and the 63 behind it: one to each effect that runs
	ofClaims   time.Duration = 64  // likewise: one to each claim that the store is asked for
	ofRecords  time.Duration = 128 // likewise: other calls of the store
	ofParked   time.Duration = 192 // what waits out a backoff
	ofClaimed  time.Duration = 193 // what comes out of the claim window
	ofCrash    time.Duration = 198
	ofSource   time.Duration = 199
)

// clock counts from the start of the run.
type clock struct {
	start time.Time

	mu     sync.Mutex
	parked map[time.Duration]bool // instants that are taken
}

func newClock() *clock {
	return &clock{start: time.Now(), parked: map[time.Duration]bool{}}
}

func (c *clock) now() time.Duration { return time.Since(c.start) }

// sleep ends at the first instant of the class that is not before at.
func (c *clock) sleep(at, class time.Duration) {
	time.Sleep(aligned(at, class) - c.now())
}

func aligned(at, class time.Duration) time.Duration {
	return at + (class-at%period+period)%period
}

// park returns a wait that is hardly longer than d and ends when no other does.
func (c *clock) park(d time.Duration) time.Duration {
	now := c.now()
	at := aligned(now+d, ofParked)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.parked[at] {
		at += period
	}
	c.parked[at] = true
	return at - now
}

// slots hands out classes to those who sleep at the same time.
type slots struct {
	mu   sync.Mutex
	used uint64
}

// sleep takes the lowest free slot for d.
func (s *slots) sleep(c *clock, d, class time.Duration) {
	s.mu.Lock()
	slot := bits.TrailingZeros64(^s.used)
	s.used |= 1 << slot
	s.mu.Unlock()
	c.sleep(c.now()+d, class+time.Duration(slot))
	s.mu.Lock()
	s.used &^= 1 << slot
	s.mu.Unlock()
}
