// Package sqlstore keeps the records of oncepipe in a SQL database, and runs
// effects in the same transaction as the record that says they happened. It
// works on a *sql.DB of the caller's and imports no driver. SQLite is supported.
//
// Tx and TxDo are what the package is for: where the effect is a write to the
// same database, one transaction holds it and its record, and there is nothing
// left to go wrong between them. The Store is an oncepipe.Store as well, for
// effects that are outside.
//
// # SQLite
//
// Use a file in WAL mode. Set busy_timeout or not, as you like: the store tries
// again by itself for Config.BusyTimeout. Leave synchronous at FULL: with
// NORMAL, what was acknowledged in the last moments before a power failure may
// be forgotten, and the sender, who has his acknowledgement, won't send again.
//
// SQLite has one writer at a time. A store never uses more than one connection
// for writing, gathers what its callers want while it writes, and commits once
// for all of them. Other processes may use the file; a store of theirs and this
// one wait for each other.
//
// A transaction of Tx holds that one writer, so fn must not call the store (it
// fails with oncepipe.ErrInTx) and must not write to the database by any other
// way than the transaction it is given: that would wait for itself. With
// SetMaxOpenConns(1) the same is true of reading.
package sqlstore
