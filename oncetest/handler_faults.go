package oncetest

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Faults are kinds of what can happen to a message, a set of them.
type Faults uint32

// What can happen. Most of it happens at a step: a call of Process.Step, an
// operation of Process.Store, or the acknowledgement.
const (
	Copy             Faults = 1 << iota // the message comes again before the step, and the copy is run first
	CopyElsewhere                       // the same, in another process
	LateCopy                            // it comes again when all is done
	LateElsewhere                       // the same, in another process
	LateAfterRestart                    // the same, after an orderly restart of the process
	FailBefore                          // the step answers an error, and was not done
	FailAfter                           // the step answers an error, and was done: a lost reply
	Outage                              // from this step on all steps fail, for half of the time until a message comes again
	CrashBefore                         // the process is killed before the step
	CrashAfter                          // the process is killed after the step
	CutBefore                           // the time-out passes before the step, which is not done
	CutAfter                            // the time-out passes after the step was done
	LostAck                             // the acknowledgement does not arrive
	Switch                              // other runs that are held up go on first
	Reorder                             // the messages come last first
	Overflow                            // buffers are full: others overtake, and the sender sends all of them again

	kinds = iota
)

// Sets that answer a question each.
const (
	Duplicates   = Copy | LateCopy | LostAck | Switch | Reorder // one process, nothing fails
	TwoProcesses = CopyElsewhere | LateElsewhere
	Restarts     = LateAfterRestart
	Failures     = FailBefore | FailAfter | Outage
	Crashes      = CrashBefore | CrashAfter
	Cuts         = CutBefore | CutAfter
	AllFaults    = Faults(1<<kinds - 1)
)

var faultNames = [kinds]string{
	"copy", "copy-elsewhere", "late-copy", "late-elsewhere", "late-after-restart", "fail-before", "fail-after", "outage",
	"crash-before", "crash-after", "cut-before", "cut-after", "lost-ack", "switch", "reorder", "overflow",
}

// String names the kinds of the set.
func (f Faults) String() string {
	var names []string
	for _, one := range f.each() {
		names = append(names, faultNames[bits.TrailingZeros32(uint32(one))])
	}
	return strings.Join(names, "|")
}

func (f Faults) each() []Faults {
	var list []Faults
	for i := range kinds {
		if one := Faults(1) << i; f&one != 0 {
			list = append(list, one)
		}
	}
	return list
}

func faultNamed(name string) (Faults, error) {
	i := slices.Index(faultNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("no fault is called %q", name)
	}
	return 1 << i, nil
}

// Where a kind of fault can happen.
const (
	atAck  = Copy | CopyElsewhere | CrashBefore | LostAck | Switch
	atStep = Copy | CopyElsewhere | Failures | Crashes | Cuts | Switch | Overflow
	atNone = LateCopy | LateElsewhere | LateAfterRestart | Reorder
)
