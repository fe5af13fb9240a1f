package oncetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// killProcess is a process that runs the program, as the test sees it.
type killProcess struct {
	instance int       // 1 or 2
	kill     killPoint // the zero value: it lives
	cmd      *exec.Cmd
	in       io.WriteCloser
	wrote    lastWords
	has      []*handedOut

	ready   bool
	dying   bool          // by its own hand or the test's
	closing bool          // there is nothing more to do
	limit   time.Duration // when it has to be ready, or to have ended
	dies    time.Duration // at a moment
}

// killEvent is a line of a process, or its end.
type killEvent struct {
	from  *killProcess
	line  killLine
	ended bool
}

// start starts a process whose lines go to events until its end does. Somebody
// must listen to them until then.
func (p *killProcess) start(l killLab, dir, temp string, events chan<- killEvent) error {
	task, err := json.Marshal(killTask{l.test, dir, p.instance, l.timeout, p.kill})
	if err != nil {
		return err
	}
	p.cmd = l.command()
	p.cmd.Env = append(p.cmd.Environ(), killTaskVariable+"="+string(task),
		"TMPDIR="+temp, "TMP="+temp, // what a killed process leaves there is removed with the world
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // or the race detector waits a second
	p.cmd.Stderr = &p.wrote
	p.cmd.WaitDelay = time.Second
	endWithParent(p.cmd)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go p.listen(out, events)
	return nil
}

func (p *killProcess) listen(out io.Reader, events chan<- killEvent) {
	lines := bufio.NewReader(out)
	for {
		text, err := lines.ReadBytes('\n')
		e := killEvent{from: p}
		if json.Unmarshal(text, &e.line) == nil && e.line.Do != "" {
			events <- e
		} else {
			p.wrote.add(text)
		}
		if err != nil {
			break
		}
	}
	_ = p.cmd.Wait() // the process's state tells it
	events <- killEvent{from: p, ended: true}
}

// deliver hands a message over. An error only says that the process has ended,
// which is told by its event.
func (p *killProcess) deliver(o killOrder) {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // two numbers
	}
	_, _ = p.in.Write(append(data, '\n'))
}

// die kills the process. An error says that it has ended.
func (p *killProcess) die() {
	p.dying = true
	_ = p.cmd.Process.Kill()
}

// how says how the process has ended, and its last words.
func (p *killProcess) how() string { return p.cmd.ProcessState.String() + p.said() }

// said is what the process wrote beside its lines.
func (p *killProcess) said() string {
	if words := p.wrote.String(); words != "" {
		return "; it wrote:\n" + words
	}
	return ""
}

// ownCommand runs the test binary for one test alone. Flags of the program's own
// are passed on; the profiles and logs are ours.
func ownCommand(test string) (func() *exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("oncetest: finding the test binary: %w", err)
	}
	args := []string{"-test.run=" + testPattern(test)}
	args = append(args, slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.")
	})...)
	return func() *exec.Cmd { return exec.Command(exe, args...) }, nil
}

// testPattern is a -test.run that only a test of this full name matches.
func testPattern(test string) string {
	names := strings.Split(test, "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return strings.Join(names, "/")
}

// lastWords keeps the end of what is written to it.
type lastWords struct {
	mu  sync.Mutex
	buf []byte
}

const maxLastWords = 4000

func (w *lastWords) Write(p []byte) (int, error) {
	w.add(p)
	return len(p), nil
}

func (w *lastWords) add(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	if more := len(w.buf) - maxLastWords; more > 0 {
		w.buf = slices.Delete(w.buf, 0, more)
	}
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.buf))
}
