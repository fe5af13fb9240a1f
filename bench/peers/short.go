package main

import (
	"fmt"
	"slices"
	"strings"
)

// short is the answer in a few lines.
func (m measured) short() string {
	var lines []string
	if m.Partial {
		lines = append(lines, "**Cut short**: "+m.there()+".")
	}
	lines = append(lines,
		fmt.Sprintf("Time of three steps with one worker each, 3 hops on bare channels being 1: with 3 hops %s.", m.ratios(threeHops)),
		fmt.Sprintf("All three in one worker: %s. Inline: %s.", m.ratios(oneHop), m.ratios(inline)))
	if counted := m.counted(); len(counted) > 0 {
		lines = append(lines,
			fmt.Sprintf("Faults, of %d, that harmed no message of %d: %s.", len(columns(counted)), m.messages(), held(counted)),
			fmt.Sprintf("Acked and never written: %s.", those(counted, func(v verdict) bool { return v.Lost > 0 && !v.Stuck })),
			fmt.Sprintf("Stuck: %s.", those(counted, func(v verdict) bool { return v.Stuck })),
			fmt.Sprintf("The others wait for a slow message's backoff: %s.", those(counted, verdict.waited)))
	}
	return "- " + strings.Join(lines, "\n- ")
}

// there says which parts are there.
func (m measured) there() string {
	rounds := 0
	if len(m.rates) > 0 {
		rounds = m.rates[0].Rounds
	}
	return fmt.Sprintf("%d rounds of the three steps and %d of the faults are there", rounds, len(columns(m.verdicts)))
}

// counted leaves out what is not the library's doing.
func (m measured) counted() (rows []verdict) {
	for _, v := range m.verdicts {
		if v.Counts {
			rows = append(rows, v)
		}
	}
	return rows
}

// ratios lists the chains of a shape with one worker, or as many goroutines as messages.
func (m measured) ratios(shape string) string {
	var list []string
	for _, r := range m.rates {
		if r.Shape == shape && r.Workers <= 1 {
			list = append(list, r.Chain+" "+number(r.Ratio))
		}
	}
	return strings.Join(list, ", ")
}

func (m measured) messages() int {
	if len(m.verdicts) == 0 {
		return 0
	}
	return m.verdicts[0].Messages
}

// columns are the faults in their order.
func columns(rows []verdict) (list []string) {
	for _, v := range rows {
		if !slices.Contains(list, v.Fault) {
			list = append(list, v.Fault)
		}
	}
	return list
}

// held lists the writers with the number of faults that harmed no message.
func held(rows []verdict) string {
	var order []string
	good := map[string]int{}
	for _, v := range rows {
		if !slices.Contains(order, v.Peer) {
			order = append(order, v.Peer)
		}
		if v.Cannot == "" && !v.harmed() {
			good[v.Peer]++
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return good[b] - good[a] })
	for i, name := range order {
		order[i] = fmt.Sprintf("%s %d", name, good[name])
	}
	return strings.Join(order, "; ")
}

// those lists the writers of which something is true under any fault.
func those(rows []verdict, is func(verdict) bool) string {
	var list []string
	for _, v := range rows {
		if is(v) && !slices.Contains(list, v.Peer) {
			list = append(list, v.Peer)
		}
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, "; ")
}
