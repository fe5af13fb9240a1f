package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/queueing"
	"github.com/oncepipe/oncepipe/bench/internal/real"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// cliff is the smallest capacity that was tried with which nothing that is done was
// forgotten too early.
type cliff struct {
	buffer, needed int
	capacity       int     // -1: none that was tried
	claim          float64 // extra effects that are left there, of keys
}

func (c cliff) name() string {
	if c.capacity < 0 {
		return "none that was tried"
	}
	return fmt.Sprint(c.capacity)
}

func (d data) cliffs(g sim.Guard) (list []cliff) {
	rows := d.lruRows(g)
	for _, b := range valuesOf(rows, func(r row) int { return r.Buffer }) {
		c := cliff{buffer: b, needed: queueing.CompletedKeys(queueing.System{Buffer: b, Workers: d.Setup.Workers}), capacity: -1}
		for _, r := range slices.Backward(filter(rows, func(r row) bool { return r.Buffer == b })) {
			if r.Late > 0 {
				break
			}
			c.capacity, c.claim = r.Capacity, r.extra()
		}
		list = append(list, c)
	}
	return list
}

// lruRows are the cells in which the capacity decides: with Ours, those that lose acks.
func (d data) lruRows(g sim.Guard) []row {
	return filter(d.rows["lru"], func(r row) bool { return r.Guard == g && (g != sim.Ours || r.AckLoss > 0) })
}

func (d data) aboutLRU() section {
	edge := table{columns: []string{"buffer", "B + W + 1", "smallest capacity without a late one", "claim window there"}}
	for _, c := range d.cliffs(sim.Completed) {
		edge.add(c.buffer, c.needed, c.name(), percent(c.claim))
	}
	behind := table{columns: []string{"buffer", "rate × T", "advised", "smallest capacity without a late one"}}
	for _, c := range d.cliffs(sim.Ours) {
		advised := queueing.AckedKeys(queueing.System{
			Buffer: c.buffer, Workers: d.Setup.Workers, Service: d.Setup.Service, Timeout: d.Setup.Timeout,
		}, 1)
		behind.add(c.buffer, d.Setup.memory(), advised, c.name())
	}
	kept := filter(d.rows["lru"], func(r row) bool { return r.Guard == sim.Ours && r.AckLoss == 0 })
	extra := 0
	for _, r := range kept {
		extra += r.Extra
	}
	return about("How much a memory of completed keys must hold", len(d.rows["lru"]),
		`Alone, asked at the worker: a copy was put into the buffer while its first delivery was still there, so when it comes out
everything that was in between has been done. The memory must hold what the pipeline can: buffer, workers, and the one in the
source's hand. Below that it forgets each key just before its copy comes, which is the cliff. Beyond it the claim window is
left, which no memory of completed keys can close. With retries neither the slots of the stage are a bound: while a first delivery
waits out a backoff, as many keys are done as the workers can do.`,
		d.lruAlone().markdown(), edge.markdown(),
		`Behind the table in flight the memory has another task. A key whose acknowledgement was lost comes again after T, and by
then rate × T others are done. With 1 % of the acknowledgements lost:`,
		d.lruBehind().markdown(), behind.markdown(),
		`Advised is rate × T, what is in flight, and six standard deviations. Where B is far above B\*, a full buffer has several
copies of each key; those beyond Dedup's `+"`JoinLimit`"+` are returned to the sender for a minute (the default), and the
memory would have to hold a minute's keys, or to have a store behind it.`,
		fmt.Sprintf(`Without lost acknowledgements %d cells of these buffers and capacities were run: %d extra effects.`, len(kept), extra),
		image("Extra effects by capacity", "window-lru.svg"))
}

func (d data) aboutKills() section {
	rows := d.rows["crash"]
	if len(rows) == 0 {
		return section{}
	}
	r := rows[0]
	rate := r.Load * float64(r.Workers) / r.Service.Seconds()
	if r.Load > 1 {
		rate /= r.Load
	}
	return about("A kill", len(rows),
		fmt.Sprintf(`The process is killed while its buffer is full, %d times for each number. An acknowledgement is on its way for %s, as through
a broker or a batch. What was in memory is gone; the sender sends again. Keys that have their effect again, because only the dead
process knew, and keys that the sender takes for done and that have none:`, d.Setup.kills(), duration(r.AckDelay)),
		d.crashes().markdown(),
		fmt.Sprintf(`- A guard in memory repeats what was done and not yet acknowledged: rate × delay of the acknowledgement, here about %.0f. The
  buffer's size does not matter to it, since what is in the buffer has not been done.
- Marked at entry, a copy is acknowledged while its first delivery waits in the buffer. The kill takes that one with it, and
  nobody sends it again: lost. The larger the buffer, the more.
- A store remembers. What is left is the gap between an effect and its record: at most the %d effects that run.`,
			rate*r.AckDelay.Seconds(), r.Workers),
		image("After a kill", "window-crash.svg"))
}

func (d data) aboutPush() section {
	rows := filter(d.rows["push"], func(r row) bool { return r.Guard == sim.None && r.Load == d.Setup.highLoad() })
	if len(rows) == 0 {
		return section{}
	}
	order := func(a, b row) int { return cmp.Compare(a.extra(), b.extra()) }
	low, high := slices.MinFunc(rows, order), slices.MaxFunc(rows, order)
	return about("When the sender's clock runs while it is blocked", len(rows),
		fmt.Sprintf(`A sender that counts from when it wants to send has a queue of its own, which is as good as a buffer: blocking it does not
stop its clock, and when a message is taken after its time-out, the sender sends it once more at once. At load %v and without a
guard that is between %s and %s extra effects, below B\* too. No size of the buffer helps here: a guard does, or an answer
before the work.`, d.Setup.highLoad(), percent(low.extra()), percent(high.extra())),
		d.pushed().markdown())
}

