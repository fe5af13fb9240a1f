package main

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", []string{ratesFile, faultsFile, runFile}, render)
}

// Each chain brings every item through its three steps.
func TestChains(t *testing.T) {
	for _, e := range entrants() {
		t.Run(e.label(e.workers), func(t *testing.T) {
			for _, items := range []int{0, 1, 1000} {
				if got, want := e.run(items, e.workers), totalOf(items); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
}

// Each is compared with bare channels and as many workers, in benchmark lines too.
func TestBase(t *testing.T) {
	list := entrants()
	for _, e := range list {
		if b := list[e.base]; b.Name != "raw channels" || b.Shape != threeHops || b.workers != max(1, e.workers) {
			t.Errorf("%s is compared with %s", e.label(e.workers), b.label(b.workers))
		}
		if base := list[e.base]; path.Base(e.label(e.workers)) != path.Base(base.label(base.workers)) {
			t.Errorf("%s stands beside %s", e.label(e.workers), base.label(base.workers))
		}
	}
}

func BenchmarkThreeStages(b *testing.B) {
	for _, e := range entrants() {
		b.Run(e.label(e.workers), func(b *testing.B) {
			b.ReportAllocs()
			e.check(b.N)
		})
	}
}

// What is interrupted before there is anything to write leaves the files alone.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	dir := t.TempDir()
	if err := work(ctx, quick, results.Dir(dir), false); !errors.Is(err, errInterrupted) {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// A run that was cut short says in its short answer what is there.
func TestCutShort(t *testing.T) {
	dir := results.Dir(t.TempDir())
	m := measured{rates: []rate{{Chain: "raw channels", Shape: threeHops, Workers: 1, Rounds: 3, Ratio: 1}}}
	m.Partial = true
	err := m.write(dir)
	if err == nil {
		err = render(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := dir.Read(page)
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "<!-- part: short -->")
	part, _, _ = strings.Cut(part, "<!-- end -->")
	for _, want := range []string{"3 rounds of the three steps and 0 of the faults are there", "raw channels 1.0"} {
		if !strings.Contains(part, want) {
			t.Errorf("%q is not in %s", want, part)
		}
	}
	if strings.Contains(string(text), "The same faults") {
		t.Error("there is a part for faults")
	}
}

// What counts for nobody is in no sum.
func TestShort_LeavesOutWhatDoesNotCount(t *testing.T) {
	m := measured{verdicts: []verdict{
		{Peer: "one", Fault: "a", Counts: true, Messages: 200, During: -1},
		{Peer: "one", Fault: "b", Messages: 200, Lost: 200, Stuck: true, During: -1},
	}}
	text := m.short()
	for _, want := range []string{"Faults, of 1,", "one 1.", "Stuck: none"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

func TestPerSecond(t *testing.T) {
	for x, want := range map[float64]string{
		4037.29: "4 040", 10028.7: "10 000", 7812345: "7 810 000", 999.6: "1 000", 123: "123", 0: "0",
	} {
		if got := perSecond(x); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
}
