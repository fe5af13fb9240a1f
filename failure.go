package oncepipe

import (
	"errors"
	"fmt"
	"time"
)

// fate is where a failed item is after that.
type fate uint8

const (
	stays    fate = iota // parked, with its slot: somebody else may have it already
	leaves               // settled, or handed on as failed
	goesBack             // returned to its source
)

// fail decides what becomes of an item whose attempt ended with err. Unless it
// stays, its stay is to be ended by whoever has it.
func (s *stage[A, B]) fail(j job[A], err error) fate {
	v := judge(err)
	if err == errDoneElsewhere {
		return s.doneElsewhere(j)
	}
	if s.p.hard.Load() {
		// The context ended under the handler: that was no attempt.
		s.failures.Add(1)
		s.returned(j.item, 0, fmt.Errorf("%w; handler said: %w", ErrDrainTimeout, err))
		return goesBack
	}
	if c := j.t.scope.claim; c != nil && c.lost() && !errors.Is(err, ErrLeaseLost) {
		err = fmt.Errorf("%w; handler said: %w", ErrLeaseLost, err)
		v = judgement{err: strip(err)}
	}
	if v.kind == markSnooze {
		s.snoozes.Add(1)
		return s.snooze(j, err, v.delay)
	}
	s.failures.Add(1)
	if j.retry == nil {
		j.retry = &retryState{}
	}
	r := j.retry
	r.attempts++
	r.err = v.err
	s.p.event(Event{Kind: EventFailed, Stage: s.name, Key: j.t.key, Attempt: r.attempts, Err: v.err})
	switch {
	case errors.Is(err, ErrLeaseLost):
		s.returned(j.item, 0, v.err)
		return goesBack
	case v.kind == markPermanent:
		return s.giveUp(j, permanentReason(v.err), v.err)
	case s.policy.MaxAttempts > 0 && r.attempts >= s.policy.MaxAttempts:
		if s.opt.retry == nil {
			return s.giveUp(j, ReasonExhausted, v.err)
		}
		return s.giveUp(j, ReasonExhausted, fmt.Errorf("%w (%d): %w", ErrMaxAttempts, r.attempts, v.err))
	case v.kind == markRetryAfter:
		return s.park(j, v.delay, 0, EventRetried)
	}
	delay, err := s.policy.nextDelay(r)
	switch {
	case err != nil:
		return s.giveUp(j, ReasonPanic, fmt.Errorf("backoff: %w; last error: %w", err, v.err))
	case delay < 0:
		return s.giveUp(j, ReasonExhausted, fmt.Errorf("%w after %d attempts: %w", ErrBackoffStopped, r.attempts, v.err))
	}
	return s.park(j, delay, 0, EventRetried)
}

// refuse decides what becomes of an item that may not run under its claim. It
// was no attempt.
func (s *stage[A, B]) refuse(j job[A], err error) fate {
	v := judge(err)
	switch {
	case err == errDoneElsewhere:
		return s.doneElsewhere(j)
	case s.p.hard.Load():
		s.returned(j.item, 0, ErrDrainTimeout)
		return goesBack
	case v.kind == markSnooze:
		return s.snooze(j, err, v.delay)
	case v.kind == markPermanent:
		return s.giveUp(j, permanentReason(v.err), v.err)
	default:
		s.returned(j.item, 0, v.err)
		return goesBack
	}
}

// doneElsewhere ends the stay of an item whose claim was given back for the time
// of a backoff, and whose key was done meanwhile.
func (s *stage[A, B]) doneElsewhere(j job[A]) fate {
	s.p.event(Event{Kind: EventDuplicate, Stage: s.name, Key: j.t.key, Reason: ReasonStore})
	j.t.settle(verdict{outcome: Duplicate})
	return leaves
}

// busyAgain is how soon, at the soonest, an item asks again for a busy key.
const busyAgain = 100 * time.Millisecond

// snooze parks an item that is not to run yet. Of a busy key the store says how
// long it may stay so, which is the rest of a lease; most are done long before. So the item
// asks again whenever it is twice as old. Its source, if it has to take the item
// back, hears what the store said.
func (s *stage[A, B]) snooze(j job[A], err error, delay time.Duration) fate {
	if !errors.Is(err, ErrBusy) {
		return s.park(j, delay, 0, EventSnoozed)
	}
	age := s.p.now() - j.t.scope.admitted
	nap := min(delay, max(age, busyAgain))
	if left := s.policy.MaxAge - age; left > 0 {
		nap = min(nap, left) // it may be done just before the item is too old
	}
	return s.park(j, nap, delay, EventSnoozed)
}

// park hands j to the retry lane, unless it would be too old by then, or held for
// longer than its source allows. Given back to that, it is not to come before
// away is over, if that is longer than delay.
func (s *stage[A, B]) park(j job[A], delay, away time.Duration, kind EventKind) fate {
	if j.retry == nil {
		j.retry = &retryState{}
	}
	if limit := s.policy.MaxDelay; limit > 0 {
		delay = min(delay, limit)
	}
	away = max(away, delay)
	j.retry.longer = away - delay
	age := s.p.now() - j.t.scope.admitted
	last := j.retry.err
	if limit := s.policy.MaxAge; limit > 0 && delay > limit-age {
		err := fmt.Errorf("%w (%v)", ErrMaxAge, limit)
		if last != nil {
			err = fmt.Errorf("%w: %w", err, last)
		}
		return s.giveUp(j, ReasonExpired, err)
	}
	if hold := j.t.scope.owner.holdLimit(); hold > 0 && delay > hold-age {
		s.returned(j.item, away, last)
		return goesBack
	}
	if kind == EventRetried {
		s.retries.Add(1)
	}
	s.p.event(Event{Kind: kind, Stage: s.name, Key: j.t.key, Attempt: j.retry.attempts, Delay: delay, Err: last})
	if c := j.t.scope.claim; c != nil {
		c.leave(j.t.scope, delay)
	}
	if !s.lane.park(j, delay) {
		s.returned(j.item, away, s.leftover(j))
		return goesBack
	}
	return stays
}

// giveUp ends an item's attempts for good.
func (s *stage[A, B]) giveUp(j job[A], reason Reason, err error) fate {
	s.dead.Add(1)
	if s.failed != nil {
		s.failed.pass(item[Failed[A]]{Failed[A]{j.v, j.t.key, j.attempts(), reason, err}, j.t})
		return leaves
	}
	v := s.p.bury(DeadLetter{
		Stage: s.name, Namespace: s.namespace, Key: j.t.key, Value: j.v, Attempts: j.attempts(), Reason: reason, Err: err,
		Age: s.p.now() - j.t.scope.admitted,
	})
	j.t.settle(v)
	if v.outcome == Returned {
		return goesBack
	}
	return leaves
}
