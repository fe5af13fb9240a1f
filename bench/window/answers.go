package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// doneLabel is the sweep's name of a memory of completed keys, that of 256 if it is
// there.
func (d data) doneLabel() string {
	const usual = "completed-256"
	if slices.Contains(d.Setup.Guards, usual) {
		return usual
	}
	i := slices.IndexFunc(d.Setup.Guards, func(name string) bool { return strings.HasPrefix(name, string(sim.Completed)) })
	if i < 0 {
		return ""
	}
	return d.Setup.Guards[i]
}

// around returns the largest buffer of the sweep that isn't above B*, the
// smallest one that is, and the largest one.
func (d data) around() (below, above, largest int) {
	list := slices.Sorted(slices.Values(d.Setup.Buffers))
	below, above, largest = list[0], list[len(list)-1], list[len(list)-1]
	for _, b := range slices.Backward(list) {
		if b > d.Setup.limit() {
			above = b
		}
	}
	for _, b := range list {
		if b <= d.Setup.limit() {
			below = b
		}
	}
	return below, above, largest
}

// short answers the three questions, each as far as the data decide it.
func (d data) short() string {
	var b strings.Builder
	for _, answer := range [][]string{d.answerBuffer(), d.answerGuard(), d.answerStore()} {
		for i, text := range answer {
			switch {
			case i == 0:
				b.WriteString(bullet(text))
			case text != "":
				b.WriteString(indented(bullet(text)))
			}
		}
	}
	return b.String()
}

// answerBuffer, answerGuard and answerStore return the answer, and then what shows
// it; nothing where the data are silent.
func (d data) answerBuffer() []string {
	load, s := d.Setup.highLoad(), d.Setup
	below, above, largest := d.around()
	none := string(sim.None)
	r0, ok0 := d.at("sweep", none, below, load)
	r1, ok1 := d.at("sweep", none, above, load)
	r2, ok2 := d.at("sweep", none, largest, load)
	if !ok0 || !ok1 || !ok2 {
		return nil
	}
	sizes := fmt.Sprintf("At load %v and without a guard, %s give %s extra effects, %d give %s, %d give %s and leave %.2f of the capacity.",
		load, plural(below, "place"), percent(r0.extra()), above, percent(r1.extra()), largest, percent(r2.extra()), r2.Goodput)
	limit := fmt.Sprintf("%d for %s, %s, T = %s", s.limit(), plural(s.Workers, "worker"), duration(s.Service), duration(s.Timeout))
	if below > s.limit() || above <= s.limit() || r0.extra() >= 0.01 || r1.extra() < 0.01 {
		return []string{fmt.Sprintf(`**Buffer: this run does not decide it.** By the rule, B\* = workers × (T / service time − 1) is %s.`, limit), sizes}
	}
	return []string{
		fmt.Sprintf(`**Buffer: small, below B\* = workers × (T / service time − 1)**, when the sender sends again T after the pipeline
took a message: %s.`, limit),
		sizes, d.whereTimesVary(), d.whereBlockingDoesNotStop(),
	}
}

// whereTimesVary says how little B* is worth with exponential service times.
func (d data) whereTimesVary() string {
	worst, half := d.exponentialBelow(1), d.exponentialBelow(0.5)
	if worst.meanExtra < 0.01 {
		return ""
	}
	return fmt.Sprintf(`That is for effects of a fixed time. Where it varies, stay well below: exponential ones give up to %s with B ≤ B\*, %s with half of it.`,
		percent(worst.meanExtra), percent(half.meanExtra))
}

// exponentialBelow is the cell with the most extra effects of those with
// exponential service times, no guard, and at most this part of B*.
func (d data) exponentialBelow(part float64) (worst compared) {
	for _, c := range d.compared() {
		most := math.Round(part * float64(limit(c.Workers, c.Service, c.Timeout)))
		if c.Exponential && float64(c.Buffer) <= most && c.meanExtra >= worst.meanExtra {
			worst = c
		}
	}
	return worst
}

