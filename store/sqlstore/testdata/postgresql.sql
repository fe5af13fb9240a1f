CREATE TABLE IF NOT EXISTS oncepipe_records (
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
);
CREATE INDEX IF NOT EXISTS oncepipe_records_expires ON oncepipe_records (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS oncepipe_records_listed ON oncepipe_records (state, ns, k) WHERE state IN (2, 4, 5);
CREATE TABLE IF NOT EXISTS oncepipe_meta (
	name  text NOT NULL PRIMARY KEY,
	value integer NOT NULL
);
INSERT INTO oncepipe_meta (name, value) VALUES ('schema', 1) ON CONFLICT DO NOTHING;
INSERT INTO oncepipe_meta (name, value) VALUES ('keys', 1) ON CONFLICT DO NOTHING;
