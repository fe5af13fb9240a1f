package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestMain(m *testing.M) {
	if is, err := child(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The race detector sleeps a second at the end of each process otherwise.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// few is said by -short, and by -race, under which SQLite is many times slower.
func few() bool { return raceEnabled || testing.Short() }

// some are as many messages as show each fault.
func some() int {
	if few() {
		return 24
	}
	return 48
}

const kills = 2

// known are the faults that each mechanism does not survive. All that it is not
// known for it has to survive.
var known = map[string][]string{
	"nothing":                             allBut("failure before the effect"),
	"random token for each attempt":       allBut("failure before the effect"),
	"key and nanoTime as token":           allBut("failure before the effect"),
	"set in memory, check, then act":      allBut("redelivery after commit", "failure before the effect"),
	"set in memory, marked before":        {"failure before the effect", "two processes", "restart", "SIGKILL"},
	"window at the broker, 100 keys":      {"redelivery after commit", "failure after the effect", "two processes", "restart", "SIGKILL"},
	"window at the broker, all keys":      {"redelivery after commit", "failure after the effect", "two processes", "restart", "SIGKILL"},
	"select, then insert, READ COMMITTED": append(buffers(), "duplicate in flight", "two processes"),
	"Once":                                {"failure after the effect", "SIGKILL"},
	"Once, AtMostOnce":                    {"failure before the effect", "failure after the effect", "SIGKILL"},
}

// chosen are the cells that are tested where few are: of those that hold, what
// people use most; of the others, what each is known for.
func chosen(m mechanism, f fault) bool {
	switch m.name {
	case "unique constraint", "ON CONFLICT in the transaction", "Tx", "Dedup, then Tx":
		return true
	case "nothing", "set in memory, check, then act":
		return f.processes == 0
	case "set in memory, marked before":
		return f.do == failBefore || f.kills > 0
	case "window at the broker, all keys":
		return f.restarts > 0
	case "select, then insert, READ COMMITTED":
		return f.processes == 2
	case "Once", "Once, AtMostOnce":
		return f.do == failAfter
	}
	return false
}

func allBut(names ...string) (list []string) {
	for _, f := range faults(kills) {
		if !slices.Contains(names, f.name) {
			list = append(list, f.name)
		}
	}
	return list
}

func buffers() (list []string) {
	for _, f := range faults(kills) {
		if f.come == sentBehind {
			list = append(list, f.name)
		}
	}
	return list
}

// What is known shows, and nothing else is lost, doubled or asked.
func TestCounts(t *testing.T) {
	var sheds atomic.Int64 // cells
	t.Cleanup(func() {
		if sheds.Load() == 0 {
			t.Error("no message was shed for good anywhere")
		}
	})
	for i, m := range mechanisms {
		if m.holds != (known[m.name] == nil) {
			t.Errorf("%s: it holds, or it has known faults", m.name)
		}
		for j, f := range faults(kills) {
			if few() && !chosen(m, f) {
				continue
			}
			expected := slices.Contains(known[m.name], f.name)
			if expected && f.come != sentBehind && f.patience > 0 {
				f.patience = 2 * time.Second // few wait, and their copy comes at last
			}
			t.Run(m.name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				r, err := measure(t.Context(), m, f, some(), rand.New(rand.NewPCG(uint64(i), uint64(j))))
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%+v", r)
				if r.Faults == 0 {
					t.Error("no fault was made")
				}
				bad := r.Lost + r.Doubled + r.Asked
				if expected != (bad > 0) {
					t.Errorf("%d lost, %d doubled, %d asked of %d faults; is that known: %v", r.Lost, r.Doubled, r.Asked, r.Faults, expected)
				}
				if m.name == "Once, AtMostOnce" && r.Lost+r.Doubled > 0 {
					t.Errorf("%d lost, %d doubled, in place of a question", r.Lost, r.Doubled)
				}
				acksShed := f.come == sentBehind && f.buffer != none.buffer && strings.HasSuffix(f.name, "shed acked")
				if r.Shed > 0 {
					sheds.Add(1)
				}
				if r.Shed > 0 && !acksShed { // where it is, a busy machine can send so slowly that there is room
					t.Errorf("%d messages were shed for good", r.Shed)
				}
			})
		}
	}
}

// Without a fault nothing is lost or doubled by anybody, nor in a run in which
// copies come and nobody waits for them, by those that hold.
func TestWithout(t *testing.T) {
	for _, m := range mechanisms {
		runs := []fault{none}
		if few() && !m.dedup {
			continue
		}
		if m.holds {
			runs = append(runs, faults(kills)[0].runs()[1])
		}
		for _, f := range runs {
			t.Run(m.name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				r, err := measure(t.Context(), m, f, some(), rand.New(rand.NewPCG(1, 1)))
				if err != nil {
					t.Fatal(err)
				}
				if r.Lost+r.Doubled+r.Asked+r.Shed > 0 || r.Messages != some() || r.PerSecond <= 0 || r.Waits {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

func TestHitsFollowTheSeed(t *testing.T) {
	hit := func(seed uint64) (keys []string) {
		for _, m := range newBroker(mechanisms[0], faults(kills)[0], 1000, rand.New(rand.NewPCG(seed, 0))).messages {
			if m.hit {
				keys = append(keys, m.key)
			}
		}
		return keys
	}
	if a, b := hit(1), hit(1); len(a) != 100 || !slices.Equal(a, b) {
		t.Errorf("%d and %d messages are hit, not the same 100", len(a), len(b))
	}
	if slices.Equal(hit(1), hit(2)) {
		t.Error("another seed chooses the same messages")
	}
}

func TestWindow(t *testing.T) {
	w := newWindow(2)
	for i, step := range []struct {
		key   string
		known bool
	}{{"a", false}, {"a", true}, {"b", false}, {"a", true}, {"c", false}, {"a", false}, {"c", true}, {"b", false}} {
		if got := w.knows(step.key); got != step.known {
			t.Errorf("step %d: %q is known: %v, want %v", i, step.key, got, step.known)
		}
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		row   row
		level int
		text  string
	}{
		{row{Faults: 12}, 0, "0/12"},
		{row{Faults: 12, Shed: 3}, 0, "0/12, 3 shed"},
		{row{Faults: 12, Asked: 12}, 1, "12/12 asked"},
		{row{Faults: 1000, Doubled: 1}, 1, "1/1000 twice"},
		{row{Faults: 10, Lost: 1, Doubled: 3}, 2, "1/10 lost, 3/10 twice"},
		{row{Faults: 6, Doubled: 3}, 3, "3/6 twice"},
		{row{Faults: 6, Doubled: 9}, 3, "9/6 twice"},
	} {
		if level, text := c.row.level(), strings.Join(c.row.counts(), ", "); level != c.level || text != c.text {
			t.Errorf("%+v: level %d, %q, want %d, %q", c.row, level, text, c.level, c.text)
		}
	}
}

func TestBrokenPromises(t *testing.T) {
	rows := []row{
		{Mechanism: "Tx", Fault: "restart"},
		{Mechanism: "Tx", Fault: "SIGKILL", Doubled: 1},
		{Mechanism: "nothing", Fault: "restart", Doubled: 1},
		{Mechanism: "nothing", Fault: "none", Lost: 1},
	}
	if got := brokenOnes(rows); !slices.Equal(got, []row{rows[3], rows[1]}) {
		t.Errorf("broken: %+v", got)
	}
}

// A run that was cut short has a document all the same.
func TestPartOfTheCells(t *testing.T) {
	dir := results.Dir(t.TempDir())
	rows := []row{{Mechanism: "nothing", Fault: "none", Messages: 5, PerSecond: 1234}}
	if err := write(dir, results.Run{Command: "x", Partial: true}, rows); err != nil {
		t.Fatal(err)
	}
	text, err := dir.Read("mechanisms.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cut short", "| nothing | 1200 | – |", "<!-- part: short -->"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the document", want)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-unknown"}, {"argument"}, {"-render"}, {"-render", "argument"}} {
		var out, diag strings.Builder
		if code := run(args, &out, &diag); code != 2 || diag.Len() == 0 || out.Len() > 0 {
			t.Errorf("%v: code %d, %q, %q", args, code, out.String(), diag.String())
		}
	}
}

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", []string{"mechanisms.csv", "mechanisms.json"}, render)
}

// -render makes the files of the data alone, the same as are committed.
func TestRenderAgain(t *testing.T) {
	committed, dir := results.Dir("../../docs/results"), results.Dir(t.TempDir())
	args := []string{"-render", "-results", string(dir)}
	var out, diag strings.Builder
	if code := run(args, &out, &diag); code != 1 || !strings.Contains(diag.String(), "mechanisms.json") {
		t.Errorf("without data: code %d, %q", code, diag.String())
	}
	for _, name := range []string{"mechanisms.csv", "mechanisms.json"} {
		if err := dir.Write(name, content(t, committed, name)); err != nil {
			t.Fatal(err)
		}
	}
	diag.Reset()
	if code := run(args, &out, &diag); code != 0 || out.Len()+diag.Len() > 0 {
		t.Fatalf("code %d, %q, %q", code, out.String(), diag.String())
	}
	for _, name := range []string{"mechanisms.csv", "mechanisms.json", "mechanisms.md", "mechanisms.svg"} {
		if !bytes.Equal(content(t, dir, name), content(t, committed, name)) {
			t.Errorf("%s is not the committed one", name)
		}
	}
}

func content(t *testing.T, dir results.Dir, name string) []byte {
	t.Helper()
	data, err := dir.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The answer names each mechanism whose faults it sums, and keeps what was shed
// apart from what was lost.
func TestAnswer(t *testing.T) {
	const shed = "full buffer, Sliding, shed acked"
	rows := []row{
		{Mechanism: "nothing", Fault: shed, Messages: 500, Faults: 500, Shed: 90},
		{Mechanism: "nothing", Fault: "none", Messages: 500, PerSecond: 11_880},
	}
	for _, name := range []string{"unique constraint", "ON CONFLICT in the transaction", "select, then insert, SERIALIZABLE", "Tx", "Dedup, then Tx"} {
		rows = append(rows, row{Mechanism: name, Fault: shed, Messages: 500, Faults: 500, Shed: 120})
	}
	text := answer(gridOf(rows))
	for _, want := range []string{
		"a unique constraint, ON CONFLICT in the transaction of the effect, a select and an insert at SERIALIZABLE, `Tx`, or `Dedup` and then `Tx`: 0 lost, 0 twice, in 2500 faults",
		"90 to 120 messages in each of 6 cells",
		"nothing 12000,",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := answer(gridOf(rows[1:2])); strings.Contains(text, "sheds") {
		t.Errorf("nothing was shed, but\n%s", text)
	}
}

func TestTwoDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.4: "0", 7.6: "8", 99.4: "99", 99.6: "100", 301: "300", 994: "990", 996: "1000", 11_880: "12000"} {
		if got := twoDigits(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