// whereBlockingDoesNotStop says that a small buffer is no help against a clock that
// runs on.
func (d data) whereBlockingDoesNotStop() string {
	low, _, ours := d.pushedExtremes()
	if low.extra() < 0.01 || ours > 0 {
		return ""
	}
	return fmt.Sprintf("Where the sender's clock runs while it is blocked, no size helps (%s or more at that load): take a guard.", percent(low.extra()))
}

// pushedExtremes are the cells with the fewest and the most extra effects when the
// sender's clock runs while it is blocked, at the high load and without a guard, and
// the most extra effects with ours.
func (d data) pushedExtremes() (low, high row, ours int) {
	var none []row
	for _, r := range d.rows["push"] {
		switch {
		case r.Guard == sim.None && r.Load == d.Setup.highLoad():
			none = append(none, r)
		case r.Guard == sim.Ours:
			ours = max(ours, r.Extra)
		}
	}
	if len(none) == 0 {
		return low, high, ours
	}
	order := func(a, b row) int { return cmp.Compare(a.extra(), b.extra()) }
	return slices.MinFunc(none, order), slices.MaxFunc(none, order), ours
}

// asserted counts the cells in which ours, without a store, promises that there are
// no extra effects, and the extra effects there. Bare are those that the sender makes
// in the cells without a guard: where they are none too, ours has shown nothing.
func (d data) asserted() (cells, extra, bare int) {
	for _, name := range partNames {
		for _, r := range d.rows[name] {
			switch {
			case r.Guard == sim.Ours && r.promised():
				cells++
				extra += r.Extra
			case r.Guard == sim.None && r.Crash == 0 && r.Skew == 0:
				bare += r.Extra
			}
		}
	}
	return cells, extra, bare
}

func (d data) answerGuard() []string {
	cells, extra, bare := d.asserted()
	if cells == 0 {
		return nil
	}
	count := fmt.Sprintf("%s in all %s without a kill and with enough memory", plural(extra, "extra effect"), plural(cells, "cell"))
	if extra > 0 || bare == 0 {
		return []string{fmt.Sprintf("**Guard: this run does not decide it.** %s: %s; without a guard %d.", "`Dedup`", count, bare)}
	}
	return []string{
		fmt.Sprintf("**Guard: `Dedup` suffices in one process**, since it knows the keys in flight before the buffer: %s.", count),
		d.forgetting(), sentences(d.doneAlone(), d.flagAtEntry()),
	}
}

// forgetting is what a memory costs that is too short.
func (d data) forgetting() string {
	var acks, hot row
	for _, r := range d.lruRows(sim.Ours) {
		if r.extra() > acks.extra() {
			acks = r
		}
	}
	for _, r := range d.rows["skew"] {
		if r.Guard == sim.Ours && r.Capacity > 0 && r.Extra > hot.Extra {
			hot = r
		}
	}
	var costs []string
	if acks.Extra > 0 {
		costs = append(costs, fmt.Sprintf("up to %s with %s at %v %% lost acks", percent(acks.extra()), plural(acks.Capacity, "key"), 100*acks.AckLoss))
	}
	if hot.Extra > 0 {
		costs = append(costs, fmt.Sprintf("%d with %s where %d messages take %s again and again", hot.Extra, plural(hot.Capacity, "key"), hot.Sends, plural(hot.SkewKeys, "key")))
	}
	if len(costs) == 0 {
		return ""
	}
	return "A memory that is too short costs extra effects: " + strings.Join(costs, ", ") + "."
}

// doneAlone is what a memory of completed keys lets through.
func (d data) doneAlone() string {
	_, _, largest := d.around()
	done, ok := d.at("sweep", d.doneLabel(), largest, d.Setup.highLoad())
	if !ok || done.Extra == 0 {
		return ""
	}
	return fmt.Sprintf("Done keys alone (%s) let %s through at %s.", done.label(), percent(done.extra()), plural(largest, "place"))
}

// flagAtEntry is what a flag at entry loses.
func (d data) flagAtEntry() string {
	below, _, largest := d.around()
	far, near := d.killed(string(sim.Entry), largest), d.killed(string(sim.Entry), below)
	if far.kills == 0 || near.kills == 0 || far.lost == 0 {
		return ""
	}
	return fmt.Sprintf("A flag at entry loses %s a kill on average there; with %s it loses %s and repeats %s.",
		counted(far.lost, "acked key"), plural(below, "place"), none(near.lost), count(near.extra))
}

