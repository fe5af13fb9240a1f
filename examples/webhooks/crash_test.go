package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Killed, started again, killed, started again: still one effect per key.
func TestCrashAndRestart(t *testing.T) {
	t.Parallel()
	for _, s := range inputs(t, 6) {
		for name, flags := range map[string]string{
			"flaky":      "-dup 0.5 -fail 0.3",
			"one worker": "-dup 0.5 -fail 0.3 -workers 1 -buffer 0",
			"impatient":  "-dup 0.5 -fail 0.3 -timeout 5ms",
		} {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				crashAndRestart(t, newDB(t), s, strings.Fields(flags))
			})
		}
	}
}

func crashAndRestart(t *testing.T, db string, s played, flags []string) {
	args := slices.Concat(flags, s.args, []string{"-json", "-db", db})
	for _, share := range []float64{0.3, 0.6} {
		r := start(t, append(args, "-crash-after", fmt.Sprint(share))...)
		if r.code != -1 || r.stdout != "" {
			t.Fatalf("exit code %d, want death by SIGKILL\n%s", r.code, r.stderr)
		}
		n := 0
		if err := open(t, db).QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if want := int(math.Ceil(share * float64(s.keys))); n != want {
			t.Errorf("killed when %d of %d were booked, want %d", n, s.keys, want)
		}
	}
	// The share is booked: it isn't killed again.
	r := start(t, append(args, "-crash-after", "0.6")...).expect(t, exitOK)
	r.once(t, s.keys)
	if n := r.DuplicatesBy["store"]; n < int64(s.keys)*6/10 {
		t.Errorf("%d keys were known to the store, 0.6 of %d were booked", n, s.keys)
	}
	r = start(t, args...).expect(t, exitOK)
	r.once(t, s.keys)
	if n := r.DuplicatesBy["store"]; n != int64(s.keys) {
		t.Errorf("%d keys were known to the store, want all %d", n, s.keys)
	}
}

// Without -db too, and it leaves no file behind (see ended).
func TestCrashWithoutDB(t *testing.T) {
	t.Parallel()
	if r := start(t, "-json", "-crash-after", "0.5"); r.code != -1 {
		t.Errorf("exit code %d, want death by SIGKILL\n%s", r.code, r.stderr)
	}
}

// background starts the program and returns when it receives.
func background(t *testing.T, args ...string) (cmd *exec.Cmd, wait func() result) {
	t.Helper()
	cmd, stdout := command(t, args...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stderr := bufio.NewReader(pipe)
	first, err := stderr.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "receiving on ") {
		t.Fatalf("%q, %v", first, err)
	}
	return cmd, func() result {
		t.Helper()
		rest, err := io.ReadAll(stderr)
		if err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		return ended(t, cmd, err, stdout.String(), first+string(rest))
	}
}

func TestInterruptAndRestart(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]os.Signal{"SIGINT": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const repeat = 20
			db, keys := newDB(t), repeat*sampleKeys
			args := []string{"-json", "-repeat", fmt.Sprint(repeat), "-db", db}
			// Failing that often it takes its time, and there is always something parked.
			cmd, wait := background(t, append(args, "-fail", "0.9")...)
			file := open(t, db)
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for n := 0; n < 20; <-tick.C {
				if err := file.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&n); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			r := wait()
			got := r.expect(t, exitInterrupted)
			if got.Missing == 0 || got.Effects < 20 || got.Most != 1 || !got.Conserved {
				t.Errorf("%+v", got)
			}
			if !strings.Contains(r.stderr, "interrupted: the pipeline drained and returned ") || strings.Contains(r.stderr, "returned 0 ") {
				t.Errorf("it doesn't say what it returned:\n%s", r.stderr)
			}
			booked := int64(got.Effects)
			got = start(t, args...).expect(t, exitOK)
			got.once(t, keys)
			if got.DuplicatesBy["store"] != booked {
				t.Errorf("%d keys were known to the store, %d had been booked", got.DuplicatesBy["store"], booked)
			}
		})
	}
}

// The temporary file is removed (see ended).
func TestInterruptWithoutDB(t *testing.T) {
	t.Parallel()
	cmd, wait := background(t, "-repeat", "1000")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	wait().expect(t, exitInterrupted)
}
