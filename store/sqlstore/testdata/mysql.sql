CREATE TABLE IF NOT EXISTS oncepipe_records (
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
	KEY oncepipe_records_expires (expires_at),
	KEY oncepipe_records_listed (state)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS oncepipe_meta (
	name  VARCHAR(100) NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO oncepipe_meta (name, value) VALUES ('schema', 1) ;
INSERT IGNORE INTO oncepipe_meta (name, value) VALUES ('keys', 1) ;
