package oncetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// KillService is what Kill checks.
type KillService[M any] struct {
	// Message is that of a Service. Only its numbers go from process to process.
	Message func(id, copy int) M

	// New opens the part of the world that outlives a process, which is in w.Dir(),
	// and makes what of it isn't there yet. It is called in every process, and in the
	// test's own: before the first process is started, for Effects whenever none
	// runs, and at the end.
	New func(w *World) Program[M]

	// Messages is how many messages there are. 0: 2.
	Messages int

	// AtOnce is how many deliveries a process has at the same time. With more than
	// one each message is sent twice at first, and a step's number can be another one's
	// in the next run. 0: 1.
	AtOnce int

	// Pairs is how many times the process that does what a killed one left is
	// killed as well. 0: 20, or 4 with -short; less: none.
	Pairs int

	// Moments is how many times a process is killed at a random moment, while a
	// second one works on copies of the same messages. 0: 10, or 2 with -short; less: none.
	Moments int

	// Alone says that only one process at a time can work in w.Dir().
	Alone bool

	// Timeout is when a handler's context ends. A process that has a message for
	// twice as long is killed for not returning, and a message that has failed for so long
	// without a kill is taken for one that comes again for ever: what a killed process
	// held, such as a lease, must be free again before. 0: 10 s.
	Timeout time.Duration

	// Redelivery is how long after a failure a message comes again. 0: 50 ms.
	Redelivery time.Duration

	// Seed is that of the pairs and moments. 0 is a seed too.
	Seed uint64

	// Replay is what a Failure names; then only this is run. Where it is empty the
	// environment variable ONCETEST_KILLS is asked. Random moments come close to what they
	// were, no more.
	Replay string

	// Test is the full name of the test or example that calls CheckKill. Kill
	// knows it.
	Test string

	// Command makes the command of a program that calls Serve. nil: the test binary
	// runs itself, for Test alone. Its standard input and output and its error output
	// are used.
	Command func() *exec.Cmd
}

// Kill checks with real processes what Handler checks with simulated ones: the
// program runs in a process of its own, which is killed (SIGKILL) before each of its
// steps and after each that was done, once each; then again while the next process does what was
// left; then at random moments, with a second process beside it. What was not
// acknowledged is delivered again to the next process, and at last every message
// comes once more. Every message must end with one effect, or as a dead letter
// with at most one.
//
// The test binary is started again for this test alone. There Kill serves the
// program and ends the process; so it should be the first thing of its test, and
// the only Kill in it. TestMain is run in each process. A process ends
// when the test's own does.
//
// Process.Enter is judged among the runs of one process, Process.Reply by the
// JSON of its values.
func Kill[M any](t *testing.T, s KillService[M]) {
	t.Helper()
	s.Test = t.Name()
	if err := checkKill(t.Context(), s); err != nil {
		t.Errorf("%v\nrun it again: %s", err, killAgain(s.Test, err))
	}
}

func killAgain(test string, err error) string {
	text := fmt.Sprintf("go test -run '%s'", testPattern(test))
	var f *Failure
	if errors.As(err, &f) {
		return fmt.Sprintf("%s='%s' %s", killsVariable, f.Replay, text)
	}
	return text
}

const killsVariable = "ONCETEST_KILLS"

// CheckKill is Kill without a testing.T, for a KillService with Command or Test.
// What it blames the program for is a *Failure; any other error says why there was
// no answer.
func CheckKill[M any](s KillService[M]) error {
	return checkKill(context.Background(), s)
}

func checkKill[M any](ctx context.Context, s KillService[M]) error {
	task, given, err := killTaskGiven()
	switch {
	case err != nil:
		return err
	case given && (s.Command != nil || task.Test != s.Test):
		return nil // this process is another one's
	case given:
		if err := s.serve(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	x := killExplorer{
		pairs: s.Pairs, moments: s.Moments, messages: s.Messages, alone: s.Alone, seed: s.Seed,
		killLab: killLab{
			ctx: ctx, open: s.open, test: s.Test, command: s.Command,
			atOnce: s.AtOnce, timeout: s.Timeout, redelivery: s.Redelivery,
		},
	}
	if err := x.defaults(); err != nil {
		return err
	}
	replay := s.Replay
	if replay == "" {
		replay = os.Getenv(killsVariable)
	}
	if replay != "" {
		plan, err := parseKillPlan(replay)
		if err != nil {
			return err
		}
		return x.replay(plan)
	}
	return x.explore()
}

// Serve is for the program that Command starts: it handles what Kill delivers,
// and returns when that is all. It uses Message and New of s. In a process that
// Kill did not start it is an error.
func Serve[M any](s KillService[M]) error {
	task, given, err := killTaskGiven()
	if err != nil {
		return err
	}
	if !given {
		return errors.New("oncetest: Serve in a process that Kill did not start")
	}
	return s.serve(task)
}

func (s KillService[M]) open(w *World) program {
	return Service[M]{Message: s.Message, New: s.New}.open(w)
}
