package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/real"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// realCells are those that are measured in real time on a backend: around the
// limit, which is 39 for each worker there.
func (s setup) realCells(b real.Backend) (cells []real.Cell) {
	steps, span := []float64{0, 0.25, 0.5, 1, 2, 4}, 6*time.Second
	if s.Quick {
		steps, span = []float64{0.25, 4}, 2*time.Second
	}
	for _, g := range real.Guards() {
		for _, step := range steps {
			cells = append(cells, real.Cell{
				Store: b.Name, Workers: b.Workers, Guard: g, Load: 1.5, For: span, Seed: s.Seed,
				Buffer: int(step * float64(39*b.Workers)),
			})
		}
	}
	return cells
}

// measureReal runs the cells of all backends, one after the other: they share a disk.
// When ctx ends it returns what is there.
func measureReal(ctx context.Context, s setup, warn io.Writer) (list []real.Result, err error) {
	dir, err := os.MkdirTemp("", "oncepipe-window-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for SQLite: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	backends := real.Backends(dir, warn)
	total := 0
	for _, b := range backends {
		total += len(s.realCells(b))
	}
	progress := results.NewProgress(warn, "window, in real time", total)
	defer progress.Done()
	for _, b := range backends {
		for _, c := range s.realCells(b) {
			r, err := real.Run(ctx, b, c)
			if ctx.Err() != nil {
				return list, nil
			}
			if err != nil {
				return list, err
			}
			list = append(list, r)
			progress.Step()
		}
	}
	return list, nil
}

func (d data) aboutRealTime() section {
	if len(d.real) == 0 {
		return section{"In real time", []string{"Not measured in this run: `-real` does it, on SQLite and, beside its server, PostgreSQL."}}
	}
	return section{"In real time", []string{
		`The same with rows in a database: an effect is a committed INSERT, and T is 40 times what that takes there, measured first. So
B\* is 39 times the workers. A commit that stalls for longer than T makes a copy with any buffer. With every guard but ` + "`none`" + ` and
` + "`completed`" + ` the program fails if there is an extra row or a lost key. These figures are of this machine and its disk.`,
		d.realKeptUp(),
		d.realUnguarded(),
		d.realTime().markdown(),
	}}
}

// realKeptUp says what a 0 is not worth in a cell that was not overloaded.
func (d data) realKeptUp() string {
	n := len(filter(d.real, func(r real.Result) bool { return !overloaded(r) }))
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(`In %s the keys done are nearly the load: the disk was faster by then than when it was measured, and the workers
kept up. Such a cell was not overloaded, and its 0 says nothing of the buffer or the guard.`, plural(n, "cell"))
}

// realUnguarded says what the rule is worth in real time.
func (d data) realUnguarded() string {
	var lines []string
	for _, store := range valuesOf(d.real, func(r real.Result) string { return r.Store }) {
		var at []string
		for _, r := range d.real {
			if r.Store == store && r.Guard == real.None {
				text := fmt.Sprintf("%s with B = %d", percent(extraRows(r)), r.Buffer)
				if !overloaded(r) {
					text += " (not overloaded)"
				}
				at = append(at, text)
			}
		}
		if len(at) > 0 {
			lines = append(lines, fmt.Sprintf("- %s, without a guard: extra rows of %s.", store, strings.Join(at, ", ")))
		}
	}
	return strings.Join(lines, "\n")
}

// overloaded says whether the workers fell behind what arrived. Where they kept up
// the buffer was never full, and the cell says nothing about it.
func overloaded(r real.Result) bool { return r.Share < 0.9*r.Load }
