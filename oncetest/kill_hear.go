package oncetest

import (
	"errors"
	"fmt"
	"slices"
)

// hear takes note of what a process tells.
func (b *killBroker) hear(e killEvent) {
	p, line := e.from, e.line
	if e.ended {
		b.ended(p)
		return
	}
	if line.N > 0 && p.instance == 1 {
		b.out.steps[b.started-1] = line.N
	}
	r := b.runs[killOrder{line.ID, line.Copy}]
	switch line.Do {
	case tellReady:
		b.isReady(p)
	case tellStep:
		b.says(r, line.Text)
	case tellBefore:
		p.dying = true
		b.says(r, fmt.Sprintf("before %q the process is killed", line.Text))
	case tellAfter:
		p.dying = true
		b.says(r, "then the process is killed")
	case tellAck:
		b.says(r, "ack")
		r.settled, b.acked[r.id] = true, true
	case tellDone, tellFailed, tellDead:
		b.returned(p, r, line)
	case tellReply:
		first, ok := b.replies[line.ID]
		if b.replies[line.ID] = line.Text; ok && first != line.Text {
			b.blame(Differs, fmt.Sprintf("%s was answered with %.200s, and then with %.200s", b.names[line.ID], first, line.Text))
		}
	case tellTogether:
		b.blame(Together, "two are at work on "+b.names[line.ID]+" at once")
	}
}

// says adds to the story of a run, or of the process where the run isn't known.
func (b *killBroker) says(r *run, text string) {
	if r == nil {
		b.story.alone("the process itself: " + text)
		return
	}
	b.story.says(r, text)
}

func (b *killBroker) isReady(p *killProcess) {
	p.ready, p.limit = true, 0
	if b.ready < 0 {
		b.ready = b.now()
	}
	if p.kill.When == killMoment {
		p.dies = b.now() + p.kill.moment()
	}
}

// returned settles the delivery of a run that is over.
func (b *killBroker) returned(p *killProcess, r *run, line killLine) {
	p.has = slices.DeleteFunc(p.has, func(h *handedOut) bool { return h.run == r })
	switch {
	case line.Do == tellDone:
	case line.Do == tellDead:
		b.says(r, fmt.Sprintf("gives up: %.80s", line.Text))
		r.settled, b.dead[r.id] = true, true
		if b.out.kills == 0 {
			b.blame(GivenUp, fmt.Sprintf("%s is given up though nothing has failed: %s", r.name, line.Text))
		}
	default:
		b.says(r, "returns an error: "+oneLine(errors.New(line.Text)))
		if !r.settled {
			b.again(p, r.delivery, line.Text)
		}
		b.story.once()
	}
}

// again lets a delivery come again that has failed.
func (b *killBroker) again(p *killProcess, d *delivery, text string) {
	now := b.now()
	since, ok := b.failing[d]
	if !ok {
		since, b.failing[d] = now, now
	}
	d.repeated++
	if now-since > b.timeout {
		b.blame(Unsettled, fmt.Sprintf("%s has failed %d times within %v, and the last time: %s", b.names[d.id], d.repeated, b.timeout, text))
		return
	}
	d.due = now + b.redelivery
	b.queues[p.instance-1] = append(b.queues[p.instance-1], d)
}

// ended goes on when a process is gone.
func (b *killBroker) ended(p *killProcess) {
	b.forget(p)
	switch {
	case p.dying:
		b.killed(p)
	case p.closing && p.cmd.ProcessState.Success():
	case !p.ready:
		b.err = fmt.Errorf("a process did not come as far as to start the program: %s", p.how())
	default:
		b.blame(Panicked, "the process has ended by itself: "+p.how())
	}
}

// killed lets come again what a process had.
func (b *killBroker) killed(p *killProcess) {
	if p.kill.When == killMoment {
		b.story.alone(fmt.Sprintf("the process is killed %v after it was ready", p.kill.moment()))
	}
	b.out.kills++
	clear(b.failing)
	var first []*delivery
	for _, h := range p.has {
		if !h.settled {
			h.due = 0
			first = append(first, h.delivery)
		}
	}
	b.queues[p.instance-1] = append(first, b.queues[p.instance-1]...)
	if b.processes == [2]*killProcess{} {
		b.look()
	}
}

// once leaves out the last line where the story has it already: a message fails
// again and again.
func (s *story) once() {
	if last := len(s.lines) - 1; slices.Contains(s.lines[:last], s.lines[last]) {
		s.lines = s.lines[:last]
	}
	s.writer = nil
}
