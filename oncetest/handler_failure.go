package oncetest

import (
	"fmt"
	"strings"
)

// Blame is what a program is blamed for.
type Blame string

// What a program can be blamed for.
const (
	Twice     Blame = "twice"     // a message has more than one effect
	Lost      Blame = "lost"      // a message was acknowledged, and its effect is not there
	Unsettled Blame = "unsettled" // a message comes again for ever
	GivenUp   Blame = "given up"  // a message is a dead letter, and nothing had failed; see Service.NoDeadLetters
	Together  Blame = "together"  // two were at work on one message at once; see Process.Enter
	Differs   Blame = "differs"   // two runs of a message answered differently; see Process.Reply
	NoReturn  Blame = "no return" // a handler did not return though its context has ended
	Panicked  Blame = "panicked"  // a handler panicked, and nothing had failed
	Stuck     Blame = "stuck"     // a run waits for a lock whose holder waits for the clock
)

// Failure is a fault of a program, with the shortest schedule found that shows
// it.
type Failure struct {
	Blame  Blame
	What   string   // in one sentence
	Story  []string // what happened, step by step
	Replay string   // the schedule, for Service.Replay
	Tried  int      // schedules that were tried until then
}

// Error tells the story.
func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Blame, f.What)
	for i, line := range f.Story {
		fmt.Fprintf(&b, "\n%4d. %s", i+1, line)
	}
	return b.String()
}

// story collects what happens, a line for each stretch of a run.
type story struct {
	lines  []string
	writer *run // whose line is the last one; nil: it is finished
}

// says adds to what a run does.
func (s *story) says(r *run, text string) {
	if r != nil && s.writer == r {
		s.lines[len(s.lines)-1] += ", " + text
		return
	}
	s.lines = append(s.lines, r.opening()+text)
	s.writer = r
}

// remark adds to the last line.
func (s *story) remark(text string) {
	if len(s.lines) == 0 {
		s.alone(text)
		return
	}
	s.lines[len(s.lines)-1] += text
}

// alone adds a line that is no run's.
func (s *story) alone(text string) {
	s.lines = append(s.lines, text)
	s.writer = nil
}

// told is the story with lines that say the same as the one before counted only.
func (s *story) told() []string {
	var list []string
	for i := 0; i < len(s.lines); {
		same := 1
		for i+same < len(s.lines) && s.lines[i+same] == s.lines[i] {
			same++
		}
		line := s.lines[i]
		if same > 1 {
			line += fmt.Sprintf(" (%d times)", same)
		}
		list = append(list, line)
		i += same
	}
	return list
}

// oneLine is a short form of an error.
func oneLine(err error) string {
	return fmt.Sprintf("%.80s", strings.Join(strings.Fields(fmt.Sprint(err)), " "))
}
