// Package oncetest checks what has to be safe in a world that delivers at least
// once, for those who write such things:
//
//   - [Handler]: that a handler's effects happen once, whatever comes between its
//     steps. What it finds is told as a short story. [Kill] does the same with real
//     processes and kill -9.
//   - [Keys] and [JSONKeys]: that a key function names the effect, all of it and
//     nothing else.
//   - [Store]: that a store keeps the contract of oncepipe.Store.
//   - [Source]: that an adapter settles, returns, and drains as a pipeline relies on.
//   - [Retry]: that a retry policy obeys the laws of retries.
//
// Each is a pair: X(t, …) for go test, and CheckX(…) error for other frameworks and
// for programs. All but Kill run in synctest bubbles, with a fake clock, unless told
// otherwise.
//
// And there are parts to build tests of one's own with: [Broker] is a message
// broker in memory, [FaultStore] a store that fails on demand, [StepStore] a store whose
// every call is a step, [StepDB] a database/sql whose statements and commits are.
//
// Package oncetest/rapidtest has some of it as properties for pgregory.net/rapid.
package oncetest
