package integration

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

var update = flag.Bool("update", false, "write docs/mechanisms.md")

// mechanisms are ways to make an effect once that people use or propose.
var mechanisms = []struct {
	name    string
	program benchProgram
}{
	{"nothing", chargedWith(func(order) string { return "" })},
	{"a random token for each attempt", chargedWith(func(order) string { return rand.Text() })},
	{"the id and the time as a token", chargedWith(timeToken)},
	{"a set in memory, marked after the effect", atProvider(markAfter)},
	{"a set in memory, marked before the effect", atProvider(markBefore)},
	{"the message's id as the provider's key", atProvider(withOrderAsKey)},
	{"unique constraint", inTable("rows", insertRow)},
	{"select, then insert, READ COMMITTED", inTable("effects", selectThenInsert)},
	{"select, then insert, SERIALIZABLE", inTable("effects", selectAndInsert)},
	{"ON CONFLICT in the transaction of the effect", inTable("effects", markAndInsert)},
	{"`sqlstore.Tx`", onStore(txDo)},
	{"`Once`, provider without keys", storeAndProvider(onceBare)},
	{"`Once`, `Info.Token` as the provider's key", storeAndProvider(onceToken)},
	{"`Once` with `AtMostOnce`", storeAndProvider(onceAtMostOnce)},
	{"`Dedup` without a store, a plain write", atProvider(dedupPlain)},
	{"`Dedup` without a store, then `sqlstore.Tx`", onStore(dedupTx)},
}

// classes are the faults of the columns.
var classes = []struct {
	name   string
	faults oncetest.Faults
}{
	{"duplicate in process", oncetest.Duplicates},
	{"two processes", oncetest.TwoProcesses},
	{"restart", oncetest.Restarts},
	{"failure before", oncetest.FailBefore},
	{"failure after", oncetest.FailAfter},
	{"buffer full", oncetest.Overflow},
	{"crash in between", oncetest.Crashes},
	{"time-out", oncetest.Cuts},
}

func chargedWith(token func(order) string) benchProgram {
	return atProvider(func(p *oncetest.Process, pr *provider) handle {
		return func(ctx context.Context, o order) error { return pr.charge(ctx, p, token(o), o.ID) }
	})
}

// timeToken reads a clock that goes on, as those outside of a bubble do.
func timeToken(o order) string {
	time.Sleep(time.Nanosecond)
	return fmt.Sprint(o.ID, "-", time.Now().UnixNano())
}

// set is what a process remembers.
type set struct {
	mu sync.Mutex
	m  map[string]bool
}

func (s *set) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[key]
}

// add reports whether key is new.
func (s *set) add(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.m[key]
	s.m[key] = true
	return !known
}

func markAfter(p *oncetest.Process, pr *provider) handle {
	done := set{m: map[string]bool{}}
	return func(ctx context.Context, o order) error {
		if done.has(o.ID) {
			return nil
		}
		if err := pr.charge(ctx, p, "", o.ID); err != nil {
			return err
		}
		done.add(o.ID)
		return nil
	}
}

func markBefore(p *oncetest.Process, pr *provider) handle {
	begun := set{m: map[string]bool{}}
	return func(ctx context.Context, o order) error {
		if !begun.add(o.ID) {
			return nil
		}
		return pr.charge(ctx, p, "", o.ID)
	}
}

func onceBare(p *oncetest.Process, st *sqlstore.Store, pr *provider) handle {
	return chargeOnce(p, st, pr, oncepipe.OnceConfig[order, struct{}]{})
}

func dedupPlain(p *oncetest.Process, pr *provider) handle {
	return pipelined(p, func(in oncepipe.Stream[order]) {
		fresh := oncepipe.Dedup(in, "dedup", orderID)
		oncepipe.Sink(fresh, "charge", func(ctx context.Context, o order) error { return pr.charge(ctx, p, "", o.ID) }, retry)
	})
}

// verdict is what becomes of a mechanism under a class of faults.
type verdict struct {
	word   string // of the table
	replay string // the schedule that shows it; "" where it holds
}

const (
	holds = "holds"
	asks  = "asks a person"
)

// judge tries schedules, or one. A dead letter counts where nothing worse is found.
func judge(s oncetest.Service[order]) (v verdict, story *oncetest.Failure, err error) {
	v.word = holds
	for _, s.NoDeadLetters = range []bool{true, false} {
		err := oncetest.CheckHandler(s)
		f, ok := err.(*oncetest.Failure)
		switch {
		case err != nil && !ok:
			return v, nil, err
		case !ok:
			return v, story, nil
		case f.Blame != oncetest.GivenUp:
			return verdict{string(f.Blame), f.Replay}, f, nil
		}
		v, story = verdict{asks, f.Replay}, f
	}
	return v, story, nil
}

