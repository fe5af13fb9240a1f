package oncetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Service is what Handler checks.
type Service[M any] struct {
	// Message returns the id-th message (1, 2, …) as it looks when it is delivered
	// for the copy-th time (1, 2, …). What a broker changes with each delivery should
	// change: the time of delivery, a counter, the order of headers. Messages with
	// another id ask for another effect. In stories a message is called by its String
	// method, if it has one.
	Message func(id, copy int) M

	// New makes the part of the world that outlives a process, such as an empty
	// database. It is called for every schedule; what it doesn't make anew it has to
	// empty.
	New func(w *World) Program[M]

	// Faults is what may happen. 0: AllFaults.
	Faults Faults

	// Schedules is how many to try: first one without any fault, then all with one
	// fault, then those with more. 0: DefaultSchedules, or a fifth of it with -short.
	Schedules int

	// Messages is how many messages there are at first; Overflow sends more. 0: 2.
	Messages int

	// Timeout is when a handler's context ends. It may go on a little longer, to give
	// back what it holds, but not for half of Redelivery. 0: 10 s, or 100 ms with RealTime.
	Timeout time.Duration

	// Redelivery is how long after a failure, a time-out or a kill a message comes
	// again. It should be longer than a lease. 0: a minute, or 200 ms with RealTime.
	Redelivery time.Duration

	// NoDeadLetters lets no message be given up, whatever has failed: one that is
	// comes under GivenUp. For effects that nobody has to be asked about.
	NoDeadLetters bool

	// Seed is that of the schedules with more than one fault. 0 is a seed too.
	Seed uint64

	// Replay is a schedule as a Failure names it; then only this one is run. Where it
	// is empty the environment variable ONCETEST_REPLAY is asked.
	Replay string

	// RealTime runs the program outside of a synctest bubble, with a clock that
	// can't be sped up: for programs that talk to a real server. Then runs that wait
	// for each other are noticed by waiting for 20 ms, and schedules can take a
	// different course when they are run again.
	RealTime bool
}

// Program is the program under test.
type Program[M any] struct {
	// Start starts it: what the program keeps in memory is made here. What it
	// returns handles a delivery: nil acknowledges, an error lets the message come
	// again, and one marked with oncepipe.Permanent gives it up as a dead letter. It is called
	// from several goroutines, also for one message.
	Start func(p *Process) func(ctx context.Context, m M) error

	// Effects returns how many effects a message has had, as far as they are to stay:
	// committed rows, charges at the provider. Messages are told apart by what
	// Message put in. It is called between steps, also while runs are held up.
	Effects func(m M) int
}

// DefaultSchedules is how many schedules Handler tries when a Service doesn't say.
const DefaultSchedules = 1000

// Handler checks that a handler's effects happen once, whatever the world does:
// messages come again before, during and after a run, steps fail or lose their
// replies, processes are killed between any two steps, time-outs cut handlers off,
// a second process works on the same messages, buffers overflow. Every message
// must end with one effect, or as a dead letter with at most one; none may be
// acknowledged before its effect is there.
//
// The shortest schedule that shows a fault is told as a story; see Failure.
//
// The program runs in synctest bubbles with a fake clock unless RealTime is set:
// then what it opens must be made in New or Start. One goroutine of it runs at a
// time, as long as none waits for another.
func Handler[M any](t *testing.T, s Service[M]) {
	t.Helper()
	if err := CheckHandler(s); err != nil {
		t.Errorf("%v\nrun it again: %s", err, again(t, err))
	}
}

func again(t *testing.T, err error) string {
	name := strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "'", "'\\''")
	text := fmt.Sprintf("go test -run '^%s$'", name)
	if f, ok := err.(*Failure); ok {
		return fmt.Sprintf("%s='%s' %s", replayVariable, f.Replay, text)
	}
	return text
}

const replayVariable = "ONCETEST_REPLAY"

// CheckHandler is Handler without a testing.T. What it blames the program for is
// a *Failure; any other error says why there was no answer.
func CheckHandler[M any](s Service[M]) error {
	x := explorer{
		faults: s.Faults, schedules: s.Schedules, messages: s.Messages, seed: s.Seed,
		lab: lab{
			open: s.open, timeout: s.Timeout, redelivery: s.Redelivery, realTime: s.RealTime, noLetters: s.NoDeadLetters,
		},
	}
	if s.Message == nil || s.New == nil {
		return errors.New("oncetest: a Service needs Message and New")
	}
	if err := x.check(); err != nil {
		return err
	}
	x.defaults()
	replay := s.Replay
	if replay == "" {
		replay = os.Getenv(replayVariable)
	}
	if replay != "" {
		plan, err := parseSchedule(replay)
		if err != nil {
			return err
		}
		return x.replay(plan)
	}
	return x.explore()
}

// open makes a world and a program without the type of its messages.
func (s Service[M]) open(w *World) program {
	p := s.New(w)
	if p.Start == nil || p.Effects == nil {
		panic("a Program needs Start and Effects")
	}
	return program{
		start: func(proc *Process) func(ctx context.Context, id, copy int) error {
			handle := p.Start(proc)
			return func(ctx context.Context, id, copy int) error { return handle(ctx, s.Message(id, copy)) }
		},
		effects: func(id int) int { return p.Effects(s.Message(id, 1)) },
		name: func(id int) string {
			if n, ok := any(s.Message(id, 1)).(fmt.Stringer); ok {
				return n.String()
			}
			return fmt.Sprint("message ", id)
		},
	}
}

// program is a Program whose messages are known by their id.
type program struct {
	start   func(p *Process) func(ctx context.Context, id, copy int) error
	effects func(id int) int
	name    func(id int) string
}
