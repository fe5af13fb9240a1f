package oncetest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// killBroker carries out one plan: it starts the processes, delivers to them,
// and delivers again what a killed one had.
type killBroker struct {
	killLab
	plan   killPlan
	dir    string
	temp   string
	began  time.Time
	events chan killEvent

	processes [2]*killProcess // that run, by instance
	queues    [2][]*delivery
	started   int // processes of instance 1
	ready     time.Duration

	names   map[int]string
	copies  map[int]int
	effects map[int]int // last seen
	acked   map[int]bool
	dead    map[int]bool
	replies map[int]string
	runs    map[killOrder]*run
	failing map[*delivery]time.Duration // since when
	said    string                      // by the last process that wrote anything beside its lines
	story   story
	out     killOutcome
	err     error
}

// handedOut is a delivery that a process has.
type handedOut struct {
	*delivery
	run   *run
	until time.Duration // when the handler must have returned
}

// startLimit is how long a process may take to start the program.
const startLimit = time.Minute

// never is a time that doesn't come.
const never = time.Duration(math.MaxInt64)

func (l killLab) carryOut(plan killPlan) (out killOutcome, err error) {
	dir, err := os.MkdirTemp("", "oncetest")
	if err != nil {
		return out, fmt.Errorf("oncetest: making the world's directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system removes what is left there
	b := &killBroker{
		killLab: l, plan: plan, dir: filepath.Join(dir, "world"), temp: filepath.Join(dir, "temp"),
		began: time.Now(), events: make(chan killEvent), ready: -1,
		names: map[int]string{}, copies: map[int]int{}, effects: map[int]int{}, acked: map[int]bool{}, dead: map[int]bool{},
		replies: map[int]string{}, runs: map[killOrder]*run{}, failing: map[*delivery]time.Duration{},
	}
	for _, d := range []string{b.dir, b.temp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return out, fmt.Errorf("oncetest: making the world's directory: %w", err)
		}
	}
	runtime.LockOSThread() // the processes end with their parent's thread
	defer runtime.UnlockOSThread()
	defer b.end()
	b.main()
	b.end()
	if b.err != nil {
		return out, fmt.Errorf("oncetest: kills %s: %w", plan, b.err)
	}
	if f := b.out.fail; f != nil {
		if b.said != "" && !strings.HasSuffix(f.What, b.said) {
			b.story.alone("a process has ended" + b.said)
		}
		f.Story, f.Replay = shortened(b.story.lines), plan.String()
	}
	return b.out, nil
}

func (b *killBroker) main() {
	b.look()
	for range 2 { // the second time all is settled: these are late copies
		for id := 1; id <= b.plan.messages; id++ {
			b.send(id)
		}
		for b.goesOn() && b.left() {
			b.handOut()
			b.wait()
		}
	}
	if b.ready >= 0 {
		b.out.took = b.now() - b.ready
	}
	b.finish()
	if b.goesOn() {
		b.look()
	}
}

// send sends a message, and copies that may be handled at the same time.
func (b *killBroker) send(id int) {
	b.queues[0] = append(b.queues[0], &delivery{id: id})
	if b.atOnce > 1 {
		b.queues[0] = append(b.queues[0], &delivery{id: id})
	}
	if b.plan.beside {
		b.queues[1] = append(b.queues[1], &delivery{id: id})
	}
}

func (b *killBroker) goesOn() bool { return b.out.fail == nil && b.err == nil }

func (b *killBroker) now() time.Duration { return time.Since(b.began) }

// left reports whether there is a delivery that is not settled.
func (b *killBroker) left() bool {
	for i, p := range b.processes {
		if len(b.queues[i]) > 0 || p != nil && len(p.has) > 0 {
			return true
		}
	}
	return false
}

// handOut gives the processes what they have room for, and starts those that
// are missing.
func (b *killBroker) handOut() {
	for i := range b.processes {
		if len(b.queues[i]) > 0 && b.processes[i] == nil {
			b.start(i)
		}
		for b.goesOn() {
			next := b.next(i)
			if next < 0 || b.queues[i][next].due > b.now() {
				break
			}
			d := b.queues[i][next]
			b.queues[i] = slices.Delete(b.queues[i], next, next+1)
			b.deliver(b.processes[i], d)
		}
	}
}

// next is the delivery for a process that is due first; -1 where there is none
// or the process has no room.
func (b *killBroker) next(instance int) int {
	p := b.processes[instance]
	if p == nil || !p.ready || p.dying || len(p.has) >= b.atOnce {
		return -1
	}
	first := -1
	for i, d := range b.queues[instance] {
		if first < 0 || d.due < b.queues[instance][first].due {
			first = i
		}
	}
	return first
}

func (b *killBroker) start(i int) {
	p := &killProcess{instance: i + 1, limit: b.now() + startLimit, dies: never}
	if i == 0 {
		if b.started < len(b.plan.kills) {
			p.kill = b.plan.kills[b.started]
		}
		b.started++
		b.out.steps = append(b.out.steps, 0)
	}
	if err := p.start(b.killLab, b.dir, b.temp, b.events); err != nil {
		b.err = fmt.Errorf("starting a process: %w", err)
		return
	}
	b.processes[i] = p
}

func (b *killBroker) deliver(p *killProcess, d *delivery) {
	b.copies[d.id]++
	o := killOrder{d.id, b.copies[d.id]}
	r := &run{delivery: d, copy: o.Copy, name: b.names[d.id]}
	if p.instance > 1 {
		r.where = " to the process beside it"
	}
	b.runs[o] = r
	p.has = append(p.has, &handedOut{d, r, b.now() + 2*b.timeout})
	p.deliver(o)
}

// wait hears the next event, or lets what is due at a time happen.
func (b *killBroker) wait() {
	if !b.goesOn() {
		return
	}
	timer := time.NewTimer(b.nextTime() - b.now())
	defer timer.Stop()
	select {
	case e := <-b.events:
		b.hear(e)
	case <-timer.C:
		b.pass()
	case <-b.ctx.Done():
		b.err = fmt.Errorf("the test ends: %w", b.ctx.Err())
	}
}

func (b *killBroker) nextTime() time.Duration {
	first := b.now() + time.Hour
	for i, p := range b.processes {
		if p == nil {
			continue
		}
		if next := b.next(i); next >= 0 {
			first = min(first, b.queues[i][next].due)
		}
		if p.limit != 0 {
			first = min(first, p.limit)
		}
		if !p.dying {
			first = min(first, p.dies)
		}
		for _, h := range p.has {
			first = min(first, h.until)
		}
	}
	return first
}

func (b *killBroker) pass() {
	now := b.now()
	for _, p := range b.processes {
		switch {
		case p == nil || p.dying:
		case p.dies <= now:
			p.die() // what it still said comes before its end
		case p.limit != 0 && p.limit <= now && !p.ready:
			b.err = fmt.Errorf("a process did not start the program within %v%s", startLimit, p.said())
		case p.limit != 0 && p.limit <= now:
			b.blame(NoReturn, "the process does not end though its context ended long ago"+p.said())
		default:
			for _, h := range p.has {
				if h.until <= now && b.goesOn() {
					b.blame(NoReturn, fmt.Sprintf("the handler of %s does not return within twice its time-out%s", h.run.name, p.said()))
				}
			}
		}
	}
}

// finish lets the processes end in good order.
func (b *killBroker) finish() {
	for _, p := range b.processes {
		if p != nil {
			p.closing, p.limit = true, b.now()+2*b.timeout
			_ = p.in.Close() // where it has ended its event says so
		}
	}
	for b.goesOn() && b.processes != [2]*killProcess{} {
		b.wait()
	}
}

// end kills what is left and waits until it is gone.
func (b *killBroker) end() {
	for _, p := range b.processes {
		if p != nil {
			p.die()
		}
	}
	for b.processes != [2]*killProcess{} {
		if e := <-b.events; e.ended {
			b.forget(e.from)
		}
	}
}

// forget lets go of a process that is gone.
func (b *killBroker) forget(p *killProcess) {
	b.processes[p.instance-1] = nil
	_ = p.in.Close() // nobody reads it
	if said := p.said(); said != "" {
		b.said = said
	}
}

// look checks, while no process runs, that each message has the effects that it
// must and may have.
func (b *killBroker) look() {
	world := World{dir: b.dir}
	defer func() { world.cleanups.call() }()
	program := b.open(&world)
	for id := 1; id <= b.plan.messages; id++ {
		b.names[id] = program.name(id)
		n := program.effects(id)
		if n != b.effects[id] {
			b.effects[id] = n
			b.story.remark(b.effectsOf(id))
		}
		switch {
		case n > 1:
			b.blame(Twice, fmt.Sprintf("%s has %d effects", b.names[id], n))
		case n == 0 && b.acked[id]:
			b.blame(Lost, b.names[id]+" is acknowledged, and its effect is not there")
		}
	}
}

func (b *killBroker) effectsOf(id int) string {
	n := b.effects[id]
	switch {
	case b.plan.messages == 1:
		return effectsAre(n)
	case n == 1:
		return fmt.Sprintf(" (1 effect of %s)", b.names[id])
	}
	return fmt.Sprintf(" → %d effects of %s", n, b.names[id])
}

// blame ends the plan; the first one counts.
func (b *killBroker) blame(blame Blame, what string) {
	if b.out.fail == nil {
		b.out.fail = &Failure{Blame: blame, What: what}
	}
}

// shortened leaves out the middle of a long story.
func shortened(lines []string) []string {
	const most = 40
	if len(lines) <= most {
		return lines
	}
	left := fmt.Sprintf("… %d more …", len(lines)-most)
	return slices.Concat(lines[:most/2], []string{left}, lines[len(lines)-most/2:])
}
