package claimmodel

import (
	"os"
	"strings"
	"testing"
)

// explore logs what was found.
func explore(t *testing.T, cfg Config) Result {
	t.Helper()
	r := Explore(cfg)
	t.Logf("%v, %d processes, %d late, watchdog %v: %d states, %d steps, depth %d", cfg.Mode, cfg.Procs, cfg.Late, cfg.Watchdog, r.States, r.Steps, r.Depth)
	if r.Violated != 0 {
		t.Logf("%v is violated:\n%s", r.Violated, strings.Join(r.Trace, "\n"))
	}
	return r
}

// holds explores a world in which every property that is looked for must hold.
func holds(t *testing.T, cfg Config) {
	t.Helper()
	if r := explore(t, cfg); r.Violated != 0 {
		t.Errorf("%v does not hold", r.Violated)
	}
}

// breaks explores a world in which the property that is looked for must not hold.
func breaks(t *testing.T, cfg Config) Result {
	t.Helper()
	r := explore(t, cfg)
	if r.Violated != cfg.Check || len(r.Trace) != r.Depth {
		t.Errorf("violated is %v after %d of %d steps, want %v", r.Violated, len(r.Trace), r.Depth, cfg.Check)
	}
	return r
}

// bound is how far a run goes. In the number of processes and late requests the
// exploration is bounded; in crashes, losses, leases and tries it never is.
type bound int

const (
	short  bound = iota // with -short
	race                // with the race detector, which has nothing to find here
	normal              // by default
	large               // with ONCEPIPE_MODEL=large
)

func bounds() bound {
	switch {
	case os.Getenv("ONCEPIPE_MODEL") == "large":
		return large
	case testing.Short():
		return short
	case raceEnabled:
		return race
	}
	return normal
}

func TestI1_I3_I6_Protocol(t *testing.T) {
	for _, w := range []struct {
		mode        Mode
		procs, late int
		from        bound
	}{
		{AtLeastOnce, 2, 1, short},
		{AtLeastOnce, 3, 0, short},
		{AtLeastOnce, 2, 2, normal},
		{AtLeastOnce, 3, 1, large},
		{AtMostOnce, 2, 0, short},
		{AtMostOnce, 2, 1, race},
		{AtMostOnce, 3, 0, normal},
		{AtMostOnce, 2, 2, large},
		{Tx, 2, 2, short},
		{Tx, 3, 2, short},
	} {
		if w.from <= bounds() {
			holds(t, Config{Mode: w.mode, Procs: w.procs, Late: w.late, Watchdog: true, Check: w.mode.Promised()})
		}
	}
}

// Fencing alone: handlers run on although their leases are over.
func TestI3_WithoutWatchdog(t *testing.T) {
	const fenced = AckedIsDone | StaleChangesNothing | SucceedsOnce | NoDeadEnd
	holds(t, Config{Mode: AtLeastOnce, Procs: 2, Late: 1, Check: fenced})
	holds(t, Config{Mode: AtLeastOnce, Procs: 3, Late: 0, Check: fenced})
	holds(t, Config{Mode: AtMostOnce, Procs: 2, Late: 0, Check: fenced})
}

// What the watchdog buys.
func TestWatchdog(t *testing.T) {
	breaks(t, Config{Mode: AtLeastOnce, Procs: 2, Check: RunsAlone})
	breaks(t, Config{Mode: AtMostOnce, Procs: 2, Check: ActsOnce})
}

// What no record can prevent.
func TestLimits(t *testing.T) {
	// The gap between effect and record.
	breaks(t, Config{Mode: AtLeastOnce, Procs: 1, Watchdog: true, Check: ActsOnce})
	// A Resolver that says "it did not happen" while it still can.
	breaks(t, Config{Mode: AtMostOnce, Procs: 1, Late: 1, Watchdog: true, SlowEffect: true, Check: ActsOnce})
}

func TestMutants(t *testing.T) {
	caught := map[Mutant]bool{}
	var shown Property
	for _, m := range []struct {
		name   string
		mutant Mutant
		mode   Mode
		check  Property
	}{
		{"release without token", ReleaseWithoutToken, AtLeastOnce, StaleChangesNothing},
		{"release without token, two handlers", ReleaseWithoutToken, AtLeastOnce, RunsAlone},
		{"complete without token", CompleteWithoutToken, AtLeastOnce, StaleChangesNothing},
		{"takeover without a new claim id", TakeoverKeepsClaim, AtLeastOnce, StaleChangesNothing},
		{"takeover ignores the lease", TakeoverIgnoresLease, AtLeastOnce, RunsAlone},
		{"takeover that was not asked for", TakeoverUnasked, AtMostOnce, ActsOnce},
		{"lease never ends", EndlessLease, AtLeastOnce, NoDeadEnd},
		{"acquisition without a new fence", AcquireKeepsFence, AtMostOnce, ActsOnce},
		{"resolve without fence", ResolveWithoutFence, AtMostOnce, ActsOnce},
		{"effect beside a complete record", TxIgnoresRecord, Tx, ActsOnce},
		{"claim id is used again, dead end", ReusedClaimID, AtLeastOnce, NoDeadEnd},
		{"claim id is used again, two handlers", ReusedClaimID, AtLeastOnce, RunsAlone},
		{"handler begins however late the answer is", BeginsUnfit, AtLeastOnce, RunsAlone},
		{"lost reply of a completion is a failure", LostCompleteIsFailure, AtLeastOnce, SucceedsOnce},
		{"lost reply of a commit is a failure", LostCommitIsFailure, Tx, SucceedsOnce},
		{"ack before complete", AckBeforeComplete, AtLeastOnce, AckedIsDone},
	} {
		t.Run(m.name, func(t *testing.T) {
			cfg := Config{Mode: m.mode, Procs: 2, Late: 1, Watchdog: true, Mutant: m.mutant, Check: m.check}
			if m.check == NoDeadEnd { // every state has to be visited first
				cfg.Late = 0
			}
			breaks(t, cfg)
		})
		caught[m.mutant] = true
		shown |= m.check
	}
	for m := NoMutant + 1; m <= AckBeforeComplete; m++ {
		if !caught[m] {
			t.Errorf("mutant %d is not tried", m)
		}
	}
	if shown != All {
		t.Errorf("properties %b have no mutant that violates them", All&^shown)
	}
}
