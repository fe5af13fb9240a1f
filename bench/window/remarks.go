package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/queueing"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// cliff is the smallest capacity that was tried with which nothing that is done was
// forgotten too early.
type cliff struct {
	buffer, needed int
	capacity       int     // -1: none that was tried
	claim          float64 // extra effects that are left there, of keys
	idle           bool    // no capacity that was tried made a difference: no copy came
}

func (c cliff) name() string {
	switch {
	case c.idle:
		return "any: no copies there"
	case c.capacity < 0:
		return "none that was tried"
	}
	return fmt.Sprint(c.capacity)
}

func (d data) cliffs(g sim.Guard) (list []cliff) {
	rows := d.lruRows(g)
	for _, b := range valuesOf(rows, func(r row) int { return r.Buffer }) {
		c := cliff{buffer: b, needed: queueing.CompletedKeys(queueing.System{Buffer: b, Workers: d.Setup.Workers}), capacity: -1}
		tried := filter(rows, func(r row) bool { return r.Buffer == b })
		c.idle = !slices.ContainsFunc(tried, func(r row) bool { return r.Extra > 0 || r.Sends > r.Keys+r.Warmup })
		for _, r := range slices.Backward(tried) {
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
	return about("How much a memory of completed keys must hold", len(d.rows["lru"]),
		`Alone, asked at the worker: a copy was put into the buffer while its first delivery was still there, so when it comes out
everything that was in between has been done. The memory must hold what the pipeline can: buffer, workers, and the one in the
source's hand. `+d.cliffVerdict(),
		`With retries the stage's slots are no bound either: while a first delivery waits out a backoff, as many keys are done as the
workers can do.`,
		d.lruAlone().markdown(), edge.markdown(),
		`Behind the table in flight the memory has another task. A key whose acknowledgement was lost comes again after T, and by
then rate × T others are done. With 1 % of the acknowledgements lost:`,
		d.lruBehind().markdown(), behind.markdown(),
		"Advised is rate × T, what is in flight, and six standard deviations: enough for a key of which one acknowledgement is sent.",
		d.manyAcks(),
		`A copy beyond Dedup's `+"`JoinLimit`"+` is returned to the sender for a minute (the default). If no acknowledgement of its key
arrives, it comes that late, and to know it then takes a memory of a minute's keys, or a store behind it.`,
		d.lruKept(),
		image("Extra effects by capacity", "window-lru.svg"))
}

// cliffVerdict says what too small a memory did, if one did.
func (d data) cliffVerdict() string {
	late, claim := 0, 0
	for _, r := range d.lruRows(sim.Completed) {
		late, claim = max(late, r.Late), max(claim, r.Claim)
	}
	if late == 0 {
		return "In this run no copy came late, so that the\ntable shows nothing of it."
	}
	text := "Below that it forgets each key just before its copy comes, which is the cliff."
	if claim > 0 {
		text += "\nBeyond it the claim window is left, which no memory of completed keys can close."
	}
	return text
}

// manyAcks explains why less than a timeout's keys can do in a long buffer.
func (d data) manyAcks() string {
	var buffers []string
	for _, c := range d.cliffs(sim.Ours) {
		if c.buffer > d.Setup.limit() && c.capacity >= 0 && c.capacity < d.Setup.memory() {
			buffers = append(buffers, fmt.Sprintf("%d with B = %d", c.capacity, c.buffer))
		}
	}
	if len(buffers) == 0 {
		return ""
	}
	return fmt.Sprintf(`In this run less was enough above B\*: %s. There a key has copies that wait for the first one, each of them is
acknowledged, and one acknowledgement that arrives is enough. That is luck; the advised number does not need it.`, strings.Join(buffers, ", "))
}

// lruKept says what was left where no acknowledgement was lost.
func (d data) lruKept() string {
	kept := filter(d.rows["lru"], func(r row) bool { return r.Guard == sim.Ours && r.AckLoss == 0 })
	if len(kept) == 0 {
		return ""
	}
	extra := 0
	for _, r := range kept {
		extra += r.Extra
	}
	return fmt.Sprintf("Without lost acknowledgements, in %s of these buffers and capacities: %s.", plural(len(kept), "cell"), plural(extra, "extra effect"))
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
		fmt.Sprintf(`The process is killed while its buffer is full, %s for each number. An acknowledgement is on its way for %s, as through
a broker or a batch. What was in memory is gone; the sender sends again. Keys that have their effect again, because only the dead
process knew, and keys that the sender takes for done and that have none:`, plural(d.Setup.kills(), "time"), duration(r.AckDelay)),
		d.crashes().markdown(),
		d.killedOurs(rate*r.AckDelay.Seconds())+d.killedEntry()+d.killedStores(),
		"The pictures are at the top of this page.")
}

func (d data) killedOurs(inFlight float64) string {
	list := d.kills(sim.Ours)
	if len(list) == 0 {
		return ""
	}
	order := func(a, b killed) int { return cmp.Compare(a.extra, b.extra) }
	low, high := slices.MinFunc(list, order), slices.MaxFunc(list, order)
	text := fmt.Sprintf("%s repeats what was done and not yet acknowledged: rate × delay of the acknowledgement, about %.0f; measured %s to %s.",
		"`ours`", inFlight, count(low.extra), count(high.extra))
	if len(list) > 1 && high.extra <= 1.1*low.extra {
		text += " The buffer's size does not matter to it: what is in the buffer has not been done."
	}
	return bullet(text)
}

func (d data) killedEntry() string {
	var losing, repeating []string
	for _, k := range d.kills(sim.Entry) {
		if k.lost > 0 {
			losing = append(losing, fmt.Sprintf("%s with B = %d", count(k.lost), k.buffer))
		}
		if k.extra > 0 {
			repeating = append(repeating, fmt.Sprintf("%s with B = %d", count(k.extra), k.buffer))
		}
	}
	var text []string
	if len(losing) > 0 {
		text = append(text, `Marked at entry, a copy is acknowledged while its first delivery waits in the buffer. The kill takes that one with it, and
nobody sends it again: lost are, on average, `+strings.Join(losing, ", ")+".")
	}
	if len(repeating) > 0 {
		text = append(text, "A flag at entry is gone with the process too, and repeats "+strings.Join(repeating, ", ")+".")
	}
	if len(text) == 0 {
		return ""
	}
	return bullet(sentences(text...))
}

func (d data) killedStores() string {
	most, ok := d.killedMost(string(sim.Store), string(sim.OursStore))
	if !ok {
		return ""
	}
	running := "the one effect that runs"
	if d.Setup.Workers > 1 {
		running = fmt.Sprintf("the %d effects that run", d.Setup.Workers)
	}
	return bullet(fmt.Sprintf("A store remembers. What is left is the gap between an effect and its record, so at most %s; measured at most %s on average.",
		running, count(most.extra)))
}

// kills are the means of this guard's kills, for each buffer.
func (d data) kills(g sim.Guard) (list []killed) {
	rows := filter(d.rows["crash"], func(r row) bool { return r.Guard == g })
	for _, b := range valuesOf(rows, func(r row) int { return r.Buffer }) {
		list = append(list, d.killed(rows[0].label(), b))
	}
	return list
}

func (d data) aboutPush() section {
	low, high, ours := d.pushedExtremes()
	if high.Keys == 0 {
		return section{}
	}
	verdict := ""
	switch {
	case high.Extra == 0:
		verdict = "So this load shows nothing: the sender was hardly blocked."
	case low.extra() >= 0.01:
		verdict = "No size of the buffer helps at that load."
		if ours == 0 {
			verdict += "\nA guard does (`ours` left no extra effect in any cell), or an answer before the work."
		}
	}
	between := percent(low.extra())
	if high.Extra > low.Extra {
		between = fmt.Sprintf("between %s (B = %d) and %s (B = %d)", percent(low.extra()), low.Buffer, percent(high.extra()), high.Buffer)
	}
	return about("When the sender's clock runs while it is blocked", len(d.rows["push"]),
		fmt.Sprintf(`A sender that counts from when it wants to send has a queue of its own, which is as good as a buffer: blocking it does not
stop its clock, and when a message is taken after its time-out, the sender sends it once more at once. At load %v and without a
guard that is %s extra effects. %s`, d.Setup.highLoad(), between, verdict),
		d.pushed().markdown())
}

func (d data) aboutRetries() section {
	ours, none := 0, 0
	for _, r := range d.rows["retry"] {
		switch r.Guard {
		case sim.Ours:
			ours = max(ours, r.Extra)
		case sim.None:
			none = max(none, r.Extra)
		}
	}
	theirs := "."
	if none > 0 {
		theirs = ":\nthey come from the sender, which does not wait for a long backoff; a retry itself adds none."
	}
	return about("Retries by the pipeline", len(d.rows["retry"]),
		fmt.Sprintf(`Attempts fail before their effect, and the stage runs them again after a backoff that doubles. An item that waits for that is
parked: it is not in the buffer, holds no worker, and keeps its key. The most extra effects are %d with ours, and %d without a guard%s`, ours, none, theirs),
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
		d.hotKeys().markdown(), d.hotVerdict(r.SkewKeys))
}

// hotVerdict is what the hot keys have shown of memories shorter than that many
// keys, and of the others.
func (d data) hotVerdict(keys int) string {
	short, long := 0, 0
	for _, r := range d.rows["skew"] {
		switch {
		case r.promised():
			long = max(long, r.Extra)
		case r.Guard == sim.Ours && r.Capacity < keys:
			short = max(short, r.Extra)
		}
	}
	if short == 0 || long > 0 {
		return ""
	}
	return fmt.Sprintf(`A repeat that comes long after is found by a memory that is long enough. An LRU that is smaller than the number of keys forgets
some, with or without the table in flight (ours: up to %s). Dedup with a store, or with a memory of all keys, let
none through.`, plural(short, "extra effect"))
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
		apart.add(c.service(), c.Workers, c.Load, c.Buffer, c.measuredP(), percent(c.FullP), c.offP(), fmt.Sprintf("(%d)", n))
	}
	body := []string{
		`P(wait > T) is the share of keys whose acknowledgement comes later than T. The queue is M/D/c/K or M/M/c/K (fixed or
exponential service times, c workers, K places), and the copies feed back: what is late makes copies, which make others late.
Package [queueing](../../bench/internal/queueing) has the formulas.`,
		fmt.Sprintf(`- P(wait > T) is predicted within 15 %% in %d of the %s where it is between 1 %% and 99 %% by measurement or by prediction;
  in %d of the others within two standard errors of the runs. Those and the rest are below, with the reason where it is known.
- Goodput is within 15 %% in %d of all %s.
- As if copies made no load, P(wait > T) comes out up to %.0f times too low.`, within, plural(told, "cell"), near, goodput, plural(len(list), "cell"), feedback),
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
	near, there := 0, 0
	for _, p := range places {
		if p.measured >= 0 {
			there++
		}
		if p.steps >= -1 && p.steps <= 1 {
			near++
		}
	}
	return about("The collapse", len(places),
		fmt.Sprintf(`A run begins with a backlog, as after an outage. With a small buffer the system works it off. From some size on it doesn't: a
full buffer makes every key late, so every key has copies, which keep the buffer full, although the load is below 1: a second
equilibrium, which less load ends, or a guard. It was there in %d of %s. The smallest buffer with it, tried in steps of about √2: theory and
measurement are at most one step apart in %d.`, there, plural(len(places), "system"), near),
		d.collapses().markdown(),
		`The last column is the load when the system is full at the measured place, copies included, by the theory. At 1.00 the
backlog neither grows nor shrinks, so that it is a matter of how long one waits: there theory and a run can differ.`)
}
