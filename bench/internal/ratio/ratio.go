// Package ratio compares running times on a machine that does other things
// too. Only quotients of times that were taken side by side are reported.
package ratio

import (
	"runtime"
	"slices"
	"time"
)

// Row is a line of a report: a ratio and the limit that it is held to.
type Row struct {
	Name  string  `json:"name"`
	Ratio float64 `json:"ratio"`
	Limit float64 `json:"limit"`
	OK    bool    `json:"ok"`
}

// AtMost is the row of a ratio that must not be above limit.
func AtMost(name string, ratio, limit float64) Row {
	return Row{Name: name, Ratio: ratio, Limit: limit, OK: ratio <= limit}
}

// Times are the running times of one function, round by round.
type Times []time.Duration

// Rounds runs each function once in each of n rounds and returns their times in
// the order of runs. In a round they follow one another at once, and another
// one begins each time, so that what else the machine does falls on all alike.
// The heap is collected before each run: nobody pays for another's garbage.
func Rounds(n int, runs ...func()) []Times {
	times := make([]Times, len(runs))
	for round := range n {
		for i := range runs {
			i = (i + round) % len(runs)
			runtime.GC()
			start := time.Now()
			runs[i]()
			times[i] = append(times[i], time.Since(start))
		}
	}
	return times
}

// Over is the median of the quotients of t and base, round by round. They must
// come from the same call of Rounds, with at least one round.
func (t Times) Over(base Times) float64 {
	quotients := make([]float64, len(t))
	for i := range t {
		quotients[i] = float64(t[i]) / float64(base[i])
	}
	return Median(quotients)
}

// Median is the median of the times.
func (t Times) Median() time.Duration {
	all := make([]float64, len(t))
	for i := range t {
		all[i] = float64(t[i])
	}
	return time.Duration(Median(all))
}

// Minus is what t took longer than base, round by round.
func (t Times) Minus(base Times) Times {
	more := make(Times, len(t))
	for i := range t {
		more[i] = t[i] - base[i]
	}
	return more
}

// Mallocs is the number of allocations while run runs.
func Mallocs(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// Median is the median of at least one value. It sorts them.
func Median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
