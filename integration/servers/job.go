//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oncepipe/oncepipe/integration/internal/servers"
)

// patience is how long a command may take to end after what started us is gone.
const patience = 10 * time.Second

// job is the servers of one run and the command beside them.
type job struct {
	log      io.Writer
	fsync    bool
	guard    *guardian
	signals  <-chan os.Signal
	orphaned <-chan struct{} // closed when what started us has ended
	running  []*servers.Server
	folder   string
	env      []string // for the command
}

var errOrphaned = errors.New("what started us has ended")

// run starts the servers, runs the command and returns its exit code. What it
// leaves is for end.
func (j *job) run(ctx context.Context, args []string) (code int, err error) {
	if j.guard, err = startGuard(); err != nil {
		return 1, err
	}
	if err := j.startServers(ctx); err != nil {
		return 1, err
	}
	if len(args) > 0 {
		return j.command(args)
	}
	for _, e := range j.env {
		name, dsn, _ := strings.Cut(e, "=")
		fmt.Printf("export %s='%s'\n", name, dsn)
	}
	select {
	case <-j.signals:
		return 0, nil
	case <-j.orphaned:
		return 1, errOrphaned
	}
}

// startServers starts what neither the environment gives nor ONCEPIPE_SKIP
// names. A signal stops it.
func (j *job) startServers(ctx context.Context) error {
	kinds, err := j.wanted()
	if err != nil {
		return err
	}
	if j.folder, err = os.MkdirTemp("", "oncepipe-servers-"); err != nil {
		return err
	}
	if err := j.guard.tell("folder", j.folder); err != nil {
		return err
	}
	// The servers' accounts have to get through it.
	if err := os.Chmod(j.folder, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- j.startAll(ctx, kinds) }()
	select {
	case err = <-started:
	case sig := <-j.signals:
		cancel()
		err = errors.Join(fmt.Errorf("%v before the servers ran", sig), <-started)
	case <-j.orphaned:
		cancel()
		err = errors.Join(errOrphaned, <-started)
	}
	for _, s := range j.running {
		j.env = append(j.env, s.Kind().Env()+"="+s.DSN())
	}
	return err
}

// wanted says which kinds to start, and puts the others' addresses into the
// command's environment.
func (j *job) wanted() ([]servers.Kind, error) {
	skipped, err := servers.Skipped()
	if err != nil {
		return nil, err
	}
	var kinds []servers.Kind
	for _, k := range servers.Kinds() {
		switch dsn := os.Getenv(k.Env()); {
		case slices.Contains(skipped, k):
			fmt.Fprintf(j.log, "servers: %s is SKIPPED: %s names it\n", k, servers.SkipEnv)
		case dsn != "":
			fmt.Fprintf(j.log, "servers: %s is the one of %s\n", k, k.Env())
			j.env = append(j.env, k.Env()+"="+dsn)
		default:
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

// startAll starts the servers side by side, and keeps those that run where
// others don't.
func (j *job) startAll(ctx context.Context, kinds []servers.Kind) error {
	if err := servers.Install(ctx, prefixed{j.log}, kinds...); err != nil {
		return err
	}
	all := make([]*servers.Server, len(kinds))
	errs := make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, k := range kinds {
		wg.Go(func() { all[i], errs[i] = servers.Start(ctx, k, servers.Options{Dir: j.folder, Fsync: j.fsync}) })
	}
	wg.Wait()
	j.running = slices.DeleteFunc(all, func(s *servers.Server) bool { return s == nil })
	return errors.Join(errs...)
}

// prefixed says whose lines these are.
type prefixed struct{ io.Writer }

func (p prefixed) Write(line []byte) (int, error) {
	if _, err := fmt.Fprintf(p.Writer, "servers: %s", line); err != nil {
		return 0, err
	}
	return len(line), nil
}

// command runs the command and returns its exit code, as a shell would.
func (j *job) command(args []string) (code int, err error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), j.env...)
	// Its processes are a group, so that they can be ended together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	group := cmd.Process.Pid
	// What it has left behind ends with it.
	defer func() { err = errors.Join(err, signalGroup(group, syscall.SIGKILL)) }()
	if err := j.guard.tell("group", strconv.Itoa(group)); err != nil {
		return 1, errors.Join(err, signalGroup(group, syscall.SIGKILL), cmd.Wait())
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	orphaned := j.orphaned
	var late <-chan time.Time
	for {
		select {
		case err := <-exited:
			return exitCode(cmd, err)
		case sig := <-j.signals:
			err = signalGroup(group, sig.(syscall.Signal))
		case <-orphaned:
			fmt.Fprintln(j.log, "servers:", errOrphaned)
			orphaned, late = nil, time.After(patience)
			err = signalGroup(group, syscall.SIGTERM)
		case <-late:
			err = signalGroup(group, syscall.SIGKILL)
		}
		if err != nil {
			return 1, err
		}
	}
}

// signalGroup sends a signal to a group of processes; one that is gone is no
// error.
func signalGroup(group int, sig syscall.Signal) error {
	if err := syscall.Kill(-group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to the command: %w", sig, err)
	}
	return nil
}

func exitCode(cmd *exec.Cmd, err error) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// end stops the servers and removes all data.
func (j *job) end() error {
	errs := make([]error, len(j.running))
	var wg sync.WaitGroup
	for i, s := range j.running {
		select {
		case <-s.Done():
			fmt.Fprintf(j.log, "servers: %s has ended by itself:\n%s\n", s.Kind(), s.Log())
		default:
		}
		wg.Go(func() { errs[i] = s.Stop() })
	}
	wg.Wait()
	if j.folder != "" {
		errs = append(errs, os.RemoveAll(j.folder))
	}
	if j.guard != nil {
		errs = append(errs, j.guard.dismiss())
	}
	return errors.Join(errs...)
}
