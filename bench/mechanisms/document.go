package main

import (
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/picture"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// render makes the document and the picture of the data in dir.
func render(dir results.Dir) error {
	about, err := results.ReadJSON[results.Run](dir, "mechanisms.json")
	if err != nil {
		return err
	}
	rows, err := results.ReadCSV[row](dir, "mechanisms.csv")
	if err != nil {
		return err
	}
	g := gridOf(rows)
	svg, err := heat(g).SVG()
	if err != nil {
		return err
	}
	if err := dir.Write("mechanisms.svg", svg); err != nil {
		return err
	}
	return dir.Write("mechanisms.md", []byte(document(about, g)))
}

func document(about results.Run, g grid) string {
	return strings.Join([]string{
		"# What each mechanism loses and does twice\n",
		about.Header(),
		`Each mechanism that people use against a second effect, under each fault that they fear: real pipelines on a SQLite file, real
processes, real SIGKILLs. Here are counts; [the verdicts of the test kit](../mechanisms.md) come from schedules that look for the worst case.
`,
		about.Part("short", answer(g)),
		"![lost and doubled, by mechanism and fault](mechanisms.svg)\n",
		"## Lost and done twice\n",
		`A cell says how often that happened, of how many faults. **Lost**: messages that were acked, or settled for good, and have no effect.
**Twice**: effects beyond the first of a message. **Asked**: messages that became dead letters, since nobody knows whether their effect
happened. **Shed**: messages that a full buffer gave up, and that the source took for acked. They have no effect, by choice, and don't count as
lost; a source that delivers again what was shed has none of them. A SIGKILL hits all messages that the process works on, so that there may be
more than one for each.
`,
		countTable(g),
		`A cell with fewer than there were faults is no safer than one with all of them: it says how often the copy came in time. Zero is another
matter: of a unique constraint, ON CONFLICT, SERIALIZABLE, Tx, Once with its token, and Dedup before Tx it is promised, and the program fails
where it sees anything else.
`,
		"## The faults\n",
		faultTable(g),
		fmt.Sprintf(`But for SIGKILL and full buffers, a share of the messages is hit, chosen by the seed. Where a copy has to come while the first one is worked
on, that one waits right before its effect until the copy is as far: at most %v, or %v where it comes to another process. With full
buffers the pairs at both ends of a burst wait, %v at most. A burst is %d deliveries; behind it are a buffer of %d places and %d workers.
`, near, far, short, burst, places, workers),
		"## Messages per second\n",
		fmt.Sprintf(`Without a fault, and under each. The file is written without fsync (WAL, synchronous=OFF): no fault here is a power failure, and what a
killed process wrote stays. On a disk that is waited for, every commit costs more. Each process has one connection. Where copies have to meet,
these are from a run of their own in which nobody waits for them. All vary from run to run and have two digits only. The starts of processes are in the time, and so is the lease of %v that
Once waits for after a SIGKILL. Messages that were shed don't count.
`, lease),
		rateTable(g),
		"## The mechanisms\n",
		fmt.Sprintf(`- A **token** goes to a provider with a table of charges whose token is unique. Nothing, the two sets, the window and Once without a token call it
  without one.
- A **set in memory** is what others call an atom: a map with a lock, marked after the charge or before it.
- A **window at the broker** drops what it was sent before, as SQS FIFO and JetStream do: of the last 100 keys, or of all. All messages are sent at
  the beginning, so 100 keys are less than the backlog. It knows nothing of what the broker delivers again by itself.
- **READ COMMITTED** is made on SQLite by putting the select into a transaction of its own: what it saw may have changed when the insert runs.
- **Tx**, **Once** and **Dedup** are this library's, on sqlstore; [the guarantees](../guarantees.md) say what each promises.

All run in the same pipeline, %d workers and a retry within %v.
`, workers, retryAfter),
	}, "\n")
}

func heat(g grid) picture.Heat {
	h := picture.Heat{Title: "Lost, done twice or asked of a person, of as many faults"}
	for _, f := range faults(0) {
		h.Columns = append(h.Columns, f.title)
	}
	for _, m := range mechanisms {
		var cells []picture.HeatCell
		for _, f := range faults(0) {
			cell := picture.HeatCell{Level: -1}
			if r, ok := g.count(m, f); ok {
				cell = picture.HeatCell{Text: strings.Join(r.counts(), "\n"), Level: r.level()}
			}
			cells = append(cells, cell)
		}
		h.Rows, h.Cells = append(h.Rows, m.name), append(h.Cells, cells)
	}
	return h
}

func countTable(g grid) string {
	return faultColumns(nil, func(m mechanism, f fault) string {
		r, ok := g.count(m, f)
		if !ok {
			return "–"
		}
		text := strings.Join(r.counts(), ", ")
		if r.level() > 0 {
			return "**" + text + "**"
		}
		return text
	})
}

func rateTable(g grid) string {
	return faultColumns([]fault{none}, g.rate)
}

// faultColumns is a table with a cell for each mechanism under some faults more
// and then all.
func faultColumns(more []fault, cell func(m mechanism, f fault) string) string {
	columns := append(more, faults(0)...)
	heads := []string{"mechanism"}
	for _, f := range columns {
		heads = append(heads, ">"+f.name)
	}
	var lines [][]string
	for _, m := range mechanisms {
		line := []string{m.name}
		for _, f := range columns {
			line = append(line, cell(m, f))
		}
		lines = append(lines, line)
	}
	return results.Table(heads, lines)
}

// faultTable says what each fault is, and how often it was made.
func faultTable(g grid) string {
	var lines [][]string
	for _, f := range faults(0) {
		line := []string{f.name, f.about, "–", "–"}
		var least, most int
		for i, m := range mechanisms {
			r, ok := g.count(m, f)
			if !ok {
				continue
			}
			if i == 0 {
				least = r.Faults
			}
			least, most = min(least, r.Faults), max(most, r.Faults)
			line[2], line[3] = fmt.Sprint(r.Messages), fmt.Sprint(most)
			if least < most {
				line[3] = fmt.Sprintf("%d to %d", least, most)
			}
		}
		lines = append(lines, line)
	}
	return results.Table([]string{"fault", "what happens", ">messages", ">faults made"}, lines)
}