const mechanismsDocument = "../docs/mechanisms.md"

// TestMechanisms runs each mechanism under each class of faults and compares what
// it saw with docs/mechanisms.md; -update writes it. With -short or -race it runs the
// schedules that the document names, and few others.
func TestMechanisms(t *testing.T) {
	text, err := os.ReadFile(mechanismsDocument)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parseMechanisms(string(text))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	seen := map[tableCell]verdict{}
	for row, m := range mechanisms {
		for column, c := range classes {
			at := tableCell{row + 1, column + 1}
			t.Run(at.String(), func(t *testing.T) {
				s := b.service(m.program)
				s.Faults, s.Schedules = c.faults, 60
				if os.Getenv("ONCETEST_REPLAY") == "" && !*update && (testing.Short() || raceEnabled) {
					s.Schedules, s.Replay = 3, doc.cells[at].replay
				}
				v, story, err := judge(s)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s, %s: %s\n%v", m.name, c.name, v.word, story)
				if seen[at] = v; !*update && v != doc.cells[at] {
					t.Errorf("%v, and the document says %v", v, doc.cells[at])
				}
			})
		}
	}
	switch now := doc.with(seen); {
	case len(seen) < len(mechanisms)*len(classes):
		return // some were chosen with -run
	case *update:
		if err := os.WriteFile(mechanismsDocument, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	case now != string(text):
		t.Error("docs/mechanisms.md is not what was seen; run the test with -update")
	}
}

// tableCell is a place in the table, counted from 1.
type tableCell struct{ row, column int }

func (c tableCell) String() string { return fmt.Sprintf("%d.%d", c.row, c.column) }

// mechanismsDoc is the document: what was written by hand, and what was seen.
type mechanismsDoc struct {
	opening, middle, end string
	cells                map[tableCell]verdict
}

const (
	tableBegins    = "<!-- table, written by the test -->\n"
	appendixBegins = "<!-- schedules, written by the test -->\n"
	writtenEnds    = "<!-- end -->\n"
)

func parseMechanisms(text string) (d mechanismsDoc, err error) {
	var ok1, ok2, ok3, ok4 bool
	var appendix string
	d.opening, text, ok1 = strings.Cut(text, tableBegins)
	_, text, ok2 = strings.Cut(text, writtenEnds)
	d.middle, text, ok3 = strings.Cut(text, appendixBegins)
	appendix, d.end, ok4 = strings.Cut(text, writtenEnds)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return d, fmt.Errorf("%s: a comment is missing that bounds what the test writes", mechanismsDocument)
	}
	d.cells = map[tableCell]verdict{}
	for row := range mechanisms {
		for column := range classes {
			d.cells[tableCell{row + 1, column + 1}] = verdict{word: holds}
		}
	}
	for line := range strings.Lines(appendix) {
		parts := strings.Split(strings.Trim(line, "| \n"), " | ")
		var at tableCell
		if _, err := fmt.Sscanf(parts[0], "%d.%d", &at.row, &at.column); err != nil {
			continue // the head
		}
		if len(parts) != 3 {
			return d, fmt.Errorf("%s: line %q", mechanismsDocument, line)
		}
		d.cells[at] = verdict{parts[1], strings.Trim(parts[2], "`")}
	}
	return d, nil
}

// with is the document's text with other cells.
func (d mechanismsDoc) with(cells map[tableCell]verdict) string {
	var table, appendix strings.Builder
	table.WriteString("| | mechanism |")
	for column, c := range classes {
		fmt.Fprintf(&table, " %d. %s |", column+1, c.name)
	}
	table.WriteString("\n|---|---|" + strings.Repeat("---|", len(classes)) + "\n")
	appendix.WriteString("| cell | | schedule |\n|---|---|---|\n")
	for row, m := range mechanisms {
		fmt.Fprintf(&table, "| %d | %s |", row+1, m.name)
		for column := range classes {
			at := tableCell{row + 1, column + 1}
			v := cells[at]
			fmt.Fprintf(&table, " %s |", emphasized(v.word))
			if v.replay != "" {
				fmt.Fprintf(&appendix, "| %s | %s | `%s` |\n", at, v.word, v.replay)
			}
		}
		table.WriteString("\n")
	}
	return d.opening + tableBegins + table.String() + writtenEnds +
		d.middle + appendixBegins + appendix.String() + writtenEnds + d.end
}

func emphasized(word string) string {
	if word == holds {
		return word
	}
	return "**" + word + "**"
}
