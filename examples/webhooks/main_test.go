package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program is the built binary: its exit codes are part of what is tested.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "webhooks-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "webhooks")
	args := []string{"build", "-o", program}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// result is what a process has left.
type result struct {
	code           int // -1: killed by a signal
	stdout, stderr string
	report         report // with -json
}

// command is the program with a temporary directory of its own, so that a test
// sees what it leaves there.
func command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	return cmd, &stdout
}

func start(t *testing.T, args ...string) result {
	t.Helper()
	cmd, stdout := command(t, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	return ended(t, cmd, err, stdout.String(), stderr.String())
}

func ended(t *testing.T, cmd *exec.Cmd, err error, stdout, stderr string) result {
	t.Helper()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := result{code: cmd.ProcessState.ExitCode(), stdout: stdout, stderr: stderr}
	if strings.Contains(stderr, "DATA RACE") {
		t.Errorf("data race:\n%s", stderr)
	}
	if lines := strings.Split(strings.TrimSpace(stdout), "\n"); strings.HasPrefix(lines[len(lines)-1], "{") {
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r.report); err != nil {
			t.Errorf("last line is not JSON: %v", err)
		}
		if len(lines) > 1 {
			t.Errorf("more than one line with -json:\n%s", stdout)
		}
	}
	for _, e := range cmd.Env {
		if dir, is := strings.CutPrefix(e, "TMPDIR="); is && strings.Contains(dir, t.Name()[:4]) {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind in the temporary directory: %v, %v", left, err)
			}
		}
	}
	return r
}

// expect checks the exit code and shows everything when it is another.
func (r result) expect(t *testing.T, code int) report {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\n%s\n%s", r.code, code, r.stdout, r.stderr)
	}
	return r.report
}

// once checks that every key has exactly one effect.
func (r report) once(t *testing.T, keys int) {
	t.Helper()
	if r.Keys != keys || r.Effects != keys || r.Most != 1 || r.Missing != 0 || r.Dead != 0 || !r.Conserved {
		t.Errorf("not one effect for each of %d keys: %+v", keys, r)
	}
	sum := int64(0)
	for _, n := range r.DuplicatesBy {
		sum += n
	}
	if r.Duplicates != sum || r.Sent < int64(keys) || r.Joined < r.DuplicatesBy["joined"] || r.Seconds <= 0 {
		t.Errorf("numbers don't fit: %+v", r)
	}
}

func newDB(t *testing.T) string { return filepath.Join(t.TempDir(), "webhooks.db") }

func open(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec1(t *testing.T, file, statement string) {
	t.Helper()
	if _, err := open(t, file).ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

var sampleKeys = bytes.Count(sample, []byte("\n"))

func TestTable(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.expect(t, exitOK)
	for _, row := range []string{
		"sent", "distinct keys", "handler runs", "retries", "duplicates", "joined", "dead", "effects",
		"most effects per key", "keys without effect", "conserved",
	} {
		if !strings.Contains("\n"+r.stdout, "\n"+row+" ") {
			t.Errorf("no row %q in\n%s", row, r.stdout)
		}
	}
	if !strings.Contains(r.stderr, "in flight") || !strings.Contains(r.stderr, "parked") || strings.Contains(r.stderr, "\r") {
		t.Errorf("no progress line in %q", r.stderr)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	r := start(t, "-json", "-dup", "1")
	r.expect(t, exitOK).once(t, sampleKeys)
	var fields map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields("sent keys runs retries duplicates duplicates_by joined dead effects " +
		"max_effects_per_key missing conserved seconds") {
		if _, ok := fields[name]; !ok {
			t.Errorf("no field %s", name)
		}
		delete(fields, name)
	}
	if len(fields) > 0 {
		t.Errorf("unexpected fields %v", fields)
	}
	if r.report.Duplicates < int64(sampleKeys) {
		t.Errorf("%d duplicates, each of %d keys was sent twice", r.report.Duplicates, sampleKeys)
	}
}

// played is what a test plays: the sample, and the file that ONCEPIPE_WEBHOOKS
// names.
type played struct {
	name string
	args []string
	keys int
}

func inputs(t *testing.T, repeat int) []played {
	t.Helper()
	all := []played{{"sample", []string{"-repeat", fmt.Sprint(repeat)}, repeat * sampleKeys}}
	if file := os.Getenv("ONCEPIPE_WEBHOOKS"); file != "" {
		in, err := readInput(file, 20)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, played{"file", []string{"-repeat", "20", "-input", file}, in.keyCount()})
	}
	return all
}

func TestOneEffectPerKey(t *testing.T) {
	t.Parallel()
	for _, s := range inputs(t, 8) {
		for name, flags := range map[string]string{
			"flaky":      "-dup 0.5 -fail 0.3",
			"quiet":      "-dup 0 -fail 0 -timeout 1m",
			"one worker": "-dup 0.5 -fail 0.3 -workers 1 -buffer 0",
			"impatient":  "-dup 0.5 -fail 0.3 -timeout 5ms",
			"hopeless":   "-dup 1 -fail 0.3 -timeout 1ns",
			"seed":       "-dup 0.5 -fail 0.3 -seed 18446744073709551615",
		} {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := start(t, append(append(strings.Fields(flags), s.args...), "-json")...).expect(t, exitOK)
				r.once(t, s.keys)
				if r.Runs != int64(s.keys)+r.Retries {
					t.Errorf("%d runs for %d keys and %d retries", r.Runs, s.keys, r.Retries)
				}
				if name == "quiet" && (r.Runs != int64(s.keys) || r.Sent < r.Runs || r.Duplicates != 0) {
					t.Errorf("nothing failed and nothing was sent twice: %+v", r)
				}
			})
		}
	}
}

