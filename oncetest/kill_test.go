package oncetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

// bill is the message of the programs on files.
type bill struct {
	ID   string
	Copy int
}

func (b bill) String() string { return b.ID }

// files is a directory that effects and marks are written to.
type files string

func (d files) path(kind, id string) string { return filepath.Join(string(d), kind+"-"+id) }

// mark makes a file that says that something was done.
func (d files) mark(kind, id string) error { return os.WriteFile(d.path(kind, id), nil, 0o600) }

func (d files) marked(kind, id string) bool {
	_, err := os.Stat(d.path(kind, id))
	return err == nil
}

// write appends an effect.
func (d files) write(id string) error {
	f, err := os.OpenFile(d.path("effects", id), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, id)
	return errors.Join(err, f.Close())
}

// undo takes all effects back.
func (d files) undo(id string) error {
	if err := os.Remove(d.path("effects", id)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (d files) effects(id string) int {
	data, err := os.ReadFile(d.path("effects", id))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		panic(err)
	}
	return bytes.Count(data, []byte("\n"))
}

// temp writes an effect to a new file that nobody looks for.
func (d files) temp(id string) (path string, err error) {
	f, err := os.CreateTemp(string(d), "temp")
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(f, id)
	return f.Name(), errors.Join(err, f.Close())
}

// onFiles is a service whose effects are in files.
func onFiles(start func(p *oncetest.Process, d files) func(ctx context.Context, b bill) error) oncetest.KillService[bill] {
	return oncetest.KillService[bill]{
		Message: func(id, copy int) bill { return bill{fmt.Sprint("bill-", id), copy} },
		New: func(w *oncetest.World) oncetest.Program[bill] {
			d := files(w.Dir())
			return oncetest.Program[bill]{
				Start:   func(p *oncetest.Process) func(context.Context, bill) error { return start(p, d) },
				Effects: func(b bill) int { return d.effects(b.ID) },
			}
		},
	}
}

// handling is a handler without memory.
func handling(handle func(ctx context.Context, p *oncetest.Process, d files, id string) error) oncetest.KillService[bill] {
	return onFiles(func(p *oncetest.Process, d files) func(context.Context, bill) error {
		return func(ctx context.Context, b bill) error { return handle(ctx, p, d, b.ID) }
	})
}

// linked makes an effect that can't be there twice: a file that is complete
// before it gets its name, which only one can have. The file is new in every run: what
// an earlier one wrote may be the effect by now.
func linked(ctx context.Context, p *oncetest.Process, d files, id string) error {
	var temp string
	err := p.Step(ctx, "write file", func() (err error) {
		temp, err = d.temp(id)
		return err
	})
	if err != nil {
		return err
	}
	err = p.Step(ctx, "link file", func() error { return os.Link(temp, d.path("effects", id)) })
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

var badKills = map[string]struct {
	service oncetest.KillService[bill]
	blame   oncetest.Blame
	what    string // that the failure must say
}{
	"mark before write": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		if d.marked("done", id) {
			return nil
		}
		if err := p.Step(ctx, "mark", func() error { return d.mark("done", id) }); err != nil {
			return err
		}
		return p.Step(ctx, "write", func() error { return d.write(id) })
	}), oncetest.Lost, "bill-1 comes again"},
	"write before mark": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		if d.marked("done", id) {
			return nil
		}
		if err := p.Step(ctx, "write", func() error { return d.write(id) }); err != nil {
			return err
		}
		return p.Step(ctx, "mark", func() error { return d.mark("done", id) })
	}), oncetest.Twice, "write, then the process is killed"},
	"mark in memory": {onFiles(func(p *oncetest.Process, d files) func(context.Context, bill) error {
		seen := map[string]bool{}
		return func(ctx context.Context, b bill) error {
			if seen[b.ID] {
				return nil
			}
			seen[b.ID] = true
			return p.Step(ctx, "write", func() error { return d.write(b.ID) })
		}
	}), oncetest.Twice, "is killed"},
	"ack before write": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		if d.marked("effects", id) {
			return nil
		}
		if err := p.Ack(ctx); err != nil {
			return err
		}
		return p.Step(ctx, "write", func() error { return d.write(id) })
	}), oncetest.Lost, "ack, then the process is killed"},
	"buffered in memory": {onFiles(func(p *oncetest.Process, d files) func(context.Context, bill) error {
		var buffer []string
		p.Cleanup(func() {
			for _, id := range buffer {
				if err := d.write(id); err != nil {
					panic(err)
				}
			}
		})
		return func(ctx context.Context, b bill) error {
			if d.marked("done", b.ID) {
				return nil
			}
			buffer = append(buffer, b.ID)
			return p.Step(ctx, "mark", func() error { return d.mark("done", b.ID) })
		}
	}), oncetest.Lost, "is killed"},
	"writes over what is linked": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		temp := d.path(fmt.Sprint("temp", os.Getpid()), id)
		if err := p.Step(ctx, "begin file", func() error { return os.WriteFile(temp, nil, 0o600) }); err != nil {
			return err
		}
		if err := p.Step(ctx, "fill file", func() error { return os.WriteFile(temp, []byte(id+"\n"), 0o600) }); err != nil {
			return err
		}
		err := p.Step(ctx, "link file", func() error { return os.Link(temp, d.path("effects", id)) })
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}), oncetest.Lost, "begin file, then the process is killed"},
	"recovery that can't be repeated": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		type step struct {
			name string
			do   func() error
		}
		begin := step{"begin", func() error { return d.mark("begun", id) }}
		undo := step{"undo", func() error { return d.undo(id) }}
		undone := step{"mark as undone", func() error { return d.mark("undone", id) }}
		write := step{"write", func() error { return d.write(id) }}
		done := step{"mark as done", func() error { return d.mark("done", id) }}
		steps := []step{begin, write, done}
		switch {
		case d.marked("done", id):
			return nil
		case d.marked("undone", id):
			steps = []step{write, done}
		case d.marked("begun", id):
			steps = []step{undo, undone, write, done}
		}
		for _, s := range steps {
			if err := p.Step(ctx, s.name, s.do); err != nil {
				return err
			}
		}
		return nil
	}), oncetest.Twice, "mark as undone, write, then the process is killed"},
	"waits for ever": {func() oncetest.KillService[bill] {
		s := handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
			fmt.Println("waiting")
			return p.Step(ctx, "wait", func() error { select {} })
		})
		s.Timeout = 3 * time.Second
		return s
	}(), oncetest.NoReturn, "it wrote:\nwaiting"},
	"does not end": {func() oncetest.KillService[bill] {
		s := onFiles(func(p *oncetest.Process, d files) func(context.Context, bill) error {
			p.Cleanup(func() { select {} })
			return func(ctx context.Context, b bill) error { return linked(ctx, p, d, b.ID) }
		})
		s.Timeout = 3 * time.Second
		return s
	}(), oncetest.NoReturn, "the process does not end"},
	"panics": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		if d.marked("effects", id) {
			panic("there is one already")
		}
		return p.Step(ctx, "write", func() error { return d.write(id) })
	}), oncetest.Panicked, "panic: there is one already"},
	"exits": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		fmt.Fprintln(os.Stderr, "fatal: no luck")
		os.Exit(3)
		return nil
	}), oncetest.Panicked, "exit status 3; it wrote:\nfatal: no luck"},
	"fails for ever": {func() oncetest.KillService[bill] {
		s := handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
			return errors.New("not today")
		})
		s.Timeout = 3 * time.Second
		return s
	}(), oncetest.Unsettled, "not today"},
	"gives up": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		return oncepipe.Permanent(errors.New("never"))
	}), oncetest.GivenUp, "never"},
	"another reply": {handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		p.Reply(ctx, os.Getpid())
		return linked(ctx, p, d, id)
	}), oncetest.Differs, "answered with"},
	"two at once": {func() oncetest.KillService[bill] {
		s := onFiles(func(p *oncetest.Process, d files) func(context.Context, bill) error {
			var both sync.WaitGroup
			both.Add(2)
			return func(ctx context.Context, b bill) error {
				leave := p.Enter(ctx)
				defer leave()
				if b.Copy <= 2 {
					both.Done()
				}
				both.Wait()
				return linked(ctx, p, d, b.ID)
			}
		})
		s.Messages, s.AtOnce = 1, 2
		return s
	}(), oncetest.Together, "at once"},
}

