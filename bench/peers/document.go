package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// The files in the directory of results.
const (
	ratesFile  = "peers.csv"
	faultsFile = "peers-faults.csv"
	runFile    = "peers.json"
	page       = "peers.md"
	chart      = "peers.svg"
	heat       = "peers-faults.svg"
)

// measured is all that a run has found.
type measured struct {
	results.Run
	Modules []module `json:"modules"`

	rates    []rate
	verdicts []verdict
}

func (m measured) write(dir results.Dir) error {
	return errors.Join(
		results.WriteCSV(dir, ratesFile, m.rates),
		results.WriteCSV(dir, faultsFile, m.verdicts),
		results.WriteJSON(dir, runFile, m))
}

func read(dir results.Dir) (measured, error) {
	m, err := results.ReadJSON[measured](dir, runFile)
	if err != nil {
		return m, err
	}
	if m.rates, err = results.ReadCSV[rate](dir, ratesFile); err != nil {
		return m, err
	}
	m.verdicts, err = results.ReadCSV[verdict](dir, faultsFile)
	return m, err
}

// render makes the page and its picture of the data files.
func render(dir results.Dir) error {
	m, err := read(dir)
	if err != nil {
		return err
	}
	speed, err := m.speedPicture()
	if err != nil {
		return err
	}
	faults, err := m.faultPicture()
	if err != nil {
		return err
	}
	return errors.Join(dir.Write(chart, speed), dir.Write(heat, faults), dir.Write(page, []byte(m.page())))
}

func (m measured) page() string {
	var b strings.Builder
	b.WriteString("# Beside other libraries\n\n" + m.Header() + "\n")
	b.WriteString(results.Part("short", m.short()) + "\n")
	b.WriteString("## Three steps one after the other\n\n" + speedText + "\n")
	b.WriteString(m.speedTable() + "\n![ns per item of each library](" + chart + ")\n\n")
	if len(m.verdicts) > 0 {
		b.WriteString(m.faultSection())
	}
	b.WriteString("## Versions, and who is missing\n\n" + m.versionTable() + "\n" + missingText + "\n")
	b.WriteString("## Again\n\n" + fmt.Sprintf(againText, m.Command))
	return b.String()
}

func (m measured) faultSection() string {
	return "## The same faults for all\n\n" + faultText + "\n" +
		m.faultTable() + "\n![what each fault did to each](" + heat + ")\n\n" +
		fmt.Sprintf(cellText, patience.Seconds()) + "\n" +
		whyText + "\n" +
		"What the faults are:\n\n" + m.faultList() + "\n" +
		"What each brings itself:\n\n" + m.meansTable() + "\n"
}

const speedText = `A source, three steps that add 1 to a number, and a consumer; nothing fails; every queue has 64 places where it can have any.
With *3 hops* source, steps and consumer run on their own with a queue between each two; with *1 hop* the workers run all three
steps, which is what a pool is for; *inline* there is no queue at all. All run in turn in each round, and the ratio is the median over
the rounds of the time over that of bare channels with 3 hops and as many workers. They don't all do the same: see the last
column.
`

const faultText = `A source like a broker delivers messages, takes acks, and delivers again what comes back. Four workers (one with ro and gochannel, one
for each message with watermill's Router) write them to another side that counts. Each row is what one would write with that library's own
means; where it has none, what one writes by hand.
`

const cellText = `Cells are *lost / doubled*: messages that were acked or given up and never written, and writes beyond the first of their
message. *Stuck* means that nothing moved for %.0f seconds: the rest would never be written. *Open* are deliveries that were neither acked nor
returned; the source lets at most 16 be open (2 for *copy in flight*, any number for *re-queue, full*). In *slow item* the cell begins with
how many of the other messages were written while the slow ones waited: 0 means that waiting takes up the workers.
The column *re-queue, full* is not in the sums above and counts for nobody: there the worker is written so that it puts what
failed back into its own queue. A library whose items don't go that way says what it does instead.
`

const whyText = `Why:

- A key that is marked before its write is a trap: when the write fails and the message comes again, it is taken for a copy and acked.
  So with the set of keys and with watermill's Deduplicator; with the Deduplicator inside of Retry already the first retry is.
- A retry that sleeps holds what runs it, be it a worker or the one goroutine of a stream. Watermill has a goroutine for each message,
  oncepipe parks the item.
- A worker that puts an item into the queue that it reads waits for itself, once the queue is full.
- DistinctBy drops a copy where nobody can ack it, and the source waits for that ack.
- Gochannel's Publish returns nil also when its subscriber was closed before the ack, and then the message is acked at its source.
- A lost reply can't be told from a failure. Only asking the other side helps (OnceWith), or a key that it knows, or a write that is in
  one transaction with its record (Tx, which [mechanisms](mechanisms.md) measures).
`

const missingText = `reugn/go-streams, deliveryhero/pipeline and destel/rill are not measured here yet: their modules were not available when this was
written. One more library is one more file in bench/peers and a line in ` + "`peers`" + ` there.
`

const againText = `    %s
    go run ./bench/peers -benchstat > new.txt        # one line for each round, for benchstat -col /lib
    go test -run '^$' -bench ThreeStages ./bench/peers

Ratios carry over to other machines, times do not. Counts under faults can differ by a few between runs where they hang on
what happened first.
`
