package oncetest

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
)

// judgeBacklog bounds what is admitted and not over.
func (r *retryRun) judgeBacklog() {
	open, most := 0, r.slots+r.schedule.buffer+1 // one is in the source's hand
	for n, e := range r.log {
		switch e.kind {
		case arrived:
			open++
		case settled:
			open--
		}
		if open > most {
			r.fault(lawSlots, n+1, "%s in flight: %s, a buffer of %d and the source's hand hold %d",
				counted(open, "item"), counted(r.slots, "slot"), r.schedule.buffer, most)
		}
	}
}

// judgeInstances looks for backoffs that several items have.
func (r *retryRun) judgeInstances() {
	first := map[uintptr]*listener{}
	for n, e := range r.log {
		if e.kind != asked {
			continue
		}
		for at := range e.own.before {
			one, known := first[at]
			switch {
			case !known:
				first[at] = e.own
			case one.item != e.own.item && memoryOf(e.own.BackOff)[at] != one.before[at]:
				r.fault(lawInstance, n+1, "items %d and %d have one backoff, and each changes the waits of the other",
					min(one.item, e.own.item)+1, max(one.item, e.own.item)+1)
			}
		}
	}
	own := map[int]*listener{}
	for n, e := range r.log {
		if e.kind != asked {
			continue
		}
		if e.item != e.own.item {
			r.fault(lawOwnWaits, n+1, "item %d is given a wait of the backoff that was made for item %d", e.item+1, e.own.item+1)
		}
		if l, known := own[e.item]; known && l != e.own {
			r.fault(lawOwnWaits, n+1, "a second backoff is made for item %d", e.item+1)
		}
		own[e.item] = e.own
	}
}

// judgePartitions holds the items of each partition to their order.
func (r *retryRun) judgePartitions() {
	if !r.schedule.partitions {
		return
	}
	over := map[int]oncepipe.Outcome{}
	for n, e := range r.log {
		switch e.kind {
		case settled:
			over[e.item] = e.outcome
		case began:
			for before := range e.item {
				if r.schedule.items[before].partition != r.schedule.items[e.item].partition {
					continue
				}
				switch outcome, is := over[before]; {
				case !is:
					r.fault(lawPartition, n+1, "item %d runs before item %d of its partition is over", e.item+1, before+1)
				case outcome == oncepipe.Returned:
					r.fault(lawPartition, n+1, "item %d runs although item %d of its partition went back to the source", e.item+1, before+1)
				}
			}
		}
	}
}

// judgeBudget counts what happens in every stretch of time.
func (r *retryRun) judgeBudget() {
	b := r.laws.Budget
	var all, retries []time.Duration
	seen := map[int]bool{}
	for n, e := range r.log {
		if e.kind != began {
			continue
		}
		all = append(all, e.at)
		if seen[e.item] {
			retries = append(retries, e.at)
		}
		seen[e.item] = true
		for _, kind := range []struct {
			name  string
			times []time.Duration
			most  int
		}{{"attempt", all, b.Attempts}, {"retry", retries, b.Retries}} {
			if past := len(kind.times) - 1 - kind.most; kind.most > 0 && past >= 0 && e.at-kind.times[past] < b.Per {
				r.fault(lawBudget, n+1, "%s number %d begins %v after number %d: the budget is %d in %v",
					kind.name, len(kind.times), e.at-kind.times[past], past+1, kind.most, b.Per)
			}
		}
	}
}

