//go:build linux

package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/oncepipe/oncepipe/integration/internal/servers"
)

// diskSizes are enough for a server's data and little more.
var diskSizes = map[servers.Kind]string{
	"": "8m", servers.Postgres: "160m", servers.MySQL: "256m", servers.Redis: "16m",
}

// The disk is full for a while. What can't be written is not acked; the pipeline
// waits, and goes on when there is room again. A server that ended itself is
// started again.
func TestDiskFull_PipelineGoesOn(t *testing.T) {
	forEngines(t, engines, func(t *testing.T, e engine) {
		t.Parallel()
		disk := mountSmall(t, diskSizes[e.server])
		dsn, revive := e.onDisk(t, disk)
		l := newLedgers(t, e, dsn)
		l.afterwards = true
		c := newCrew(t, l, []*work{openWork(t, e, dsn)}, l.check.modes(), patient)
		const portion = 100
		c.feed(portion)
		c.await(0, outageLimit)
		for range 2 {
			filler := fill(t, disk)
			// What fits into pages that are there already goes well for a while.
			c.awaitFailures(2, portion, outageLimit)
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			eventually(t, outageLimit, func() error {
				revive()
				return l.lookBack(t.Context())
			})
		}
		for _, b := range c.brokers {
			b.Close()
		}
		eventually(t, outageLimit, func() error {
			revive()
			if n := c.left(); n > 0 {
				return fmt.Errorf("%d keys are left:\n%s", n, c.stats())
			}
			return nil
		})
		c.finish(outageLimit)
		l.mustLookBack(t)
		l.print(t, "")
	})
}

// onDisk makes a database on a disk. revive starts its server where that has
// ended itself.
func (e engine) onDisk(t testing.TB, disk string) (dsn string, revive func()) {
	t.Helper()
	if e.server == "" {
		return dsnSync(filepath.Join(disk, "test.db"), "FULL", "busy_timeout(5000)"), func() {}
	}
	settings := map[string]string{}
	if e.server == servers.Postgres {
		settings["max_wal_size"], settings["min_wal_size"] = "32MB", "32MB"
	}
	s, dsn := e.private(t, servers.Options{Dir: disk, Fsync: true, Settings: settings})
	return dsn, func() {
		select {
		case <-s.Done():
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
}

// mountSmall makes a file system that is gone at the end of the test.
func mountSmall(t testing.TB, size string) (folder string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	// Not in t.TempDir(), which other accounts can't enter.
	folder, err := os.MkdirTemp("", "oncepipe-disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	err = syscall.Mount("oncepipe", folder, "tmpfs", 0, "mode=1777,size="+size)
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("mounting is not allowed here: %v", errors.Join(err, os.Remove(folder)))
	}
	if err != nil {
		t.Fatal(errors.Join(err, os.Remove(folder)))
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(folder, syscall.MNT_DETACH), os.Remove(folder)); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// fill writes a file until the disk is full.
func fill(t testing.TB, disk string) (file string) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int64{1 << 20, 1 << 10, 1} { // to the last byte
		for {
			if _, err := io.CopyN(f, zeros{}, size); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	return f.Name()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
