package main

import (
	"fmt"
	"strings"
)

// answer is the short one, in measured numbers: is an atom or a transactional check
// more reliable?
func answer(g grid) string {
	named := map[string]mechanism{}
	for _, m := range mechanisms {
		named[m.name] = m
	}
	sum := func(names ...string) (t total) {
		for _, name := range names {
			t.add(g.under(named[name]))
		}
		return t
	}
	rate := func(name string) string { return g.rate(named[name], none) }
	together := sum("unique constraint", "ON CONFLICT in the transaction", "select, then insert, SERIALIZABLE", "Tx", "Dedup, then Tx")
	verdict := ""
	if together.faults > 0 && together.lost+together.doubled == 0 {
		verdict = " The check, where the database itself keeps two of a key apart."
	}
	lines := []string{
		fmt.Sprintf("**An atom or a check in the transaction?**%s Under %d kinds of fault, %d messages each:",
			verdict, len(g.under(mechanisms[0])), sum(mechanisms[0].name).messages),
		fmt.Sprintf("- An atom checked before the effect and set after it: %v. Set before the effect: %v.",
			sum("set in memory, check, then act"), sum("set in memory, marked before")),
		fmt.Sprintf("- Key and effect in one place, by a unique constraint, ON CONFLICT in the transaction of the effect, a select and an insert at SERIALIZABLE, `Tx`, or `Dedup` and then `Tx`: %v.",
			together),
		fmt.Sprintf("- A transaction alone isn't enough. A select and an insert at READ COMMITTED: %v.",
			sum("select, then insert, READ COMMITTED")),
		fmt.Sprintf("- A token that is new for each attempt, random or of the clock: %v; without any: %v.",
			sum("random token for each attempt", "key and nanoTime as token"), sum("nothing")),
		fmt.Sprintf("- An effect outside, with `Once`: %v. With its token handed on: %v. With AtMostOnce: %v.",
			sum("Once"), sum("Once, its token for the provider"), sum("Once, AtMostOnce")),
		fmt.Sprintf("- Messages per second without a fault, on a file without fsync, to two digits since they vary from run to run: nothing %s, an atom %s, unique constraint %s, `Tx` %s, `Once` %s.",
			rate("nothing"), rate("set in memory, check, then act"), rate("unique constraint"), rate("Tx"), rate("Once")),
	}
	if cells, least, most := g.shed(); cells > 0 {
		lines = append(lines, fmt.Sprintf("- What a Dropping or Sliding buffer sheds, and the source takes for acked, has no effect either, and isn't counted as lost: %d to %d messages in each of %d cells.",
			least, most, cells))
	}
	return strings.Join(lines, "\n")
}

// total is what became of the faults of some cells.
type total struct {
	messages, faults, lost, doubled, asked int
	kinds                                  map[string]bool // of fault that did it
}

func (t *total) add(rows []row) {
	if t.kinds == nil {
		t.kinds = map[string]bool{}
	}
	for _, r := range rows {
		t.messages = r.Messages
		t.faults += r.Faults
		t.lost += r.Lost
		t.doubled += r.Doubled
		t.asked += r.Asked
		if r.level() > 0 {
			t.kinds[r.Fault] = true
		}
	}
}

// String says what was lost and doubled, always, and who was asked.
func (t total) String() string {
	text := fmt.Sprintf("%d lost, %d twice", t.lost, t.doubled)
	if t.asked > 0 {
		text += fmt.Sprintf(", %d for a person", t.asked)
	}
	text += fmt.Sprintf(", in %d faults", t.faults)
	if n := len(t.kinds); n > 0 {
		text += fmt.Sprintf(" (%d of the kinds)", n)
	}
	return text
}