func (d data) aboutRetries() section {
	most := 0
	for _, r := range d.rows["retry"] {
		if r.Guard == sim.Ours {
			most = max(most, r.Extra)
		}
	}
	return about("Retries by the pipeline", len(d.rows["retry"]),
		fmt.Sprintf(`Attempts fail before their effect, and the stage runs them again after a backoff that doubles. An item that waits for that is
parked: it is not in the buffer, holds no worker, and keeps its key. With ours the most extra effects are %d. Without a guard,
what is left comes from the sender, which does not wait for a long backoff; a retry itself never adds one.`, most),
		d.retries().markdown())
}

func (d data) aboutHotKeys() section {
	rows := d.rows["skew"]
	if len(rows) == 0 {
		return section{}
	}
	r := rows[0]
	return about("Keys that come again by themselves", len(rows),
		fmt.Sprintf(`Every message takes one of %d keys, by a Zipf distribution (exponent %v); one effect is meant for each key. Extra effects:`,
			r.SkewKeys, r.Skew),
		d.hotKeys().markdown(),
		`A repeat that comes long after is found by a memory that is long enough. With an LRU that is smaller than the number of keys
some are forgotten, with or without the table in flight; a store, or a guard that holds all keys, forgets none.`)
}

func (d data) aboutRealTime() section {
	if len(d.real) == 0 {
		return section{"In real time", []string{"Not measured in this run: `-real` does it, on SQLite and, beside its server, PostgreSQL."}}
	}
	return section{"In real time", []string{
		`The same with rows in a database: an effect is a committed INSERT, and T is 40 times what that takes there, measured first. So
B\* is 39 times the workers. A commit that stalls for longer than T makes a copy with any buffer. With every guard but ` + "`none`" + ` and
` + "`completed`" + ` the program fails if there is an extra row or a lost key. These figures are of this machine and its disk.`,
		d.realUnguarded(),
		d.realTime().markdown(),
	}}
}

// realUnguarded says what the rule is worth in real time.
func (d data) realUnguarded() string {
	var lines []string
	for _, store := range valuesOf(d.real, func(r real.Result) string { return r.Store }) {
		var at []string
		for _, r := range d.real {
			if r.Store == store && r.Guard == real.None {
				at = append(at, fmt.Sprintf("%s with B = %d", percent(extraRows(r)), r.Buffer))
			}
		}
		if len(at) > 0 {
			lines = append(lines, fmt.Sprintf("- %s, without a guard: extra rows of %s.", store, strings.Join(at, ", ")))
		}
	}
	return strings.Join(lines, "\n")
}

func (d data) aboutTheory() section {
	list := d.compared()
	var told, within, near, goodput int
	feedback := 0.0 // how many times too low P is without it, at most
	var reasons []string
	apart := table{columns: []string{"service", "workers", "load", "buffer", "measured", "predicted", "off", "why"}}
	for _, c := range list {
		if agrees(c.Share, c.goodput) {
			goodput++
		}
		if !c.telling() {
			continue
		}
		told++
		if c.PlainP > 0 {
			feedback = max(feedback, c.meanP/c.PlainP)
		}
		if agrees(c.FullP, c.meanP) {
			within++
			continue
		}
		if c.near() {
			near++
		}
		n := slices.Index(reasons, c.why()) + 1
		if n == 0 {
			reasons = append(reasons, c.why())
			n = len(reasons)
		}
		apart.add(c.service(), c.Workers, c.Load, c.Buffer, c.measuredP(), percent(c.FullP), signed(off(c.FullP, c.meanP)), fmt.Sprintf("(%d)", n))
	}
	body := []string{
		`P(wait > T) is the share of keys whose acknowledgement comes later than T. The queue is M/D/c/K or M/M/c/K (fixed or
exponential service times, c workers, K places), and the copies feed back: what is late makes copies, which make others late.
Package [queueing](../../bench/internal/queueing) has the formulas.`,
		fmt.Sprintf(`- P(wait > T) is predicted within 15 %% in %d of the %d cells where it is between 1 %% and 99 %%; in %d of the
  others within two standard errors of the runs.
- Goodput is within 15 %% in %d of all %d cells.
- As if copies made no load, P(wait > T) comes out up to %.0f times too low.`, within, told, near, goodput, len(list), feedback),
		image("P(wait > T), theory and measurement", "window-theory.svg"),
	}
	if len(apart.rows) > 0 {
		body = append(body, "Where P is further off than 15 %, and why:", apart.markdown())
	}
	for i, r := range reasons {
		body = append(body, fmt.Sprintf("(%d) %s", i+1, r))
	}
	return about("Theory and measurement", len(list), append(body, "All cells; of several runs the mean ± its standard error:", d.predictions().markdown())...)
}

func (d data) aboutCollapse() section {
	places := d.places()
	near := 0
	for _, p := range places {
		if p.steps >= -1 && p.steps <= 1 {
			near++
		}
	}
	return about("The collapse", len(places),
		fmt.Sprintf(`A run begins with a backlog, as after an outage. With a small buffer the system works it off. From some size on it doesn't: a
full buffer makes every key late, so every key has copies, which keep the buffer full, although the load is below 1. This second
equilibrium is stable; only less load, or a guard, ends it. The smallest buffer with it, tried in steps of about √2: theory and
measurement are at most one step apart in %d of %d.`, near, len(places)),
		d.collapses().markdown(),
		`The last column is the load when the system is full at the measured place, copies included, by the theory. At 1.00 the
backlog neither grows nor shrinks, so that it is a matter of how long one waits: there theory and a run can differ.`)
}
