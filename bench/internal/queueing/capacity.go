package queueing

import (
	"math"
	"time"
)

// CompletedKeys is how many keys a memory of completed keys needs that is asked
// and filled by the worker. A key is forgotten too early when that many others
// are completed between its own end and its last copy's turn. The last copy was
// sent before the key's end, so it stands in the system then, and no more can
// come before it than there are places: buffer, workers, the source's hand.
//
// That holds where copies keep their order. In a stage that retries, all the
// others pass a copy that waits out its backoff, and no number of places bounds
// them.
//
// It closes the late window only. Two copies that are worked on at the same time
// are not seen by such a memory of any size.
func CompletedKeys(s System) int { return s.Buffer + s.Workers + 1 }

// AckedKeys is how many completed keys Dedup's guard needs when acks are lost. A
// copy then comes when the key is done, at most that many timeouts after the
// delivery before.
//
// One timeout is enough for a guard that takes a lookup for a use (LRU). One that
// does not (Ring) has to bridge as many as acks are lost in a row. Neither number
// covers copies that Dedup returns; see [MostCopies].
func AckedKeys(s System, timeouts int) int {
	return KeysWithin(s, time.Duration(timeouts)*s.Timeout)
}

// KeysWithin is how many completed keys a guard needs that has to know each for
// that long: rate × span, at the highest rate, which is the workers'; six standard
// deviations; and what is in flight at its end.
func KeysWithin(s System, span time.Duration) int {
	mean := float64(s.Workers) * float64(span) / float64(s.Service)
	return int(math.Ceil(mean+6*math.Sqrt(mean))) + s.Buffer + s.Workers + 1
}

// Longest is a time that hardly a key in a full system exceeds, from when the
// source has it in its hand to its ack: one in a thousand million.
func Longest(s System) time.Duration {
	m := newModel(s)
	// The hand waits for one departure. Workers that all end at the same moment
	// make a key wait for one service more.
	longest := 3 + float64(m.buffer)/m.workers
	if m.exponential {
		longest += 6*math.Sqrt(float64(m.buffer))/m.workers + math.Log(1e9)
	}
	return time.Duration(longest * float64(s.Service))
}

// MostCopies is how many copies of one key, and of all keys, can wait at once for
// first copies that take at most stay each, when that many keys are in flight.
// Where that is more than Dedup's JoinLimit, it returns copies, and they come again
// when JoinLimit's wait is over, however long the key has been done.
func MostCopies(s System, keys int, stay time.Duration) (perKey, total int) {
	perKey = int(stay / s.Timeout)
	return perKey, perKey * keys
}
