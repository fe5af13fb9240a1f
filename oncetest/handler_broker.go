package oncetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// The simulation as a broker: it delivers, takes acknowledgements, delivers again,
// and looks at what the messages have brought about.

// delivered lists the messages that were delivered.
func (s *sim) delivered() []int {
	var ids []int
	for id := range s.copies {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// repeat waits for the next repetition, or for a sign of life.
func (s *sim) repeat() {
	next := s.later[0]
	if wait := next.due - s.now(); wait > 0 && s.pass(wait, true) {
		return
	}
	s.later = s.later[1:]
	s.queue = append(s.queue, next)
}

// sendAt sends a copy of a message to an instance.
func (s *sim) sendAt(instance, id int) {
	d := &delivery{id: id}
	s.instance[d] = instance
	s.urgent = append(s.urgent, d)
}

// settle acknowledges the message of an act, unless the broker has taken it back.
func (s *sim) settle(a *act) {
	r := a.run
	s.says(a, "ack")
	if !r.void {
		r.settled = true
	}
	r.acked.Store(true)
	if n, ok := s.count(r.id, answerWithin); ok && n == 0 {
		s.blame(Lost, r.name+" is acknowledged, and its effect is not there")
	}
	s.tell(a, verdict{})
	s.await()
}

// again lets a delivery come again.
func (s *sim) again(d *delivery, err error) {
	d.err = err
	d.repeated++
	if limit := 10 + 2*len(s.plan.events); d.repeated > limit {
		s.blame(Unsettled, fmt.Sprintf("%s was delivered %d times, and the last time: %v", s.program.name(d.id), d.repeated, err))
		return
	}
	d.due = s.now() + s.redelivery
	s.later = append(s.later, d)
}

// pending lists the runs whose time-out is still to come.
func (s *sim) pending() []*run {
	var list []*run
	for _, p := range s.running() {
		for _, r := range p.runs {
			if !r.void && !r.settled {
				list = append(list, r)
			}
		}
	}
	return list
}

// takeBack is what a broker does whose message was not acknowledged in time.
func (s *sim) takeBack(r *run) {
	r.void = true
	s.again(r.delivery, context.DeadlineExceeded)
}

// hear takes note of a signal.
func (s *sim) hear(sig signal) {
	s.beat.Add(1)
	if sig.act != nil {
		delete(s.going, sig.act.who())
	}
	delete(s.going, sig.ended)
	switch a := sig.act; {
	case sig.aside:
		delete(s.going, aside{})
		s.active--
		s.asides--
	case sig.ended != nil:
		s.ended(sig)
	case a.process.dead.Load():
		s.tell(a, verdict{kill: true})
	case a.enter, a.leave:
		s.enter(a)
		s.tell(a, verdict{})
	case a.reply:
		s.reply(a)
		s.tell(a, verdict{})
	default:
		s.ready = append(s.ready, a)
	}
}

func (s *sim) enter(a *act) {
	if a.run == nil && a.item == nil {
		return // nobody knows whose it is
	}
	r := s.runOf(a)
	other := s.inside[r.id]
	switch {
	case a.leave:
		if other == r {
			delete(s.inside, r.id)
		}
		return
	case other != nil && other != r && other.ctx.Err() == nil && !other.process.dead.Load():
		s.story.says(r, "goes to work, too")
		s.blame(Together, "two are at work on "+r.name+" at once")
	}
	s.inside[r.id] = r
}

func (s *sim) reply(a *act) {
	r := s.runOf(a)
	if first := s.replies[r.id]; first == nil {
		s.replies[r.id] = &a.value
	} else if !reflect.DeepEqual(*first, a.value) {
		s.story.says(r, "answers differently")
		s.blame(Differs, fmt.Sprintf("%s was answered with %v, and then with %v", r.name, *first, a.value))
	}
}

// ended settles the delivery of a run that is over.
func (s *sim) ended(sig signal) {
	r := sig.ended
	if r.process.dead.Load() {
		s.ghosts--
		return
	}
	s.active--
	r.process.runs = slices.DeleteFunc(r.process.runs, func(other *run) bool { return other == r })
	if s.inside[r.id] == r {
		delete(s.inside, r.id)
	}
	switch {
	case r.void, r.settled:
	case sig.how == returned && oncepipe.IsPermanent(sig.err):
		s.story.says(r, fmt.Sprintf("gives up: %.80v", sig.err))
		r.settled, s.dead[r.id] = true, true
		switch {
		case s.fired == 0:
			s.blame(GivenUp, fmt.Sprintf("%s is given up though nothing has failed: %v", r.name, sig.err))
		case s.noLetters:
			s.blame(GivenUp, fmt.Sprintf("%s is given up: %v", r.name, sig.err))
		}
	case sig.how == returned:
		s.story.says(r, "returns an error: "+oneLine(sig.err))
		s.again(r.delivery, sig.err)
	default:
		if sig.err == nil {
			sig.err = errors.New("the goroutine has ended")
		}
		s.story.says(r, fmt.Sprintf("ends with %.80v", sig.err))
		if s.fired == 0 {
			s.blame(Panicked, fmt.Sprintf("the handler of %s does not return: %v", r.name, sig.err))
		}
		s.again(r.delivery, sig.err)
	}
	s.look(r.id)
}

// look checks that a message has no more effects than it may have.
func (s *sim) look(id int) { s.lookWithin(id, answerWithin) }

// lookWithin is look with a limit in real time. It returns what it saw.
func (s *sim) lookWithin(id int, limit time.Duration) (n int, ok bool) {
	n, ok = s.count(id, limit)
	if !ok {
		return 0, false
	}
	if n != s.effects[id] {
		s.effects[id] = n
		s.story.remark(effectsAre(n))
	}
	if n > 1 {
		s.blame(Twice, fmt.Sprintf("%s has %d effects", s.program.name(id), n))
	}
	return n, true
}

func effectsAre(n int) string {
	if n == 1 {
		return " (1 effect)"
	}
	return fmt.Sprintf(" → %d effects", n)
}

// answerWithin is how long a server's answer may take while runs are held.
const answerWithin = time.Second

// count asks the program for a message's effects. It has no answer where that
// has to wait for a run that is held, nor within limit in real time.
func (s *sim) count(id int, limit time.Duration) (n int, ok bool) {
	got := make(chan int, 1)
	s.counting.Add(1)
	go s.effectsOf(id, got)
	if s.realTime { // a server's answer may take longer than a step
		select {
		case n = <-got:
			return n, true
		case <-time.After(limit):
			return 0, false
		}
	}
	ok = s.until(func() bool {
		select {
		case n = <-got:
			return true
		default:
			return false
		}
	})
	if !ok && s.active+s.ghosts == 0 && !s.stuck() { // nobody else is there: it may take its time
		select {
		case n = <-got:
			ok = true
		case <-time.After(s.timeout):
		}
	}
	return n, ok
}

// effectsOf asks the program. A panic is kept for the end of the schedule.
func (s *sim) effectsOf(id int, got chan<- int) {
	defer s.counting.Add(-1)
	defer func() {
		if r := recover(); r != nil {
			s.fault("Effects of "+s.program.name(id), r)
			close(got)
		}
	}()
	ordered(&s.order)
	n := s.program.effects(id)
	ordered(&s.order)
	got <- n
}

// ordered makes what the caller does next happen after all that was done before,
// also for the race detector: that the simulation lets one go on at a time is
// nothing that it knows of.
func ordered(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
}

// verify checks every message when all is done. Now there is nothing that Effects
// could have to wait for.
func (s *sim) verify() {
	for _, id := range s.delivered() {
		n, ok := s.lookWithin(id, 20*time.Second) // there is nothing to wait for but a busy machine
		switch {
		case !ok:
			err := fmt.Errorf("oncetest: Effects of %s does not answer", s.program.name(id))
			s.trouble.CompareAndSwap(nil, &err)
		case n == 0 && !s.dead[id]:
			s.blame(Lost, s.program.name(id)+" is acknowledged, and its effect is not there")
		}
	}
}

// blame ends the schedule; the first one counts.
func (s *sim) blame(b Blame, what string) {
	if s.fail == nil {
		s.fail = &Failure{Blame: b, What: what}
	}
}
