package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", dataFiles(), render)
}

// thin leaves some cells of each part, so that all kinds of them are there.
func thin(parts []part, each int) []part {
	for i, p := range parts {
		var some []int
		for j := i % each; j < len(p.cells); j += each {
			some = append(some, j)
		}
		cells := p.cells
		parts[i].cells = nil
		for _, j := range some {
			parts[i].cells = append(parts[i].cells, cells[j])
		}
	}
	return parts
}

// filesOf measures a small sweep and writes everything.
func filesOf(t *testing.T, procs int) map[string]string {
	t.Helper()
	cfg := flags(t, append(slices.Clip(small), "-buffers", "0,8,32")...)
	m, err := measure(t.Context(), thin(cfg.parts(""), 17), procs, results.NewProgress(io.Discard, "", 1))
	if err != nil {
		t.Fatal(err)
	}
	dir := results.Dir(t.TempDir())
	if err := newData(info{Setup: cfg.setup}, m.rows).write(dir); err != nil {
		t.Fatal(err)
	}
	if err := render(dir); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	names, err := filepath.Glob(filepath.Join(string(dir), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = string(text)
	}
	return files
}

func TestSameSeedSameBytes(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	runtime.GOMAXPROCS(1)
	first := filesOf(t, 1)
	runtime.GOMAXPROCS(4)
	again := filesOf(t, 3)
	if len(first) != len(dataFiles())+7 || len(again) != len(first) {
		t.Fatalf("%d files, then %d", len(first), len(again))
	}
	for name, text := range first {
		if again[name] != text {
			t.Errorf("%s is different with other -procs", name)
		}
	}
}

// -render makes the page and the pictures again, and measures nothing.
func TestRender(t *testing.T) {
	dir := t.TempDir()
	for _, name := range dataFiles() {
		text, err := results.Dir("../../docs/results").Read(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := results.Dir(dir).Write(name, text); err != nil {
			t.Fatal(err)
		}
	}
	var out, progress bytes.Buffer
	cfg := flags(t, "-render", "-results", dir)
	if code := run(t.Context(), cfg, "go run ./bench/window -render", &out, &progress); code != 0 || out.Len() > 0 {
		t.Fatalf("exit code %d\n%s%s", code, &out, &progress)
	}
	for _, name := range append(dataFiles(), "window.md", "window-crash.svg") {
		want, err := results.Dir("../../docs/results").Read(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := results.Dir(dir).Read(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, or another text", name, err)
		}
	}
	cfg.results = results.Dir(t.TempDir())
	if code := run(t.Context(), cfg, "", &out, &progress); code != 1 || !strings.Contains(progress.String(), infoFile) {
		t.Errorf("without data files: exit code %d\n%s", code, &progress)
	}
}

// A run that is ended at once leaves files that can be read, says that it was cut
// short, and makes up nothing.
func TestCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	var out, progress bytes.Buffer
	cfg := flags(t, append(slices.Clip(small), "-results", dir)...)
	if code := run(ctx, cfg, "go run ./bench/window", &out, &progress); code != 130 {
		t.Fatalf("exit code %d\n%s", code, &progress)
	}
	page, err := results.Dir(dir).Read("window.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "cut short") {
		t.Errorf("the page doesn't say so:\n%s", page)
	}
	if d, err := read(results.Dir(dir)); err != nil || !d.Partial {
		t.Errorf("read again: %v, partial %v", err, d.Partial)
	}
}
