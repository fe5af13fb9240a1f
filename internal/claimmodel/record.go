// Package claimmodel is the claim protocol of docs/claim-protocol.md as a finite
// machine, and an explorer that visits every state which it can reach: all
// interleavings of processes, store, network, clock and crashes for one key.
//
// It knows nothing of the real code. A test in store/memstore walks the machine
// of one record and compares every answer with the reference store.
package claimmodel

// State is the state of a record, in the order of oncepipe.State.
type State uint8

// The states of a record.
const (
	Absent State = iota
	Claimed
	Waiting
	Completed
	Failed
	Unknown
)

// Claim is a claim id; 0 is nobody's.
type Claim uint8

// Record is what a store keeps of one key, as far as it decides anything.
type Record struct {
	State     State
	Claim     Claim // of the latest acquisition
	Fence     uint8
	Attempt   uint8
	Takeovers uint8
	Takeover  bool // the latest acquisition was one
	Ready     bool // Claimed: the lease is over; Waiting: it is due
}

// Pass is the record when the store's clock has gone on past leases and
// backoffs.
func (r Record) Pass() Record {
	r.Ready = r.State == Claimed || r.State == Waiting
	return r
}

// Kind is the kind of a request.
type Kind uint8

// The requests to a store.
const (
	None Kind = iota // no request
	DoClaim
	DoExtend
	DoComplete
	DoRelease
	DoResolve
	DoForget
	DoLookup
	DoTx     // effect and completion in one transaction
	doEffect // no request to the store: one to the outside world, see Config.SlowEffect
)

// Op is a request to a store.
type Op struct {
	Kind       Kind
	Claim      Claim
	Fence      uint8 // DoResolve
	To         State // DoRelease: Waiting, Failed, Unknown; DoResolve: Completed, Waiting, Failed
	NoTakeover bool  // DoClaim
	Delayed    bool  // DoRelease to Waiting: not due at once
	Uncounted  bool  // DoRelease to Waiting
	Force      bool  // DoForget
}

// Status is what a claim met, in the order of oncepipe.ClaimStatus.
type Status uint8

// What a claim, or a transaction, can meet.
const (
	Acquired Status = iota + 1 // DoTx: committed
	Busy
	NotDue
	Done
	Ambiguous
)

// Answer is a store's answer.
type Answer struct {
	Status    Status // DoClaim, DoTx
	Held      bool   // the others: held, done, gone
	Fence     uint8  // DoClaim
	Takeovers uint8  // DoClaim
	Attempt   uint8  // DoClaim: Acquired
	Takeover  bool   // DoClaim: Acquired
}

// Store is the store of the model; its zero value keeps the contract.
type Store struct{ mutant Mutant }

// Do is one atomic request: what becomes of the record, and the answer.
func (s Store) Do(r Record, op Op) (Record, Answer) {
	switch op.Kind {
	case DoClaim:
		return s.claim(r, op)
	case DoTx:
		return s.tx(r, op)
	case DoExtend:
		if !r.of(op.Claim) || r.State != Claimed {
			return r, Answer{}
		}
		r.Ready = false
	case DoComplete:
		mine := r.of(op.Claim) || s.mutant == CompleteWithoutToken
		if !mine || r.State != Claimed {
			return r, Answer{Held: r.of(op.Claim) && r.State == Completed}
		}
		r.State, r.Ready = Completed, false
	case DoRelease:
		mine := r.of(op.Claim) || s.mutant == ReleaseWithoutToken
		if !mine || r.State != Claimed {
			return r, Answer{Held: r.of(op.Claim) && r.State == op.To}
		}
		r.State, r.Ready = op.To, op.To == Waiting && !op.Delayed
		if op.Uncounted {
			r.Attempt--
		}
	case DoResolve:
		return s.resolve(r, op)
	case DoForget:
		if r.State == Claimed && !r.Ready && !op.Force {
			return r, Answer{}
		}
		r = Record{}
	case DoLookup:
		return r, Answer{Held: r.of(op.Claim) && r.State == Completed}
	}
	return r, Answer{Held: true}
}

// of says whether the latest acquisition was claim's.
func (r Record) of(claim Claim) bool { return r.Claim == claim && claim != 0 }

// claim is what a claim finds, and what it makes of it.
func (s Store) claim(r Record, op Op) (Record, Answer) {
	status := Acquired
	switch r.State {
	case Completed:
		status = Done
	case Unknown:
		status = Ambiguous
	case Claimed:
		over := r.Ready && s.mutant != EndlessLease || s.mutant == TakeoverIgnoresLease
		switch {
		case r.of(op.Claim):
			r.Ready = false
			return r, r.acquired()
		case !over:
			status = Busy
		case op.NoTakeover && s.mutant != TakeoverUnasked:
			r = Record{State: Unknown, Fence: r.Fence, Attempt: r.Attempt, Takeovers: r.Takeovers + 1, Takeover: r.Takeover}
			status = Ambiguous
		}
	case Waiting, Failed:
		if r.of(op.Claim) || r.State == Waiting && !r.Ready {
			status = NotDue
		}
	}
	if status != Acquired {
		return r, Answer{Status: status, Fence: r.Fence, Takeovers: r.Takeovers}
	}
	r = s.acquire(r, op.Claim)
	r.State = Claimed
	return r, r.acquired()
}

func (s Store) acquire(r Record, claim Claim) Record {
	r.Takeover = r.State == Claimed
	if r.Takeover {
		r.Takeovers++
	}
	if !r.Takeover || s.mutant != TakeoverKeepsClaim {
		r.Claim = claim
	}
	if r.Fence == 0 || s.mutant != AcquireKeepsFence {
		r.Fence++
	}
	r.Attempt++
	r.Ready = false
	return r
}

func (r Record) acquired() Answer {
	return Answer{Status: Acquired, Fence: r.Fence, Takeovers: r.Takeovers, Attempt: r.Attempt, Takeover: r.Takeover}
}

// tx is a transaction that has found the record as it is, and commits.
func (s Store) tx(r Record, op Op) (Record, Answer) {
	switch {
	case r.State == Completed && s.mutant != TxIgnoresRecord:
		return r, Answer{Status: Done}
	case r.State == Unknown:
		return r, Answer{Status: Ambiguous}
	case r.State == Claimed && !r.Ready:
		return r, Answer{Status: Busy}
	case r.State == Waiting && !r.Ready:
		return r, Answer{Status: NotDue}
	}
	r = s.acquire(r, op.Claim)
	r.State = Completed
	return r, r.acquired()
}

func (s Store) resolve(r Record, op Op) (Record, Answer) {
	stale := op.Fence != r.Fence && s.mutant != ResolveWithoutFence
	if r.State != Unknown && r.State != Failed || stale {
		return r, Answer{}
	}
	if r.State == Failed && op.To == Waiting {
		r.Attempt, r.Takeovers = 0, 0
	}
	r.State, r.Claim, r.Ready = op.To, 0, op.To == Waiting
	return r, Answer{Held: true}
}
