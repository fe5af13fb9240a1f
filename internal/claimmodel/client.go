package claimmodel

// request is what a process asks of the store where it stands.
func (s *stepper) request(p proc) Op {
	switch p.pc {
	case claiming:
		return Op{Kind: DoClaim, Claim: p.claim, NoTakeover: s.cfg.Mode == AtMostOnce}
	case completing:
		return Op{Kind: DoComplete, Claim: p.claim}
	case releasing:
		return Op{Kind: DoRelease, Claim: p.claim, To: p.to, Uncounted: p.why == noCause}
	case resolving:
		return Op{Kind: DoResolve, Fence: p.fence, To: p.to}
	case committing:
		return Op{Kind: DoTx, Claim: p.claim}
	case looking:
		return Op{Kind: DoLookup, Claim: p.claim}
	}
	return Op{}
}

// process lists the steps of process i.
func (s *stepper) process(i int) {
	p := s.from.procs[i]
	if op := s.request(p); op.Kind != None {
		w := s.from
		ans := s.ask(&w, op)
		s.answered(&w, i, ans)
		s.emit(step{proc: i, what: "%s", op: op, reply: ans.text(op)}, w)
		s.unanswered(i, op)
	}
	switch p.pc {
	case claiming, committing:
		s.local(i, "is out of attempts", true, func(w *world, _ *proc) { w.bury(i) })
	case holding:
		s.hold(i)
	case running:
		s.run(i)
	case asking:
		s.askResolver(i)
	case burying:
		s.local(i, "writes the dead letter", false, func(_ *world, p *proc) { p.pc, p.buried = acking, true })
		s.local(i, "can't write the dead letter", true, func(w *world, _ *proc) { s.restart(w, i) })
	case acking:
		s.local(i, "acks", false, func(_ *world, p *proc) { *p = proc{pc: acked, buried: p.buried} })
	}
}

// local emits a step that asks nothing of the store.
func (s *stepper) local(i int, what string, fault bool, do func(*world, *proc)) {
	w := s.from
	do(&w, &w.procs[i])
	s.emit(step{proc: i, what: what, fault: fault}, w)
}

// restart makes process i begin anew with its delivery, after an error or a
// crash. Whoever begins chooses a new claim id.
func (s *stepper) restart(w *world, i int) {
	p := &w.procs[i]
	first, claim := claiming, max(w.fresh(), s.from.fresh())
	if s.cfg.Mode == Tx {
		first = committing
	}
	if s.cfg.Mutant == ReusedClaimID && p.claim != 0 {
		claim = p.claim
	}
	*p = proc{pc: first, claim: claim, buried: p.buried}
}

// end is where process i goes when its delivery is done.
func (w *world) end(i int) {
	w.procs[i] = proc{pc: acking, buried: w.procs[i].buried}
}

// bury is where process i goes when its delivery is given up.
func (w *world) bury(i int) {
	w.procs[i] = proc{pc: burying, buried: w.procs[i].buried}
}

// answered says how process i goes on after an answer of the store.
func (s *stepper) answered(w *world, i int, ans Answer) {
	p := &w.procs[i]
	switch p.pc {
	case claiming:
		switch ans.Status {
		case Acquired:
			p.pc = holding
			if s.cfg.Mode == AtMostOnce {
				p.fence = ans.Fence
			}
		case Done:
			w.end(i)
		case Ambiguous:
			*p = proc{pc: asking, fence: ans.Fence, buried: p.buried}
		default: // a Snooze
			s.restart(w, i)
		}
	case releasing:
		if ans.Held {
			s.released(w, i)
		} else { // another owner decides
			s.restart(w, i)
		}
	case resolving:
		switch {
		case p.why == giveUp && p.to != Completed:
			w.bury(i)
		case ans.Held && p.to == Completed:
			w.end(i)
		default:
			s.restart(w, i)
		}
	case committing:
		switch {
		case ans.Status == Acquired:
			w.wins = more(w.wins)
			w.end(i)
		case ans.Status == Done:
			w.end(i)
		default:
			s.restart(w, i)
		}
	case looking:
		if ans.Held {
			w.wins = more(w.wins)
			w.end(i)
		} else {
			s.restart(w, i)
		}
	case completing:
		if ans.Held {
			w.end(i)
		} else { // the lease was lost
			s.restart(w, i)
		}
	}
}

// released says how process i goes on after it has given its claim back, as far as
// it knows.
func (s *stepper) released(w *world, i int) {
	p := &w.procs[i]
	switch {
	case p.to == Unknown && p.why != leaseEnd:
		*p = proc{pc: asking, fence: p.fence, why: p.why, buried: p.buried}
	case p.to == Failed:
		w.bury(i)
	default:
		s.restart(w, i)
	}
}

