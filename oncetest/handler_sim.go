package oncetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/oncepipe/oncepipe"
)

// lab is where schedules are run.
type lab struct {
	open       func(w *World) program
	timeout    time.Duration
	redelivery time.Duration
	realTime   bool
	watch      *watch
	trace      bool // look at the effects after each step, for the story
}

// outcome is what came of a schedule.
type outcome struct {
	steps []Faults // what could have happened at each
	fail  *Failure
}

// sim runs one schedule. Its goroutine decides which one of the program's goes
// on, one at a time: each waits at its steps to be told. It is the broker, too.
type sim struct {
	lab
	plan    schedule
	program program
	world   World
	began   time.Time
	signals chan signal
	over    atomic.Bool

	processes map[int]*Process // that run, by instance
	handlers  map[*Process]func(ctx context.Context, id, copy int) error
	ready     []*act      // at a step that was not decided yet
	urgent    []*delivery // to be run before what is held
	instance  map[*delivery]int
	held      []*act       // the last one goes on first
	queue     []*delivery  // to be run when nothing is held
	later     []*delivery  // to be repeated
	active    int          // runs and cleanups of living processes
	going     map[any]bool // what was told to go on and has not been heard of since
	async     bool

	steps   []Faults
	fired   int
	ghosts  int            // runs of killed processes that have not ended
	known   map[string]int // messages by the key that a pipeline knows them by
	latest  map[int]*run
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
		lab: l, plan: plan, signals: make(chan signal, 64), began: time.Now(),
		processes: map[int]*Process{}, handlers: map[*Process]func(context.Context, int, int) error{},
		instance: map[*delivery]int{}, copies: map[int]int{}, dead: map[int]bool{},
		going: map[any]bool{}, known: map[string]int{}, latest: map[int]*run{}, effects: map[int]int{}, inside: map[int]*run{}, replies: map[int]*any{},
	}
	s.program = s.open(&s.world)
	s.main()
	s.end()
	if s.fail != nil {
		s.fail.Story, s.fail.Replay = s.story.lines, plan.String()
	}
	return outcome{steps: s.steps, fail: s.fail}
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