func TestVolume(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of commits")
	}
	t.Parallel()
	const repeat = 60
	r := start(t, "-dup", "0.5", "-fail", "0.3", "-repeat", fmt.Sprint(repeat), "-json").expect(t, exitOK)
	r.once(t, repeat*sampleKeys)
	if r.DuplicatesBy["committed"] == 0 || r.DuplicatesBy["joined"] == 0 || r.Retries == 0 {
		t.Errorf("copies did not meet their key both done and under way: %+v", r)
	}
}

func TestSameSeedSameFailures(t *testing.T) {
	t.Parallel()
	runs := func(seed string) int64 {
		return start(t, "-json", "-fail", "0.5", "-repeat", "4", "-seed", seed).expect(t, exitOK).Runs
	}
	if a, b := runs("7"), runs("7"); a != b {
		t.Errorf("%d and %d runs with the same seed", a, b)
	}
}

func TestUnguarded(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for range 2 { // the second run does not count the first one's
		r := start(t, "-json", "-unguarded", "-dup", "1", "-fail", "0", "-timeout", "1m", "-db", db).expect(t, exitOK)
		if r.Effects != 2*sampleKeys || r.Most != 2 || r.Duplicates != 0 || !r.Conserved {
			t.Errorf("every delivery was sent twice: %+v", r)
		}
	}
	start(t, "-json", "-db", db).expect(t, exitOK).once(t, sampleKeys) // and does not spoil this
}

// A handler that never succeeds breaks no promise: each key has a dead letter.
func TestDeadLettersOfTheHandler(t *testing.T) {
	t.Parallel()
	r := start(t, "-json", "-fail", "1", "-dup", "0", "-timeout", "1m")
	if got := r.expect(t, exitOK); got.Dead != sampleKeys || got.Effects != 0 || got.Missing != 0 || !got.Conserved {
		t.Errorf("%+v", got)
	}
	if n := strings.Count(r.stderr, "dead letter: line"); n != sampleKeys {
		t.Errorf("%d dead letters listed, want %d:\n%s", n, sampleKeys, r.stderr)
	}
}

// What the program says is what it found in the database, not what it counted.
func TestFinalCheckReadsTheDatabase(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		damage string
		say    string
		bad    func(report) bool
	}{
		"second effect": {
			"INSERT INTO effects SELECT * FROM effects LIMIT 1", "a key has 2 effects",
			func(r report) bool { return r.Most == 2 && r.Effects == sampleKeys+1 },
		},
		"lost effect": {
			"DELETE FROM effects WHERE rowid = (SELECT min(rowid) FROM effects)", "1 keys have neither",
			func(r report) bool { return r.Missing == 1 && r.Effects == sampleKeys-1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			start(t, "-json", "-db", db).expect(t, exitOK).once(t, sampleKeys)
			exec1(t, db, tt.damage)
			r := start(t, "-json", "-db", db)
			if got := r.expect(t, exitBroken); !tt.bad(got) || !strings.Contains(r.stderr, tt.say) {
				t.Errorf("%+v\n%s", got, r.stderr)
			}
		})
	}
}

// Only keys of this input count.
func TestOtherInputInTheSameDatabase(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	start(t, "-json", "-db", db, "-repeat", "3").expect(t, exitOK).once(t, 3*sampleKeys)
	start(t, "-json", "-db", db, "-repeat", "2").expect(t, exitOK).once(t, 2*sampleKeys)
	start(t, "-json", "-db", db).expect(t, exitOK).once(t, sampleKeys)
}