func TestKill_Bad(t *testing.T) {
	for name, bad := range badKills {
		t.Run(name, func(t *testing.T) {
			bad.service.Test = t.Name()
			began := time.Now()
			err := oncetest.CheckKill(bad.service)
			var f *oncetest.Failure
			if !errors.As(err, &f) {
				t.Fatalf("not blamed: %v", err)
			}
			t.Logf("%v: %d tried, kills %s: %v", time.Since(began), f.Tried, f.Replay, f)
			if f.Blame != bad.blame || !strings.Contains(f.Error(), bad.what) || len(f.Story) > 8 {
				t.Errorf("want %q and %q in at most 8 steps", bad.blame, bad.what)
			}
		})
	}
}

func TestKill_Good(t *testing.T) {
	s := handling(linked)
	s.Pairs, s.Moments = 8, 8
	oncetest.Kill(t, s)
}

// Each step is killed before and after: two messages of two steps and an ack
// each, and the same again for the late copies. Behind a step that fails, as the second
// link of a file does, there is nothing new.
func TestKill_EveryStepOnce(t *testing.T) {
	s := handling(linked)
	s.Pairs, s.Moments = -1, -1
	opened := 0
	open := s.New
	s.New = func(w *oncetest.World) oncetest.Program[bill] {
		opened++
		return open(w)
	}
	oncetest.Kill(t, s)
	// The world is opened at the beginning and the end, and after each kill. There is one
	// plan without a kill, and one whose step is never reached.
	const steps, failed = 2 * 2 * 3, 2
	if want := 2*steps*3 - failed + 2*2; opened != want {
		t.Errorf("the world was opened %d times, want %d", opened, want)
	}
}

