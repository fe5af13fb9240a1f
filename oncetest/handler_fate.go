package oncetest

import (
	"errors"
	"fmt"
	"slices"
)

// What becomes of a goroutine that stands at a step.

// decide says how an act goes on that stands before or behind its step.
func (s *sim) decide(a *act) {
	if a.process.dead.Load() {
		s.tell(a, verdict{kill: true})
		return
	}
	if a.done {
		s.behind(a)
		return
	}
	if !a.numbered {
		a.numbered = true
		fits := atStep
		if a.ack {
			fits = atAck
		}
		s.steps = append(s.steps, fits)
		for _, kind := range s.plan.at(len(s.steps)) {
			if kind&fits != 0 {
				a.todo = append(a.todo, kind)
			}
		}
	}
	for len(a.todo) > 0 && s.fail == nil {
		kind := a.todo[0]
		a.todo = a.todo[1:]
		s.fired++
		if s.happens(a, kind) {
			return
		}
	}
	if a.ack {
		s.settle(a)
		return
	}
	if s.now() < s.outage {
		s.refuse(a)
		return
	}
	s.says(a, a.name)
	s.tell(a, verdict{again: a.after != 0 || s.trace})
	s.await()
}

// happens lets a fault come over an act. It reports whether the act is dealt
// with for now.
func (s *sim) happens(a *act, kind Faults) bool {
	switch kind {
	case Copy, CopyElsewhere:
		r := s.runOf(a)
		instance := r.process.instance
		if kind == CopyElsewhere {
			instance = 3 - instance
		}
		s.says(a, fmt.Sprintf("stands before %q", a.name))
		s.held = append(s.held, a)
		s.sendAt(instance, r.id)
	case Overflow:
		s.says(a, fmt.Sprintf("stands before %q", a.name))
		s.held = append(s.held, a)
		s.overflow(s.runOf(a).id)
	case Switch:
		s.held = slices.Insert(s.held, 0, a)
	case FailBefore:
		s.refuse(a)
	case Outage:
		s.story.alone("an outage begins")
		s.outage = s.now() + s.redelivery/2
		s.refuse(a)
	case LostAck:
		s.says(a, "the ack is lost")
		a.run.acked.Store(true)
		a.run.void = true
		s.again(a.run.delivery, errors.New("the ack was lost"))
		s.tell(a, verdict{})
		s.await()
	case CrashBefore:
		s.says(a, fmt.Sprintf("before %q the process is killed", a.name))
		s.kill(a.process)
		s.tell(a, verdict{kill: true})
		s.await()
	case CutBefore:
		s.says(a, fmt.Sprintf("before %q the time-out passes", a.name))
		s.cut(a)
		s.tell(a, verdict{})
		s.await()
	default: // FailAfter, CrashAfter, CutAfter
		a.after |= kind
		return false
	}
	return true
}

// refuse lets a step fail that is not done.
func (s *sim) refuse(a *act) {
	s.says(a, a.name+" fails")
	s.tell(a, verdict{err: ErrInjected})
	s.await()
}

// behind goes on behind a step that was done.
func (s *sim) behind(a *act) {
	if s.trace {
		s.look(s.runOf(a).id)
	}
	v := verdict{}
	for _, kind := range a.after.each() {
		switch kind {
		case FailAfter:
			s.says(a, "its reply is lost")
			v.err = ErrInjected
		case CrashAfter:
			s.says(a, "then the process is killed")
			s.kill(a.process)
			v.kill = true
		case CutAfter:
			s.says(a, "then the time-out passes")
			s.cut(a)
			v.cut = true
		}
	}
	s.tell(a, v)
	s.await()
}

// runOf is the run that an act belongs to: of a pipeline's goroutine that of the
// item, and the latest one where nobody knows.
func (s *sim) runOf(a *act) *run {
	switch {
	case a.run != nil:
		return a.run
	case a.item != nil:
		return a.item
	default:
		return s.last
	}
}

func (s *sim) says(a *act, text string) { s.story.says(s.runOf(a), text) }

// overflow lets other messages overtake, and all come again.
func (s *sim) overflow(id int) {
	s.story.alone("the buffer is full: others overtake, and the sender sends all of them again")
	const others = 4
	first := len(s.copies) + len(s.queue) + 1
	for range 2 {
		for other := first; other < first+others; other++ {
			s.sendAt(1, other)
		}
	}
	s.sendAt(s.last.process.instance, id)
}

// cut lets the time-out of an act's run pass. The broker takes the message back.
func (s *sim) cut(a *act) {
	r := s.runOf(a)
	if !r.void && !r.settled {
		s.takeBack(r)
	}
	s.pass(r.deadline-s.now(), false)
	// A goroutine of the clock's ends the run's context, and then those that derive
	// from it, one of which the step has.
	s.until(func() bool { return s.realTime && a.ctx.Err() != nil })
}
