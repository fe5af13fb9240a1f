package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// point is the median of what was measured of a series at one size.
type point struct {
	Series string  `csv:"series"`
	N      int     `csv:"n"` // 0: of no size
	Value  float64 `csv:"value"`
	Unit   string  `csv:"unit"`
}

// probe measures something once, at one size.
type probe func(*meter) error

// plan is what a group measures: first what is the same each time, then what is
// timed, in several rounds.
type plan struct{ once, rounds []probe }

// meter keeps what is measured.
type meter struct {
	samples map[place][]float64
	order   []place
}

type place struct {
	series string
	n      int
}

// note keeps a value of a series at a size.
func (m *meter) note(series string, n int, value float64) {
	at := place{series, n}
	if m.samples[at] == nil {
		m.order = append(m.order, at)
	}
	m.samples[at] = append(m.samples[at], value)
}

func (m *meter) points() []point {
	list := make([]point, len(m.order))
	for i, at := range m.order {
		list[i] = point{at.series, at.n, ratio.Median(m.samples[at]), seriesOf(at.series).unit}
	}
	return list
}

// measure runs the groups one after the other until ctx ends.
func measure(ctx context.Context, chosen []group, s sizes, progress io.Writer) ([]point, error) {
	m := &meter{samples: map[place][]float64{}}
	before := runtime.NumGoroutine()
	for _, g := range chosen {
		if ctx.Err() != nil {
			break
		}
		if err := g.plan(s).run(ctx, m, s.rounds, g.name, progress); err != nil {
			return nil, fmt.Errorf("%s: %w", g.name, err)
		}
		if ctx.Err() == nil { // whose end is heard by a goroutine, too
			now := settled(before)
			m.note(left(g).id, 0, float64(max(0, now-before))) // one of the caller's may have ended
			before = now
		}
	}
	return m.points(), nil
}

// run runs all probes, the sizes in turn in each round.
func (p plan) run(ctx context.Context, m *meter, rounds int, name string, to io.Writer) error {
	progress := results.NewProgress(to, name, len(p.once)+rounds*len(p.rounds))
	defer progress.Done()
	var failed error
	once := func(probe probe) {
		if failed == nil && ctx.Err() == nil {
			failed = probe(m)
			progress.Step()
		}
	}
	for _, probe := range p.once {
		once(probe)
	}
	runs := make([]func(), len(p.rounds))
	for i, probe := range p.rounds {
		runs[i] = func() { once(probe) }
	}
	ratio.Rounds(rounds, runs...)
	return failed
}

// settled is the number of goroutines, once it has come down to least or five
// seconds have passed: one that has done its last work is still counted for a moment.
func settled(least int) int {
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > least && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return runtime.NumGoroutine()
}

// memory is the live heap with the stacks. The second collection frees what the
// first one has only finalized.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// each is the time of one of n, in nanoseconds.
func each(d time.Duration, n int) float64 { return float64(d) / float64(n) }