func TestKill_GoodAtOnce(t *testing.T) {
	s := handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		temp, err := d.temp(id)
		if err != nil {
			return err
		}
		err = p.Step(ctx, "link file", func() error { return os.Link(temp, d.path("effects", id)) })
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	})
	s.AtOnce, s.Pairs, s.Moments = 3, 3, 3
	oncetest.Kill(t, s)
}

func TestKill_GoodPipeline(t *testing.T) {
	s := onFiles(func(p *oncetest.Process, d files) func(context.Context, bill) error {
		return oncetest.Pipeline(p, bill.String, func(src oncepipe.Source[bill]) *oncepipe.Pipeline {
			pipe := oncepipe.New("bills", oncepipe.Config{})
			fresh := oncepipe.Dedup(oncepipe.From(pipe, "in", src), "dedup", bill.String)
			oncepipe.Sink(fresh, "link", func(ctx context.Context, b bill) error { return linked(ctx, p, d, b.ID) })
			return pipe
		})
	})
	s.Pairs, s.Moments = 3, 3
	oncetest.Kill(t, s)
}

// The guard of a pipeline is gone with its process.
func TestKill_BadPipeline(t *testing.T) {
	s := onFiles(func(p *oncetest.Process, d files) func(context.Context, bill) error {
		return oncetest.Pipeline(p, bill.String, func(src oncepipe.Source[bill]) *oncepipe.Pipeline {
			pipe := oncepipe.New("bills", oncepipe.Config{})
			fresh := oncepipe.Dedup(oncepipe.From(pipe, "in", src), "dedup", bill.String)
			oncepipe.Sink(fresh, "write", func(ctx context.Context, b bill) error {
				return p.Step(ctx, "write", func() error { return d.write(b.ID) })
			})
			return pipe
		})
	})
	s.Test = t.Name()
	f := blamedKill(t, s)
	if f.Blame != oncetest.Twice || !strings.Contains(f.Error(), "write, then the process is killed") {
		t.Errorf("blamed so: %v", f)
	}
}

