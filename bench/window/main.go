// Command window measures how the size of a buffer opens the window for duplicate
// effects, and which guard closes it: a sender that sends again what was not
// acknowledged in time, in front of a pipeline of oncepipe, in fake time. See
// docs/results/window.md for what came out.
//
//	go run ./bench/window [-quick] [-results DIR]
//	go run ./bench/window -render -results DIR
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func main() {
	cfg, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "window:", err)
		os.Exit(2)
	}
	ctx, stop := results.Context()
	code := run(ctx, cfg, "go run ./bench/window "+strings.Join(os.Args[1:], " "), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// config is what the flags say.
type config struct {
	setup
	procs   int
	only    string
	real    bool
	render  bool
	results results.Dir
}

// info is window.json: how the data came to be, and all of it that depends on the
// machine, but for the real time.
type info struct {
	results.Run
	Setup          setup   `json:"setup"`
	Procs          int     `json:"procs"`
	Items          int     `json:"items"` // deliveries that were simulated
	Seconds        float64 `json:"seconds"`
	ItemsPerSecond float64 `json:"items_per_second"`
}

const infoFile = "window.json"

// run measures, prints, writes, and returns the exit code.
func run(ctx context.Context, cfg config, command string, out, progress io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintln(progress, "window:", err)
		return 1
	}
	if cfg.render {
		if err := render(cfg.results); err != nil {
			return fail(err)
		}
		return 0
	}
	about := info{Run: results.NewRun(strings.TrimSpace(command)), Setup: cfg.setup, Procs: cfg.procs}
	parts := cfg.parts(cfg.only)
	total := 0
	for _, p := range parts {
		total += len(p.cells)
	}
	steps := results.NewProgress(progress, "window", total)
	m, err := measure(ctx, parts, cfg.procs, steps)
	steps.Done()
	if err != nil {
		return fail(err)
	}
	about.Items, about.Seconds = m.items, m.took.Seconds()
	about.ItemsPerSecond, about.Partial = float64(m.items)/m.took.Seconds(), m.partial
	d := newData(about, m.rows)
	var realErr error
	if cfg.real && !m.partial {
		d.real, realErr = measureReal(ctx, cfg.setup, progress)
		d.Partial = ctx.Err() != nil
	}
	if err := show(out, d); err != nil {
		return fail(err)
	}
	broken := m.broken(parts)
	for _, b := range broken {
		fmt.Fprintln(progress, "window: NOT HELD:", b)
	}
	if cfg.results != "" {
		if err := d.write(cfg.results); err != nil {
			return fail(err)
		}
		if err := render(cfg.results); err != nil {
			return fail(err)
		}
	}
	switch {
	case realErr != nil:
		return fail(realErr)
	case len(broken) > 0:
		return 1
	case d.Partial:
		return 130
	}
	return 0
}
