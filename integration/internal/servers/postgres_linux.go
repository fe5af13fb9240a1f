package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releasePostgres removes the segment of System V shared memory that names the
// folder as in use. Killed servers leave theirs behind, and a system has only
// some thousands.
func releasePostgres(folder string) error {
	raw, err := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it ended in order
	}
	if err != nil {
		return fmt.Errorf("find the shared memory: %w", err)
	}
	lines := strings.Split(string(raw), "\n")
	if len(lines) < 7 {
		return nil // killed before it had any
	}
	_, id, ok := strings.Cut(strings.TrimSpace(lines[6]), " ")
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(id))
	if err != nil {
		return fmt.Errorf("find the shared memory: %w", err)
	}
	_, err = unix.SysvShmCtl(n, unix.IPC_RMID, nil)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIDRM) { // gone already
		return fmt.Errorf("remove shared memory %d: %w", n, err)
	}
	return nil
}