func (d data) answerStore() []string {
	ours, ok := d.killedMost(string(sim.Ours))
	store, stored := d.killedMost(string(sim.Store), string(sim.OursStore))
	if !ok || !stored || ours.extra <= store.extra {
		return nil
	}
	return []string{
		"**Store: only for what must survive the process.**",
		fmt.Sprintf(`At a kill, with acks %s on their way, a guard in memory repeats up to %s on average, a store at most %s.`,
			duration(d.rows["crash"][0].AckDelay), counted(ours.extra, "effect"), count(store.extra)),
		"Where the effect is a row in your database, `Tx` puts it and its record into one commit.",
	}
}

// killedMost is the mean of the kills at the buffer, and with the one of these kinds
// of guards, at which most keys have their effect again.
func (d data) killedMost(kinds ...string) (most killed, ok bool) {
	for _, r := range d.rows["crash"] {
		if !slices.Contains(kinds, string(r.Guard)) {
			continue
		}
		if k := d.killed(r.label(), r.Buffer); !ok || k.extra > most.extra {
			most, ok = k, true
		}
	}
	return most, ok
}

// aboutRule checks B* against all cells without a guard.
func (d data) aboutRule() section {
	rows := filter(d.rows["sweep"], func(r row) bool { return r.Guard == sim.None })
	var below, above []row
	for _, r := range rows {
		switch {
		case r.Buffer <= d.Setup.limit():
			below = append(below, r)
		case r.Load > 1:
			above = append(above, r)
		}
	}
	s := d.Setup
	check := ""
	if len(below) > 0 {
		most := slices.MaxFunc(below, func(a, b row) int { return a.Extra - b.Extra })
		check = fmt.Sprintf(`Checked against the sweep's cells without a guard: in %s with B ≤ B\*, at any load, the most extra effects are %s.`,
			plural(len(below), "cell"), percent(most.extra()))
	}
	if len(above) > 0 {
		fewest := slices.MinFunc(above, func(a, b row) int { return a.Extra - b.Extra })
		check += fmt.Sprintf(`
In %s with B > B\* and a load above 1, the fewest are %s (B = %d, load %v).`,
			plural(len(above), "cell"), percent(fewest.extra()), fewest.Buffer, fewest.Load)
	}
	return about("The rule", len(rows), fmt.Sprintf(`A delivery that finds the buffer full waits for B others, W at a time, and then takes s itself: B·s/W + s. When that is more
than T, the sender sends the key again although it was never lost. So, with a fixed s and a clock that starts when the pipeline
takes the message, duplicates begin at

    B* = W × (T/s − 1) = %d × (%s / %s − 1) = %d`, s.Workers, duration(s.Timeout), duration(s.Service), s.limit()),
		check, d.ruleExponential(),
		`Each copy takes a place and the time of an effect, so the queue grows by what makes it grow. Below B\* a full buffer only makes the
sender wait.`, d.ruleOutage())
}

// ruleOutage says that a low load is no safety, where a run has shown it.
func (d data) ruleOutage() string {
	for _, r := range d.collapse {
		if r.Collapsed && r.Load < 1 {
			return `Above B\* a load below 1 is no safety: one outage fills the buffer, and copies can keep it full (see the collapse, below).`
		}
	}
	return ""
}

// ruleExponential says what becomes of the rule when service times vary.
func (d data) ruleExponential() string {
	worst, half := d.exponentialBelow(1), d.exponentialBelow(0.5)
	if worst.meanExtra < 0.01 {
		return ""
	}
	return fmt.Sprintf(`With exponential service times a full buffer of B\* is too long a wait for about half of the keys. Of those cells (see theory,
below) with B ≤ B\* the worst has %s extra effects (%s, B\* = %d, B = %d, load %v); with B up to half of B\* the
worst has %s.`,
		percent(worst.meanExtra), plural(worst.Workers, "worker"), limit(worst.Workers, worst.Service, worst.Timeout), worst.Buffer, worst.Load,
		percent(half.meanExtra))
}
