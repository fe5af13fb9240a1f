//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// guardName is what we are called as the guard.
const guardName = "oncepipe-servers-guard"

// guardian is a second process of ours. It does what is left to do when the
// first was killed by a signal that can't be handled: the servers end by
// themselves then, but the command's processes and the data would stay.
type guardian struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startGuard() (*guardian, error) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{guardName}, Stderr: os.Stderr}
	// A session of its own: what ends a terminal or a group is not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guardian{cmd: cmd, in: in}, nil
}

// tell names a folder or a group of processes to remove.
func (g *guardian) tell(what, which string) error {
	if _, err := fmt.Fprintf(g.in, "%s %s\n", what, which); err != nil {
		return fmt.Errorf("tell the guard: %w", err)
	}
	return nil
}

// dismiss ends the guard, which has nothing to do then.
func (g *guardian) dismiss() error {
	return errors.Join(g.tell("done", ""), g.in.Close(), g.cmd.Wait())
}

// guard reads what there is until its input ends, and removes it unless it was
// dismissed before. It returns the exit code.
func guard(in io.Reader) int {
	var folder string
	var group int
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch what, which, _ := strings.Cut(lines.Text(), " "); what {
		case "done":
			return 0
		case "folder":
			folder = which
		case "group":
			n, err := strconv.Atoi(which)
			if err != nil {
				fmt.Fprintln(os.Stderr, "servers: the guard:", err)
				return 1
			}
			group = n
		}
	}
	var errs []error
	if group != 0 {
		errs = append(errs, signalGroup(group, syscall.SIGKILL))
	}
	if folder != "" {
		errs = append(errs, removeSoon(folder))
	}
	if err := errors.Join(append(errs, lines.Err())...); err != nil {
		fmt.Fprintln(os.Stderr, "servers: the guard:", err)
		return 1
	}
	return 0
}

// removeSoon removes a folder in which the last servers may still write.
func removeSoon(folder string) error {
	for began := time.Now(); ; {
		err := os.RemoveAll(folder)
		if err == nil || time.Since(began) > patience {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
