package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"strings"
)

// statement names a kind of prepared statement.
type statement int

const (
	insert     statement = iota // rows whose keys are new
	insertTell                  // the same, which tells whose were
	insertSame                  // the same, of one claim
	write                       // rows over those that are there
	load                        // rows by their ids
	lock                        // the same, locked
	remove                      // rows by their ids
	list                        // rows of a state
	listIn                      // rows of a state and a namespace
	count                       // rows by state
	prune                       // rows whose retention is over
	overdue                     // their ids, locked
	writeFirst
	statements
)

// sizes are for how many rows the statements for several rows are prepared: 1,
// 2, 4, up to largest.
const (
	sizes   = 8
	largest = 1 << (sizes - 1)
)

// sizesOf is for how many sizes there is a statement of this kind.
func (d *dialect) sizesOf(which statement) int {
	switch {
	case which > remove, which == remove && d.removeEach:
		return 1
	case which == write:
		return d.writeSizes
	default:
		return sizes
	}
}

// columns of a row; the first two are its id.
var columns = []string{
	"ns", "k", "state", "claim", "fence", "attempt", "takeovers", "took_over", "ready_at", "expires_at",
	"owner", "fp", "reason", "payload", "has_result", "result",
}

// States are oncepipe.State's numbers. ready_at is the end of the lease, or when
// a waiting record is due; expires_at is when a record may be pruned. Both are
// given and read as distances from now.
const (
	rowText = "({bytes}, ?, ?, ?, ?, ?, ?, ?, {now} + ?, {now} + ?, ?, ?, ?, ?, ?, ?)"

	// What new rows have in common comes first, in ?1 to ?7; rows of several claims
	// have these, and their fingerprints, each its own.
	newText     = " {records} (ns, owner, state, ready_at, expires_at, claim, fp, k, fence, attempt, takeovers, took_over, has_result) VALUES "
	commonText  = "({ns}, ?2, ?3, {ready}, {now} + ?5, "
	newRowText  = commonText + "?, ?, ?, 1, 1, 0, 0, 0)"
	sameRowText = commonText + "?6, ?7, ?, 1, 1, 0, 0, 0)"

	selectText = `SELECT ns, k, state, claim, fence, attempt, takeovers, took_over, ready_at - {now}, expires_at - {now},
		owner, fp, reason, payload, has_result, result FROM `
	listed   = " AND state IN (2, 4, 5)" // as the index says
	listText = selectText + "{records} WHERE state = ?" + listed + " AND (ns > {bytes} OR ns = {bytes} AND k > {bytes}) ORDER BY ns, k LIMIT ?"
	inText   = selectText + "{records} WHERE state = ?" + listed + " AND ns = {bytes} AND k > {bytes} ORDER BY ns, k LIMIT ?"
)

// text returns a statement for n rows.
func (d *dialect) text(which statement, n int) string {
	switch which {
	case insert:
		return d.insert + newText + strings.Join(times(newRowText, n), ", ") + " " + d.ignore
	case insertSame:
		return d.insert + newText + strings.Join(times(sameRowText, n), ", ") + " " + d.ignore
	case insertTell:
		if d.returning == "" {
			return ""
		}
		return d.text(insert, n) + " " + d.returning
	case write:
		sets := make([]string, len(columns)-2)
		for i, col := range columns[2:] {
			sets[i] = col + " = " + strings.ReplaceAll(d.assign, "{col}", col)
		}
		return "INSERT INTO {records} (" + strings.Join(columns, ", ") + ") VALUES " +
			strings.Join(times(rowText, n), ", ") + " " + d.over + " " + strings.Join(sets, ", ")
	case load:
		return selectText + d.given(d.found, n)
	case lock:
		return selectText + d.given(d.locked, n)
	case remove:
		return d.given(d.remove, n)
	case list:
		return listText
	case listIn:
		return inText
	case count:
		return "SELECT state, count(*) FROM {records} GROUP BY state"
	case prune:
		return d.prune
	case overdue:
		return d.overdue
	default:
		return d.writeFirst
	}
}

// given puts placeholders for n ids into text.
func (d *dialect) given(text string, n int) string {
	return strings.ReplaceAll(text, "{ids}", strings.Join(times(d.id, n), d.between))
}

func times(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

// render fills in what the texts leave open.
func (d *dialect) render(text, prefix, clock string) string {
	return d.placed(strings.NewReplacer(
		"{records}", prefix+"records",
		"{meta}", prefix+"meta",
		"{now}", clock,
		"{bytes}", d.bytes,
		"{ready}", strings.ReplaceAll(d.ready, "{now}", clock),
		"{ns}", strings.Replace(d.bytes, "?", "?1", 1),
	).Replace(text))
}

// prepared are the statements of a store. They are prepared when it is opened:
// later, while a transaction holds the only connection, that could wait for ever.
type prepared [statements][sizes]*sql.Stmt

func (p *prepared) prepare(ctx context.Context, db *sql.DB, d *dialect, cfg Config) error {
	for which := range statements {
		for size := range d.sizesOf(which) {
			text := d.text(which, 1<<size)
			if text == "" {
				continue
			}
			stmt, err := db.PrepareContext(ctx, d.render(text, cfg.Prefix, cfg.Clock))
			if err != nil {
				return fmt.Errorf("prepare statement: %w", err)
			}
			p[which][size] = stmt
		}
	}
	return nil
}

// part is how many of n rows the next statement takes, when there are this many
// sizes, and its size.
func part(n, sizes int) (rows, size int) {
	size = min(bits.Len(uint(n)), sizes) - 1
	return 1 << size, size
}

// sizeFor is the smallest size with room for n rows, of which there are at most
// largest.
func sizeFor(n int) int { return bits.Len(uint(n - 1)) }
