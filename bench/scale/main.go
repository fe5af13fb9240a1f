// Command scale measures what an item costs, in time and in memory, as there are
// more and more of something: keys, workers, parked items, pipelines in one
// process. The cost of one has to stay the same; how much it grows is a slope, which
// has a limit. It exits with 1 when one is not held.
//
//	go run ./bench/scale [-quick] [-only SUBSTRING] [-results DIR]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

const interrupted = 130

func main() {
	quick := flag.Bool("quick", false, "smaller sizes, under a minute; all of them take about ten, and 1 GB")
	only := flag.String("only", "", "measure only the groups whose name contains this: keys, workers, parked, pipelines")
	dir := flag.String("results", "", "where scale.csv, scale.json, scale.md and the pictures are written")
	flag.Parse()
	chosen := choose(*only)
	if flag.NArg() > 0 || len(chosen) == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := results.Context()
	code, err := run(ctx, chosen, sizesOf(*quick), results.NewRun(command(*quick, *only)), results.Dir(*dir), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
	}
	os.Exit(code)
}

// command is what one types to have the same again.
func command(quick bool, only string) string {
	line := "go run ./bench/scale"
	if quick {
		line += " -quick"
	}
	if only != "" {
		line += " -only " + only
	}
	return line + " -results docs/results"
}

func choose(only string) (chosen []group) {
	for _, g := range groups {
		if strings.Contains(g.name, only) {
			chosen = append(chosen, g)
		}
	}
	return chosen
}

// run measures, writes to dir and out, and returns the exit code.
func run(
	ctx context.Context, chosen []group, s sizes, how results.Run, dir results.Dir, out, progress io.Writer,
) (code int, err error) {
	points, err := measure(ctx, chosen, s, progress)
	if err != nil {
		return 1, err
	}
	how.Partial = ctx.Err() != nil
	show(out, points)
	if dir != "" && len(points) > 0 {
		if err := write(dir, how, points); err != nil {
			return 1, err
		}
	}
	if how.Partial {
		return interrupted, nil
	}
	for _, v := range judge(points) {
		if !v.held {
			return 1, nil
		}
	}
	return 0, nil
}

func write(dir results.Dir, how results.Run, points []point) error {
	if err := results.WriteCSV(dir, "scale.csv", points); err != nil {
		return err
	}
	if err := results.WriteJSON(dir, "scale.json", how); err != nil {
		return err
	}
	return render(dir)
}

// show prints what was measured, and how it is judged.
func show(out io.Writer, points []point) {
	for _, g := range groups {
		columns, rows := table(g, points)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(out, "%s\n\n%s\n", g.title, results.Table(columns, rows))
	}
	columns, rows := judgement(judge(points))
	fmt.Fprintf(out, "Limits\n\n%s", results.Table(columns, rows))
}
