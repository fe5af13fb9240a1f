// Package sqlstore keeps the records of oncepipe in a SQL database, and runs
// effects in the same transaction as the record that says they happened. It
// works on a *sql.DB of the caller's and imports no driver. SQLite, PostgreSQL
// and MariaDB or MySQL are supported; for PostgreSQL, package pgxstore needs fewer
// round trips, and works on the same tables.
//
// Tx and its like are what the package is for: where the effect is a write to
// the same database, one transaction holds it and its record, and there is nothing
// left to go wrong between them. TxBatch does that for many items at once. The
// Store is an oncepipe.Store as well, for effects that are outside.
//
// # Commits
//
// Callers who claim, complete or release at the same time are gathered: one of
// them commits for all. The functions that Tx makes have a transaction each,
// unless TxConfig.Shared lets them be gathered, too. Nothing runs in between: a
// lone caller waits for nobody.
//
// A call that meets another transaction (a lock, a deadlock, a serialization
// failure) is repeated for Config.BusyTimeout. Any level of isolation will do.
// Inside of fn, the store and other Tx functions on the same *sql.DB fail with
// oncepipe.ErrInTx, if they get fn's context: they might wait for fn itself. A
// pool of one connection (SetMaxOpenConns(1)) is enough; but then fn must not
// use the *sql.DB beside its transaction either.
//
// # SQLite
//
// Use a file in WAL mode, and SQLite 3.35 or later. Set busy_timeout or not, as
// you like. Leave synchronous at FULL: with NORMAL, what was acknowledged in the
// last moments before a power failure may be forgotten, and the sender, who has
// his acknowledgement, won't send again.
//
// SQLite has one writer at a time. A store never uses more than one connection
// for writing. Other processes may use the file; a store of theirs and this one
// wait for each other. A transaction of Tx holds that one writer, so fn must not
// write to the database by any other way than the transaction it is given.
//
// # PostgreSQL
//
// Version 12 or later. Leave synchronous_commit on, for the same reason.
//
// # MariaDB and MySQL
//
// MariaDB 10.6 or later, or MySQL 8.0 or later, with InnoDB and
// innodb_flush_log_at_trx_commit at 1. The key columns are binary: no collation
// makes two keys equal. Results and payloads are limited by max_allowed_packet.
// Set timeout, readTimeout and writeTimeout in the data source name: without them
// the driver waits for ever for a server that doesn't answer, whatever the
// context says, with a goroutine and a connection. The store goes on with others.
package sqlstore
