package oncetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// killPlan says how many messages there are, and what the processes die of, one
// after the other; those after them live. Its text names it, so that it can be run again:
// "2:before@3,after@1", "2+:moment@350".
type killPlan struct {
	messages int
	beside   bool // a second process has copies of all messages
	kills    []killPoint
}

// killPoint is before or after the n-th step of a process, or at a moment: then
// At is in microseconds since it was ready.
type killPoint struct {
	When string
	At   int
}

const (
	killBefore = "before"
	killAfter  = "after"
	killMoment = "moment"
)

func (k killPoint) moment() time.Duration { return time.Duration(k.At) * time.Microsecond }

func (p killPlan) String() string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(p.messages))
	if p.beside {
		b.WriteByte('+')
	}
	b.WriteByte(':')
	for i, k := range p.kills {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s@%d", k.When, k.At)
	}
	return b.String()
}

func parseKillPlan(text string) (killPlan, error) {
	var p killPlan
	bad := func(err error) (killPlan, error) {
		return killPlan{}, fmt.Errorf("oncetest: kills %q: %w", text, err)
	}
	count, list, _ := strings.Cut(text, ":")
	count, p.beside = strings.CutSuffix(count, "+")
	var err error
	if p.messages, err = strconv.Atoi(count); err != nil {
		return bad(err)
	}
	if p.messages < 1 || p.messages > maxMessages {
		return bad(fmt.Errorf("1 to %d messages", maxMessages))
	}
	if list == "" {
		return p, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		when, at, _ := strings.Cut(part, "@")
		if !slices.Contains([]string{killBefore, killAfter, killMoment}, when) {
			return bad(fmt.Errorf("no kill is called %q", when))
		}
		k := killPoint{When: when}
		if k.At, err = strconv.Atoi(at); err != nil {
			return bad(err)
		}
		if k.At < 0 || k.At == 0 && when != killMoment {
			return bad(errors.New("steps are counted from 1"))
		}
		p.kills = append(p.kills, k)
	}
	return p, nil
}

func (p killPlan) with(k killPoint) killPlan {
	p.kills = append(slices.Clone(p.kills), k)
	return p
}

// smaller lists plans that are simpler than p, the simplest first.
func (p killPlan) smaller() []killPlan {
	var list []killPlan
	for n := 1; n < p.messages; n++ {
		list = append(list, killPlan{n, p.beside, p.kills})
	}
	if p.beside {
		list = append(list, killPlan{p.messages, false, p.kills})
	}
	for i := range p.kills {
		list = append(list, killPlan{p.messages, p.beside, slices.Delete(slices.Clone(p.kills), i, i+1)})
	}
	for i, k := range p.kills {
		if k.When == killMoment {
			continue
		}
		for at := 1; at < k.At; at++ {
			kills := slices.Clone(p.kills)
			kills[i].At = at
			list = append(list, killPlan{p.messages, p.beside, kills})
		}
	}
	return list
}
