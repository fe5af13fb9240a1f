package claimmodel

// step is one step of a world: of process proc, or of nobody (-1).
type step struct {
	proc  int
	what  string // a constant: the explorer makes millions of them
	op    Op     // the request that the step is about, if any
	reply string
	fault bool // the world could do without it: a loss, a delay, a crash, an error
}

// nothing is the process of steps that no process takes.
const nothing = -1

// stepper lists the steps of a world.
type stepper struct {
	cfg  Config
	from world
	emit func(step, world)
}

// next calls emit for every step that w can take.
func (c Config) next(w world, emit func(step, world)) {
	s := stepper{c, w, emit}
	s.clock()
	s.network()
	s.redrive()
	for i := range c.Procs {
		s.process(i)
		s.crash(i)
	}
}

// clock lets the lease run out. The watchdog is the promise that a handler has
// ended by then.
func (s *stepper) clock() {
	w := s.from
	if w.rec.State != Claimed || w.rec.Ready {
		return
	}
	for _, p := range w.procs {
		if !w.rec.of(p.claim) {
			continue
		}
		switch p.pc {
		case holding, running:
			if s.cfg.Watchdog && !p.cut {
				return
			}
			w.troubled = w.troubled || !p.cut
		case completing:
			w.troubled = true
		}
	}
	w.rec = w.rec.Pass()
	s.emit(step{proc: nothing, what: "the lease is over"}, w)
}

// network lets a late request arrive, or get lost for good.
func (s *stepper) network() {
	for i, op := range s.from.late {
		if op.Kind == None {
			continue
		}
		w := s.from
		w.late[i] = Op{}
		s.emit(step{proc: nothing, what: "%s never arrives", op: op, fault: true}, w)
		s.ask(&w, op)
		s.emit(step{proc: nothing, what: "%s arrives late", op: op, fault: true}, w)
	}
}

// redrive lets a person look at a failed record and send it back to be run again.
// What that becomes is seen when the request arrives.
func (s *stepper) redrive() {
	w := s.from
	op := Op{Kind: DoResolve, Fence: w.rec.Fence, To: Waiting}
	if w.rec.State == Failed && s.delay(&w, op) {
		s.emit(step{proc: nothing, what: "a person redrives; %s is on its way", op: op, fault: true}, w)
	}
}

// ask lets the store do one request and keeps the ghosts.
func (s *stepper) ask(w *world, op Op) Answer {
	before := w.rec
	after, ans := Store{s.cfg.Mutant}.Do(before, op)
	w.rec = after
	switch op.Kind {
	case DoExtend, DoComplete, DoRelease:
		if op.Claim != w.owner && (after != before || ans.Held) {
			w.staleHit = true
		}
	case DoResolve:
		if op.Fence != before.Fence && after != before {
			w.staleHit = true
		}
	case DoTx:
		if ans.Status == Acquired {
			w.effects = more(w.effects)
		}
	case doEffect:
		w.effects = more(w.effects)
	}
	switch {
	case ans.Status == Acquired:
		w.owner = op.Claim
	case after.State == Unknown && after.Claim == 0, op.Kind == DoResolve && ans.Held:
		w.owner = 0
	}
	return ans
}

// crash ends process i and starts it again. Its request may be on its way.
func (s *stepper) crash(i int) {
	p := s.from.procs[i]
	if p.pc == off || p.pc == acked {
		return
	}
	w := s.from
	w.troubled = true
	s.restart(&w, i)
	s.emit(step{proc: i, what: "crashes and starts again", fault: true}, w)
	if op := s.request(p); s.delay(&w, op) {
		s.emit(step{proc: i, what: "crashes and starts again; %s is on its way", op: op, fault: true}, w)
	}
}

// delay leaves a request in the network, if there is one and the bound allows it.
func (s *stepper) delay(w *world, op Op) bool {
	if op.Kind == None {
		return false
	}
	for i := range s.cfg.Late {
		if w.late[i].Kind == None {
			w.late[i] = op
			// A commit that is still to come can't be looked up.
			w.troubled = w.troubled || op.Kind == DoTx
			return true
		}
	}
	return false
}

// unanswered lists what can happen to the pending request of process i in place
// of its reply: it is lost, or its reply is, or it will come late. The process asks
// again with the same request, or gives up. A commit is not sent twice but looked up.
func (s *stepper) unanswered(i int, op Op) {
	lost, done, late := s.from, s.from, s.from
	s.ask(&done, op)
	for _, f := range [...]struct {
		w     *world
		again string
		end   string
		can   bool
	}{
		{&lost, "", "%s is lost; gives up", true},
		{&done, "%s is done, its reply lost; asks again", "%s is done, its reply lost; gives up", true},
		{&late, "%s is on its way; asks again", "%s is on its way; gives up", s.delay(&late, op)},
	} {
		if !f.can {
			continue
		}
		if f.again != "" && op.Kind != DoTx && op.Kind != DoLookup {
			s.emit(step{proc: i, what: f.again, op: op, fault: true}, *f.w)
		}
		s.gaveUp(f.w, i)
		s.emit(step{proc: i, what: f.end, op: op, fault: true}, *f.w)
	}
}