// delivered lists the messages that were delivered.
func (s *sim) delivered() []int {
	var ids []int
	for id := range s.copies {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
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

const noReturn = time.Hour

// now is the time since the schedule began.
func (s *sim) now() time.Duration { return time.Since(s.began) }

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
	r.ctx = ctx
	s.last, s.latest[d.id] = r, r
	s.active++
	p.runs[r] = struct{}{}
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
	p := &Process{ctx: ctx, stop: stop, instance: instance, ask: s.ask, runs: map[*run]struct{}{}}
	s.processes[instance] = p
	s.handlers[p] = s.program.start(p)
	p.started.Store(true)
	s.async = s.async || p.async
	return p
}

// ask is called by the program's goroutines.
func (s *sim) ask(a *act) verdict {
	if s.over.Load() {
		return verdict{kill: true}
	}
	s.signals <- signal{act: a}
	return <-a.answer
}

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
		s.says(a, a.name+" fails")
		s.tell(a, verdict{err: ErrInjected})
		s.await()
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

// runOf is the run that an act belongs to. Of a goroutine of a pipeline only the
// item's key is known: it is taken for that of the message that was last begun when
// the key was first met.
func (s *sim) runOf(a *act) *run {
	switch {
	case a.run != nil:
		return a.run
	case a.key == "":
		return s.last
	case s.known[a.key] == 0:
		s.known[a.key] = s.last.id
	}
	return s.latest[s.known[a.key]]
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
	s.pass(s.timeout, false)
	if r := s.runOf(a); !r.void && !r.settled {
		r.void = true
		s.again(r.delivery, context.DeadlineExceeded)
	}
}

// settle acknowledges the message of an act, unless the broker has taken it back.
func (s *sim) settle(a *act) {
	r := a.run
	s.says(a, "ack")
	if !r.void {
		r.settled = true
	}
	r.acked.Store(true)
	if n, ok := s.count(r.id); ok && n == 0 {
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
	for r := range p.runs {
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
	s.going[aside{}] = true
	go func() {
		defer func() { s.signals <- signal{aside: true} }()
		f()
	}()
	s.await()
}

// alone says that one run is going on, and nothing else is there that could.
func (s *sim) alone() bool {
	return len(s.going) == 1 && s.active == 1 && len(s.held)+len(s.ready)+len(s.urgent) == 0 && !s.others() && !s.realTime
}

// others says that there may be goroutines of the program beside its runs.
func (s *sim) others() bool { return s.async || s.ghosts > 0 }

type aside struct{}

// tell lets an act go on.
func (s *sim) tell(a *act, v verdict) {
	if !v.kill {
		s.going[a.who()] = true
	}
	a.answer <- v
}

// await lets the program go on until all that was told to stands at a step or
// has ended, or nothing can go on.
func (s *sim) await() {
	if s.alone() {
		// It may take all the time it wants: nobody else is to go on meanwhile.
		timer := time.NewTimer(noReturn)
		select {
		case sig := <-s.signals:
			s.hear(sig)
		case <-timer.C:
		}
		timer.Stop()
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

// until waits for ready. It gives up where nothing goes on.
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
	for range 100_000 { // seconds: something waits for the outside
		if is, _ := s.watch.quiet(); is {
			return ready()
		}
		if ready() {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// patience is how long nothing has to happen in real time until it is taken for
// all that would happen.
const patience = 20 * time.Millisecond

// pass lets time go by: d, or until the first signal if that is enough. It
// reports whether there was one.
func (s *sim) pass(d time.Duration, enough bool) (heard bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		if !s.realTime && (s.active > 0 || s.others()) {
			s.until(func() bool { return false })
			if _, locked := s.watch.quiet(); locked {
				if enough {
					s.blame(Stuck, "a run waits for a lock whose holder waits for the clock; a fake clock stands still then, see Service.RealTime")
				}
				return false
			}
		}
		select {
		case sig := <-s.signals:
			s.hear(sig)
			if enough {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}

// hear takes note of a signal.
func (s *sim) hear(sig signal) {
	if sig.act != nil {
		delete(s.going, sig.act.who())
	}
	delete(s.going, sig.ended)
	switch a := sig.act; {
	case sig.aside:
		delete(s.going, aside{})
		s.active--
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
	r := s.runOf(a)
	other := s.inside[r.id]
	switch {
	case a.leave:
		if other == r {
			delete(s.inside, r.id)
		}
		return
	case other != nil && other != r && other.ctx.Err() == nil && !other.process.dead.Load():
		s.blame(Together, "two are at work on "+r.name+" at once")
	}
	s.inside[r.id] = r
}

func (s *sim) reply(a *act) {
	r := s.runOf(a)
	if first := s.replies[r.id]; first == nil {
		s.replies[r.id] = &a.value
	} else if !reflect.DeepEqual(*first, a.value) {
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
	delete(r.process.runs, r)
	if s.inside[r.id] == r {
		delete(s.inside, r.id)
	}
	switch {
	case r.void, r.settled:
	case sig.how == returned && oncepipe.IsPermanent(sig.err):
		s.story.says(r, fmt.Sprintf("gives up: %.80v", sig.err))
		r.settled, s.dead[r.id] = true, true
		if s.fired == 0 {
			s.blame(GivenUp, fmt.Sprintf("%s is given up though nothing has failed: %v", r.name, sig.err))
		}
	case sig.how == returned:
		s.story.says(r, fmt.Sprintf("returns %.80q", fmt.Sprint(sig.err)))
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
func (s *sim) look(id int) {
	n, ok := s.count(id)
	if !ok {
		return
	}
	if n != s.effects[id] {
		s.effects[id] = n
		s.story.remark(effectsAre(n))
	}
	if n > 1 {
		s.blame(Twice, fmt.Sprintf("%s has %d effects", s.program.name(id), n))
	}
}

func effectsAre(n int) string {
	if n == 1 {
		return " (1 effect)"
	}
	return fmt.Sprintf(" → %d effects", n)
}

// count asks the program for a message's effects. It has no answer where that
// has to wait for a run that is held.
func (s *sim) count(id int) (n int, ok bool) {
	got := make(chan int, 1)
	go func() { got <- s.program.effects(id) }()
	ok = s.until(func() bool {
		select {
		case n = <-got:
			return true
		default:
			return false
		}
	})
	return n, ok
}

// verify checks every message when all is done.
func (s *sim) verify() {
	for _, id := range s.delivered() {
		s.look(id)
		if n, ok := s.count(id); ok && n == 0 && !s.dead[id] {
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

// end kills what is left.
func (s *sim) end() {
	s.over.Store(true)
	for _, p := range s.processes {
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
	s.world.cleanups.call()
}
