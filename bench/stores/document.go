package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

const documentFile = "stores.md"

// marks say how a figure stands to its line's limit.
const marks = "A figure in **bold** is beyond the limit; one (in parentheses) has no limit, as that store isn't held to it."

// render makes the document and its picture of the data file.
func render(dir results.Dir) error {
	r, err := results.ReadJSON[report](dir, dataFile)
	if err != nil {
		return err
	}
	svg, err := r.picture()
	if err != nil {
		return err
	}
	if err := dir.Write(pictureFile, svg); err != nil {
		return err
	}
	return dir.Write(documentFile, []byte(r.document()))
}

func (r report) document() string {
	var b strings.Builder
	b.WriteString("# What the stores cost\n\n" + r.Header() + "\n")
	for _, m := range r.Missing {
		b.WriteString("**Left out:** " + m + ".\n\n")
	}
	fmt.Fprintf(&b, "Each ratio and each rate is the median of %d rounds, in which the things that are compared follow one another; "+
		"p50 and p99 are those of all their calls. What stands below disk, prune, duplicate and size was done once, so that a figure "+
		"there is of one run.\n\n%s A line without a limit is only reported.\n\n", r.Scale.Rounds, marks)
	b.WriteString("## Ratios\n\n" + r.Part("short", r.short()) + "\n")
	b.WriteString("## Rates\n\n" + r.Part("rates", r.rates()) + "\n")
	fmt.Fprintf(&b, "![Effects, and claims with their completions, per second, by how many share a commit](%s)\n\n", pictureFile)
	for _, store := range r.Stores {
		fmt.Fprintf(&b, "### %s\n\n%s\n", store, r.ratesOf(store))
	}
	b.WriteString("## All that was measured besides\n\n")
	for _, g := range groups {
		if g.name == rateGroup {
			continue
		}
		if lines := r.of(g.name); len(lines) > 0 {
			fmt.Fprintf(&b, "### %s\n\n%s\n", g.name, r.table("what", lines, value))
		}
	}
	return b.String()
}

// short is those ratios that say what the guarantee costs.
func (r report) short() string {
	s := r.Scale
	more := fmt.Sprintf("the same where a commit takes %v more", s.Slower)
	table := r.table("what", append([]line{
		{"price", txOverBare(0), "`Tx` one by one : the same transaction without a record"},
		{"price", txOverBare(s.Slower), more},
		{"batch", batchOverTx(s.Batch, 0), fmt.Sprintf("`TxBatch` of %d : `Tx` one by one", s.Batch)},
		{"batch", batchOverBare(s.Batch, 0), fmt.Sprintf("`TxBatch` of %d : the same rows inserted without records", s.Batch)},
		{"batch", batchOverBare(s.Batch, s.Slower), more},
		{"gather", claimsOverBatches(s.Callers), fmt.Sprintf("%d callers who claim and complete a key each : one with %[1]d", s.Callers)},
		{"gather", claimsOverSingle(s.Callers), "the same : one by one"},
		{"gather", sharedOverBatch(s.Callers), fmt.Sprintf("%d callers with `Shared` transactions : a batch of %[1]d", s.Callers)},
		{"gather", sharedOverTx(s.Callers), "the same : one by one"},
	}, r.pruning()...), value)
	return r.commits() + "\n\n" + table + "\n" + marks + `
One by one, a server pays for one more round trip, which weighs most where the disk is fast. In
batches a record weighs more than a small row does: it has an index by its end beside its key. Callers who come one by one
make more commits than one who brings all at once. Shared transactions pay a round trip for each statement of each function,
so that on a server ` + "`TxBatch`" + ` is the way to throughput.
`
}

// pruning is how long claims take beside it: the longest and, where there were
// claims enough of any store, p99.9.
func (r report) pruning() []line {
	lines := []line{{"prune", pruneLongest, fmt.Sprintf("claims beside one pruning of %s records, the longest", figure(float64(r.Scale.Overdue)))}}
	tail := line{"prune", pruneTail, "the same, p99.9"}
	if slices.ContainsFunc(r.Stores, func(store string) bool { return r.any([]line{tail}, store) }) {
		lines = append(lines, tail)
	}
	return lines
}

// commits says how fast the disk is.
func (r report) commits() string {
	var list []string
	for _, store := range r.Stores {
		if bare, ok := r.find("price", store, bareTransaction); ok {
			list = append(list, fmt.Sprintf("%.2f ms on %s", bare.Ratio/1000, store))
		}
	}
	if len(list) == 0 {
		return "No transaction was measured."
	}
	return "A transaction of one row takes, by hand, " + strings.Join(list, ", ") + "."
}

// rates are those of all stores, one by one and with the most at a time.
func (r report) rates() string {
	most := slices.Max(append([]int{1}, r.Scale.Together...))
	single := []string{insertByHand, aClaim, aCompletion, effectByHand, anEffect}
	all := []line{{rateGroup, aSync, aSync + ", on the same disk"}}
	var latencies []line
	for _, what := range single {
		l := line{rateGroup, inCalls(what, 1), inCalls(what, 1)}
		all, latencies = append(all, l), append(latencies, l)
	}
	for _, what := range single[1:] {
		all = append(all, line{rateGroup, inCalls(what, most), inCalls(what, most)})
	}
	return r.table("per second", all, value) + "\n" +
		r.table("a call takes, p50 and p99 in µs", latencies, latency) + `
The disk is asked in the directory of the SQLite files, in the same rounds as each store, by one writer. Many at a time have one
commit: an effect is a ` + "`TxBatch`, and a `Tx`" + ` one by one; a claim and a completion are a call of the store. An
effect by hand is the same insertion and commit without a record; an insert by hand is one statement. Redis has no
transaction that an effect could be in.
`
}

// ratesOf are those of one store, with what a call takes.
func (r report) ratesOf(store string) string {
	var rows [][]string
	for _, l := range r.of(rateGroup) {
		if row, ok := r.find(rateGroup, store, l.what); ok {
			rows = append(rows, []string{l.what, figure(row.Ratio), figure(row.P50), figure(row.P99)})
		}
	}
	return results.Table([]string{"what", ">per second", ">a call, p50 µs", ">p99 µs"}, rows)
}
