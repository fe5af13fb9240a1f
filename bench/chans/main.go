// Command chans measures what package chans costs beside the same work written
// by hand for the same contract, prints every ratio with its limit, and exits with
// 1 when one is above.
//
//	go run ./bench/chans [-json] [-only SUBSTRING] [-rounds N] [-results DIR]
//
// clojure.sh does the same jobs in core.async, and prints both side by side.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// buffer is the size of the channels around each job.
const buffer = 64

// reported is the limit of a ratio that isn't held to one.
const reported = 0

const interrupted = 130 // the exit code

// job is the same work for the same number of items, by chans and by hand.
type job struct {
	name        string
	items       int
	limit       float64
	chans, hand func()
}

func jobs() []job { return slices.Concat(pipelines(), chains(), puts(), mults()) }

// row is what is said about a job. Times are the medians of one item, in
// nanoseconds; allocations are those of one item. A limit of 0 is none.
type row struct {
	ratio.Row
	Ns         float64 `json:"ns"`
	HandNs     float64 `json:"hand_ns"`
	Allocs     float64 `json:"allocs"`
	HandAllocs float64 `json:"hand_allocs"`
}

func (j job) measure(rounds int) row {
	allocs := ratio.Mallocs(j.chans)
	handAllocs := ratio.Mallocs(j.hand)
	t := ratio.Rounds(rounds, j.chans, j.hand)
	n := float64(j.items)
	held := ratio.AtMost(j.name, t[0].Over(t[1]), j.limit)
	held.OK = held.OK || j.limit == reported
	return row{
		Row:        held,
		Ns:         float64(t[0].Median()) / n,
		HandNs:     float64(t[1].Median()) / n,
		Allocs:     float64(allocs) / n,
		HandAllocs: float64(handAllocs) / n,
	}
}

// manyRounds is how often each job is run unless told otherwise.
const manyRounds = 51

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object a line")
	only := flag.String("only", "", "run only the jobs whose name contains this: pipeline, chain, put, mult")
	rounds := flag.Int("rounds", manyRounds, "how often each job is run; the result is the median")
	dir := flag.String("results", "", "where chans.json and chans.md are written")
	flag.Parse()
	chosen := choose(*only)
	if flag.NArg() > 0 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if len(chosen) == 0 {
		fmt.Fprintln(os.Stderr, "chans: no job's name contains", *only)
		os.Exit(2)
	}
	ctx, stop := results.Context()
	m, code := measure(ctx, chosen, *rounds, command(*only, *rounds), func(r row) { show(os.Stdout, r, *asJSON) })
	stop()
	if *dir != "" {
		if err := write(results.Dir(*dir), m); err != nil {
			fmt.Fprintln(os.Stderr, "chans:", err)
			os.Exit(1)
		}
	}
	os.Exit(code)
}

func choose(only string) (chosen []job) {
	for _, j := range jobs() {
		if strings.Contains(j.name, only) {
			chosen = append(chosen, j)
		}
	}
	return chosen
}

// command is what one types to have the same again.
func command(only string, rounds int) string {
	line := "go run ./bench/chans"
	if only != "" {
		line += fmt.Sprintf(" -only %q", only)
	}
	if rounds != manyRounds {
		line += fmt.Sprintf(" -rounds %d", rounds)
	}
	return line + " -results docs/results"
}

// measure measures the jobs until ctx ends, shows them, and returns the exit code.
func measure(ctx context.Context, chosen []job, rounds int, command string, show func(row)) (m measured, code int) {
	m.Run = results.NewRun(command)
	for _, j := range chosen {
		if ctx.Err() != nil {
			m.Partial = true
			return m, interrupted
		}
		r := j.measure(rounds)
		m.Rows = append(m.Rows, r)
		if !r.OK {
			code = 1
		}
		show(r)
	}
	return m, code
}

func show(to io.Writer, r row, asJSON bool) {
	if asJSON {
		line, err := json.Marshal(r)
		if err != nil {
			panic(err) // a row has nothing that JSON lacks
		}
		fmt.Fprintln(to, string(line))
		return
	}
	limit := fmt.Sprintf("limit %.1f  ok", r.Limit)
	switch {
	case r.Limit == reported:
		limit = "reported"
	case !r.OK:
		limit = fmt.Sprintf("limit %.1f  ABOVE", r.Limit)
	}
	fmt.Fprintf(to, "%-26s %6.3f  %-16s  ns an item %7.1f, by hand %7.1f; allocations %.3f, %.3f\n",
		r.Name, r.Ratio, limit, r.Ns, r.HandNs, r.Allocs, r.HandAllocs)
}
