//go:build !linux

package servers

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"syscall"
)

// Elsewhere servers can't be bound to our life: their addresses have to be in
// the environment.
var errLinux = errors.New("private servers need Linux: start one by hand and put its address into the environment")

type process struct {
	done chan struct{}
	err  error
}

func spawn(*exec.Cmd, string, syscall.Signal) (*process, error) { return nil, errLinux }
func give(string, string) error                                 { return errLinux }
func releasePostgres(string) error                              { return errLinux }
func (p *process) signal(syscall.Signal) error                  { return errLinux }
func (p *process) kill() error                                  { return errLinux }

// Install is for Linux.
func Install(context.Context, io.Writer, ...Kind) error { return errLinux }
