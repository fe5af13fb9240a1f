package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// rate is how fast a chain is.
type rate struct {
	Chain   string  `csv:"chain"`
	Shape   string  `csv:"shape"`
	Workers int     `csv:"workers"` // of each stage; 0: not for the program to say
	Items   int     `csv:"items"`   // of a round
	Rounds  int     `csv:"rounds"`
	Nanos   float64 `csv:"ns_per_item"` // median
	Second  float64 `csv:"items_per_second"`
	Ratio   float64 `csv:"ratio"` // of the time to that of raw channels, 3 hops and as many workers; median of the rounds
	Allocs  float64 `csv:"allocs_per_item"`
	Does    string  `csv:"does"`
}

// entrant is a chain in the race.
type entrant struct {
	chain
	workers, items int
	base           int // the number of the one that it is compared with
	allocs         float64
	times          ratio.Times
}

// check runs the chain. A result that is wrong is a bug in this program.
func (e *entrant) check(items int) {
	if got, want := e.run(items, e.workers), totalOf(items); got != want {
		panic(fmt.Sprintf("%s: %+v, want %+v", e.label(e.workers), got, want))
	}
}

func entrants() (list []*entrant) {
	for _, p := range peers() {
		for _, c := range p.chains() {
			for _, workers := range c.Workers {
				list = append(list, &entrant{chain: c, workers: workers})
			}
		}
	}
	for _, e := range list {
		e.base = slices.IndexFunc(list, func(b *entrant) bool {
			return b.Name == "raw channels" && b.Shape == threeHops && b.workers == max(1, e.workers)
		})
	}
	return list
}

// race measures all chains in rounds, each with as many items as it can do in about
// the given time. It stops between rounds when ctx ends.
func race(ctx context.Context, rounds int, each time.Duration, p *results.Progress) []*entrant {
	list := entrants()
	for _, e := range list {
		if ctx.Err() != nil {
			return list
		}
		const warm = 1000
		start := time.Now()
		e.check(warm)
		e.items = max(warm, int(warm*each/time.Since(start)))
		e.allocs = float64(ratio.Mallocs(func() { e.check(e.items) })) / float64(e.items)
	}
	for round := range rounds {
		if ctx.Err() != nil {
			break
		}
		first := round % len(list)
		order := slices.Concat(list[first:], list[:first])
		runs := make([]func(), len(order))
		for i, e := range order {
			runs[i] = func() { e.check(e.items) }
		}
		for i, t := range ratio.Rounds(1, runs...) {
			order[i].times = append(order[i].times, t...)
		}
		p.Step()
	}
	return list
}

// rates sums up a race. There are none when no round was run.
func rates(list []*entrant) (rows []rate) {
	for _, e := range list {
		if len(e.times) == 0 {
			return nil
		}
		base := list[e.base]
		nanos := float64(e.times.Median()) / float64(e.items)
		rows = append(rows, rate{
			Chain: e.Name, Shape: e.Shape, Workers: e.workers, Items: e.items, Rounds: len(e.times),
			Nanos: nanos, Second: 1e9 / nanos,
			Ratio:  e.times.Over(base.times) * float64(base.items) / float64(e.items),
			Allocs: e.allocs, Does: e.Does,
		})
	}
	return rows
}

// benchstat prints a line for each run, as go test -bench does.
func benchstat(w io.Writer, list []*entrant) {
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: github.com/oncepipe/oncepipe/bench/peers\n", runtime.GOOS, runtime.GOARCH)
	for _, e := range list {
		for _, t := range e.times {
			fmt.Fprintf(w, "BenchmarkThreeStages/%s-%d\t%d\t%.2f ns/op\t%.0f allocs/op\n",
				e.label(e.workers), runtime.GOMAXPROCS(0), e.items, float64(t)/float64(e.items), e.allocs)
		}
	}
}

// dashed is a name that benchmark lines can bear.
func dashed(name string) string {
	return strings.NewReplacer(", ", "-", " ", "-").Replace(name)
}