// gaveUp says how process i goes on when its request had no answer, however
// often it was repeated.
func (s *stepper) gaveUp(w *world, i int) {
	p := &w.procs[i]
	switch {
	case p.pc == claiming: // the answer may have been yes
		p.pc, p.to, p.why = releasing, Waiting, noCause
	case p.pc == releasing:
		s.released(w, i)
	case p.pc == committing && s.cfg.Mutant != LostCommitIsFailure:
		p.pc = looking
	case p.pc == completing && s.cfg.Mutant == LostCompleteIsFailure:
		p.pc, p.to, p.why = releasing, Waiting, retry
	default:
		// A completion is given up only once the lease can't be held any more, and
		// an outcome that can't be looked up is an error that says so.
		w.troubled = w.troubled || p.pc == completing || p.pc == looking
		s.restart(w, i)
	}
}

// hold is between the store's answer and the handler.
func (s *stepper) hold(i int) {
	p := s.from.procs[i]
	if !p.cut || s.cfg.Mutant == BeginsUnfit {
		s.local(i, "begins to run", false, func(_ *world, p *proc) { p.pc, p.cut = running, false })
	}
	s.local(i, "does not begin", !p.cut, func(_ *world, p *proc) {
		p.pc, p.cut, p.to, p.why = releasing, false, Waiting, noCause
	})
	if s.cfg.Watchdog && !p.cut {
		s.local(i, "has waited for the answer until the lease may be over", true, func(_ *world, p *proc) { p.cut = true })
	}
}

// run is the handler. It acts at most once in a run.
func (s *stepper) run(i int) {
	p := s.from.procs[i]
	if p.acted {
		s.local(i, "returns nil", false, func(w *world, p *proc) {
			w.wins = more(w.wins)
			p.pc, p.acted = completing, false
			if s.cfg.Mutant == AckBeforeComplete {
				w.end(i)
			}
		})
	} else {
		s.local(i, "acts", false, func(w *world, p *proc) {
			w.effects = more(w.effects)
			p.acted = true
		})
	}
	s.fails(i, "returns an error", retry)
	if w := s.from; s.cfg.SlowEffect && !p.acted && s.delay(&w, Op{Kind: doEffect}) {
		s.failed(&w, i, retry)
		s.emit(step{proc: i, what: "returns an error; %s is on its way", op: Op{Kind: doEffect}, fault: true}, w)
	}
	s.fails(i, "returns a permanent error", giveUp)
	if s.cfg.Mode == AtMostOnce && !p.acted {
		s.local(i, "returns NotApplied", true, func(_ *world, p *proc) { p.pc, p.to, p.why = releasing, Waiting, retry })
	}
	if s.cfg.Watchdog {
		s.fails(i, "is ended by the watchdog", leaseEnd)
	}
	s.beat(i)
}

// fails ends the handler of process i.
func (s *stepper) fails(i int, what string, why cause) {
	s.local(i, what, true, func(w *world, _ *proc) { s.failed(w, i, why) })
}

func (s *stepper) failed(w *world, i int, why cause) {
	p := &w.procs[i]
	p.pc, p.acted, p.to, p.why = releasing, false, Waiting, why
	switch {
	case s.cfg.Mode == AtMostOnce:
		p.to = Unknown
	case why == giveUp:
		p.to = Failed
	}
	w.troubled = w.troubled || why == leaseEnd
}

// beat renews the lease of process i. Where the request is lost nothing happens.
func (s *stepper) beat(i int) {
	p := s.from.procs[i]
	op := Op{Kind: DoExtend, Claim: p.claim}
	w := s.from
	if ans := s.ask(&w, op); ans.Held {
		s.emit(step{proc: i, what: "%s", op: op, reply: "held"}, w)
	} else {
		s.fails(i, "is told that its lease is lost", leaseEnd)
	}
	if w := s.from; s.delay(&w, op) {
		s.emit(step{proc: i, what: "%s is on its way; runs on", op: op, fault: true}, w)
	}
}

// askResolver finds out whether the effect has happened.
func (s *stepper) askResolver(i int) {
	s.local(i, "asks the Resolver", false, func(w *world, p *proc) {
		p.pc = resolving
		switch {
		case w.effects > 0:
			p.to = Completed
		case p.why == giveUp:
			p.to = Failed
		default:
			p.to = Waiting
		}
	})
	s.local(i, "gets no answer of the Resolver", true, func(w *world, _ *proc) { s.restart(w, i) })
}
