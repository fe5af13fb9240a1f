// Package queueing is the theory of the duplicate window: what a buffer does to a
// sender that loses its patience.
//
// # The model
//
// New keys come at random (Poisson) with rate λ = Load·W/s. There are W workers
// and B places in front of them. A service takes s, always or on average
// (exponential). When the source has handed a copy over, the sender's clock
// starts; without an ack after T it sends the key again, and so on. What is due
// again is sent before new keys. Nothing guards the effect: each copy is worked
// on. When all K = B + W places are taken, the source holds one more in its hand
// and the others wait outside, where no clock runs.
//
// # One key
//
// A key that finds n copies waits for n-W+1 departures. While all workers are
// busy these are s/W apart, always or on average. So the time to its ack is about
//
//	S(n) = s + (n-W+1)·s/W,
//
// and with exponential services an Erlang time plus a service. In a full system
// S = s + B·s/W. It exceeds T if B > B* = W·(T/s − 1) ([BStar]). A key is sent
// again at each multiple of T before its ack: k(n) = Σ P(S(n) > j·T) times.
//
// # The full system
//
// There a copy that is due goes into the hand at the next departure, in front of
// new keys, and is taken at the departure after that. With fixed services this is
// a matter of counting: copies of a key are ⌈W·T/s⌉ + 1 departures apart, so
//
//	k = the number of j ≥ 1 with j·(⌈W·T/s⌉ + 1) − 1 < B + W.
//
// With exponential services the wait of those that are due counts too. Unacked
// keys go round between the clock, which takes T, and the departures; a departure
// is left to a new key when nobody is due. By Erlang's loss formula that fixes the
// number of unacked keys, and Little's law the time of a round. Copies come in the
// rhythm of the departures of T ago; where the present ones lag behind that, which
// is by E max(0, √(W·T/s)·Z) = √(W·T/(2π·s)) departures on average, copies wait that
// much longer ([FullSystem]).
//
// # Feedback
//
// Each new key brings k copies, so that the system's real load is Load·(1+k). If
// that is above 1 while it is full, it stays full for good: a second, collapsed
// equilibrium beside the normal one. The smallest B that has it is [Collapse]. For
// loads of more than 1/2 one copy is enough, and that is the first place beyond
// B*; at 1/2 it takes two, which come near 2B*+W.
//
// # The chain
//
// Take N, the number in the system, those outside included. Below K it grows with
// λ·(1 + r(N)), where r counts the copies that are sent now for each new key, and
// falls with min(N, W)/s. From K on what copies leave goes to new keys: growth
// λ + (W/s)·k/(1+k), fall W/s. This birth-death chain is exact in its means for
// exponential services. For fixed ones its two rates are chosen such that their
// difference is right and their quotient is the decay of M/D/c's tail, the z with
// ρ(z−1) = ln z ([WithoutFeedback] solves that system exactly, by Crommelin's
// chain).
//
// The copies that are sent now belong to keys of T ago, when the system was another
// one. Hence r(n) = P(late T ago | N = n now) + (k(n) − P(S(n) > T)): the chain is
// run for T from the part of its distribution that is late, and from all of it, and
// the quotient is taken. Later copies come in a system that is collapsing anyway.
//
// # A run
//
// A metastable system never gets to its stationary distribution in a run; that
// would be collapse, always. So [Predict] solves the chain's equations forward
// from the start of the run, by implicit steps. Its clock counts keys that are
// taken, not seconds, since a share of keys is what is asked for: P = mean of
// P(S(N) > T) over the counted keys, and likewise the others.
//
// # Where it ends
//
// N alone is the state: of the history only its mean is known. It matters where a
// run may or may not jump into collapse, since that is a rare event that hangs on
// one excursion of the queue and on the copies it causes. [Caveat] says it in
// words, and [Prediction.Spread] how far apart runs are.
package queueing
