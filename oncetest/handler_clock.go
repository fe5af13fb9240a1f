package oncetest

import (
	"runtime"
	"slices"
	"testing/synctest"
	"time"
)

// Who may go on, and when time may go by.

const noReturn = time.Hour

// now is the time since the schedule began.
func (s *sim) now() time.Duration { return time.Since(s.began) }

// alone says that one run is going on, and nothing else is there that could.
func (s *sim) alone() bool {
	return len(s.going) == 1 && s.active == 1 && len(s.held)+len(s.ready)+len(s.urgent) == 0 && !s.others() && !s.realTime
}

// others says that there may be goroutines of the program beside its runs.
func (s *sim) others() bool { return s.async || s.ghosts > 0 }

// await lets the program go on until all that was told to stands at a step or
// has ended, or nothing can go on.
func (s *sim) await() {
	if s.alone() {
		// It may take all the time it wants: nobody else is to go on meanwhile.
		if s.careful && s.stuck() {
			s.blame(Stuck, stuckOn)
		} else {
			s.next(noReturn)
		}
		clear(s.going)
		return
	}
	still := func() bool {
		for s.receive() {
		}
		return len(s.going) == 0
	}
	for s.until(still) && s.async {
		still = s.receive // there may be others
	}
	clear(s.going)
}

// receive hears one signal, if there is one.
func (s *sim) receive() bool {
	select {
	case sig := <-s.signals:
		s.hear(sig)
		return true
	default:
		return false
	}
}

// until waits for ready. It gives up where nothing goes on. synctest tells that at
// once, but waits for goroutines that wait for a lock, for ever where the lock's
// holder stands at a step. A careful look at each goroutine costs more, and doesn't.
func (s *sim) until(ready func() bool) bool {
	if s.realTime {
		for start := time.Now(); time.Since(start) < patience; time.Sleep(20 * time.Microsecond) {
			if ready() {
				return true
			}
		}
		return false
	}
	for range 50 {
		if ready() {
			return true
		}
		runtime.Gosched()
	}
	if !s.careful {
		synctest.Wait()
		return ready()
	}
	looks := 0
	for i := range 1_000_000 { // seconds: something waits for the outside
		if busy := s.watch.busy(); i%100 == 99 || !busy {
			is, locked := s.watch.quiet()
			looks++
			// Who holds a lock may be anybody, even a goroutine of the runtime that is about
			// to give it back; so one look is not enough.
			if is && (!locked || looks >= 3 && !busy || looks >= 50) {
				s.locked, s.everLocked = locked, s.everLocked || locked
				return ready()
			}
		}
		if ready() {
			return true
		}
		runtime.Gosched()
	}
	s.locked = false
	return false
}

// patience is how long nothing has to happen in real time until it is taken for
// all that would happen.
const patience = 20 * time.Millisecond

const stuckOn = "a run waits for a lock that nobody gives back, or whose holder waits for the clock: a fake clock stands still then, see Service.RealTime"

// pass lets time go by: d, or until the first signal if that is enough. It
// reports whether there was one.
func (s *sim) pass(d time.Duration, enough bool) (heard bool) {
	for end := s.now() + d; ; {
		if !s.realTime && (s.active > 0 || s.others()) && s.stuck() {
			if enough {
				s.blame(Stuck, stuckOn)
			}
			return false
		}
		heard := s.next(end - s.now())
		if enough {
			s.overstayed()
		}
		if heard && enough {
			return true
		}
		if s.now() >= end {
			return false
		}
	}
}

// stuck reports whether some goroutine waits for a lock, so that the clock can't
// go on.
func (s *sim) stuck() bool {
	return !s.until(func() bool { return len(s.signals) > 0 }) && s.locked
}

// next waits for a signal, at most for d. Messages whose time-out passes meanwhile
// are taken back by the broker.
func (s *sim) next(d time.Duration) (heard bool) {
	defer s.beat.Add(1)
	wait := d
	for _, r := range s.pending() {
		wait = min(wait, r.deadline-s.now())
	}
	if s.active > 0 && s.now() > 0 {
		wait = min(wait, s.timeout+s.overstay()+1)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case sig := <-s.signals:
		s.hear(sig)
		heard = true
	case <-timer.C:
	}
	for _, r := range s.pending() {
		if s.now() >= r.deadline {
			s.story.says(r, "the time-out passes")
			s.takeBack(r)
			heard = true
		}
	}
	return heard
}

// overstay is how long a handler may go on once its context has ended: to give
// back what it holds, but not until its message comes again. It is an odd time,
// which no wait of the handler's own is likely to end at.
func (s *sim) overstay() time.Duration { return s.redelivery/2 + 1234*time.Microsecond }

// overstayed blames runs that go on and on. Those at a step are held by the world.
func (s *sim) overstayed() {
	if s.fail != nil {
		return
	}
	standing := map[*run]bool{}
	for _, a := range slices.Concat(s.ready, s.held) {
		standing[s.runOf(a)] = true
	}
	for _, p := range s.running() {
		for _, r := range p.runs {
			if s.now() > r.deadline+s.overstay() && !standing[r] && !s.async {
				s.story.says(r, "goes on and on")
				s.blame(NoReturn, "the handler of "+r.name+" goes on though its context has ended")
			}
		}
	}
}
