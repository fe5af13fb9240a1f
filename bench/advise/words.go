package main

import (
	"fmt"
	"math"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Reasons has one line for each number.
type Reasons struct {
	Buffer, Slots, Guard, Retention, Store string
}

// explain takes how many keys a guard for all of j.Redelivery would hold.
func (a *Advice) explain(j Job, longGuard int) {
	a.Reasons = Reasons{
		Buffer: a.whyBuffer(j),
		Slots:  "nothing fails, so the default",
		Guard:  fmt.Sprintf("a copy can cross its ack, up to %v after the delivery before: rate × that, what is in flight, and six standard deviations", j.Timeout),
		Retention: fmt.Sprintf("if there is a store, it knows a key for longer than the %v for which it may come again (-redelivery): %s keys",
			j.Redelivery, count(a.Rate*a.Retention.Seconds())),
		Store: a.whyStore(j, longGuard),
	}
	if a.Timeouts > 1 {
		a.Reasons.Guard = fmt.Sprintf("a key whose ack is lost comes again after %v: rate × that, for %d losses in a row, what is in flight, and six standard deviations",
			j.Timeout, a.Timeouts)
	}
	if a.Overflows {
		a.Reasons.Guard += fmt.Sprintf("; copies can be more than JoinLimit lets wait, and are returned for %v: rate × that, too", oncepipe.DefaultJoinWait)
	}
	if a.Guard <= oncepipe.DefaultGuard {
		a.Reasons.Guard += fmt.Sprintf("; the default, %d, is enough", oncepipe.DefaultGuard)
	}
	a.Reasons.Guard = fmt.Sprintf("knows a key for at least %v after it was done, since ", a.Span) + a.Reasons.Guard
	if j.Fail > 0 {
		a.Reasons.Slots = fmt.Sprintf("an item in backoff keeps its slot: %.3g keys/s, %v of backoff for each on average, are %.3g at a time; with a margin, and not below the default",
			a.Rate, parkedFor(j).Round(100*time.Microsecond), a.Parked)
	}
}

func (a *Advice) whyBuffer(j Job) string {
	full := fmt.Sprintf("when it is full a key takes %v, and the sender waits %v (B* = %.4g)",
		a.Full.Sojourn.Round(10*time.Microsecond), j.Timeout, a.BStar)
	switch {
	case j.Buffer != AnyBuffer && j.Buffer > a.Safest:
		return fmt.Sprintf("yours; no more than %d would be well below B*; %s", max(a.Safest, 0), full)
	case j.Buffer != AnyBuffer:
		return "yours; " + full
	case a.Safest < 0:
		return "the timeout is so short that none is well below B*; " + full
	case a.Buffer == a.Safest:
		return fmt.Sprintf("the largest well below B*; %d would be better for throughput; %s", oncepipe.DefaultBuffer, full)
	default:
		return "most of what a buffer can gain; " + full
	}
}

func (a *Advice) whyStore(j Job, longGuard int) string {
	const needs = "needs a store, or a transaction with the effect (Tx)"
	switch {
	case a.Guard > math.MaxInt32:
		return "no guard holds that many keys; what comes again, in this process or after a restart or a kill, " + needs
	case a.Store == StoreForRestarts:
		return fmt.Sprintf("within one process the guard suffices: it knows a key for %v, and one may come again for %v (-redelivery); what must survive a restart or a kill %s",
			a.Span, j.Redelivery, needs)
	}
	why := fmt.Sprintf("within one process the guard suffices for what comes again within %v, but a key may come again for %v (-redelivery); "+
		"what comes later, or must survive a restart or a kill, %s", a.Span, j.Redelivery, needs)
	if longGuard <= math.MaxInt32 {
		why += fmt.Sprintf("; a guard of %s keys would know them for %v, until a restart", count(float64(longGuard)), j.Redelivery)
	}
	return why
}

func (a *Advice) warn(j Job) {
	say := func(format string, args ...any) { a.Warnings = append(a.Warnings, fmt.Sprintf(format, args...)) }
	dedup := func(format string, args ...any) { say(format, args...); a.NeedsDedup = true }
	if a.RealLoad >= 1 {
		say("The load, with the attempts that fail, is %.3g: the workers can't keep up, and what waits outside grows without end, "+
			"whatever the buffer. It takes at least %d workers.", a.RealLoad, int(float64(j.Workers)*a.RealLoad)+1)
	}
	if a.Guard > math.MaxInt32 {
		say("No Ring holds that many keys. It takes a store.")
	}
	switch {
	case a.Collapse >= 0 && a.Buffer >= a.Collapse:
		dedup("Without Dedup this buffer has a second, collapsed equilibrium (from %d on): once it is full, each key is sent %.3g more times, "+
			"goodput is %.2g, and it stays so. A burst or an outage is enough.", a.Collapse, a.Full.Copies, 1/(1+a.Full.Copies))
	case a.Full.Late > hardlyLate:
		dedup("Without Dedup %.3g %% of the keys take longer than the sender waits while this buffer is full.", 100*a.Full.Late)
	}
	if j.AckLoss > 0 {
		dedup("Without Dedup every lost ack is a second effect: %.3g for 100 keys.", 100*j.AckLoss/(1-j.AckLoss))
	}
	if j.Fail > 0 && j.Backoff+j.Service > j.Timeout {
		dedup("Without Dedup a failed item is sent again while it waits out its backoff of %v, and has its effect twice.", j.Backoff)
	}
}

// count writes n with a unit.
func count(n float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e9, " billion"}, {1e6, " million"}, {1e3, " thousand"}} {
		if n >= u.of {
			return fmt.Sprintf("%.3g%s", n/u.of, u.name)
		}
	}
	return fmt.Sprintf("%.0f", n)
}
