package sqlstore

import (
	"slices"
	"strconv"
	"strings"
)

// Dialect is a kind of database.
type Dialect uint8

// The databases that are supported.
const (
	SQLite     Dialect = iota // 3.35 or later
	PostgreSQL                // 12 or later
	MySQL                     // MySQL 8.0 or later, MariaDB 10.6 or later
)

// String returns the dialect's name.
func (d Dialect) String() string {
	if int(d) < len(dialects) {
		return dialects[d].name
	}
	return "invalid"
}

// places is the form of placeholders.
type places uint8

const (
	mixed   places = iota // ? and ?1
	dollars               // $1, $2, …
	inOrder               // ? alone: an argument that occurs twice is given twice
)

// dialect is all that differs between databases.
type dialect struct {
	name string

	// clock is an expression: milliseconds since 1970 by the database's clock.
	clock string

	// ready is the clock and argument 4, which may be NULL.
	ready string

	// bytes is a placeholder for bytes that may be empty: some drivers make NULL of
	// them.
	bytes string

	places places

	// insert and ignore surround an insertion that does nothing where the key is
	// known. An error won't do, since in some databases it spoils the transaction.
	insert, ignore string

	// returning makes an insertion tell which keys were new; empty where the
	// database can't, or where it is cheaper to look first.
	returning string

	// over makes an insertion write over the row that is there; assign is how one of
	// its columns then gets the new value.
	over, assign string

	// writeSizes is for how many sizes such statements are prepared: drivers of
	// SQLite look for an argument among all of them, which gets slow with many.
	writeSizes int

	// found and locked end a SELECT of the rows with some ids, the second of rows that
	// are going to be written, in the order of the ids; remove deletes them. id is
	// what stands there for an id, and between for what is between two. They have to go
	// by the primary key, whatever the database believes to know of the table: else
	// they take long, and wait for rows that they don't mean.
	found, locked, remove, id, between string

	// removeEach: rows are deleted one by one, since the database makes a walk
	// through all of them of a DELETE of some.
	removeEach bool

	// writeFirst makes a transaction a writing one, where one that begins with a
	// look can't become that after somebody else has written.
	writeFirst string

	// prune deletes the oldest of the rows that are over, at most as many as its
	// one argument says, leaving alone what others have locked. Where the database
	// can't do that in one statement, overdue selects their ids to be deleted.
	prune, overdue string

	// oneWriter: transactions that write wait for each other anyway, so that
	// several at a time are only slower.
	oneWriter bool

	// slowCommit: drivers don't let a commit be given up.
	slowCommit bool

	// again tells whether a transaction that failed with code is worth repeating:
	// it met a lock, a deadlock or a serialization failure, and was undone.
	again func(code string) bool

	// tableExists selects the number of tables whose name is its argument.
	tableExists string

	// migrateLock keeps other processes from making the tables at the same time.
	migrateLock string

	schema []string
}

var dialects = [...]*dialect{SQLite: sqlite, PostgreSQL: postgres, MySQL: mysql}

var sqlite = &dialect{
	name: "SQLite",
	// The precision of julianday is some 50 µs here, and it is older than
	// unixepoch('subsec').
	clock:       "CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)",
	ready:       "CASE WHEN ?4 IS NULL THEN NULL ELSE {now} + ?4 END", // the clock costs something
	bytes:       "coalesce(?, x'')",
	insert:      "INSERT INTO",
	ignore:      "ON CONFLICT DO NOTHING",
	over:        "ON CONFLICT (ns, k) DO UPDATE SET",
	assign:      "excluded.{col}",
	writeSizes:  4,
	found:       "{records} WHERE (ns, k) IN (VALUES {ids})",
	locked:      "{records} WHERE (ns, k) IN (VALUES {ids})", // all is, by then
	remove:      "DELETE FROM {records} WHERE (ns, k) IN (VALUES {ids})",
	id:          "({bytes}, ?)",
	between:     ", ",
	writeFirst:  "DELETE FROM {meta} WHERE name = ''",
	prune:       "DELETE FROM {records} WHERE (ns, k) IN (SELECT ns, k FROM {records} WHERE expires_at <= {now} ORDER BY expires_at LIMIT ?)",
	oneWriter:   true,
	tableExists: "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
	again: func(code string) bool {
		n, err := strconv.Atoi(code)
		return err == nil && (n&0xff == sqliteBusy || n&0xff == sqliteLocked)
	},
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
		`CREATE INDEX IF NOT EXISTS {records}_listed ON {records} (state, ns, k) WHERE state IN (2, 4, 5)`,
		`CREATE TABLE IF NOT EXISTS {meta} (
	name  TEXT NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
)`,
	},
}

// Primary result codes; the extended ones (261, 262, 517, 773) have them in the
// lowest byte.
const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

// postgresIDs makes rows of ids. OFFSET and FOR UPDATE keep the planner, which
// knows nothing of a table that is new, from joining them to all of it.
const postgresIDs = "(VALUES {ids}) AS id (n, i) CROSS JOIN LATERAL "

