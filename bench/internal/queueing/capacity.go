package queueing

import "math"

// CompletedKeys is how many keys a memory of completed keys needs that is asked
// and filled by the worker. A key is forgotten too early when that many others
// are completed between its own end and its last copy's turn. The last copy was
// sent before the key's end, so it stands in the system then, and no more can
// come before it than there are places: buffer, workers, the source's hand, and
// the slots of a stage that retries.
//
// It closes the late window only. Two copies that are worked on at the same time
// are not seen by such a memory of any size.
func CompletedKeys(s System, slots int) int { return s.Buffer + s.Workers + 1 + slots }

// AckedKeys is how many completed keys Dedup's guard needs when acks are lost. A
// copy then comes when the key is done, at most that many timeouts after the
// delivery before: rate × T for each of them, at the highest rate, which is the
// workers'; what is in flight at its end; and six standard deviations.
//
// One timeout is enough for a guard that takes a lookup for a use (LRU). One that
// does not (Ring) has to bridge as many as acks are lost in a row.
func AckedKeys(s System, timeouts int) int {
	m := newModel(s)
	mean := m.workers * m.patience * float64(timeouts)
	return int(math.Ceil(mean+6*math.Sqrt(mean))) + s.Buffer + s.Workers + 1
}
