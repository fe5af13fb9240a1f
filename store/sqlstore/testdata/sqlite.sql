CREATE TABLE IF NOT EXISTS oncepipe_records (
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
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS oncepipe_records_expires ON oncepipe_records (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS oncepipe_records_listed ON oncepipe_records (state, ns, k) WHERE state IN (2, 4, 5);
CREATE TABLE IF NOT EXISTS oncepipe_meta (
	name  TEXT NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
);
INSERT INTO oncepipe_meta (name, value) VALUES ('schema', 1) ON CONFLICT DO NOTHING;
INSERT INTO oncepipe_meta (name, value) VALUES ('keys', 1) ON CONFLICT DO NOTHING;
