package sqlstore

import (
	"strconv"
	"strings"
)

// Dialect is a kind of database.
type Dialect uint8

// The databases that are supported.
const (
	SQLite Dialect = iota
)

// String returns the dialect's name.
func (d Dialect) String() string {
	if int(d) < len(dialects) {
		return dialects[d].name
	}
	return "invalid"
}

// dialect is all that differs between databases.
type dialect struct {
	name string

	// clock is an expression: milliseconds since 1970 by the database's clock. It
	// must not stand still during a transaction that waited for a lock.
	clock string

	// bytes is a placeholder for bytes that may be empty: some drivers make NULL of
	// them.
	bytes string

	// nobody is a claim id that no claim has.
	nobody string

	// ignore ends an INSERT that does nothing where the key is known. An error
	// won't do, since in some databases it spoils the transaction.
	ignore string

	// lock ends a SELECT whose row is going to be written.
	lock string

	// prune deletes the oldest of the rows that are over, at most as many as its
	// one argument says, leaving alone what others have locked.
	prune string

	// oneWriter: transactions that write wait for each other anyway, so that
	// several at a time are only slower.
	oneWriter bool

	// again tells whether a transaction that failed with code is worth repeating:
	// it met a lock, a deadlock or a serialization failure, and was undone.
	again func(code string) bool

	// tableExists selects the number of tables whose name is its argument.
	tableExists string

	schema []string
}

var dialects = [...]*dialect{SQLite: {
	name: "SQLite",
	// The precision of julianday is some 50 µs here, and it is older than
	// unixepoch('subsec').
	clock:     "CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)",
	bytes:     "coalesce(?, x'')",
	nobody:    "x'00'",
	ignore:    "ON CONFLICT DO NOTHING",
	lock:      "", // a transaction that begins with a write has locked all
	prune:     "DELETE FROM {records} WHERE (ns, k) IN (SELECT ns, k FROM {records} WHERE expires_at <= {now} ORDER BY expires_at LIMIT ?)",
	oneWriter: true,
	again: func(code string) bool {
		n, err := strconv.Atoi(code)
		return err == nil && (n&0xff == sqliteBusy || n&0xff == sqliteLocked)
	},
	tableExists: "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
	schema: []string{
		// The key is the table, so that a claim is one insertion into one tree.
		`CREATE TABLE IF NOT EXISTS {records} (
	ns         BLOB NOT NULL,
	k          BLOB NOT NULL,
	state      INTEGER NOT NULL,
	claim      BLOB NOT NULL,
	fence      INTEGER NOT NULL,
	attempt    INTEGER NOT NULL,
	takeovers  INTEGER NOT NULL,
	took_over  INTEGER NOT NULL,
	ready_at   INTEGER,
	expires_at INTEGER,
	owner      TEXT,
	fp         BLOB,
	reason     TEXT,
	payload    BLOB,
	has_result INTEGER NOT NULL,
	result     BLOB,
	PRIMARY KEY (ns, k)
) WITHOUT ROWID`,
		`CREATE INDEX IF NOT EXISTS {records}_expires ON {records} (expires_at) WHERE expires_at IS NOT NULL`,
		`CREATE TABLE IF NOT EXISTS {meta} (
	name  TEXT NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
)`,
	},
}}

// Primary result codes; the extended ones (261, 262, 517, 773) have them in the
// lowest byte.
const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

// statement names a prepared statement.
type statement int

const (
	insertClaimed statement = iota
	insertCompleted
	load
	loadLocked
	acquire
	acquireCompleted
	lapse
	extend
	complete
	setResult
	releaseWaiting
	releaseFailed
	releaseUnknown
	resolveCompleted
	resolveOpen
	forget
	prune
	statements
)

