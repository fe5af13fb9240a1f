package results

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Buffer int `csv:"buffer"`
}

type line struct {
	inner
	Name   string        `csv:"name"`
	Ratio  float64       `csv:"ratio"`
	Wait   time.Duration `csv:"wait"`
	Good   bool          `csv:"good"`
	Seed   uint64        `csv:"seed"`
	silent int
}

func TestCSV_ComesBack(t *testing.T) {
	dir := Dir(t.TempDir())
	rows := []line{
		{inner{4}, `a "quoted", name`, 1.0 / 3, 1500 * time.Microsecond, true, 1 << 63, 0},
		{Name: "", Ratio: -1e-300},
	}
	if err := WriteCSV(dir, "x.csv", rows); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCSV[line](dir, "x.csv")
	if err != nil || !slices.Equal(got, rows) {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := ReadCSV[inner](dir, "x.csv"); err == nil || !strings.Contains(err.Error(), "columns") {
		t.Errorf("read as another type: %v", err)
	}
}

func TestCSV_NamesWhatItCannotRead(t *testing.T) {
	dir := Dir(t.TempDir())
	for text, want := range map[string]string{
		"":                             "columns",
		"bufer\n1\n":                   `"bufer"`,
		"buffer\n1\nmany\n":            "line 3, buffer",
		"buffer\n\"1":                  "x.csv",
		"buffer\n99999999999999999999": "line 2",
	} {
		if err := dir.Write("x.csv", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadCSV[inner](dir, "x.csv"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDir_NowhereTakesAll(t *testing.T) {
	if err := WriteCSV(Dir(""), "x.csv", []inner{{1}}); err != nil {
		t.Error(err)
	}
	if _, err := Dir("").Read("x.csv"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("read from nowhere:", err)
	}
}

func TestQuote(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := Dir(filepath.Join(root, filepath.Dir(name))).Write(filepath.Base(name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("docs/results/w.md", "# W\n\n"+Part("short", "64 % ![p](w.svg) [there](../d.md#x) [out](https://x.org/y)\n")+"\nmore\n")
	write("README.md", "a\n<!-- from docs/results/w.md: short -->\nold\n<!-- end -->\nb\n")
	if changed, err := QuoteIn(root, "README.md"); !changed || err != nil {
		t.Fatal(changed, err)
	}
	want := "a\n<!-- from docs/results/w.md: short -->\n" +
		"64 % ![p](docs/results/w.svg) [there](docs/d.md#x) [out](https://x.org/y)\n<!-- end -->\nb\n"
	if _, got, err := Quote(root, "README.md"); got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if changed, err := QuoteIn(root, "README.md"); changed || err != nil {
		t.Error("changed again", err)
	}
	for _, bad := range []string{
		"<!-- from docs/results/w.md: long -->\n<!-- end -->\n",
		"<!-- from docs/results/v.md: short -->\n<!-- end -->\n",
		"<!-- from docs/results/w.md: short -->\n",
	} {
		write("BAD.md", bad)
		if changed, err := QuoteIn(root, "BAD.md"); changed || err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestTable(t *testing.T) {
	got := Table([]string{"what", ">n"}, [][]string{{"a", "1"}})
	if want := "| what | n |\n|---|--:|\n| a | 1 |\n"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out, "cells", 2)
	p.Step()
	p.Step()
	p.Done()
	if got := out.String(); !strings.Contains(got, "cells 1/2") || !strings.HasSuffix(got, "s\n") {
		t.Errorf("got %q", got)
	}
}
