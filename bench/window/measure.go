package main

import (
	"context"
	"fmt"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// measured is what has come of the parts. A part that was cut short lacks rows.
type measured struct {
	rows    map[string][]row // by the part's name, in the order of its cells
	items   int              // deliveries that were simulated
	took    time.Duration
	partial bool
}

// measure runs all cells, procs at a time. When ctx ends it returns what is there,
// without waiting for the cells that run.
func measure(ctx context.Context, parts []part, procs int, progress *results.Progress) (measured, error) {
	type job struct{ part, cell int }
	type outcome struct {
		job
		result sim.Result
		err    error
	}
	var jobs []job
	for p := range parts {
		for c := range parts[p].cells {
			jobs = append(jobs, job{p, c})
		}
	}
	todo, done := make(chan job, len(jobs)), make(chan outcome, len(jobs))
	for _, j := range jobs {
		todo <- j
	}
	close(todo)
	for range procs {
		go func() {
			for j := range todo {
				if ctx.Err() != nil {
					return
				}
				r, err := sim.Run(parts[j.part].cells[j.cell])
				done <- outcome{j, r, err}
			}
		}()
	}

	start := time.Now()
	got := map[job]sim.Result{}
	m := measured{rows: map[string][]row{}}
	for len(got) < len(jobs) && !m.partial {
		select {
		case o := <-done:
			if o.err != nil {
				return m, fmt.Errorf("%s, %+v: %w", parts[o.part].name, parts[o.part].cells[o.cell], o.err)
			}
			got[o.job] = o.result
			m.items += o.result.Items
			progress.Step()
		case <-ctx.Done():
			m.partial = true
		}
	}
	m.took = time.Since(start)
	for _, j := range jobs {
		if r, ok := got[j]; ok {
			p := parts[j.part]
			m.rows[p.name] = append(m.rows[p.name], newRow(p.cells[j.cell], r))
		}
	}
	return m, nil
}

// broken lists the cells in which the table in flight with a guard has not held
// what it promised.
func (m measured) broken(parts []part) (list []string) {
	for _, p := range parts {
		for _, r := range m.rows[p.name] {
			if why := r.broken(); why != "" {
				list = append(list, fmt.Sprintf("%s: %s, buffer %d, load %v: %s: %d extra, %d lost of %d keys",
					p.name, r.label(), r.Buffer, r.Load, why, r.Extra, r.Lost, r.Keys))
			}
		}
	}
	return list
}