var postgres = &dialect{
	name:       "PostgreSQL",
	clock:      "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
	ready:      "{now} + ?4",
	bytes:      "?",
	places:     dollars,
	insert:     "INSERT INTO",
	ignore:     "ON CONFLICT DO NOTHING",
	returning:  "RETURNING ns, k",
	over:       "ON CONFLICT (ns, k) DO UPDATE SET",
	assign:     "excluded.{col}",
	writeSizes: sizes,
	found:      postgresIDs + "(SELECT * FROM {records} WHERE ns = n AND k = i OFFSET 0) AS r",
	locked:     postgresIDs + "(SELECT * FROM {records} WHERE ns = n AND k = i FOR UPDATE) AS r",
	remove: "DELETE FROM {records} WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM " + postgresIDs +
		"(SELECT ctid FROM {records} WHERE ns = n AND k = i FOR UPDATE) AS r))",
	id:      "(?::bytea, ?::bytea)",
	between: ", ",
	// The array is made once, so that its limit is the statement's.
	prune: `DELETE FROM {records} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {records} WHERE expires_at <= {now}
		ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED))`,
	tableExists: "SELECT CASE WHEN to_regclass(?) IS NULL THEN 0 ELSE 1 END",
	migrateLock: "SELECT pg_advisory_xact_lock(hashtext('{records}'))",
	again: func(code string) bool {
		// serialization_failure, deadlock_detected, lock_not_available
		return slices.Contains([]string{"40001", "40P01", "55P03"}, code)
	},
	schema: []string{
		`CREATE TABLE IF NOT EXISTS {records} (
	ns         bytea NOT NULL,
	k          bytea NOT NULL,
	state      smallint NOT NULL,
	claim      bytea NOT NULL,
	fence      bigint NOT NULL,
	attempt    integer NOT NULL,
	takeovers  integer NOT NULL,
	took_over  smallint NOT NULL,
	ready_at   bigint,
	expires_at bigint,
	owner      text,
	fp         bytea,
	reason     text,
	payload    bytea,
	has_result smallint NOT NULL,
	result     bytea,
	PRIMARY KEY (ns, k)
)`,
		`CREATE INDEX IF NOT EXISTS {records}_expires ON {records} (expires_at) WHERE expires_at IS NOT NULL`,
		`CREATE INDEX IF NOT EXISTS {records}_listed ON {records} (state, ns, k) WHERE state IN (2, 4, 5)`,
		`CREATE TABLE IF NOT EXISTS {meta} (
	name  text NOT NULL PRIMARY KEY,
	value integer NOT NULL
)`,
	},
}

var mysql = &dialect{
	name:   "MySQL",
	places: inOrder,
	// UTC, since an hour of the local time comes twice a year.
	clock:      "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
	ready:      "{now} + ?4",
	bytes:      "?",
	insert:     "INSERT IGNORE INTO",
	over:       "ON DUPLICATE KEY UPDATE",
	assign:     "VALUES({col})",
	writeSizes: sizes,
	found:      "{records} FORCE INDEX (PRIMARY) WHERE {ids}",
	locked:     "{records} FORCE INDEX (PRIMARY) WHERE {ids} ORDER BY ns, k FOR UPDATE",
	remove:     "DELETE FROM {records} WHERE {ids}",
	id:         "ns = ? AND k = ?",
	between:    " OR ",
	removeEach: true,
	slowCommit: true,
	overdue: `SELECT ns, k FROM {records} WHERE expires_at <= {now}
		ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED`,
	tableExists: "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
	again: func(code string) bool {
		// deadlock, lock wait timeout, record changed since last read (MariaDB)
		return slices.Contains([]string{"1213", "1205", "1020"}, code)
	},
	schema: []string{
		// Binary columns are compared byte by byte and without padding. A secondary
		// index holds the primary key, and so its order.
		`CREATE TABLE IF NOT EXISTS {records} (
	ns         VARBINARY(255) NOT NULL,
	k          VARBINARY(255) NOT NULL,
	state      TINYINT NOT NULL,
	claim      VARBINARY(16) NOT NULL,
	fence      BIGINT NOT NULL,
	attempt    INT NOT NULL,
	takeovers  INT NOT NULL,
	took_over  TINYINT NOT NULL,
	ready_at   BIGINT,
	expires_at BIGINT,
	owner      MEDIUMTEXT CHARACTER SET utf8mb4,
	fp         MEDIUMBLOB,
	reason     MEDIUMTEXT CHARACTER SET utf8mb4,
	payload    LONGBLOB,
	has_result TINYINT NOT NULL,
	result     LONGBLOB,
	PRIMARY KEY (ns, k),
	KEY {records}_expires (expires_at),
	KEY {records}_listed (state)
) ENGINE = InnoDB`,
		`CREATE TABLE IF NOT EXISTS {meta} (
	name  VARCHAR(100) NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
) ENGINE = InnoDB`,
	},
}

// placed makes the dialect's own of the placeholders in text: ?1 is the first
// argument wherever it stands, and ? the one behind the last that was seen. No
// text of ours has a question mark that is not a placeholder.
func (d *dialect) placed(text string) string {
	if d.places == mixed {
		return text
	}
	var b strings.Builder
	last := 0
	for {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		rest := strings.TrimLeft(after, "0123456789")
		number := after[:len(after)-len(rest)]
		n, err := strconv.Atoi(number)
		if err != nil {
			n = last + 1
		}
		last = max(last, n)
		switch d.places {
		case dollars:
			b.WriteString("$" + strconv.Itoa(n))
		default:
			b.WriteString("?")
		}
		text = rest
	}
}
