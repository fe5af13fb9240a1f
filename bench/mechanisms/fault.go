package main

import (
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
)

// fault is a column: what goes wrong, and with how many messages.
type fault struct {
	name  string
	title string // of a column, in lines
	about string // what is done, for the document
	do    directive
	every int // one message of so many is hit; 0: none

	patience time.Duration // how long an order waits for the other copy to come as far; 0: not at all
	come     coming        // how the other copy comes

	ackLost   bool // the ack of one that is hit doesn't arrive
	processes int  // at the same time; 0: the pipeline runs in the program's own process
	restarts  int  // orderly ones: a share of the messages each; lost acks show after the next one
	kills     int

	buffer      oncepipe.BufferPolicy // of the sink
	returnsShed bool                  // the broker delivers again what a buffer shed
}

// lease is what Once holds a key for. A short one is for those who have to wait for its
// end; else a machine that stands still must not let another one have the key.
func (f fault) lease() time.Duration {
	if f.kills > 0 {
		return lease
	}
	return oncepipe.DefaultLease
}

// runs are the fault and, if orders wait in it, the same without waiting, for the
// time that it takes.
func (f fault) runs() []fault {
	if f.patience == 0 {
		return []fault{f}
	}
	atOnce := f
	atOnce.patience = 0
	return []fault{f, atOnce}
}

// coming is how a second copy of a message comes about.
type coming uint8

const (
	sentAgain  coming = iota + 1 // by the sender, while the first one is worked on
	holdsOver                    // the hold of the first one is over, and the broker delivers it to the other process
	sentBehind                   // by the sender, right behind the first one: both are in the buffer
)

const (
	workers  = 4
	prefetch = 32 // deliveries that a process may have
	places   = 4  // of the buffers that overflow
	burst    = 32 // of deliveries; half as many keys are more than the buffer and the workers hold

	short = 4 * time.Millisecond  // patience where the other copy is in the same buffer
	near  = 10 * time.Millisecond // where it comes to the same process
	far   = 40 * time.Millisecond // where it comes to another one
)

// none is the run without a fault.
var none = fault{name: "none", buffer: oncepipe.Fixed(oncepipe.DefaultBuffer)}

// faults are the columns, the one of SIGKILLs with at most so many kills.
func faults(kills int) []fault {
	usual := none.buffer
	overflow := func(kind, about string, b oncepipe.BufferPolicy, returns bool) fault {
		return fault{
			name: "full buffer, " + kind, title: "full buffer:\n" + strings.ReplaceAll(kind, ", ", "\n"), about: about,
			do: meet, come: sentBehind, patience: short, buffer: b, returnsShed: returns,
		}
	}
	return []fault{
		{
			name: "duplicate in flight", title: "duplicate\nin flight", do: meet, every: 10, patience: near, come: sentAgain, buffer: usual,
			about: "The sender sends a message again while the first one is about to have its effect.",
		},
		{
			name: "redelivery after commit", title: "redelivery\nafter commit", every: 10, ackLost: true, buffer: usual,
			about: "The effect is committed and the ack is lost. The broker delivers the message again to the same process.",
		},
		{
			name: "failure before the effect", title: "failure before\nthe effect", do: failBefore, every: 10, buffer: usual,
			about: "The effect is refused once. The stage tries again.",
		},
		{
			name: "failure after the effect", title: "failure after\nthe effect", do: failAfter, every: 10, buffer: usual,
			about: "The effect is committed and the reply of that statement or commit is lost, once. The stage tries again.",
		},
		{
			name: "two processes", title: "two\nprocesses", do: meet, every: 20, patience: far, come: holdsOver, processes: 2, buffer: usual,
			about: "The hold of a delivery is over while one process is about to make its effect, and another process gets the message.",
		},
		{
			name: "restart", title: "restart", every: 10, ackLost: true, processes: 1, restarts: 2, buffer: usual,
			about: "The effect is committed and the ack is lost. The message comes again after an orderly restart, to a new process. Two restarts; what is hit after the second is not counted.",
		},
		{
			name: "SIGKILL", title: "SIGKILL", processes: 1, kills: kills, buffer: usual,
			about: "The process is killed with its messages: in turn right after a commit, at a random moment, and right before an effect. The next one goes on.",
		},
		overflow("blocking",
			"Every message is sent twice, the second right behind the first, in bursts that are larger than the buffer and the workers.",
			oncepipe.Fixed(places), false),
		overflow("Dropping, shed acked",
			"The same with Dropping, and a source that takes shed for an ack.",
			oncepipe.Dropping(places), false),
		overflow("Dropping, shed returned",
			"The same with Dropping, and a source that delivers again what was shed.",
			oncepipe.Dropping(places), true),
		overflow("Sliding, shed acked",
			"The same with Sliding, and a source that takes shed for an ack.",
			oncepipe.Sliding(places), false),
		overflow("Sliding, shed returned",
			"The same with Sliding, and a source that delivers again what was shed.",
			oncepipe.Sliding(places), true),
	}
}
