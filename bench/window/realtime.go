package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
