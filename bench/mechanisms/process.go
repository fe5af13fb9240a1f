package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is the parent's end of a child.
type process struct {
	c    *consumer
	kill func() // SIGKILL

	mu    sync.Mutex
	write *json.Encoder
}

// runProcess starts a child that works for c, and waits for its end. killed says
// that it was a SIGKILL.
func runProcess(ctx context.Context, t task, c *consumer) (killed bool, err error) {
	defer c.close()
	env, err := json.Marshal(t)
	if err != nil {
		return false, err
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(env))
	cmd.Stderr = &stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return false, fmt.Errorf("start a process: %w", err)
	}
	p := &process{c: c, write: json.NewEncoder(in), kill: func() { _ = cmd.Process.Kill() }} // it may be over
	err = p.talk(ctx, in, out)
	if end := cmd.Wait(); end != nil {
		if ctx.Err() == nil && !cmd.ProcessState.Exited() {
			return true, err
		}
		err = errors.Join(err, fmt.Errorf("a process: %w: %s", end, stderr.Bytes()))
	}
	return false, errors.Join(ctx.Err(), err)
}

// talk feeds the child and hears it until it closes its output.
func (p *process) talk(ctx context.Context, in io.Closer, out io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	var feeding sync.WaitGroup
	feeding.Go(func() {
		defer in.Close()
		p.feed(ctx)
	})
	var answers sync.WaitGroup
	err := p.hear(ctx, out, &answers)
	cancel()
	answers.Wait()
	feeding.Wait()
	return err
}

// feed writes deliveries until there are no more, or the child is dead.
func (p *process) feed(ctx context.Context) {
	for first := true; ; first = false {
		d, err := p.c.Receive(ctx)
		if err != nil {
			return
		}
		if p.tell(toChild{Order: d.Value}) != nil {
			return
		}
		if after := p.c.doom.after; first && after > 0 {
			time.AfterFunc(after, p.kill)
		}
	}
}

func (p *process) tell(say toChild) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.write.Encode(say)
}

// hear takes what the child says. A last line may be cut by a kill.
func (p *process) hear(ctx context.Context, out io.Reader, answers *sync.WaitGroup) error {
	for lines := json.NewDecoder(out); ; {
		var said toParent
		switch err := lines.Decode(&said); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("hear a process: %w", err)
		case said.Ready:
			p.c.b.join()
		case said.Meet:
			answers.Go(func() {
				p.c.meet(ctx, said.Delivery)
				_ = p.tell(toChild{Go: said.Delivery}) // it may have died meanwhile
			})
		case said.Settlement != nil:
			p.c.b.settle(p.c, said.Delivery, *said.Settlement)
		}
	}
}
