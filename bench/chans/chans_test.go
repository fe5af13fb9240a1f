package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// Each job checks the number of what comes out, by itself.
func TestJobs(t *testing.T) {
	known := map[string]bool{}
	for _, j := range jobs() {
		r := j.measure(1)
		if r.Ratio <= 0 || r.Ns <= 0 || r.HandNs <= 0 || known[j.name] {
			t.Errorf("%+v", r)
		}
		if r.Allocs > 0.5 || r.HandAllocs > 0.1 {
			t.Errorf("%s: %.2f allocations per item, by hand %.2f", j.name, r.Allocs, r.HandAllocs)
		}
		known[j.name] = true
	}
}

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", []string{"chans.json"}, render)
}

// A job through the whole program: what it shows is what it writes.
func TestWrite(t *testing.T) {
	dir := results.Dir(t.TempDir())
	var shown []row
	m, _ := measure(t.Context(), choose("put/dropping"), 1, command("put/dropping", 1), func(r row) { shown = append(shown, r) })
	if err := write(dir, m); err != nil {
		t.Fatal(err)
	}
	back, err := results.ReadJSON[measured](dir, "chans.json")
	if err != nil || back.Partial || len(shown) != 2 || !slices.Equal(back.Rows, shown) {
		t.Errorf("%+v, %v; shown %+v", back, err, shown)
	}
	results.CheckDocument(t, dir, []string{"chans.json"}, render)
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m, code := measure(ctx, choose("put"), 1, "a test", func(row) { cancel() })
	if code != interrupted || !m.Partial || len(m.Rows) != 1 {
		t.Errorf("%d, %+v", code, m)
	}
	dir := results.Dir(t.TempDir())
	if err := write(dir, m); err != nil {
		t.Fatal(err)
	}
	if text, err := dir.Read("chans.md"); err != nil || !strings.Contains(string(text), "<!-- part: short -->\n**It was cut short") {
		t.Errorf("%s\ndoesn't say in its part that it was cut short; %v", text, err)
	}
}

// Each job has words in the document, where what isn't held is said.
func TestRender(t *testing.T) {
	dir := results.Dir(t.TempDir())
	var m measured
	for _, j := range jobs() {
		m.Rows = append(m.Rows, row{Row: ratio.AtMost(j.name, 1.234, j.limit), Ns: 2})
	}
	if err := write(dir, m); err != nil {
		t.Fatal(err)
	}
	text, err := dir.Read("chans.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"one loop | 1.23 | 1.2 | **not held** |\n", "buffers of 64 : the same by hand | 1.23 | 1.5 | held |\n",
		"full sliding buffer : plain send | 1.23 |  | only reported |\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
	m.Rows[0].Name = "new"
	if err := write(dir, m); err == nil {
		t.Error("a row without words is left out")
	}
}

func TestShow(t *testing.T) {
	for _, c := range []struct {
		limit float64
		ok    bool
		want  string
	}{
		{1.5, true, "limit 1.5  ok"},
		{1.5, false, "limit 1.5  ABOVE"},
		{reported, true, "reported"},
	} {
		r := row{Row: ratio.Row{Name: "a job", Ratio: 1.25, Limit: c.limit, OK: c.ok}, Ns: 1, HandNs: 2}
		var text, line bytes.Buffer
		show(&text, r, false)
		if !strings.Contains(text.String(), c.want) {
			t.Errorf("%q, want %q", text.String(), c.want)
		}
		show(&line, r, true)
		var back row
		if err := json.Unmarshal(line.Bytes(), &back); err != nil || back != r {
			t.Errorf("%s: %+v, %v", line.Bytes(), back, err)
		}
	}
}

// What is written by hand is held to the contract that it is compared for.

func TestOrderedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := make(chan int), make(chan int, 100)
		go feed(from, 100)
		var running, most atomic.Int64
		err := ordered(t.Context(), 4, to, from, func(_ context.Context, v int) (int, error) {
			now := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			if now > 4 {
				t.Errorf("%d at a time", now)
			}
			return v * 2, nil
		})
		close(to)
		for want := range 100 {
			if got := <-to; got != 2*want {
				t.Fatalf("%d, want %d", got, 2*want)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestOrderedByHandFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := make(chan int, 100), make(chan int, 100)
		feed(from, 100)
		failed := errors.New("failed")
		err := ordered(t.Context(), 4, to, from, func(_ context.Context, v int) (int, error) {
			if v == 10 {
				return 0, failed
			}
			return v, nil
		})
		if err != failed || len(to) != 10 {
			t.Errorf("%v after %d", err, len(to))
		}
	})
}

// Nobody reads: what waits ends with its context, and the bubble shows that
// nothing stays behind.
func TestByHandStops(t *testing.T) {
	for name, run := range map[string]func(context.Context, chan<- int, <-chan int) error{
		"ordered": func(ctx context.Context, to chan<- int, from <-chan int) error {
			return ordered(ctx, 4, to, from, increment)
		},
		"loop": loop,
		"fanOut": func(ctx context.Context, _ chan<- int, from <-chan int) error {
			return fanOut(ctx, [taps]chan int{make(chan int), make(chan int), make(chan int), make(chan int)}, from)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, values := range []int{0, 100} { // it waits for a value, and with one
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					from := make(chan int, 100)
					for i := range values {
						from <- i
					}
					var err error
					done := make(chan struct{})
					go func() {
						defer close(done)
						err = run(ctx, make(chan int), from)
					}()
					synctest.Wait()
					stopped := errors.New("stopped")
					cancel(stopped)
					<-done
					if err != stopped {
						t.Errorf("%d values: %v", values, err)
					}
				})
			}
		})
	}
}

// The two lists of jobs have the same names, or the script shows less.
func TestClojureHasTheJobs(t *testing.T) {
	text, err := os.ReadFile("clojure.clj")
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs() {
		if j.limit != reported && !bytes.Contains(text, []byte(`["`+j.name+`" `)) {
			t.Errorf("clojure.clj lacks %s", j.name)
		}
	}
}

func TestClojureSkips(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	dir, err := exec.LookPath("dirname")
	if err != nil {
		t.Skip(err)
	}
	bin := t.TempDir() // with no java in it
	if err := os.Symlink(dir, bin+"/dirname"); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(sh, "clojure.sh")
	c.Env = append(slices.Clone(os.Environ()), "PATH="+bin)
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("SKIPPED")) {
		t.Errorf("%v: %s", err, out)
	}
}