func blamedKill(t *testing.T, s oncetest.KillService[bill]) *oncetest.Failure {
	t.Helper()
	err := oncetest.CheckKill(s)
	var f *oncetest.Failure
	if !errors.As(err, &f) {
		t.Fatalf("not blamed: %v", err)
	}
	return f
}

// untilFound is how many kills at random find what one in a few does.
const untilFound = 100

// A program that doesn't say what its steps are is killed in them at random.
func TestKill_MomentsNeedNoSteps(t *testing.T) {
	s := handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		if d.marked("done", id) {
			return nil
		}
		if err := d.write(id); err != nil {
			return err
		}
		slow := time.NewTimer(20 * time.Millisecond)
		defer slow.Stop()
		<-slow.C
		return d.mark("done", id)
	})
	s.Test, s.Alone, s.Pairs, s.Moments = t.Name(), true, -1, untilFound
	f := blamedKill(t, s)
	if f.Blame != oncetest.Twice || !strings.Contains(f.Error(), "is killed") || !strings.Contains(f.Replay, "moment@") {
		t.Errorf("%s: %v", f.Replay, f)
	}
}

// Two processes beside each other find what one after the other can't.
func TestKill_MomentsHaveTwoProcesses(t *testing.T) {
	s := handling(func(ctx context.Context, p *oncetest.Process, d files, id string) error {
		if d.effects(id) > 0 {
			return nil
		}
		slow := time.NewTimer(200 * time.Millisecond) // both of them have begun by then
		defer slow.Stop()
		<-slow.C
		return d.write(id)
	})
	s.Test, s.Pairs, s.Moments = t.Name(), -1, untilFound
	if f := blamedKill(t, s); f.Blame != oncetest.Twice || !strings.Contains(f.Replay, "+:") {
		t.Errorf("%s: %v", f.Replay, f)
	}
	s.Alone, s.Moments = true, 5
	if err := oncetest.CheckKill(s); err != nil {
		t.Errorf("alone: %v", err)
	}
}

func TestKill_Replay(t *testing.T) {
	s := badKills["write before mark"].service
	s.Test = t.Name()
	for text, want := range map[string]oncetest.Blame{"1:after@1": oncetest.Twice, "1:after@2": "", "2:after@3": ""} {
		s.Replay = text
		err := oncetest.CheckKill(s)
		var f *oncetest.Failure
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (!errors.As(err, &f) || f.Blame != want || f.Replay != text):
			t.Errorf("%s: want %q, got %v", text, want, err)
		}
	}
	s.Replay = ""
	t.Setenv("ONCETEST_KILLS", "1:sometimes@1")
	if err := oncetest.CheckKill(s); err == nil || !strings.Contains(err.Error(), "no kill is called") {
		t.Errorf("error %v", err)
	}
}

func TestKill_NoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		test, want string
	}{
		"no test":         {"", "needs a Command or the name"},
		"no such test":    {"TestNobodyWroteThis", "did not come as far"},
		"of another test": {"TestKill_Bad", "did not come as far"},
	} {
		t.Run(name, func(t *testing.T) {
			s := handling(linked)
			s.Test = c.test
			err := oncetest.CheckKill(s)
			var f *oncetest.Failure
			if err == nil || errors.As(err, &f) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
		})
	}
}

// A process of one test comes by the checks of others, and leaves them alone.
func TestKill_BehindAnother(t *testing.T) {
	s := handling(linked)
	s.Pairs, s.Moments, s.Messages = -1, -1, 1
	oncetest.Kill(t, s)
	t.Run("a/part of [it]", func(t *testing.T) { oncetest.Kill(t, s) })
}

// A program of its own that speaks with Kill through Serve.
func TestKill_Command(t *testing.T) {
	s := handling(linked)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.Command = func() *exec.Cmd { return exec.Command(exe, "-test.run=^TestKill_Command$") }
	if err := oncetest.Serve(s); err == nil {
		os.Exit(0)
	}
	oncetest.Kill(t, s)
}
