package oncetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// schedule is what happens to how many messages. Its text names it, so that it
// can be run again: "2:copy@3,late-copy".
type schedule struct {
	messages int
	events   []event
}

// event is a fault at the n-th step of all, or at none.
type event struct {
	at   int // 0 for kinds that need no step
	kind Faults
}

func (e event) String() string {
	if e.at == 0 {
		return e.kind.String()
	}
	return e.kind.String() + "@" + strconv.Itoa(e.at)
}

func (s schedule) String() string {
	var list []string
	for _, e := range s.events {
		list = append(list, e.String())
	}
	return strconv.Itoa(s.messages) + ":" + strings.Join(list, ",")
}

func parseSchedule(text string) (s schedule, err error) {
	bad := func(err error) (schedule, error) {
		return schedule{}, fmt.Errorf("oncetest: schedule %q: %w", text, err)
	}
	count, list, _ := strings.Cut(text, ":")
	if s.messages, err = strconv.Atoi(count); err != nil {
		return bad(err)
	}
	if s.messages < 1 || s.messages > maxMessages {
		return bad(fmt.Errorf("1 to %d messages", maxMessages))
	}
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		var e event
		name, at, placed := strings.Cut(part, "@")
		if e.kind, err = faultNamed(name); err != nil {
			return bad(err)
		}
		if placed != (e.kind&atNone == 0) {
			return bad(fmt.Errorf("%s with or without a step", name))
		}
		if placed {
			if e.at, err = strconv.Atoi(at); err != nil {
				return bad(err)
			}
			if e.at < 1 {
				return bad(fmt.Errorf("step %d", e.at))
			}
		}
		s.events = append(s.events, e)
	}
	return s, nil
}

const maxMessages = 100

// at returns the kinds that the schedule has for a step.
func (s schedule) at(step int) []Faults {
	var kinds []Faults
	for _, e := range s.events {
		if e.at == step {
			kinds = append(kinds, e.kind)
		}
	}
	return kinds
}

func (s schedule) has(kind Faults) bool {
	return slices.ContainsFunc(s.events, func(e event) bool { return e.kind == kind })
}

// within reports whether all that happens is allowed.
func (s schedule) within(allowed Faults) bool {
	return !slices.ContainsFunc(s.events, func(e event) bool { return e.kind&allowed == 0 })
}

func (s schedule) with(e event) schedule {
	return schedule{s.messages, append(slices.Clone(s.events), e)}
}

// next lists the schedules that have one event more than s, behind all of its
// own, where s met the given steps.
func (s schedule) next(allowed Faults, steps []Faults) []schedule {
	var list []schedule
	var last event
	if len(s.events) > 0 {
		last = s.events[len(s.events)-1]
	}
	late := len(s.events) > 0 && last.at == 0
	for i, fits := range steps {
		for _, kind := range (allowed & fits).each() {
			e := event{i + 1, kind}
			if !late && (e.at > last.at || e.at == last.at && e.kind > last.kind) {
				list = append(list, s.with(e))
			}
		}
	}
	for _, kind := range (allowed & atNone).each() {
		if !late || kind > last.kind {
			list = append(list, s.with(event{0, kind}))
		}
	}
	return list
}

// randomSchedule has 2 to 6 events around the steps that a schedule without any
// meets. Those at steps that are never reached don't happen.
func randomSchedule(rnd *rand.Rand, allowed Faults, messages, steps int) schedule {
	s := schedule{messages: messages}
	kinds := allowed.each()
	for range 2 + rnd.IntN(5) {
		e := event{kind: kinds[rnd.IntN(len(kinds))]}
		if e.kind&atNone == 0 {
			e.at = 1 + rnd.IntN(2*steps+1)
		}
		s.events = append(s.events, e)
	}
	slices.SortStableFunc(s.events, func(a, b event) int {
		if (a.at == 0) != (b.at == 0) {
			return b.at - a.at // those without a step come last
		}
		return a.at - b.at
	})
	return s
}

// smaller lists schedules that are simpler than s, the simplest first.
func (s schedule) smaller() []schedule {
	var list []schedule
	for n := 1; n < s.messages; n++ {
		list = append(list, schedule{n, s.events})
	}
	for i := range s.events {
		list = append(list, schedule{s.messages, slices.Delete(slices.Clone(s.events), i, i+1)})
	}
	for i, e := range s.events {
		for at := 1; at < e.at; at++ {
			list = append(list, s.replaced(i, event{at, e.kind}))
		}
		for _, kind := range simpler[e.kind].each() {
			at := e.at
			if kind&atNone != 0 {
				at = 0
			}
			list = append(list, s.replaced(i, event{at, kind}))
		}
	}
	return list
}

func (s schedule) replaced(i int, e event) schedule {
	events := slices.Clone(s.events)
	events[i] = e
	return schedule{s.messages, events}
}

// simpler says what is easier to tell than a kind. There is no way around in it,
// so that shrinking ends.
var simpler = map[Faults]Faults{
	Copy:             LateCopy,
	CopyElsewhere:    Copy | LateCopy | LateElsewhere,
	LateElsewhere:    LateCopy,
	LateAfterRestart: LateCopy,
	FailAfter:        LateCopy,
	Outage:           FailBefore | FailAfter,
	CrashBefore:      FailBefore | LateAfterRestart,
	CrashAfter:       FailAfter | CrashBefore | LateAfterRestart,
	CutBefore:        FailBefore,
	CutAfter:         FailAfter | CutBefore,
	LostAck:          LateCopy,
	Overflow:         Copy | LateCopy,
}
