package oncetest

import (
	"fmt"
	"strings"
	"time"
)

// tell is the story of a fault: what is wrong, and what happened until then.
func (f retryFault) tell() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  (%v)\n", f.what, f.run.schedule)
	log := f.run.log[:f.n]
	shared := f.run.sharing()
	item, at := -2, time.Duration(-1)
	for n, e := range log {
		text := e.tell(n, log, shared)
		switch {
		case text == "":
			continue
		case e.item == item && e.at == at:
			b.WriteString("; " + text)
		case e.item < 0:
			fmt.Fprintf(&b, "%s%-7v %s", lineEnd(item), e.at, text)
		default:
			fmt.Fprintf(&b, "%s%-7v item %d: %s", lineEnd(item), e.at, e.item+1, text)
		}
		item, at = e.item, e.at
	}
	b.WriteString("\n")
	return b.String()
}

func lineEnd(item int) string {
	if item == -2 { // the first line
		return "  "
	}
	return "\n  "
}

// sharing says that some items have one backoff, so that it has to be named.
func (r *retryRun) sharing() bool {
	for i, l := range r.instances {
		if l.number != i+1 {
			return true
		}
	}
	return false
}

// tell says what happened in event n of the log; nothing, where what comes
// after it says it.
func (e retryEvent) tell(n int, log []retryEvent, shared bool) string {
	switch e.kind {
	case arrived:
		if next := e.after(n, log); next != nil && next.kind == began && next.at == e.at {
			return ""
		}
		return "arrives"
	case began:
		if next := e.after(n, log); next != nil && next.kind == ended && next.at == e.at {
			return ""
		}
		return fmt.Sprintf("attempt %d begins", e.attempt)
	case ended:
		if e.does == asksRetryAfter || e.does == snoozes {
			return fmt.Sprintf("attempt %d %v (%v)", e.attempt, e.does, e.delay)
		}
		return fmt.Sprintf("attempt %d %v", e.attempt, e.does)
	case asked:
		if shared {
			return fmt.Sprintf("backoff %d answers %v", e.own.number, e.delay)
		}
		return fmt.Sprintf("its backoff answers %v", e.delay)
	case parked, snoozed:
		return fmt.Sprintf("waits %v", e.delay)
	case buried:
		return fmt.Sprintf("is given up: %s", e.reason)
	case settled:
		if e.delay > 0 {
			return fmt.Sprintf("is %v, for %v", e.outcome, e.delay)
		}
		return fmt.Sprintf("is %v", e.outcome)
	case draining:
		return "the pipeline is cancelled"
	}
	return ""
}

// after returns the item's next event.
func (e retryEvent) after(n int, log []retryEvent) *retryEvent {
	for i := range log[n+1:] {
		if next := &log[n+1+i]; next.item == e.item {
			return next
		}
	}
	return nil
}

// mostShrinks bounds how many schedules are tried to tell one fault better.
const mostShrinks = 1000

// shrink looks for the smallest schedule that breaks the law.
func (l RetryLaws) shrink(r *retryRun, law retryLaw) *retryRun {
	tried := 0
	for better := true; better && !r.stuck; {
		better = false
		for s := range r.schedule.smaller {
			if tried++; tried > mostShrinks {
				return r
			}
			c := l.run(s)
			if _, broken := c.faults[law]; broken && !c.stuck {
				r, better = c, true
				break
			}
		}
	}
	return r
}
