package oncepipe

import (
	"fmt"
	"math"
)

// Guard remembers keys whose effect is committed, so that a duplicate of them
// needs no question to the store. It may forget; it must never know more than
// the truth. Of a guard with capacity C the newest C keys are really there. It
// has no clock: how long a store keeps its records is nothing to it.
// It is safe for concurrent use.
type Guard interface {
	// Lookup tells whether key is known, and whether with this fingerprint. An
	// empty fingerprint, here or at Add, matches any.
	Lookup(key, fingerprint string) GuardAnswer

	// Add remembers a committed key as the newest one; when it is known already,
	// its fingerprint is replaced.
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

var guardAnswerNames = [...]string{"miss", "hit", "mismatch"}

// String returns the answer's name.
func (a GuardAnswer) String() string {
	if int(a) < len(guardAnswerNames) {
		return guardAnswerNames[a]
	}
	return "invalid"
}

// compareFingerprints is the answer for a known key. T is string, or a hash of
// one; its zero value is the empty fingerprint.
func compareFingerprints[T comparable](known, asked T) GuardAnswer {
	var none T
	if known == asked || known == none || asked == none {
		return GuardHit
	}
	return GuardMismatch
}

// checkGuardCapacity panics on behalf of the constructor name: a capacity that
// no guard can have is an error of the program.
func checkGuardCapacity(name string, capacity int) {
	if capacity < 1 || capacity > math.MaxInt32 {
		panic(fmt.Sprintf("oncepipe: %s(%d): capacity must be from 1 to %d", name, capacity, math.MaxInt32))
	}
}
