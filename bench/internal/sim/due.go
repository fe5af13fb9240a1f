package sim

import (
	"time"

	"github.com/oncepipe/oncepipe/internal/due"
)

// dues are the messages that wait to be sent again, by the time at which they
// are. An ack removes none: one that is due and has its ack is passed over.
type dues struct {
	index    due.Index
	messages []int // by place
}

func (d *dues) add(message int, at time.Duration) {
	place, _ := d.index.Push(int64(at))
	if int(place) == len(d.messages) {
		d.messages = append(d.messages, message)
	} else {
		d.messages[place] = message
	}
}

// first returns the message that is due first, if there is one.
func (d *dues) first() (message int, at time.Duration, ok bool) {
	if d.index.Len() == 0 {
		return 0, 0, false
	}
	place, first := d.index.First()
	return d.messages[place], time.Duration(first), true
}

// drop removes the first message.
func (d *dues) drop() {
	if d.index.Pop(); d.index.Len() == 0 {
		d.messages = d.messages[:0]
	}
}