// texts are the statements in a form that every dialect can be made of. States
// are oncepipe.State's numbers.
//
// ready_at is the end of the lease, or when a waiting record is due; expires_at
// is when a record may be pruned, and set in the states that end by themselves.
var texts = [statements]string{
	insertClaimed: `INSERT INTO {records} (ns, k, state, claim, fence, attempt, takeovers, took_over, ready_at, owner, fp, has_result)
		VALUES ({bytes}, ?, 1, ?, 1, 1, 0, 0, {now} + ?, ?, ?, 0) {ignore}`,
	insertCompleted: `INSERT INTO {records} (ns, k, state, claim, fence, attempt, takeovers, took_over, expires_at, fp, has_result)
		VALUES ({bytes}, ?, 3, ?, 1, 1, 0, 0, {now} + ?, ?, 0) {ignore}`,
	load:       loadText,
	loadLocked: loadText + ` {lock}`,
	acquire: `UPDATE {records} SET state = 1, claim = ?, fence = fence + 1, attempt = attempt + 1,
		takeovers = takeovers + ?, took_over = ?, ready_at = {now} + ?, expires_at = NULL, owner = ?
		WHERE {key} AND state = ? AND fence = ?`,
	acquireCompleted: `UPDATE {records} SET state = 3, claim = ?, fence = fence + 1, attempt = attempt + 1,
		takeovers = takeovers + ?, took_over = ?, ready_at = NULL, expires_at = {now} + ?, owner = NULL,
		reason = NULL, payload = NULL
		WHERE {key} AND state = ? AND fence = ?`,
	lapse:  `UPDATE {records} SET state = 5, claim = {nobody}, ready_at = NULL WHERE {key} AND state = 1 AND fence = ?`,
	extend: `UPDATE {records} SET ready_at = {now} + ? WHERE {key} AND claim = ? AND state = 1`,
	complete: `UPDATE {records} SET state = 3, ready_at = NULL, expires_at = {now} + ?, reason = NULL, payload = NULL,
		has_result = ?, result = ? WHERE {key} AND claim = ? AND state = 1`,
	setResult: `UPDATE {records} SET has_result = 1, result = ? WHERE {key} AND claim = ? AND state = 3`,
	releaseWaiting: `UPDATE {records} SET state = 2, ready_at = {now} + ?, expires_at = {now} + ?, attempt = attempt - ?,
		reason = ? WHERE {key} AND claim = ? AND state = 1`,
	releaseFailed: `UPDATE {records} SET state = 4, ready_at = NULL, expires_at = {now} + ?, reason = ?, payload = ?
		WHERE {key} AND claim = ? AND state = 1`,
	releaseUnknown: `UPDATE {records} SET state = 5, ready_at = NULL, reason = ?, payload = ?
		WHERE {key} AND claim = ? AND state = 1`,
	resolveCompleted: `UPDATE {records} SET state = 3, claim = {nobody}, expires_at = {now} + ?, reason = NULL, payload = NULL,
		has_result = ?, result = ? WHERE {key} AND state = 5`,
	resolveOpen: `UPDATE {records} SET state = ?, claim = {nobody}, ready_at = {now}, expires_at = {now} + ?
		WHERE {key} AND state = 5`,
	forget: `DELETE FROM {records} WHERE {key} AND (state <> 1 OR ready_at <= {now} OR ? = 1)`,
	prune:  `{prune}`,
}

const loadText = `SELECT state, claim, fence, attempt, takeovers, took_over, ready_at - {now}, expires_at - {now},
	owner, fp, reason, payload, has_result, result FROM {records} WHERE {key}`

// render fills in what the statements leave open.
func (d *dialect) render(text, prefix, clock string) string {
	return strings.NewReplacer(
		"{records}", prefix+"records",
		"{meta}", prefix+"meta",
		"{now}", clock,
		"{key}", "ns = "+d.bytes+" AND k = ?",
		"{bytes}", d.bytes,
		"{nobody}", d.nobody,
		"{ignore}", d.ignore,
		"{lock}", d.lock,
	).Replace(strings.ReplaceAll(text, "{prune}", d.prune))
}
