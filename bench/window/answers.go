package main

import (
	"fmt"
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

// short answers the three questions.
func (d data) short() string {
	var b strings.Builder
	for _, answer := range []string{d.answerBuffer(), d.answerGuard(), d.answerStore()} {
		if answer != "" {
			b.WriteString("- " + answer + "\n")
		}
	}
	return b.String()
}

func (d data) answerBuffer() string {
	load, s := d.Setup.highLoad(), d.Setup
	below, above, largest := d.around()
	none := string(sim.None)
	r0, ok0 := d.at("sweep", none, below, load)
	r1, ok1 := d.at("sweep", none, above, load)
	r2, ok2 := d.at("sweep", none, largest, load)
	if !ok0 || !ok1 || !ok2 {
		return ""
	}
	return fmt.Sprintf(`**Buffer: small, below B\* = workers × (T / service time − 1)** when the sender sends again after T. That is %d for %d workers, %s and
  T = %s: there, without a guard and at load %v, %d places give %s extra effects, %d give %s, %d give %s and leave %.2f of
  the capacity. A larger buffer makes keys wait, and no more of them done.`,
		s.limit(), s.Workers, duration(s.Service), duration(s.Timeout), load, below, percent(r0.extra()), above, percent(r1.extra()),
		largest, percent(r2.extra()), r2.Goodput)
}

// asserted counts the cells in which ours promises that there are no extra
// effects, and the extra effects there.
func (d data) asserted() (cells, extra int) {
	for _, name := range partNames {
		for _, r := range d.rows[name] {
			if r.promised() {
				cells++
				extra += r.Extra
			}
		}
	}
	return cells, extra
}

func (d data) answerGuard() string {
	load := d.Setup.highLoad()
	_, _, largest := d.around()
	done, ok := d.at("sweep", d.doneLabel(), largest, load)
	if !ok {
		return ""
	}
	cells, extra := d.asserted()
	entry := d.killed(string(sim.Entry), largest)
	return fmt.Sprintf(`**Guard: in one process it suffices, if it knows the keys in flight and is asked before the buffer** (%s): %d extra effects in
  %d cells of every buffer, load and size. A memory of done keys alone (%s) lets %s through at %d places;
  a flag set at entry lets none through, and loses %s keys at a kill.`,
		"`Dedup`", extra, cells, done.label(), percent(done.extra()), largest, count(entry.lost))
}

func (d data) answerStore() string {
	_, _, largest := d.around()
	ours, store := d.killed("ours-256", largest), d.killed("ours+store-256", largest)
	if ours.kills == 0 || store.kills == 0 {
		return ""
	}
	crash := d.rows["crash"][0]
	return fmt.Sprintf(`**Store: only for what must survive the process.** At a kill, with acks %s on their way, a guard in memory repeats %s effects,
  a store %s. Where the effect is a row in your database, %s makes it one.`,
		duration(crash.AckDelay), count(ours.extra), count(store.extra), "`Tx`")
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
	if len(below) > 0 && len(above) > 0 {
		most := slices.MaxFunc(below, func(a, b row) int { return a.Extra - b.Extra })
		fewest := slices.MinFunc(above, func(a, b row) int { return a.Extra - b.Extra })
		check = fmt.Sprintf(`Checked against the cells without a guard: in the %d with B ≤ B\*, at any load, the most extra effects are %s; in the %d with
B > B\* and a load above 1, the fewest are %s (B = %d, load %v).`,
			len(below), percent(most.extra()), len(above), percent(fewest.extra()), fewest.Buffer, fewest.Load)
	}
	return about("The rule", len(rows), fmt.Sprintf(`A delivery that finds the buffer full waits for B others, W at a time, and then takes s itself: B·s/W + s. When that is more
than T, the sender sends the key again although it was never lost. So duplicates begin at

    B* = W × (T/s − 1) = %d × (%s / %s − 1) = %d`, s.Workers, duration(s.Timeout), duration(s.Service), s.limit()),
		check,
		`Each copy takes a place and the time of an effect, so the queue grows by what makes it grow. Above B\* a load below 1 is no
safety: one outage fills the buffer, and copies keep it full (see the collapse, below). Below B\* a full buffer only makes the
sender wait.`)
}
