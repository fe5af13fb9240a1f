package oncetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// explorer looks for a schedule that shows a fault.
type explorer struct {
	lab
	faults    Faults
	schedules int
	messages  int
	seed      uint64
	tried     int
	locks     bool // some run has waited for a lock
}

// check says what is wrong with a service.
func (x *explorer) check() error {
	switch {
	case x.faults&^AllFaults != 0:
		return fmt.Errorf("oncetest: unknown faults %b", x.faults&^AllFaults)
	case x.schedules < 0:
		return fmt.Errorf("oncetest: %d schedules", x.schedules)
	case x.messages < 0 || x.messages > maxMessages:
		return fmt.Errorf("oncetest: %d messages", x.messages)
	}
	return nil
}

func (x *explorer) defaults() {
	if x.faults == 0 {
		x.faults = AllFaults
	}
	if x.schedules == 0 {
		x.schedules = DefaultSchedules
		if testing.Testing() && testing.Short() {
			x.schedules /= 5
		}
	}
	x.watch, x.beat = newWatch(), new(atomic.Int64)
	if x.messages == 0 {
		x.messages = 2
	}
	if x.timeout == 0 {
		x.timeout = 10 * time.Second
		if x.realTime {
			x.timeout = 100 * time.Millisecond
		}
	}
	if x.redelivery == 0 {
		x.redelivery = time.Minute
		if x.realTime {
			x.redelivery = 200 * time.Millisecond
		}
	}
}

// explore tries schedules in the order of how many faults they have, so that
// the first one that fails is a short one. All with one fault come before those
// with two, which are mixed with random ones that have more.
func (x *explorer) explore() error {
	none := schedule{messages: x.messages}
	out, err := x.try(none)
	if err != nil || out.fail != nil {
		return x.report(none, out, err)
	}
	steps := len(out.steps)
	var two []schedule
	for _, s := range none.next(x.faults, out.steps) {
		if x.tried >= x.schedules {
			return nil
		}
		out, err := x.try(s)
		if err != nil || out.fail != nil {
			return x.report(s, out, err)
		}
		two = append(two, s.next(x.faults, out.steps)...)
	}
	rnd := rand.New(rand.NewPCG(x.seed, 0))
	rnd.Shuffle(len(two), func(i, j int) { two[i], two[j] = two[j], two[i] })
	for x.tried < x.schedules {
		s := randomSchedule(rnd, x.faults, x.messages, steps)
		if len(two) > 0 && x.tried%4 != 0 {
			s, two = two[0], two[1:]
		}
		out, err := x.try(s)
		if err != nil || out.fail != nil {
			return x.report(s, out, err)
		}
	}
	return nil
}

// replay runs one schedule, as it is.
func (x *explorer) replay(s schedule) error {
	x.trace = true
	out, err := x.try(s)
	if err != nil || out.fail == nil {
		return err
	}
	return out.fail
}

// report looks for the simplest schedule that fails like s, and tells its story.
func (x *explorer) report(s schedule, out outcome, err error) error {
	if err != nil {
		return err
	}
	tried := x.tried
	for budget := 300; budget > 0; {
		smaller := s.smaller()
		found := false
		for _, c := range smaller {
			if !c.within(x.faults) {
				continue
			}
			budget--
			o, err := x.try(c)
			if err == nil && o.fail != nil {
				s, out, found = c, o, true
				break
			}
			if budget == 0 {
				break
			}
		}
		if !found {
			break
		}
	}
	x.trace = true
	if told, err := x.try(s); err == nil && told.fail != nil {
		out = told
	}
	out.fail.Tried = tried
	return out.fail
}

// try runs a schedule. Where the program leaves goroutines that nothing can
// wake any more, these stay.
func (x *explorer) try(s schedule) (outcome, error) {
	x.tried++
	x.careful = x.locks || x.tried <= carefulFirst
	a, ok := x.attempt(s)
	if !ok {
		x.careful, x.locks = true, true
		a, _ = x.attempt(s)
	}
	x.locks = x.locks || a.locked
	return a.outcome, a.err
}

// carefulFirst is how many schedules are run carefully. When no run has waited for
// a lock in these, it is unlikely that one will.
const carefulFirst = 200

type answer struct {
	outcome
	err error
}

// attempt runs a schedule. It is not ok, and left to itself, where nothing happens
// for so long that there must be a lock that only a careful run can go on from.
func (x *explorer) attempt(s schedule) (a answer, ok bool) {
	answers, ended := make(chan answer, 2), make(chan struct{})
	go func() {
		defer close(ended)
		x.run(s, answers)
	}()
	stall := time.NewTicker(500 * time.Millisecond)
	defer stall.Stop()
	still := 0 // looks since something has happened
	for beat := int64(-1); ; beat = x.beat.Load() {
		select {
		case a = <-answers:
			// A bubble ends at once, or never: then what its goroutines wait for is gone.
			patient := time.Second
			if a.fail != nil {
				patient = 20 * time.Millisecond
			}
			select {
			case <-ended:
			case <-time.After(patient):
			}
			return a, true
		case <-stall.C:
			still++
			if x.beat.Load() != beat {
				still = 0
			}
			switch {
			case x.realTime:
			case !x.careful && still > 0:
				return answer{}, false
			case still > 40:
				return answer{err: fmt.Errorf("oncetest: schedule %s: nothing has happened for 20 s: a goroutine goes round without waiting, "+
					"or waits for something from outside of its synctest bubble; see Service.RealTime", s)}, true
			}
		}
	}
}

// run simulates a schedule. The first answer counts: a bubble may never end.
func (x *explorer) run(s schedule, answers chan<- answer) {
	last := answer{err: errors.New("oncetest: the program ended the simulation's goroutine")}
	defer func() { answers <- last }()
	simulate := func() { answers <- answer{outcome: x.simulate(s)} }
	var err error
	if x.realTime {
		err = recovered(func() error { simulate(); return nil })
	} else {
		err = inBubble(func() {
			simulate()
			time.Sleep(noReturn) // for goroutines of killed processes that wait for the clock
		})
	}
	if err != nil {
		last.err = fmt.Errorf("schedule %s: %w", s, err)
	}
}
