// Command mechanisms makes the faults that people fear on each of the mechanisms
// that people propose against a second effect, and counts what was lost and what
// was done twice. Everything is real: pipelines, processes, SIGKILLs and a SQLite
// file.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func main() {
	if is, err := child(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// sizes are how much is measured.
type sizes struct {
	messages int // of a cell
	kills    int // of a mechanism
	plain    int // of a run without a fault
	rounds   int // of those
}

func run(args []string, out, diag io.Writer) int {
	flags := flag.NewFlagSet("mechanisms", flag.ContinueOnError)
	flags.SetOutput(diag)
	quick := flags.Bool("quick", false, "some hundred messages a cell, in place of thousands")
	dir := flags.String("results", "", "`directory` for the data, the document and the picture")
	again := flags.Bool("render", false, "measure nothing: make document and picture again, of the data in -results")
	seed := flags.Uint64("seed", 1, "chooses the messages that are hit, and when processes are killed")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if err == nil {
			fmt.Fprintln(diag, "mechanisms: takes no arguments")
		}
		return 2
	}
	if *again {
		return renderAgain(results.Dir(*dir), diag)
	}
	ctx, stop := results.Context()
	defer stop()
	n, command := sizes{messages: 2400, kills: 30, plain: 20_000, rounds: 5}, fmt.Sprintf("go run ./bench/mechanisms -results docs/results -seed %d", *seed)
	if *quick {
		n, command = sizes{messages: 200, kills: 6, plain: 800, rounds: 3}, command+" -quick"
	}
	rows, err := measureAll(ctx, n, *seed, diag)
	cut := ctx.Err() != nil
	if err != nil && !cut {
		fmt.Fprintln(diag, "mechanisms:", err)
		return 1
	}
	about := results.NewRun(command)
	about.Partial = cut
	if err := show(out, rows); err != nil {
		fmt.Fprintln(diag, "mechanisms:", err)
		return 1
	}
	if err := write(results.Dir(*dir), about, rows); err != nil {
		fmt.Fprintln(diag, "mechanisms:", err)
		return 1
	}
	broken := brokenOnes(rows)
	for _, r := range broken {
		fmt.Fprintf(diag, "mechanisms: %s, %s: %d lost, %d doubled\n", r.Mechanism, r.Fault, r.Lost, r.Doubled)
	}
	switch {
	case cut:
		return 130
	case len(broken) > 0:
		return 1
	}
	return 0
}

// renderAgain returns the exit code.
func renderAgain(dir results.Dir, diag io.Writer) int {
	if dir == "" {
		fmt.Fprintln(diag, "mechanisms: -render needs -results")
		return 2
	}
	if err := render(dir); err != nil {
		fmt.Fprintln(diag, "mechanisms: render:", err)
		return 1
	}
	return 0
}

// measureAll measures without a fault, and then each fault. What it had before an
// error, or the end of ctx, is returned.
func measureAll(ctx context.Context, n sizes, seed uint64, diag io.Writer) ([]row, error) {
	faults := faults(n.kills)
	progress := results.NewProgress(diag, "cell", len(mechanisms)*(n.rounds+len(faults)))
	defer progress.Done()
	rows, err := measurePlain(ctx, n, progress)
	if err != nil {
		return rows, err
	}
	for i, m := range mechanisms {
		for j, f := range faults {
			for _, f := range f.runs() {
				r, err := measure(ctx, m, f, n.messages, rand.New(rand.NewPCG(seed, uint64(i*len(faults)+j))))
				if err != nil {
					return rows, err
				}
				rows = append(rows, r)
			}
			progress.Step()
		}
	}
	return rows, nil
}

// measurePlain is the throughput of each mechanism without a fault: of some rounds,
// in which they take turns, the one in the middle.
func measurePlain(ctx context.Context, n sizes, progress *results.Progress) ([]row, error) {
	all := make([][]row, len(mechanisms))
	for round := range n.rounds {
		for i := range mechanisms {
			i = (i + round) % len(mechanisms)
			r, err := measure(ctx, mechanisms[i], none, n.plain, nil)
			if err != nil {
				return middles(all), err
			}
			all[i] = append(all[i], r)
			progress.Step()
		}
	}
	return middles(all), nil
}

// middles are the rows in the middle by time, of the mechanisms that have any.
func middles(all [][]row) (rows []row) {
	for _, of := range all {
		slices.SortFunc(of, func(a, b row) int { return cmp.Compare(a.Time, b.Time) })
		if len(of) > 0 {
			rows = append(rows, of[len(of)/2])
		}
	}
	return rows
}

// brokenOnes are the cells that break a promise: of a mechanism that holds, with
// something lost or doubled; or of any, without a fault.
func brokenOnes(rows []row) (broken []row) {
	for _, m := range mechanisms {
		for _, r := range rows {
			if r.Mechanism == m.name && (m.holds || r.Fault == none.name) && r.Lost+r.Doubled > 0 {
				broken = append(broken, r)
			}
		}
	}
	return broken
}

func write(dir results.Dir, about results.Run, rows []row) error {
	if dir == "" {
		return nil
	}
	return errors.Join(
		results.WriteCSV(dir, "mechanisms.csv", rows),
		results.WriteJSON(dir, "mechanisms.json", about),
		render(dir),
	)
}
