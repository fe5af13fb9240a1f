package claimmodel

// maxProcs and maxLate bound the processes and the late requests of a world, and
// maxNames the claims: those that are remembered, nobody's, and a new one.
const (
	maxProcs = 3
	maxLate  = 2
	maxNames = 2 + maxProcs + maxLate + 2
)

// pc is where a process stands with its delivery of the key. A request that is
// pending may have its reply, or be lost, at any later step.
type pc uint8

const (
	off        pc = iota
	claiming      // Claim is pending
	holding       // it was acquired; nothing has begun
	running       // the handler runs
	completing    // the handler returned nil; Complete is pending
	releasing     // the handler failed, or is not to begin; Release is pending
	asking        // the record is unknown; the Resolver is to be asked
	resolving     // it has answered; Resolve is pending
	committing    // Tx: the commit is pending
	looking       // Tx: the commit's reply was lost; Lookup is pending
	burying       // the dead letter is to be written
	acking        // the delivery is to be acked
	acked
)

// cause is why a claim is given back.
type cause uint8

const (
	noCause  cause = iota // nothing has run
	retry                 // the handler failed and may be tried again
	giveUp                // the handler failed for good
	leaseEnd              // the lease was lost
)

// proc is a process. It has one delivery of the key, which comes again after a
// crash or an error, for as long as it is not acked.
type proc struct {
	pc     pc
	claim  Claim // its own, chosen by itself
	fence  uint8 // of the claim, or of the record that was found unknown
	to     State // releasing, resolving: to which state
	why    cause
	acted  bool // running: this run's effect has happened
	cut    bool // holding: the watchdog has fired
	buried bool // the dead letter of this delivery is written
}

// world is a state of everything. Below the processes and the late requests are
// ghosts, which nobody in the model can see: they remember what the properties
// speak of.
type world struct {
	rec   Record
	procs [maxProcs]proc
	late  [maxLate]Op // given up by their senders, still on their way

	owner    Claim // whose request the store last answered as a new acquisition
	effects  uint8 // 2 stands for more
	wins     uint8 // runs that were told to have succeeded; 2 stands for more
	troubled bool  // a crash, a lost lease, or an outcome that could not be looked up
	staleHit bool  // a request of an older claim changed the record, or was told that it is held
}

// naming says how canonical renamed a world: process i was procs[i], and claim c
// has become claims[c].
type naming struct {
	procs  [maxProcs]uint8
	claims [maxNames]Claim
}

// canonical is the world with processes, late requests, claims and fences put
// in order, and without what is not remembered. Worlds that differ only in names
// mostly become one; where they don't, they are visited twice, which does no
// harm.
func (w world) canonical() (world, naming) {
	var n naming
	w.nameFences()
	for i := range n.procs {
		n.procs[i] = uint8(i)
	}
	for i := 1; i < maxProcs; i++ { // insertion sort: they are few
		for j := i; j > 0 && w.procs[j-1].rank(w.rec) < w.procs[j].rank(w.rec); j-- {
			w.procs[j-1], w.procs[j] = w.procs[j], w.procs[j-1]
			n.procs[j-1], n.procs[j] = n.procs[j], n.procs[j-1]
		}
	}
	w.rec.Attempt, w.rec.Takeovers, w.rec.Takeover = 0, 0, false
	if w.troubled { // then nobody asks how many runs succeeded
		w.wins = 0
	}
	w.nameClaims(&n)
	return w, n
}

// nameClaims names the claims of late requests last, when those that somebody else
// knows have their names: these say which request comes first.
func (w *world) nameClaims(n *naming) {
	next := Claim(1)
	name := func(c *Claim) {
		if *c == 0 {
			return
		}
		if n.claims[*c] == 0 {
			n.claims[*c] = next
			next++
		}
		*c = n.claims[*c]
	}
	name(&w.rec.Claim)
	name(&w.owner)
	for i := range w.procs {
		name(&w.procs[i].claim)
	}
	for i := 1; i < maxLate; i++ {
		for j := i; j > 0 && w.late[j-1].rank(n) < w.late[j].rank(n); j-- {
			w.late[j-1], w.late[j] = w.late[j], w.late[j-1]
		}
	}
	for i := range w.late {
		name(&w.late[i].Claim)
	}
}

// nameFences calls the record's fence 1 and older ones 0: those can't become the
// record's again.
func (w *world) nameFences() {
	name := func(f *uint8) { *f = bit(*f == w.rec.Fence && *f != 0) }
	for i := range w.procs {
		name(&w.procs[i].fence)
	}
	for i := range w.late {
		name(&w.late[i].Fence)
	}
	name(&w.rec.Fence)
}

// rank orders processes without regard to the names of claims.
func (p proc) rank(rec Record) uint64 {
	r := uint64(p.pc)
	for _, b := range [...]uint8{uint8(p.to), uint8(p.why), bit(p.acted), bit(p.cut), bit(p.buried), bit(rec.of(p.claim)), p.fence} {
		r = r<<8 | uint64(b)
	}
	return r
}

func (op Op) rank(n *naming) uint32 {
	return uint32(op.Kind)<<24 | uint32(op.To)<<16 | uint32(op.Fence)<<8 | uint32(n.claims[op.Claim])
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// fresh is a claim id that nothing in the world knows.
func (w *world) fresh() Claim {
	top := max(w.rec.Claim, w.owner)
	for _, p := range w.procs {
		top = max(top, p.claim)
	}
	for _, op := range w.late {
		top = max(top, op.Claim)
	}
	return top + 1
}

// more counts to 2.
func more(n uint8) uint8 { return min(n+1, 2) }