// judgeEnd looks for what each item has become.
func (r *retryRun) judgeEnd(courses []retryCourse) {
	end := len(r.log)
	listed := map[int]int{}
	var back *oncepipe.ReturnedError
	if errors.As(r.err, &back) {
		for _, it := range back.Items {
			item, _ := it.Value.(int)
			listed[item]++
		}
	} else if r.err != nil {
		r.fault(lawNotLost, end, "Run ends with %v", r.err)
	}
	if !r.stats.Conserved() || r.stats.Admitted != int64(r.arrived) {
		r.fault(lawNotLost, end, "%d items arrived, and Stats count %d admitted, %d done, %d dead, %d returned",
			r.arrived, r.stats.Admitted, r.stats.Done, r.stats.Dead, r.stats.Returned)
	}
	for i, c := range courses[:r.arrived] {
		returned := c.outcome == oncepipe.Returned
		switch {
		case !c.over:
			r.fault(lawNotLost, end, "item %d is lost: it is neither done nor dead nor with its source", i+1)
		case r.schedule.takesBack && (r.told[i] != 1 || r.taken[i].Outcome != c.outcome):
			r.fault(lawNotLost, end, "item %d is %v, and its source was told %d times, at last that it is %v", i+1, c.outcome, r.told[i], r.taken[i].Outcome)
		case !r.schedule.takesBack && returned != (listed[i] == 1):
			r.fault(lawNotLost, end, "item %d is %v, and Run's error lists it %d times", i+1, c.outcome, listed[i])
		case c.outcome == oncepipe.Done && c.ended.does != succeeds:
			r.fault(lawNotLost, end, "item %d is done after an attempt that %v", i+1, c.ended.does)
		}
	}
}

// stay is an attempt, from when it may begin until its worker is free again. An
// item that was settled while it waited for one has a stay without any time.
type stay struct {
	n, item          int // n events of the log say so
	due, began, free time.Duration
}

// judgeLate looks for attempts that begin late although a worker is free.
func (r *retryRun) judgeLate() {
	stays, over, instants := r.stays()
	workers := min(r.schedule.workers, r.slots)
	for _, s := range stays {
		if s.began <= s.due {
			continue
		}
		for _, t := range instants {
			if t < s.due || t >= s.began {
				continue
			}
			busy := 0
			for _, o := range stays {
				if o.began <= t && t < o.free {
					busy++
				}
			}
			if busy < workers && !r.heldBack(s, t, over) {
				r.fault(lawSlow, s.n, "item %d is due at %v and waits until %v, while %d of %s are at work",
					s.item+1, s.due, s.began, busy, counted(workers, "worker"))
				break
			}
		}
	}
}

// stays lists the attempts, when each item was over, and when something changed.
func (r *retryRun) stays() (stays []stay, over, instants []time.Duration) {
	items := len(r.schedule.items)
	due, waits, open := make([]time.Duration, items), make([]bool, items), make([]int, items) // open: of stays, plus one
	over = slices.Repeat([]time.Duration{math.MaxInt64}, items)
	for n, e := range r.log {
		instants = append(instants, e.at)
		if e.item < 0 {
			continue
		}
		i := e.item
		if at := open[i]; at > 0 && (e.kind == parked || e.kind == snoozed || e.kind == settled) {
			stays[at-1].free, open[i] = e.at, 0
		}
		switch e.kind {
		case arrived:
			due[i], waits[i] = e.at, true
		case parked, snoozed:
			due[i], waits[i] = e.at+e.delay, true
			instants = append(instants, due[i])
		case began:
			stays = append(stays, stay{n + 1, i, due[i], e.at, math.MaxInt64})
			open[i], waits[i] = len(stays), false
		case settled:
			if over[i] = e.at; waits[i] {
				stays = append(stays, stay{n + 1, i, due[i], e.at, e.at})
			}
		}
	}
	slices.Sort(instants)
	return stays, over, slices.Compact(instants)
}

// heldBack says that an item waits at t for others by right: for those before it
// in its partition, or, when it is new, for a slot.
func (r *retryRun) heldBack(s stay, t time.Duration, over []time.Duration) bool {
	inside := 0
	for _, e := range r.log {
		if e.kind != arrived || e.at > t || e.item == s.item || over[e.item] <= t {
			continue
		}
		inside++
		if r.schedule.partitions && e.item < s.item && r.schedule.items[e.item].partition == r.schedule.items[s.item].partition {
			return true
		}
	}
	return inside >= r.slots
}
