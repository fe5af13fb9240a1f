package oncepipe

import "time"

// Outcome is what became of a delivery. Of the children of one delivery the
// worst counts: Returned, Dead, Shed, Done, Duplicate, Filtered, in this order.
type Outcome uint8

// The outcomes of a delivery.
const (
	Filtered  Outcome = iota + 1 // the graph chose not to handle it
	Duplicate                    // its key was done already, or was done by another copy
	Done                         // every stage succeeded
	Shed                         // a Dropping or Sliding buffer gave it up
	Dead                         // given up; its dead letter was written
	Returned                     // not finished: the source has it again
)

var outcomeNames = [...]string{"invalid", "filtered", "duplicate", "done", "shed", "dead", "returned"}

// String returns the outcome's name.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid"
}

// Settlement tells a source what became of its delivery. Done, Duplicate,
// Filtered and Dead are final: the source acks. Returned asks it to deliver
// again, not before Delay. Shed is final or not, as the source likes.
type Settlement struct {
	Outcome Outcome
	Delay   time.Duration
	Err     error // why, for Shed, Dead and Returned; nil otherwise
}
