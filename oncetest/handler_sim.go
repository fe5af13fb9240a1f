package oncetest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lab is where schedules are run.
type lab struct {
	open       func(w *World) program
	timeout    time.Duration
	redelivery time.Duration
	realTime   bool
	noLetters  bool          // a dead letter is a fault, whatever has failed
	careful    bool          // look at each goroutine
	beat       *atomic.Int64 // something has happened
	watch      *watch
	trace      bool // look at the effects after each step, for the story
}

// outcome is what came of a schedule.
type outcome struct {
	steps  []Faults // what could have happened at each
	fail   *Failure
	locked bool // some run has waited for a lock
}

// sim runs one schedule. Its goroutine decides which one of the program's goes
// on, one at a time: each waits at its steps to be told. It is the broker, too.
type sim struct {
	lab
	plan     schedule
	program  program
	world    World
	began    time.Time
	signals  chan signal
	over     atomic.Bool
	gone     chan struct{}         // closed when the schedule is over
	order    sync.Mutex            // taken and given back around what the program does: all of it is in one order
	trouble  atomic.Pointer[error] // of the program's Effects
	counting atomic.Int32          // calls of it that have not returned

	processes  map[int]*Process // that run, by instance
	handlers   map[*Process]func(ctx context.Context, id, copy int) error
	ready      []*act      // at a step that was not decided yet
	urgent     []*delivery // to be run before what is held
	instance   map[*delivery]int
	held       []*act       // the last one goes on first
	queue      []*delivery  // to be run when nothing is held
	later      []*delivery  // to be repeated
	asides     int          // cleanups that have not ended
	active     int          // runs and cleanups of living processes
	going      map[any]bool // what was told to go on and has not been heard of since
	async      bool
	everLocked bool
	locked     bool // some goroutine waited for a lock when all was quiet

	outage  time.Duration // when the last one ends
	steps   []Faults
	fired   int
	ghosts  int // runs of killed processes that have not ended
	copies  map[int]int
	dead    map[int]bool // messages that are dead letters
	effects map[int]int  // last seen, for the story
	inside  map[int]*run
	replies map[int]*any
	last    *run // that was begun
	story   story
	fail    *Failure
}

func (l lab) simulate(plan schedule) outcome {
	s := &sim{
		lab: l, plan: plan, signals: make(chan signal, 64), gone: make(chan struct{}), began: time.Now(),
		processes: map[int]*Process{}, handlers: map[*Process]func(context.Context, int, int) error{},
		instance: map[*delivery]int{}, copies: map[int]int{}, dead: map[int]bool{},
		going: map[any]bool{}, effects: map[int]int{}, inside: map[int]*run{}, replies: map[int]*any{},
	}
	s.program = s.open(&s.world)
	s.main()
	s.end()
	if s.fail != nil {
		s.fail.Story, s.fail.Replay = s.story.told(), plan.String()
	}
	if err := s.trouble.Load(); err != nil {
		panic(*err)
	}
	return outcome{steps: s.steps, fail: s.fail, locked: s.everLocked}
}

func (s *sim) main() {
	for id := 1; id <= s.plan.messages; id++ {
		s.queue = append(s.queue, &delivery{id: id})
	}
	if s.plan.has(Reorder) {
		slices.Reverse(s.queue)
	}
	s.loop()
	for _, kind := range s.plan.at(0) {
		instance := 1
		switch kind {
		case Reorder:
			continue
		case LateElsewhere:
			instance = 2
		case LateAfterRestart:
			s.restart(1)
		}
		for _, id := range s.delivered() {
			s.sendAt(instance, id)
			s.loop()
		}
	}
	for _, instance := range []int{1, 2} {
		s.stopProcess(instance)
	}
	if s.fail == nil {
		s.verify()
	}
}

// loop runs what there is to run, until all deliveries are settled.
func (s *sim) loop() {
	for s.fail == nil {
		switch {
		case len(s.ready) > 0:
			a := s.ready[0]
			s.ready = s.ready[1:]
			s.decide(a)
		case len(s.urgent) > 0:
			d := s.urgent[0]
			s.urgent = s.urgent[1:]
			s.begin(d)
		case len(s.held) > 0:
			last := len(s.held) - 1
			a := s.held[last]
			s.held = s.held[:last]
			s.decide(a)
		case len(s.queue) > 0:
			d := s.queue[0]
			s.queue = s.queue[1:]
			s.begin(d)
		case len(s.later) > 0:
			s.repeat()
		case s.active > 0:
			if !s.pass(noReturn, true) && s.fail == nil {
				s.blame(NoReturn, "a handler does not return though its context ended long ago")
			}
		default:
			return
		}
	}
}

// begin starts a run and waits until it stands at a step, has ended, or can't go
// on.
func (s *sim) begin(d *delivery) {
	p := s.process(max(1, s.instance[d]))
	s.copies[d.id]++
	r := &run{delivery: d, copy: s.copies[d.id], process: p, name: s.program.name(d.id)}
	if p.instance > 1 {
		r.where = fmt.Sprint(" to process ", p.instance)
	}
	ctx, cancel := context.WithTimeout(context.WithValue(p.ctx, runKey{}, r), s.timeout)
	r.ctx, r.deadline = ctx, s.now()+s.timeout
	s.last = r
	s.active++
	p.runs = append(p.runs, r)
	s.going[r] = true
	go s.perform(r, s.handlers[p], cancel)
	s.await()
}

