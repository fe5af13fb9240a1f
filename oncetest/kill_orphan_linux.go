package oncetest

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the process end with the thread that starts it. Elsewhere
// the end of its input has to do.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
