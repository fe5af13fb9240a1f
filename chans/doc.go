// Package chans is core.async on plain channels: what Go's channels lack of it,
// generic, with no dependency, and with its sharp edges taken off.
//
// # What is not here
//
// Where a construct of Go is the whole answer, there is no wrapper. A channel is
// make(chan T, n), a fixed buffer its n. Alternatives that are known when the
// program is written are select; a go block is a goroutine, and a wait for it is
// sync.WaitGroup or errgroup. Taking all values is range. A timeout is time.After,
// or a context with a deadline. Who no longer wants values ends a context: in Go a
// receiver never closes a channel.
//
// # Shape
//
// All functions follow the same few rules.
//
//   - They work in the goroutine that calls them and return when they are done. Run
//     them with errgroup, or with [Go], which makes a channel and a wait function of
//     one. What they start in addition has ended when they return.
//   - Their first parameter is the context that stops them. Its cause is the error
//     they return, and they take nothing more once it has ended (PipeThrough and
//     Transduce up to 31 values that are ready, for speed).
//   - Destination first, then source, as in io.Copy. They close no channel that they
//     did not make: whether a destination is closed afterwards is the caller's choice,
//     mostly defer close(to).
//   - What was taken from a source and could not be delivered is handed back in an
//     [Unsent] error.
//   - What a user's function returns or panics with is an [ItemError] with the value
//     that it met; a panic in it is a [PanicError] with its stack. It ends the
//     function, which returns it, unless [Rescue] or [RescueFunc] decides otherwise.
//   - A number that makes no sense (no workers, a group of 0) is a mistake in the
//     program and panics at the call.
//
// # Words
//
//   - Put, take: send to and receive from a channel. [Send] and [Receive] wait no
//     longer than a context lives; [Offer] and [Poll] don't wait.
//   - Tap, subscriber, input: what [Mult] and [Pub] give values to and [Mix] takes
//     them from. They come and go while it runs.
//   - Lossy: a channel with a buffer that sheds instead of making the writer wait:
//     [Dropping] sheds the newest value, [Sliding] the oldest. What is shed is counted.
//   - Promise: one value for everyone who asks, now or later.
//   - Transducer: a step from values to values that knows nothing of where they come
//     from ([Xform]). Steps are joined by [Compose] and used on channels
//     ([PipeThrough], [Transduce]), on sequences ([Seq]), and on whatever has a
//     [Driver].
//   - Run: one use of a transducer. All state is the run's: a transducer can be used
//     many times, also at the same time.
//   - Kept: a value is kept by a step that gives it on later, as part of a group.
//     Until that group has been taken, the value is not done: if the group fails, it
//     counts as never seen ([Distinct]).
//
// # Reading the code
//
// put.go (the smallest functions), buffer.go and promise.go (what stands between
// goroutines), errors.go (what comes back), start.go (channels with a wait
// function), xform.go (transducers, how they are joined), run.go (one use of them,
// and values that are kept), steps.go, distinct.go, partition.go and rescue.go (the
// steps), driver.go (how a run is driven), through.go (on channels and sequences),
// pipe.go, pipeline.go, merge.go and reduce.go (flow), alts.go (a choice among
// channels that are known at run time only), gate.go, mult.go, pub.go and mix.go with
// their like (fan-out and fan-in that change while they run).
//
// docs/core-async.md has every function and every behaviour of core.async beside
// what is here.
package chans
