package oncetest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// A test that is itself killed takes its processes with it.
func TestKill_ProcessEndsWithTheTest(t *testing.T) {
	const dirVariable = "ONCETEST_TEST_ORPHAN"
	if dir := os.Getenv(dirVariable); dir != "" {
		Kill(t, hanging(func(*World) string { return dir }))
		return
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	test := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$")
	test.Env = append(os.Environ(), dirVariable+"="+dir, "TMPDIR="+dir)
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	eventually(t, "the handler has begun", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "begun"))
		if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
			return false
		}
		pid, err = strconv.Atoi(string(bytes.TrimSpace(data)))
		return err == nil
	})
	if err := test.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = test.Wait() // it was killed
	eventually(t, "the process has ended", func() bool {
		// Who inherits it may leave a zombie.
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || bytes.Contains(stat, []byte(") Z "))
	})
}
