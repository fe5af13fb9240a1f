package claimmodel

import (
	"fmt"
	"strings"
)

var (
	stateNames  = [...]string{"absent", "claimed", "waiting", "completed", "failed", "unknown"}
	kindNames   = [...]string{"", "claim", "extend", "complete", "release", "resolve", "forget", "lookup", "tx", "the effect"}
	statusNames = [...]string{"", "acquired", "busy", "waiting", "completed", "unknown"}
)

// text is the answer to op for people.
func (a Answer) text(op Op) string {
	switch {
	case op.Kind == DoClaim || op.Kind == DoTx:
		return statusNames[a.Status]
	case a.Held:
		return "yes"
	default:
		return "no"
	}
}

// trace tells the way along a path of worlds, given from its end. Every world has
// names of its own for processes and claims; people want the same ones all along.
func (x *explorer) trace(path []int32) []string {
	var lines []string
	_, n := x.cfg.start().canonical()
	t := teller{}
	t.rename(n)
	for i := len(path) - 1; i > 0; i-- {
		to := x.worlds[path[i-1]]
		told := false
		x.cfg.next(x.worlds[path[i]], func(s step, w world) {
			c, n := w.canonical()
			if told || c != to {
				return
			}
			told = true
			lines = append(lines, t.tell(s)+" → "+stateOf(w.rec))
			t.rename(n)
		})
	}
	return lines
}

func stateOf(r Record) string {
	if r.State == Claimed && r.Ready {
		return "claimed, lease over"
	}
	return stateNames[r.State]
}

// teller knows the names that people see of a world's processes and claims.
type teller struct {
	procs  [maxProcs]int
	claims [maxNames]string
	used   int
	begun  bool
}

// rename follows the world into its canonical form.
func (t *teller) rename(n naming) {
	old := *t
	t.claims = [maxNames]string{}
	for i := range t.procs {
		t.procs[i] = int(n.procs[i]) + 1
		if t.begun {
			t.procs[i] = old.procs[n.procs[i]]
		}
	}
	for from, to := range n.claims {
		if to != 0 {
			t.claims[to] = old.claim(Claim(from))
		}
	}
	t.used, t.begun = old.used, true
}

// claim names a claim, a new one with the next letter.
func (t *teller) claim(c Claim) string {
	if t.claims[c] == "" {
		t.claims[c] = string(rune('A'+t.used%26)) + strings.Repeat("'", t.used/26)
		t.used++
	}
	return t.claims[c]
}

func (t *teller) tell(s step) string {
	who := "     "
	if s.proc != nothing {
		who = fmt.Sprintf("P%d   ", t.procs[s.proc])
	}
	line := who + strings.Replace(s.what, "%s", t.request(s.op), 1)
	if s.reply != "" {
		line += ": " + s.reply
	}
	return line
}

func (t *teller) request(op Op) string {
	text := kindNames[op.Kind]
	if op.Claim != 0 {
		text += " " + t.claim(op.Claim)
	}
	if op.Kind == DoRelease || op.Kind == DoResolve {
		text += " to " + stateNames[op.To]
	}
	if op.Kind == DoResolve && op.Fence == 0 {
		text += " (an older fence)"
	}
	return text
}
