package oncetest

import (
	"slices"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
)

// No policy makes the stage itself break a law. So the log of a run that keeps
// all of them is changed, in one place each time, and judged again.
func TestRetryLawsCanBeBroken(t *testing.T) {
	const second = time.Second
	schedule := retrySchedule{
		workers: 1, slots: 3, partitions: true,
		items: []retryItem{
			{partition: 0, steps: []retryStep{{does: fails}, {does: asksRetryAfter, delay: 5 * second}, {does: snoozes, delay: 7 * second}}},
			{partition: 1, steps: []retryStep{{does: fails, takes: second}, {does: fails}}},
			{partition: 2, steps: []retryStep{{does: failsForGood}}},
		},
	}
	laws := RetryLaws{
		Policy: func() oncepipe.RetryPolicy {
			return oncepipe.RetryPolicy{MaxAttempts: 9, MaxDelay: time.Minute, Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(3 * second) }}
		},
		MaxDelay: time.Minute,
	}
	// nth returns the event of this kind that is the n-th of its item, from 0.
	nth := func(r *retryRun, item int, kind retryKind, n int) *retryEvent {
		for i := range r.log {
			if e := &r.log[i]; e.item == item && e.kind == kind {
				if n--; n < 0 {
					return e
				}
			}
		}
		t.Fatalf("item %d has no such event of kind %d", item, kind)
		return nil
	}
	for _, c := range []struct {
		name   string
		law    retryLaw
		change func(r *retryRun)
	}{
		{"an attempt before its wait is over", lawDelay, func(r *retryRun) { nth(r, 0, began, 1).at -= time.Millisecond }},
		{"a wait that the backoff didn't say", lawDelay, func(r *retryRun) { nth(r, 0, parked, 0).delay++ }},
		{"an attempt before RetryAfter is over", lawRetryAfter, func(r *retryRun) { nth(r, 0, began, 2).at -= time.Millisecond }},
		{"another wait than RetryAfter", lawRetryAfter, func(r *retryRun) { nth(r, 0, parked, 1).delay-- }},
		{"a backoff asked in place of RetryAfter", lawRetryAfter, func(r *retryRun) { nth(r, 0, ended, 0).does = asksRetryAfter }},
		{"a backoff asked twice", lawOwnWaits, func(r *retryRun) {
			e := nth(r, 0, asked, 0)
			r.log = slices.Insert(r.log, slices.IndexFunc(r.log, func(e retryEvent) bool { return e.kind == asked })+1, *e)
		}},
		{"a backoff that was not asked", lawOwnWaits, func(r *retryRun) {
			r.log = slices.DeleteFunc(r.log, func(e retryEvent) bool { return e.item == 0 && e.kind == asked })
		}},
		{"another item's backoff", lawOwnWaits, func(r *retryRun) { nth(r, 1, asked, 1).own = nth(r, 0, asked, 0).own }},
		{"a retry after Stop", lawStop, func(r *retryRun) { nth(r, 1, asked, 0).delay = backoff.Stop }},
		{"too many attempts", lawMaxAttempts, func(r *retryRun) { r.policy.MaxAttempts = 2 }},
		{"too old", lawMaxAge, func(r *retryRun) { r.policy.MaxAge = 10 * second }},
		{"a permanent error tried again", lawPermanent, func(r *retryRun) { nth(r, 1, ended, 0).does = failsForGood }},
		{"a panic tried again", lawPermanent, func(r *retryRun) { nth(r, 1, ended, 1).does = panics }},
		{"a permanent error as another dead letter", lawPermanent, func(r *retryRun) { nth(r, 2, buried, 0).reason = oncepipe.ReasonExpired }},
		{"a snooze as an attempt", lawSnooze, func(r *retryRun) { nth(r, 0, began, 3).attempt++ }},
		{"a snooze as a failure", lawSnooze, func(r *retryRun) { nth(r, 1, ended, 1).does = snoozes }},
		{"a late attempt", lawSlow, func(r *retryRun) { nth(r, 0, began, 2).at++ }},
		{"items of one partition side by side", lawPartition, func(r *retryRun) { r.schedule.items[1].partition = 0 }},
		{"more inside than there are slots", lawSlots, func(r *retryRun) { r.slots = 1 }},
		{"more admitted than there is room", lawSlots, func(r *retryRun) { r.slots, r.schedule.buffer = 2, -2 }},
		{"more parked than there are slots", lawSlots, func(r *retryRun) { r.bounded = "too many" }},
		{"an item that is not settled", lawNotLost, func(r *retryRun) {
			r.log = slices.DeleteFunc(r.log, func(e retryEvent) bool { return e.item == 1 && e.kind == settled })
		}},
		{"an item that is settled twice", lawNotLost, func(r *retryRun) { r.log = append(r.log, *nth(r, 1, settled, 0)) }},
		{"an item that goes back for nothing", lawNotLost, func(r *retryRun) { nth(r, 1, settled, 0).outcome = oncepipe.Returned }},
		{"an item that is done and listed as returned", lawNotLost, func(r *retryRun) {
			r.err = &oncepipe.ReturnedError{Items: []oncepipe.ReturnedItem{{Value: 1}}}
		}},
		{"an item that is not counted", lawNotLost, func(r *retryRun) { r.stats.Admitted-- }},
		{"a failure that is done", lawNotLost, func(r *retryRun) { nth(r, 1, ended, 2).does = fails }},
		{"a source that is told twice", lawNotLost, func(r *retryRun) { r.schedule.takesBack, r.told[0] = true, 2 }},
		{"too many attempts at once", lawBudget, func(r *retryRun) { r.laws.Budget = RetryBudget{Attempts: 1, Per: second} }},
		{"too many retries at once", lawBudget, func(r *retryRun) { r.laws.Budget = RetryBudget{Retries: 1, Per: 4 * second} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := laws.run(schedule)
			if len(r.faults) > 0 || r.refused != nil || r.stuck {
				t.Fatalf("before the change: %v, %v", r.faults, r.refused)
			}
			r.schedule.items = slices.Clone(schedule.items)
			c.change(r)
			r.judge()
			fault, broken := r.faults[c.law]
			if !broken {
				t.Fatalf("%q is not broken; found are %v", c.law, r.faults)
			}
			if story := fault.tell(); len(story) < len(fault.what) {
				t.Errorf("no story: %q", story)
			}
		})
	}
}