// process returns the one that runs as an instance, and starts it if there is
// none.
func (s *sim) process(instance int) *Process {
	if p := s.processes[instance]; p != nil {
		return p
	}
	ctx, stop := context.WithCancelCause(context.Background())
	p := &Process{ctx: ctx, stop: stop, instance: instance, ask: s.ask, order: &s.order}
	s.processes[instance] = p
	s.handlers[p] = s.program.start(p)
	p.started.Store(true)
	if p.locks {
		s.careful, s.everLocked = true, true
	}
	s.async = s.async || p.async
	return p
}

// running lists the processes that run, the first instance first.
func (s *sim) running() []*Process {
	var list []*Process
	for instance := 1; instance <= 2; instance++ {
		if p := s.processes[instance]; p != nil {
			list = append(list, p)
		}
	}
	return list
}

// ask is called by the program's goroutines.
func (s *sim) ask(a *act) verdict {
	if s.over.Load() {
		return verdict{kill: true}
	}
	if a.process.dead.Load() {
		// Who makes a goroutine anew when one has ended must not do so for ever at one instant.
		if a.process.late.Add(1) > 1000 {
			time.Sleep(s.redelivery)
		}
		return verdict{kill: true}
	}
	select {
	case s.signals <- signal{act: a}:
	case <-s.gone:
		return verdict{kill: true}
	}
	select {
	case v := <-a.answer:
		return v
	case <-s.gone: // it came when all was over
		return verdict{kill: true}
	}
}

// kill ends a process as kill -9 does. Its goroutines end at their next step.
func (s *sim) kill(p *Process) {
	p.dead.Store(true)
	p.stop(errKilled)
	delete(s.processes, p.instance)
	mine := func(a *act) bool {
		if a.process == p {
			s.tell(a, verdict{kill: true})
		}
		return a.process == p
	}
	s.held = slices.DeleteFunc(s.held, mine)
	s.ready = slices.DeleteFunc(s.ready, mine)
	for _, r := range p.runs {
		s.active--
		s.ghosts++
		if !r.settled && !r.void {
			s.again(r.delivery, errKilled)
		}
	}
	p.runs = nil
	s.aside(p.cleanups.call)
}

var errKilled = errors.New("the process was killed")

// restart ends a process in good order; the next delivery starts a new one.
func (s *sim) restart(instance int) {
	s.stopProcess(instance)
	s.story.alone("the process is restarted")
}

func (s *sim) stopProcess(instance int) {
	for s.fail == nil && !s.realTime && s.until(s.receive) {
		s.loop() // goroutines of the program's own, on their way to a step when the last run had ended
	}
	p := s.processes[instance]
	if p == nil || s.fail != nil {
		return
	}
	p.stop(errors.New("the process ends"))
	s.aside(p.cleanups.call)
	s.loop()
	if s.processes[instance] == p {
		p.dead.Store(true)
		delete(s.processes, instance)
	}
}

// aside calls f, which may need the simulation to go on.
func (s *sim) aside(f func()) {
	s.active++
	s.asides++
	s.going[aside{}] = true
	go func() {
		defer func() {
			if r := recover(); r != nil {
				s.fault("Cleanup", r)
			}
			s.signals <- signal{aside: true}
		}()
		f()
	}()
	s.await()
}

// fault keeps a panic of the program's for the end of the schedule.
func (s *sim) fault(where string, r any) {
	err := fmt.Errorf("%s: panic: %v\n%s", where, r, debug.Stack())
	s.trouble.CompareAndSwap(nil, &err)
}

type aside struct{}

// tell lets an act go on.
func (s *sim) tell(a *act, v verdict) {
	if !v.kill {
		s.going[a.who()] = true
	}
	a.answer <- v
}

// end kills what is left.
func (s *sim) end() {
	s.over.Store(true)
	for _, p := range s.running() {
		p.dead.Store(true)
		p.stop(errKilled)
		s.aside(p.cleanups.call)
	}
	for _, a := range slices.Concat(s.ready, s.held) {
		s.tell(a, verdict{kill: true})
	}
	left := s.active > 0 || s.others() || len(s.ready)+len(s.held) > 0
	s.ready, s.held = nil, nil
	for left && s.until(s.receive) {
		for _, a := range s.ready {
			s.tell(a, verdict{kill: true})
		}
		s.ready = nil
	}
	for limit := s.now() + noReturn; s.asides+int(s.counting.Load()) > 0 && s.now() < limit && !s.stuck(); {
		s.next(time.Second) // what a process has opened may take its time to close
		for _, a := range s.ready {
			s.tell(a, verdict{kill: true})
		}
		s.ready = nil
	}
	s.world.cleanups.call()
	close(s.gone)
}
