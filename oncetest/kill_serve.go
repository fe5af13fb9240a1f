package oncetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/oncepipe/oncepipe"
)

// killTask is what a process is told in its environment.
type killTask struct {
	Test     string
	Dir      string
	Instance int
	Timeout  time.Duration
	Kill     killPoint // the zero value: it lives
}

const killTaskVariable = "ONCETEST_KILL_PROCESS"

func killTaskGiven() (task killTask, given bool, err error) {
	text, given := os.LookupEnv(killTaskVariable)
	if !given {
		return task, false, nil
	}
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return task, true, fmt.Errorf("oncetest: reading %s: %w", killTaskVariable, err)
	}
	return task, true, nil
}

// killOrder is a delivery, a line of JSON on the process's input.
type killOrder struct{ ID, Copy int }

// killLine is what the process tells, a line of JSON on its output.
type killLine struct {
	Do   string
	ID   int    `json:",omitempty"` // of the message, 0 where it isn't known
	Copy int    `json:",omitempty"`
	N    int    `json:",omitempty"` // of the step
	Text string `json:",omitempty"`
}

// What a line tells.
const (
	tellReady    = "ready"    // the program has started
	tellStep     = "step"     // a step is done next
	tellBefore   = "before"   // the process dies before the step
	tellAfter    = "after"    // it dies after it
	tellAck      = "ack"      // the message is acknowledged
	tellDone     = "done"     // the handler has returned nil
	tellFailed   = "failed"   // it has returned an error
	tellDead     = "dead"     // it has returned a permanent one
	tellReply    = "reply"    // see Process.Reply
	tellTogether = "together" // see Process.Enter
)

// killServer is the process's side.
type killServer struct {
	task killTask

	mu     sync.Mutex
	out    io.Writer
	steps  int
	last   *run // that was begun
	inside map[int]*run
}

// serve handles deliveries until there are no more. What the program prints must
// not come between the lines, which go to the output that the process was given.
func (s KillService[M]) serve(task killTask) error {
	server := &killServer{
		task: task, out: os.NewFile(uintptr(syscall.Stdout), "stdout"),
		inside: map[int]*run{},
	}
	os.Stdout = os.Stderr
	if err := server.serve(os.Stdin, s.open); err != nil {
		return fmt.Errorf("oncetest: %w", err)
	}
	return nil
}

func (s *killServer) serve(in io.Reader, open func(w *World) program) error {
	world := World{dir: s.task.Dir}
	program := open(&world)
	ctx, stop := context.WithCancelCause(context.Background())
	p := &Process{ctx: ctx, stop: stop, instance: s.task.Instance, ask: s.ask, order: new(sync.Mutex)}
	handle := program.start(p)
	p.started.Store(true)
	s.tell(killLine{Do: tellReady})
	var runs sync.WaitGroup
	for orders := json.NewDecoder(in); ; {
		var o killOrder
		err := orders.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the deliveries: %w", err)
		}
		r := s.begin(p, o)
		runs.Go(func() { s.perform(r, handle) })
	}
	// Where the test has died nobody else ends a process that hangs.
	time.AfterFunc(4*s.task.Timeout, func() { os.Exit(1) })
	stop(errors.New("the process ends"))
	runs.Wait()
	p.cleanups.call()
	world.cleanups.call()
	return nil
}

func (s *killServer) begin(p *Process, o killOrder) *run {
	r := &run{delivery: &delivery{id: o.ID}, copy: o.Copy, process: p}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = r
	return r
}

// perform does not recover a panic: it ends the process, as it would any.
func (s *killServer) perform(r *run, handle func(ctx context.Context, id, copy int) error) {
	ctx, cancel := context.WithTimeout(context.WithValue(r.process.ctx, runKey{}, r), s.task.Timeout)
	defer cancel()
	r.ctx = ctx
	end := killLine{Do: tellFailed, Text: "the goroutine has ended"}
	defer func() {
		if v := recover(); v != nil {
			panic(v)
		}
		s.tellOf(r, end)
	}()
	err := handle(ctx, r.id, r.copy)
	if err == nil && !r.acked.Load() {
		err = r.process.ack(r)
	}
	switch {
	case err == nil:
		end = killLine{Do: tellDone}
	case oncepipe.IsPermanent(err):
		end = killLine{Do: tellDead, Text: err.Error()}
	default:
		end = killLine{Do: tellFailed, Text: err.Error()}
	}
}

// ask is called by the program's goroutines: see Process.
func (s *killServer) ask(a *act) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runOf(a)
	switch {
	case a.enter, a.leave:
		s.enter(a, r)
	case a.reply:
		s.write(r, killLine{Do: tellReply, Text: replyText(a.value)})
	case a.done:
		s.die(r, killLine{Do: tellAfter, Text: a.name})
	default:
		return s.step(a, r)
	}
	return verdict{}
}

func (s *killServer) step(a *act, r *run) verdict {
	s.steps++
	line := killLine{Do: tellStep, Text: a.name, N: s.steps}
	if s.task.Kill == (killPoint{killBefore, s.steps}) {
		line.Do = tellBefore
		s.die(r, line)
	}
	if a.ack {
		line.Do = tellAck
		a.run.acked.Store(true)
	}
	s.write(r, line)
	after := s.task.Kill == killPoint{killAfter, s.steps}
	if after && a.ack {
		line.Do = tellAfter
		s.die(r, line)
	}
	return verdict{again: after}
}

// runOf is the run that an act belongs to: of a pipeline's goroutine that of the
// item, and the latest one where nobody knows.
func (s *killServer) runOf(a *act) *run {
	switch {
	case a.run != nil:
		return a.run
	case a.item != nil:
		return a.item
	default:
		return s.last
	}
}

func (s *killServer) enter(a *act, r *run) {
	if r == nil {
		return
	}
	other := s.inside[r.id]
	switch {
	case a.leave && other == r:
		delete(s.inside, r.id)
	case a.enter:
		if other != nil && other != r && other.ctx.Err() == nil {
			s.write(r, killLine{Do: tellTogether})
		}
		s.inside[r.id] = r
	}
}

func replyText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%#v", v)
	}
	return string(data)
}

func (s *killServer) tell(line killLine) { s.tellOf(nil, line) }

func (s *killServer) tellOf(r *run, line killLine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(r, line)
}

// write tells a line in one write, so that the test has the whole of it or
// nothing. Where the test is gone the process has no reason to live.
func (s *killServer) write(r *run, line killLine) {
	if r != nil {
		line.ID, line.Copy = r.id, r.copy
	}
	data, err := json.Marshal(line)
	if err == nil {
		_, err = s.out.Write(append(data, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "oncetest: telling the test:", err)
		os.Exit(1)
	}
}

// die does not return before the signal has arrived, and lets no other step in.
func (s *killServer) die(r *run, last killLine) {
	s.write(r, last)
	me, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = me.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}
