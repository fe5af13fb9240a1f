// Package servers starts private PostgreSQL, MariaDB and Redis servers for
// tests, on free ports of the loopback address and with their data in a
// temporary folder. A server never outlives the process that started it, however
// that one ends.
//
// Most tests share the servers that the program integration/servers starts once
// for a whole run; package servertest finds those. A test that kills a database,
// fills its disk or takes all its connections starts one of its own.
package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Options of one server. The zero value is a fast server for tests.
type Options struct {
	// Dir is the folder to make the data's folder in, for example a small tmpfs
	// that a test wants to fill. The account that the server runs as (postgres or
	// mysql, when we are root) must be able to enter it. Default: os.TempDir().
	Dir string

	// Fsync waits for the disk at each commit (for Redis: at each command). Without
	// it a power failure can lose commits; a kill of the server never does.
	Fsync bool

	// Settings are the server's own, by the name that it has for them
	// ("max_connections" is 300 unless it is set here). They win over ours.
	Settings map[string]string
}

// Server is a running or killed server. Its methods are not for concurrent use,
// except DSN, Kind, Addr, Folder and Log.
type Server struct {
	kind   Kind
	recipe recipe
	opts   Options
	path   map[string]string // of the programs
	folder string
	addr   string
	proc   *process
}

// The longest that a start may take when the caller's context allows more, and
// how long a killed PostgreSQL's remains may be in the way of a new one.
const (
	startLimit   = 2 * time.Minute
	restartLimit = 30 * time.Second
)

// errInUse means that something is in the way that may go: a port that somebody
// else was faster to take, the shared memory of a killed server.
var errInUse = errors.New("in use")

// Start starts a server with empty data and returns when it answers. Where its
// programs are missing it installs them, as [Install] does. ctx is for the start
// only. The caller owes it a call of Stop.
func Start(ctx context.Context, kind Kind, o Options) (*Server, error) {
	fail := func(err error) (*Server, error) { return nil, fmt.Errorf("start %s: %w", kind, err) }
	r, err := kind.recipe()
	if err != nil {
		return fail(err)
	}
	if err := Install(ctx, io.Discard, kind); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s := &Server{kind: kind, recipe: r, opts: o}
	if s.path, err = find(r); err != nil {
		return fail(err)
	}
	if err := s.create(ctx); err != nil {
		return fail(errors.Join(err, s.Stop()))
	}
	for {
		if s.addr, err = freeAddr(); err != nil {
			return fail(errors.Join(err, s.Stop()))
		}
		switch err = s.serve(ctx); {
		case err == nil:
			return s, nil
		case !errors.Is(err, errInUse):
			return fail(errors.Join(err, s.Stop()))
		}
	}
}

// DSN is the server's address as the drivers want it: a URL postgres://… for
// pgx, go-sql-driver's form for MariaDB, a URL redis://… for go-redis. It names a
// database that is there, and an account that may do everything.
func (s *Server) DSN() string { return s.recipe.dsn(s.addr) }

// Kind is what it was started as.
func (s *Server) Kind() Kind { return s.kind }

// Addr is the host and port of the server. It stays the same after a restart.
func (s *Server) Addr() string { return s.addr }

// Folder is where the data is.
func (s *Server) Folder() string { return s.folder }

// Log returns the end of what the server has printed since its last start.
func (s *Server) Log() string {
	const enough = 4 << 10
	raw, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(raw[max(0, len(raw)-enough):]))
}

func (s *Server) logFile() string { return filepath.Join(s.folder, "log") }

// Done is closed when the server that was started last has ended, by a kill or
// by itself, as a database does that can't write any more.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// Kill ends the server and all its processes with SIGKILL, as a crash would, and
// returns when they are gone. The data stays.
func (s *Server) Kill() error {
	if err := s.proc.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", s.kind, err)
	}
	return nil
}

// Restart starts the server again on the same data and the same port, after a
// kill if it is running, and returns when it answers.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for began := time.Now(); ; {
		err := s.serve(ctx)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errInUse) || time.Since(began) > restartLimit:
			return fmt.Errorf("restart %s: %w", s.kind, err)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("restart %s: %w", s.kind, err)
		}
	}
}

// Stop ends the server, if it is running, and removes its data.
func (s *Server) Stop() error {
	var errs []error
	if s.proc != nil {
		errs = append(errs, s.quit())
	}
	if s.folder != "" {
		errs = append(errs, s.recipe.release(s.folder), os.RemoveAll(s.folder))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop %s: %w", s.kind, err)
	}
	return nil
}

func (s *Server) quit() error {
	if err := s.proc.signal(s.recipe.quit); err != nil {
		return err
	}
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	select {
	case <-s.proc.done:
		return nil
	case <-patience.C:
		return s.proc.kill()
	}
}

// create makes the folder and what the server expects in it.
func (s *Server) create(ctx context.Context) error {
	dir, err := os.MkdirTemp(s.opts.Dir, "oncepipe-"+string(s.kind)+"-")
	if err != nil {
		return err
	}
	s.folder = dir // from here on Stop removes it
	// The servers tell us theirs without symbolic links.
	if s.folder, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if err := give(s.folder, s.recipe.account); err != nil {
		return err
	}
	if s.recipe.initialize == nil {
		return nil
	}
	p, err := s.run(s.recipe.initialize(s.folder), syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
	}
	if p.err != nil {
		return fmt.Errorf("initialize: %w\n%s", p.err, s.Log())
	}
	return nil
}

// serve starts the server and waits until it answers.
func (s *Server) serve(ctx context.Context) error {
	_, port, _ := strings.Cut(s.addr, ":")
	p, err := s.run(s.recipe.serve(s.folder, port, s.opts), s.recipe.quit)
	if err != nil {
		return err
	}
	s.proc = p
	for {
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		folder, err := s.recipe.ask(ask, s.addr)
		cancel()
		if err == nil && folder == s.folder {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("another server, of %s, has the address %s: %w", folder, s.addr, errInUse)
		}
		select {
		case <-p.done:
			if text := s.Log(); strings.Contains(text, "in use") {
				return fmt.Errorf("%w: %s", errInUse, text)
			}
			return fmt.Errorf("it has ended (%v):\n%s", p.err, s.Log())
		default:
		}
		if wait := pause(ctx, 20*time.Millisecond); wait != nil || errors.Is(err, errInUse) {
			return errors.Join(err, wait, p.kill())
		}
	}
}

// run starts one of the programs, with its output in a new log file.
func (s *Server) run(args []string, last syscall.Signal) (*process, error) {
	out, err := os.Create(s.logFile())
	if err != nil {
		return nil, err
	}
	defer out.Close() // the program has its own handle
	cmd := exec.Command(s.path[args[0]], args[1:]...)
	cmd.Dir = s.folder
	cmd.Stdout, cmd.Stderr = out, out
	// Nothing of the caller's: PGPORT and the like mean other servers.
	cmd.Env = []string{"PATH=" + searchPath(), "HOME=" + s.folder, "TMPDIR=" + s.folder, "LC_ALL=C.UTF-8"}
	return spawn(cmd, s.recipe.account, last)
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
