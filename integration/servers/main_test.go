//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/procfs"
)

// TestMain also is the program itself, so that the tests need no build of it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_SERVERS") != "" || os.Args[0] == guardName {
		main()
	}
	os.Exit(m.Run())
}

// limit is for what should happen in some seconds on a busy machine.
const limit = time.Minute

// outer are the addresses that the test run itself has got, without which the
// program starts its own.
func outer(e string) bool {
	for _, k := range servers.Kinds() {
		if strings.HasPrefix(e, k.Env()+"=") {
			return true
		}
	}
	return false
}

// program returns the program with arguments, not started. Its temporary folder
// is a new one.
func program(t *testing.T, tmp string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	for _, e := range os.Environ() {
		if !outer(e) {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "BE_SERVERS=1", "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	return cmd
}

// newTmp returns a folder that other accounts can enter, as t.TempDir's isn't.
func newTmp(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no servers")
	}
	tmp, err := os.MkdirTemp("", "oncepipe-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	return tmp
}

// eventually polls until there is nothing to complain about.
func eventually(t *testing.T, complaint func() string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		why := complaint()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(why)
		}
	}
}

func empty(tmp string) string {
	left, err := filepath.Glob(filepath.Join(tmp, "oncepipe-servers-*"))
	if err != nil || len(left) > 0 {
		return fmt.Sprintf("left in the temporary folder: %v, %v", left, err)
	}
	return ""
}

func TestExitCode(t *testing.T) {
	tmp := newTmp(t)
	for want, script := range map[int]string{0: "exit 0", 7: "exit 7", 128 + 15: "kill -TERM $$"} {
		cmd := program(t, tmp, "--", "sh", "-c", script)
		// Addresses that are there: nothing to start.
		for _, k := range servers.Kinds() {
			cmd.Env = append(cmd.Env, k.Env()+"=there")
		}
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			t.Errorf("%s: %v, want exit code %d", script, err, want)
		}
	}
	cmd := program(t, tmp, "-no-such-flag")
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("a wrong flag: %v, want exit code 2", err)
	}
}

func TestSkipSaysSo(t *testing.T) {
	cmd := program(t, newTmp(t), "--", "sh", "-c", "env")
	cmd.Env = append(cmd.Env, "ONCEPIPE_SKIP=postgres,redis", "ONCEPIPE_MYSQL=there")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	env, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"postgres is SKIPPED", "redis is SKIPPED", "ONCEPIPE_MYSQL"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("it doesn't say %q: %s", want, stderr.String())
		}
	}
	if s := string(env); strings.Contains(s, "ONCEPIPE_POSTGRES=") || !strings.Contains(s, "ONCEPIPE_MYSQL=there") {
		t.Errorf("the command's environment:\n%s", s)
	}

	cmd = program(t, newTmp(t), "--", "true")
	cmd.Env = append(cmd.Env, "ONCEPIPE_SKIP=postgresql")
	cmd.Stderr = nil
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("a misspelt kind: %v, want exit code 1", err)
	}
}

// started is a run of the program with a command that doesn't end.
type started struct {
	cmd       *exec.Cmd
	addrs     []string
	processes []procfs.Process
}

// start runs the program, directly or below a shell (whose process is cmd
// then), and waits for its command.
func start(t *testing.T, tmp, shell string) *started {
	t.Helper()
	cmd := program(t, tmp, "--", "sh", "-c", "env; echo command=$$; sleep 600 & echo command=$!; echo; wait")
	if shell != "" {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", shell, cmd.Path}, cmd.Args[1:]...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does it
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &started{cmd: cmd}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "" {
		switch name, value, _ := strings.Cut(lines.Text(), "="); name {
		case servers.MySQL.Env():
			cfg, err := mysql.ParseDSN(value)
			if err != nil {
				t.Fatal(err)
			}
			s.addrs = append(s.addrs, cfg.Addr)
		case servers.Postgres.Env(), servers.Redis.Env():
			u, err := url.Parse(value)
			if err != nil {
				t.Fatal(err)
			}
			s.addrs = append(s.addrs, u.Host)
		case "command":
			var id int
			if _, err := fmt.Sscan(value, &id); err != nil {
				t.Fatal(err)
			}
			s.add(t, id)
		}
	}
	s.below(t, cmd.Process.Pid)
	skipped, err := servers.Skipped()
	if err != nil {
		t.Fatal(err)
	}
	// Ourselves, the command, its child, the guard and the servers.
	if n := len(servers.Kinds()) - len(skipped); len(s.addrs) != n || len(s.processes) < 4+n {
		t.Fatalf("servers at %v, processes %v", s.addrs, s.processes)
	}
	if why := s.answers(true); why != "" {
		t.Fatal(why)
	}
	return s
}

func (s *started) add(t *testing.T, id int) {
	t.Helper()
	p, err := procfs.Find(id)
	if errors.Is(err, os.ErrNotExist) {
		return // it has ended since it was listed
	}
	if err != nil {
		t.Fatal(err)
	}
	s.processes = append(s.processes, p)
}

// below adds a process and all that are below it.
func (s *started) below(t *testing.T, id int) {
	t.Helper()
	s.add(t, id)
	children, err := procfs.Children(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		s.below(t, c.ID)
	}
}

// answers complains about servers that do not answer, or do.
func (s *started) answers(want bool) string {
	for _, addr := range s.addrs {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != want {
			return fmt.Sprintf("the server at %s answers: %t (%v)", addr, err == nil, err)
		}
	}
	return ""
}

// gone complains about what still runs.
func (s *started) gone() string {
	for _, p := range s.processes {
		if p.Alive() {
			return fmt.Sprintf("process %d still runs", p.ID)
		}
	}
	return s.answers(false)
}

// Whatever ends the program, or what started it, ends the servers, the command
// and the command's children, and removes the data.
func TestNothingStays(t *testing.T) {
	// The shell stands for make and go run. Without the second command it would
	// replace itself by the program.
	const below = `"$0" "$@"; exit`
	for name, c := range map[string]struct {
		shell string
		sig   syscall.Signal
	}{
		"killed":             {"", syscall.SIGKILL},
		"terminated":         {"", syscall.SIGTERM},
		"interrupted":        {"", syscall.SIGINT},
		"parent killed":      {below, syscall.SIGKILL},
		"grandparent killed": {`sh -c '"$0" "$@"; exit' "$0" "$@"; exit`, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := newTmp(t)
			s := start(t, tmp, c.shell)
			if err := s.cmd.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}
			if err := s.cmd.Wait(); err == nil {
				t.Error("exit code 0")
			}
			eventually(t, s.gone)
			eventually(t, func() string { return empty(tmp) })
		})
	}
}

// A signal before the servers run ends them too.
func TestInterruptedStart(t *testing.T) {
	tmp := newTmp(t)
	cmd := program(t, tmp, "--", "true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var s started
	eventually(t, func() string {
		if empty(tmp) == "" {
			return "it doesn't start"
		}
		return ""
	})
	s.below(t, cmd.Process.Pid)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ends with %v, want exit code 1", err)
	}
	eventually(t, s.gone)
	eventually(t, func() string { return empty(tmp) })
}
