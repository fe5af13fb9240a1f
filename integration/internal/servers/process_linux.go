package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/oncepipe/oncepipe/integration/internal/servers/procfs"
)

// process is a program of ours that never outlives us.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done is closed
}

// spawn starts a program for an account ("" for ourselves). When we end, however
// we end, it gets the signal last.
func spawn(cmd *exec.Cmd, account string, last syscall.Signal) (*process, error) {
	// A group of its own: the terminal's Ctrl-C is for us to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: last, Setpgid: true}
	if err := as(cmd.SysProcAttr, account); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Pdeathsig means the death of the thread that has started the process.
		// This one lives as long as the process, because nobody else may use it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// as lets a program run for an account. Only root can, and only root has to.
func as(attr *syscall.SysProcAttr, account string) error {
	if account == "" || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := ids(account)
	if err != nil {
		return err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

// give makes an account the owner of a folder that it has to write to.
func give(folder, account string) error {
	if account == "" || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := ids(account)
	if err != nil {
		return err
	}
	return os.Chown(folder, uid, gid)
}

func ids(account string) (uid, gid int, err error) {
	u, err := user.Lookup(account)
	if err != nil {
		return 0, 0, fmt.Errorf("it doesn't run as root: %w", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, fmt.Errorf("account %s: %w", account, err)
	}
	if gid, err = strconv.Atoi(u.Gid); err != nil {
		return 0, 0, fmt.Errorf("account %s: %w", account, err)
	}
	return uid, gid, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends a signal. A process that ends just now is no error.
func (p *process) signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, p.cmd.Path, err)
	}
	return nil
}

// kill ends a program and its children with SIGKILL and returns when they are
// gone.
func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	// Stopped, it makes no new children while we look for them.
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	children, err := procfs.Children(p.cmd.Process.Pid)
	if err != nil {
		err = fmt.Errorf("find the children of %s: %w", p.cmd.Path, err)
	}
	if err := errors.Join(err, p.signal(syscall.SIGKILL)); err != nil {
		return err
	}
	<-p.done
	for _, c := range children {
		for c.Alive() {
			if err := syscall.Kill(c.ID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				return fmt.Errorf("kill process %d of %s: %w", c.ID, p.cmd.Path, err)
			}
			time.Sleep(time.Millisecond) // it isn't our child: nothing to wait for
		}
	}
	return nil
}
