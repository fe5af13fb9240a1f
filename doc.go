// Package oncepipe is a worker pipeline inside a Go process: typed stages joined
// by bounded queues, in which a failed item is parked for a backoff and run
// again with the same key, a duplicate is recognised before it can act twice,
// and every delivery ends with one outcome that is counted and told to its source.
//
// A pipeline is a graph that is known before it runs. New makes it; From,
// FromChan and FromSeq begin a stream; Map, Filter, Dedup, Stage and others
// continue it; Sink or Discard end it. Nothing starts before [Pipeline.Run].
// The package example shows all of it.
//
// # Words
//
//   - Item: a value on its way, with its key and its delivery.
//   - Delivery: one hand-over of a value by a source. It is settled exactly once.
//   - Key: the identity of the effect, the same for every retry and every
//     redelivery. It is never random and never a clock.
//   - Attempt: one run of a stage's function for an item: 1, 2, 3 and so on.
//   - Parked: waiting out a backoff. A parked item holds a slot and no worker.
//   - Slot: the right to be inside a stage: running, parked or due. A stage has a
//     fixed number of them.
//   - In flight: the keys that are running, buffered or parked behind a Dedup. The
//     table of them is exact and evicts nothing.
//   - Guard: memory of keys whose effect is committed. It may forget; it never
//     knows more than the truth.
//   - Store: the durable record of keys, behind the guard.
//   - Claim, lease: a process's right to act on a key, and how long it lasts.
//   - Outcome: what became of a delivery: done, duplicate, filtered, shed, dead or
//     returned.
//   - Dead letter: an item that was given up, with the reason, kept for a person.
//
// # Promises
//
//  1. Nothing is lost. A source hears Done only after every stage returned success,
//     Duplicate only when the key is known to be done, and Dead only when the dead
//     letter was written. What is left goes back to its source, or stands in Run's
//     error.
//  2. Nothing acts twice where the effect is in a database that the store holds a
//     transaction on (Tx of store/sqlstore and store/pgxstore): one effect for each key, however many
//     copies, retries, processes and kills there are.
//  3. Where the effect is outside, Once runs the function always with the same key
//     to hand on, and never twice at the same time, as long as it heeds its context.
//     Should the process die between the effect and its record, the function runs
//     again, or with OnceConfig.AtMostOnce somebody is asked.
//  4. Nothing grows without bound. Buffers, slots, waiting copies and guards have
//     limits; at the limit there is back-pressure up to the source.
//  5. Nothing blocks for ever. A retry never waits for a place in a channel that
//     only its own stage drains.
//  6. Nothing is hidden. At the end, admitted = done + duplicate + filtered + shed +
//     dead + returned; see [Stats.Conserved].
//  7. When Run returns, every goroutine has ended, except for handlers and sources
//     that ignore their context. Those are named in an [AbandonedError].
//
// The file docs/guarantees.md says for each fault what becomes of the item, and
// which test shows it.
//
// # Reading the code
//
// One file holds one subject. In this order: source.go and outcome.go (what comes
// in, what goes back), sourcenode.go, delivery.go (settlement), pipeline.go and runerror.go (Run and the drain),
// options.go, info.go (what a handler can know), stream.go and fanout.go (inline operators), buffer.go and queue.go (what stands
// between stages), stage.go and worker.go (how an item runs), failure.go and
// retry.go (what becomes of one that failed, the lane of parked items), batch.go and
// batcher.go (many at once), transduce*.go (steps with a memory), sequence.go (order), dedup*.go and guard*.go (duplicates), claim.go
// (the right to a key behind a Dedup with a store), key.go (keys), store.go (the
// contract), stores.go (what a pipeline does for its stores), once.go and lease.go
// (effects outside), tx.go (effects inside), errors.go, deadletter.go, letters.go and
// redriven.go (dead letters in a store, and their way back), ack.go and observe.go.
// docs/decisions.md says why it is as it is.
package oncepipe
