package oncepipe

// Guard remembers keys whose effect is committed, so that a duplicate of them
// needs no question to the store. It may forget; it must never know more than
// the truth. Of a guard with capacity C the newest C keys are really there.
// It is safe for concurrent use.
type Guard interface {
	// Lookup tells whether key is known, and whether with this fingerprint. An
	// empty fingerprint, here or at Add, matches any.
	Lookup(key, fingerprint string) GuardAnswer

	// Add remembers a committed key; when it is known already, its fingerprint is
	// replaced.
	Add(key, fingerprint string)

	// Remove forgets key.
	Remove(key string)

	// Len is the number of keys that are known.
	Len() int
}

// GuardAnswer is what a Guard knows of a key.
type GuardAnswer uint8

// What a Guard can know of a key.
const (
	GuardMiss     GuardAnswer = iota // not known: ask the store
	GuardHit                         // committed
	GuardMismatch                    // committed with another fingerprint
)
