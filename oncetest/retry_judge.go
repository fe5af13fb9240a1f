package oncetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
)

// retryFault is a law that a run broke, when its log had n events.
type retryFault struct {
	run  *retryRun
	n    int
	what string
}

func (r *retryRun) fault(law retryLaw, n int, format string, args ...any) {
	if _, known := r.faults[law]; !known {
		r.faults[law] = retryFault{r, n, fmt.Sprintf(format, args...)}
	}
}

// judge holds the log to the laws.
func (r *retryRun) judge() {
	courses := make([]retryCourse, len(r.schedule.items))
	for i := range courses {
		courses[i] = retryCourse{r: r, item: i}
	}
	for n, e := range r.log {
		if e.item < 0 {
			r.drained = e.at
			continue
		}
		courses[e.item].take(n+1, e)
		inside := 0
		for _, c := range courses {
			if c.in && !c.over {
				inside++
			}
		}
		if inside > r.slots {
			r.fault(lawSlots, n+1, "%s inside a stage of %s", counted(inside, "item"), counted(r.slots, "slot"))
		}
	}
	r.judgeBacklog()
	if r.bounded != "" {
		r.fault(lawSlots, len(r.log), "%s", r.bounded)
	}
	r.judgeInstances()
	r.judgePartitions()
	r.judgeBudget()
	r.judgeEnd(courses)
	if r.laws.Limiter == nil {
		r.judgeLate()
	}
}

// retryCourse follows one item through the log.
type retryCourse struct {
	r    *retryRun
	item int

	admitted time.Duration
	in, over bool // it has begun, it is settled
	counted  int  // attempts that count
	ended    retryEvent
	answered bool          // the backoff was asked since the attempt ended
	answer   time.Duration // and said
	failed   bool          // the end of the attempt was counted
	due      time.Duration // of the next attempt
	dueLaw   retryLaw
	outcome  oncepipe.Outcome
}

func (c *retryCourse) fault(law retryLaw, n int, format string, args ...any) {
	c.r.fault(law, n, "item %d: %s", c.item+1, fmt.Sprintf(format, args...))
}

// take judges the item's next event, the n-th of the log.
func (c *retryCourse) take(n int, e retryEvent) {
	switch e.kind {
	case arrived:
		c.admitted = e.at
	case began:
		c.began(n, e)
	case ended:
		c.ended, c.answered, c.failed = e, false, false
	case counts:
		c.counts(n, e)
	case asked:
		c.asked(n, e)
	case parked, snoozed:
		c.parked(n, e)
	case buried:
		c.buried(n, e)
	case settled:
		c.settled(n, e)
	}
}

func (c *retryCourse) began(n int, e retryEvent) {
	c.in = true
	if limit := c.r.policy.MaxAttempts; limit > 0 && c.counted >= limit {
		c.fault(lawMaxAttempts, n, "there is an attempt after %d of %d", c.counted, limit)
	}
	if e.attempt != c.counted+1 {
		c.fault(lawSnooze, n, "attempt %d calls itself %d", c.counted+1, e.attempt)
	}
	switch {
	case c.ended.kind == ended && c.ended.does.last():
		c.fault(lawPermanent, n, "there is an attempt after one that %v", c.ended.does)
	case c.over:
		c.fault(lawNotLost, n, "it runs although it is settled")
	case e.at < c.due:
		c.fault(c.dueLaw, n, "attempt %d begins %v too early", e.attempt, c.due-e.at)
	case c.r.drained > 0 && c.due > c.r.drained:
		c.fault(lawNotLost, n, "it was parked when the pipeline was cancelled, and runs instead of going back to its source")
	}
	c.failed = false
}

func (c *retryCourse) counts(n int, e retryEvent) {
	if c.failed || c.ended.kind != ended { // a limiter that fails: the handler did not run
		c.ended = retryEvent{kind: ended, does: fails}
		c.answered = false
	}
	c.failed = true
	if c.counted++; e.attempt != c.counted {
		c.fault(lawSnooze, n, "failure %d counts as %d", c.counted, e.attempt)
	}
	if c.ended.does == snoozes || c.ended.does == succeeds {
		c.fault(lawSnooze, n, "attempt %d %v and counts as failed", e.attempt, c.ended.does)
	}
}

func (c *retryCourse) asked(n int, e retryEvent) {
	switch {
	case c.ended.does == asksRetryAfter:
		c.fault(lawRetryAfter, n, "its backoff is asked although the handler says when")
	case !c.ended.does.asks() || c.answered:
		c.fault(lawOwnWaits, n, "its backoff is asked without a failure to wait for")
	}
	if what := c.r.laws.outOfBounds(c.r.policy, e.delay); what != "" {
		c.fault(lawBounds, n, "its backoff answers %s", what)
	}
	c.answered, c.answer = true, e.delay
}

