// Package redisstore keeps the records of oncepipe in Redis 5 or later. It works
// on a client of the caller's.
//
// Every call is one script and one round trip, however many requests it brings;
// Redis runs a script as a whole, so that a batch is atomic. Leases, backoffs and
// retentions are judged by the clock of the Redis server. A lease is a field of
// its record: no key has a time to live, and nothing goes away by itself. What is
// past its retention is removed by Prune.
//
// # No Tx
//
// An effect can't be in one transaction with a record that is in Redis: a process
// that dies between the two leaves one without the other. There is no Tx here.
// Use oncepipe.Once and hand its token on to a provider that takes idempotency
// keys; where it takes none, Once with AtMostOnce. Where the effect is a write to
// a SQL database, keep the records there, with sqlstore or pgxstore.
//
// # What Redis must not do
//
// A claim that is dropped is an effect that happens twice. Open looks at how the
// server is set up:
//
//   - maxmemory-policy must be noeviction, or one of volatile-…, which drop only
//     keys with a time to live. Else the error is ErrEviction. Where memory is
//     full, Redis then refuses to write: claims fail with an error until there is
//     room, and Prune still works.
//   - appendonly should be yes, or Redis forgets its claims when it ends. Open
//     warns where it is not. With appendfsync everysec, the default, a crash of
//     the machine loses the last second; with always it loses nothing, and each
//     round trip waits for the disk.
//
// Replication is asynchronous: a replica that takes over may lack the last
// claims and completions, and their effects may happen again. Redis has no
// setting that rules this out. WAIT, which this package doesn't use, and
// min-replicas-to-write make it less likely. Where that is not enough, hand keys
// on to a provider that takes them, or use a SQL database. A server that takes
// over judges leases by its own clock: keep the clocks in step.
//
// # Redis Cluster
//
// All keys of a store begin with its prefix in braces, which makes them one hash
// slot, on one node: only so can a script see them together. Several stores with
// different prefixes spread over a cluster. A redis.Ring is refused: it moves keys
// to another server when one is down, where their claims aren't known.
//
// # The client
//
// A call returns when its context ends. The client may go on with the request,
// which arrives or not, for as long as its own timeouts allow.
//
// The client may send a request again when its reply was lost, as its MaxRetries
// says; the store lets it do so with what can be repeated without harm, which is
// all but Resolve, Forget and Prune.
package redisstore
