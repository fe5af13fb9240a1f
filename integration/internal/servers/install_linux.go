package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Install sees to it that the programs of the kinds are there. What is missing
// is installed from Debian's or Ubuntu's packages when we are root on one of
// them, and what it does is written to log; else the error says what to install.
// Several processes may call it at once.
func Install(ctx context.Context, log io.Writer, kinds ...Kind) error {
	missing, err := lacking(kinds)
	if len(missing) == 0 {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w\n%s", err, advice(missing))
	}
	apt, noApt := exec.LookPath("apt-get")
	if noApt != nil {
		return fmt.Errorf("%w\n%s", err, advice(missing))
	}
	unlock, err := lock(filepath.Join(os.TempDir(), "oncepipe-install.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if missing, err = lacking(kinds); len(missing) == 0 { // somebody else has installed them meanwhile
		return err
	}

	running := slices.DeleteFunc(services(), func(s string) bool { return !serviceRuns(ctx, s) })
	pkgs := packages(missing)
	fmt.Fprintf(log, "installing %s\n", strings.Join(pkgs, " "))
	for _, args := range [][]string{
		{"update"},
		append([]string{"-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends"}, pkgs...),
	} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s\n%s", strings.Join(args, " "), err, out, advice(missing))
		}
	}
	// A package may start its service, on the usual port. Nobody asked for it.
	for _, s := range services() {
		if slices.Contains(running, s) || !serviceRuns(ctx, s) {
			continue
		}
		fmt.Fprintf(log, "stopping the service %s, which was installed with its programs\n", s)
		if out, err := exec.CommandContext(ctx, "service", s, "stop").CombinedOutput(); err != nil {
			return fmt.Errorf("stop the service %s: %w\n%s", s, err, out)
		}
	}
	_, err = lacking(kinds)
	return err
}

// lacking lists the kinds whose programs aren't there, and why.
func lacking(kinds []Kind) (missing []Kind, err error) {
	var errs []error
	for _, k := range kinds {
		r, err := k.recipe()
		if err != nil {
			return nil, err
		}
		if _, err := find(r); err != nil {
			missing = append(missing, k)
			errs = append(errs, fmt.Errorf("%s: %w", k, err))
		}
	}
	return missing, errors.Join(errs...)
}

func packages(kinds []Kind) []string {
	var list []string
	for _, k := range kinds {
		if r, err := k.recipe(); err == nil {
			list = append(list, r.pkg)
		}
	}
	return list
}

// advice is what to do about missing programs, line by line.
func advice(missing []Kind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Install them (Debian, Ubuntu: apt-get install %s)", strings.Join(packages(missing), " "))
	for _, k := range missing {
		fmt.Fprintf(&b, ",\nor put the address of a server into %s, or do without it: %s=%s", k.Env(), SkipEnv, k)
	}
	return b.String() + "."
}

func services() []string {
	return []string{postgres.service, mariadb.service, redis.service}
}

func serviceRuns(ctx context.Context, name string) bool {
	return exec.CommandContext(ctx, "service", name, "status").Run() == nil
}

// lock waits for a lock that other processes respect too.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
	}
	return func() { f.Close() }, nil // which gives the lock back
}
