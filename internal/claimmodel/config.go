package claimmodel

// Mode is what the processes do with the key.
type Mode uint8

// The modes of a process.
const (
	AtLeastOnce Mode = iota // Once
	AtMostOnce              // Once with AtMostOnce and a Resolver that tells the truth
	Tx                      // effect and record in one transaction
)

func (m Mode) String() string { return [...]string{"AtLeastOnce", "AtMostOnce", "Tx"}[m] }

// Mutant is a fault that is built into the model, to see that a property
// notices it.
type Mutant uint8

// The mutants: of the store first, then of the client.
const (
	NoMutant              Mutant = iota
	ReleaseWithoutToken          // Release doesn't compare the claim
	CompleteWithoutToken         // Complete doesn't compare the claim
	TakeoverKeepsClaim           // a takeover leaves the old claim id in the record
	TakeoverIgnoresLease         // a claim is handed over while its lease runs
	TakeoverUnasked              // NoTakeover is not heeded
	EndlessLease                 // a lease is never over
	AcquireKeepsFence            // an acquisition after the first doesn't raise the fence
	ResolveWithoutFence          // Resolve doesn't compare the fence
	TxIgnoresRecord              // the effect is committed beside a complete record
	ReusedClaimID                // a claim id is used again after it was given back
	BeginsUnfit                  // the handler begins however late the answer was
	LostCompleteIsFailure        // a completion without a reply is taken for a failed run
	LostCommitIsFailure          // a commit without a reply is not looked up
	AckBeforeComplete            // the delivery is acked when the handler has returned
)

// Property is what must hold in every state.
type Property uint8

// The properties.
const (
	AckedIsDone         Property = 1 << iota // I1: acked implies a complete record and an effect, or a dead letter
	StaleChangesNothing                      // I3: a request of an older claim changes nothing and is told so
	SucceedsOnce                             // I6: without crash and lost lease one run succeeds
	ActsOnce                                 // there is at most one effect, whatever happens
	RunsAlone                                // never two handlers at once
	NoDeadEnd                                // all deliveries can still be acked, without a further fault

	All = AckedIsDone | StaleChangesNothing | SucceedsOnce | ActsOnce | RunsAlone | NoDeadEnd
)

// Promised is what a mode promises, as long as the watchdog keeps its promise.
func (m Mode) Promised() Property {
	if m == AtLeastOnce {
		return All &^ ActsOnce
	}
	return All
}

func (p Property) String() string {
	names := map[Property]string{
		AckedIsDone: "I1 acked is done", StaleChangesNothing: "I3 stale changes nothing", SucceedsOnce: "I6 succeeds once",
		ActsOnce: "acts once", RunsAlone: "runs alone", NoDeadEnd: "no dead end",
	}
	return names[p]
}

// Config is a world to explore.
type Config struct {
	Mode     Mode
	Procs    int  // 1 to 3
	Late     int  // how many requests may be late at the same time: 0 to 2
	Watchdog bool // handlers have ended before the store can hand their lease on

	// SlowEffect lets a handler return an error while its call of the outside world
	// is still on its way.
	SlowEffect bool

	Mutant Mutant   // the fault that is built in
	Check  Property // what to look for
}

// start is the world before anything has happened.
func (c Config) start() world {
	var w world
	s := stepper{cfg: c}
	for i := range c.Procs {
		w.procs[i].claim = w.fresh()
		s.restart(&w, i)
	}
	return w
}

// violated returns a property that w violates, or 0.
func (c Config) violated(w world) Property {
	count := func(is func(proc) bool) (n int) {
		for _, p := range w.procs[:c.Procs] {
			if is(p) {
				n++
			}
		}
		return n
	}
	done := w.rec.State == Completed && w.effects > 0
	acks := count(func(p proc) bool { return p.pc == acked })
	buried := count(func(p proc) bool { return p.buried })
	told := c.Mode == AtMostOnce || acks < c.Procs || buried > 0 || w.wins == 1
	for _, v := range [...]struct {
		property Property
		is       bool
	}{
		{AckedIsDone, !done && count(func(p proc) bool { return p.pc == acked && !p.buried }) > 0},
		{StaleChangesNothing, w.staleHit},
		{SucceedsOnce, !w.troubled && (w.wins > 1 || !told)},
		{ActsOnce, w.effects > 1},
		{RunsAlone, count(func(p proc) bool { return p.pc == running }) > 1},
	} {
		if v.is && c.Check&v.property != 0 {
			return v.property
		}
	}
	return 0
}

// finished says whether every delivery is acked.
func (c Config) finished(w world) bool {
	for _, p := range w.procs[:c.Procs] {
		if p.pc != acked {
			return false
		}
	}
	return true
}
