package pgxstore

import "strings"

// The statements take arrays, so that one does for any number of rows. States
// are oncepipe.State's numbers. ready_at is the end of the lease, or when a
// waiting record is due; expires_at is when a record may be pruned. Both are
// given and read as distances from now.
const (
	columns = "ns, k, state, claim, fence, attempt, takeovers, took_over, ready_at, expires_at, owner, fp, reason, payload, has_result, result"

	// Rows are inserted and locked in the order of their ids, as everybody does.
	insertText = `INSERT INTO {records} (` + columns + `)
		SELECT ns, k, state, claim, fence, attempt, takeovers, took_over, {now} + ready_at, {now} + expires_at,
			owner, fp, reason, payload, has_result, result
		FROM unnest($1::bytea[], $2::bytea[], $3::smallint[], $4::bytea[], $5::bigint[], $6::integer[], $7::integer[], $8::smallint[],
			$9::bigint[], $10::bigint[], $11::text[], $12::bytea[], $13::text[], $14::bytea[], $15::smallint[], $16::bytea[])
			AS given (` + columns + `)
		ORDER BY ns, k `
	insertNew = insertText + ifNew
	overwrite = insertText + `ON CONFLICT (ns, k) DO UPDATE SET
		state = excluded.state, claim = excluded.claim, fence = excluded.fence, attempt = excluded.attempt,
		takeovers = excluded.takeovers, took_over = excluded.took_over, ready_at = excluded.ready_at,
		expires_at = excluded.expires_at, owner = excluded.owner, fp = excluded.fp, reason = excluded.reason,
		payload = excluded.payload, has_result = excluded.has_result, result = excluded.result`

	// Records that are new are mostly alike: see insertions. Reading the clock once
	// for all makes no lease longer than its owner believes, who counts from when he asked.
	insertFresh = `INSERT INTO {records}
			(ns, k, state, claim, fence, attempt, takeovers, took_over, ready_at, expires_at, owner, fp, has_result)
		SELECT $1::bytea, k, $2::smallint, claim, 1, 1, 0, 0, (SELECT {now}) + $3::bigint, (SELECT {now}) + $4::bigint, $5::text, fp, 0
		FROM unnest($6::bytea[], $7::bytea[], $8::bytea[]) AS given (k, claim, fp)
		ORDER BY k ` + ifNew

	ifNew     = "ON CONFLICT DO NOTHING"
	returning = " RETURNING ns, k" // behind an insertion: which were new

	selectText = `SELECT ns, k, state, claim, fence, attempt, takeovers, took_over, ready_at - {now}, expires_at - {now},
		owner, fp, reason, payload, has_result, result FROM `

	// The planner knows nothing of what is in an array, nor of a table that is new,
	// and would rather join the two than look rows up: OFFSET 0 and FOR UPDATE keep
	// it from that. Where it sees the size of an array, it makes a new plan for each
	// call. A DELETE goes by the places of rows; the rows in an ARRAY are looked for
	// once, so that a LIMIT is one.
	givenText = `(SELECT n, i FROM (SELECT $1::bytea[] AS ns, $2::bytea[] AS ks OFFSET 0) AS ids
		CROSS JOIN LATERAL unnest(ids.ns, ids.ks) AS id (n, i) ORDER BY n, i) AS given CROSS JOIN LATERAL `
	loadText   = selectText + givenText + "(SELECT * FROM {records} WHERE ns = n AND k = i OFFSET 0) AS r"
	lockText   = selectText + givenText + "(SELECT * FROM {records} WHERE ns = n AND k = i FOR UPDATE) AS r"
	removeText = "DELETE FROM {records} WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM " + givenText +
		"(SELECT ctid FROM {records} WHERE ns = n AND k = i FOR UPDATE) AS r))"
	pruneText = `DELETE FROM {records} WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM {records} WHERE expires_at <= {now} ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))`

	// The states are those of the index, which a plan for any $1 could not use.
	listText = selectText + `{records} WHERE state = $1 AND state IN (2, 4, 5) AND (ns, k) > ($2::bytea, $3::bytea) ORDER BY ns, k LIMIT $4`
	inText   = selectText + `{records} WHERE state = $1 AND state IN (2, 4, 5) AND ns = $2::bytea AND k > $3::bytea ORDER BY ns, k LIMIT $4`

	countText = "SELECT state, count(*) FROM {records} GROUP BY state"
)

// statements are the texts with all names filled in.
type statements struct {
	insert, insertFresh, write, load, lock, remove, list, listIn, count, prune string
}

func (c Config) statements() statements {
	return statements{
		insert:      c.render(insertNew),
		insertFresh: c.render(insertFresh),
		write:       c.render(overwrite),
		load:        c.render(loadText),
		lock:        c.render(lockText),
		remove:      c.render(removeText),
		list:        c.render(listText),
		listIn:      c.render(inText),
		count:       c.render(countText),
		prune:       c.render(pruneText),
	}
}

// render fills in what the texts leave open.
func (c Config) render(text string) string {
	return strings.NewReplacer("{records}", c.Prefix+"records", "{meta}", c.Prefix+"meta", "{now}", c.Clock).Replace(text)
}