// parked is told how long the item has to wait.
func (c *retryCourse) parked(n int, e retryEvent) {
	limit := c.r.policy.MaxAttempts
	wait, law := e.delay, lawDelay
	switch {
	case e.kind == snoozed && c.ended.does != snoozes:
		c.fault(lawSnooze, n, "it is snoozed after an attempt that %v", c.ended.does)
	case c.ended.does.last():
		c.fault(lawPermanent, n, "it is tried again after an attempt that %v", c.ended.does)
	case limit > 0 && c.counted >= limit && e.kind == parked:
		c.fault(lawMaxAttempts, n, "it is tried again after %d attempts of %d", c.counted, limit)
	case c.ended.does == asksRetryAfter:
		wait, law = capped(c.r.policy, c.ended.delay), lawRetryAfter
	case c.ended.does == snoozes:
		wait = capped(c.r.policy, c.ended.delay)
	case !c.r.ownWait:
		if what := c.r.laws.outOfBounds(c.r.policy, e.delay); what != "" {
			c.fault(lawBounds, n, "its wait is %s", what)
		}
	case !c.answered:
		c.fault(lawOwnWaits, n, "it waits for %v, and its backoff was not asked", e.delay)
	case c.answer < 0:
		c.fault(lawStop, n, "it is tried again although its backoff answers %v", c.answer)
	default:
		wait = capped(c.r.policy, c.answer)
	}
	if e.delay != wait {
		c.fault(law, n, "it is to wait for %v and waits for %v", wait, e.delay)
	}
	c.due, c.dueLaw = e.at+wait, law
	if age := c.r.policy.MaxAge; age > 0 && c.due-c.admitted > age {
		c.fault(lawMaxAge, n, "its next attempt is due %v after it arrived, MaxAge is %v", c.due-c.admitted, age)
	}
}

func (c *retryCourse) buried(n int, e retryEvent) {
	policy := c.r.policy
	last := c.ended.does
	switch {
	case last == failsForGood && e.reason != oncepipe.ReasonPermanent, last.last() && last != failsForGood && e.reason != oncepipe.ReasonPanic:
		c.fault(lawPermanent, n, "an attempt that %v makes a dead letter %q", last, e.reason)
	case last.last():
	case errors.Is(e.err, oncepipe.ErrMaxAttempts):
		if c.counted != policy.MaxAttempts {
			c.fault(lawMaxAttempts, n, "its attempts are used up after %d of %d", c.counted, policy.MaxAttempts)
		}
		if c.counted < c.r.laws.MinAttempts {
			c.fault(lawMinAttempts, n, "it is given up after %s of %d promised", counted(c.counted, "attempt"), c.r.laws.MinAttempts)
		}
	case e.reason == oncepipe.ReasonExpired:
		if wait, known := c.wait(); known && (policy.MaxAge <= 0 || wait <= policy.MaxAge-(e.at-c.admitted)) {
			c.fault(lawMaxAge, n, "it is given up for its age, %v before MaxAge", policy.MaxAge-(e.at-c.admitted)-wait)
		}
	case errors.Is(e.err, oncepipe.ErrBackoffStopped):
		if c.answered && c.answer >= 0 {
			c.fault(lawOwnWaits, n, "it is given up although its backoff answers %v", c.answer)
		}
		if c.counted < c.r.laws.MinAttempts && c.prompt(e.at) {
			c.fault(lawMinAttempts, n, "its backoff stops after %s of %d promised", counted(c.counted, "attempt"), c.r.laws.MinAttempts)
		}
	case e.reason == oncepipe.ReasonPanic:
		c.fault(lawCrash, n, "it is a dead letter: %v", e.err)
	default:
		c.fault(lawNotLost, n, "an attempt that %v makes a dead letter %q: %v", last, e.reason, e.err)
	}
}

// wait is what the item was to wait for before it was given up.
func (c *retryCourse) wait() (time.Duration, bool) {
	switch {
	case c.ended.does == asksRetryAfter, c.ended.does == snoozes:
		return capped(c.r.policy, c.ended.delay), true
	case c.answered:
		return capped(c.r.policy, c.answer), true
	}
	return 0, false
}

// prompt says that the item lost no time beside its own waits: what is promised
// of the number of attempts is promised of such items.
func (c *retryCourse) prompt(now time.Duration) bool {
	waits := time.Duration(0)
	for _, e := range c.r.log {
		if e.item == c.item && e.kind == asked && e.delay > 0 {
			waits += capped(c.r.policy, e.delay)
		}
	}
	return c.admitted+waits >= now
}

func (c *retryCourse) settled(n int, e retryEvent) {
	if c.over {
		c.fault(lawNotLost, n, "it is settled twice")
	}
	c.over, c.outcome = true, e.outcome
	if e.outcome != oncepipe.Returned {
		return
	}
	switch left := c.due - e.at; {
	case !c.r.cancelled():
		c.fault(lawNotLost, n, "it is not finished until somebody cancels: %v", e.err)
	case c.ended.kind == ended && c.ended.does == succeeds:
		c.fault(lawNotLost, n, "it goes back to its source although it succeeded")
	case e.delay < left:
		c.fault(c.dueLaw, n, "it goes back to its source for %v, and has still to wait for %v", e.delay, left)
	}
}

// cancelled says that the run was ended from outside, by the schedule or because
// an item is to wait for longer than anybody looks.
func (r *retryRun) cancelled() bool {
	return r.schedule.cancel > 0 || slices.ContainsFunc(r.log, func(e retryEvent) bool {
		return (e.kind == parked || e.kind == snoozed) && e.delay >= horizon-e.at
	})
}

func (o retryOutcome) String() string {
	return [...]string{
		"succeeds", "fails", "fails with Unknown", "asks for RetryAfter", "snoozes", "fails with Permanent",
		"panics", "calls Goexit", "runs out of time", "is stopped by the end of the drain",
	}[o]
}
