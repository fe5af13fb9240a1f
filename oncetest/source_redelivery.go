package oncetest

import (
	"time"

	"github.com/oncepipe/oncepipe"
)

// The rules about what comes again.
var redeliveryRules = []sourceRule{
	{name: "what is returned comes again", check: func(r *sourceRig) {
		r.needsSettle()
		r.start()
		texts := r.sendSome(2)
		got := r.receive(texts...)
		a := got[0]
		for range 3 {
			r.settle(oncepipe.Returned, a)
			a = r.receiveOne(texts[0])
		}
		r.settle(oncepipe.Done, a)
		r.left(1, "when one of two messages is settled")
		r.settle(oncepipe.Returned, got[1])
		r.finished(r.receiveOne(texts[1]))
	}},
	{name: "what is returned comes again after its delay, not before", check: func(r *sourceRig) {
		r.needsSettle()
		r.needs(r.cfg.Delay > 0, "SourceConfig.Delay is 0")
		r.start()
		text := r.sendSome(1)[0]
		a := r.receiveOne(text)
		returned := r.now()
		if err := r.tell(a, oncepipe.Returned, r.cfg.Delay); err != nil {
			r.fatal("returned with a delay: %v", err)
		}
		again := r.receiveWithin(r.cfg.Delay+r.cfg.Patience, text)[0]
		notBefore(r, again, returned, r.cfg.Delay)
		r.finished(again)
	}},
	{name: "a redelivery has the key of the first delivery", check: func(r *sourceRig) {
		r.needsSettle()
		r.start()
		texts := r.sendSome(2)
		got := r.receive(texts...)
		if r.cfg.Keyed && (got[0].key == "" || got[1].key == "" || got[0].key == got[1].key) {
			r.fatal("the keys of two messages are %q and %q", got[0].key, got[1].key)
		}
		r.settle(oncepipe.Returned, got...)
		again := r.receive(texts...)
		for i, a := range again {
			if a.key != got[i].key {
				r.fatal("the key of %q was %q and is now %q", a.text, got[i].key, a.key)
			}
		}
		r.finished(again...)
	}},
	{name: "a redelivery has a value of its own", check: func(r *sourceRig) {
		r.needsSettle()
		r.needs(r.cfg.Spoil != nil, "there is no SourceConfig.Spoil: values point to nothing")
		r.start()
		text := r.sendSome(1)[0]
		a := r.receiveOne(text)
		a.spoil()
		if a.now() == text {
			r.fatal("SourceConfig.Spoil leaves the text as it is")
		}
		r.settle(oncepipe.Returned, a)
		r.finished(r.receiveOne(text))
	}},
	{name: "the limits are as configured", check: func(r *sourceRig) {
		if got := r.source.(oncepipe.HoldLimiter).HoldLimit(); got != r.cfg.Hold {
			r.fault("HoldLimit is %v, SourceConfig.Hold %v", got, r.cfg.Hold)
		}
		if got := r.source.(oncepipe.RedeliveryLimiter).MaxRedelivery(); got != r.cfg.MaxRedelivery {
			r.fault("MaxRedelivery is %v, SourceConfig.MaxRedelivery %v", got, r.cfg.MaxRedelivery)
		}
	}},
	{name: "what is not settled comes again after HoldLimit, not before", check: func(r *sourceRig) {
		r.needsHold()
		r.start()
		text := r.sendSome(1)[0]
		a := r.receiveOne(text)
		again := r.receiveOne(text)
		notBefore(r, again, a.at, r.cfg.Hold)
		if again.key != a.key {
			r.fault("the key was %q and is now %q", a.key, again.key)
		}
		r.finished(again)
	}},
	{name: "a late settlement does not settle the next delivery", check: func(r *sourceRig) {
		r.needsHold()
		r.start()
		text := r.sendSome(1)[0]
		late := r.receiveOne(text)
		again := r.receiveOne(text)
		_ = r.tell(late, oncepipe.Done, 0) // an error, or ignored
		r.left(1, "after a late settlement")
		third := r.receiveOne(text)
		notBefore(r, third, again.at, r.cfg.Hold)
		r.finished(third)
	}},
	{name: "nothing comes again when MaxRedelivery is over", check: func(r *sourceRig) {
		r.needsSettle()
		limit := r.cfg.MaxRedelivery
		r.needs(limit > 0, "SourceConfig.MaxRedelivery is 0")
		r.needs(r.cfg.Bubble || r.env.Advance != nil || limit <= r.cfg.Patience, "it takes longer than SourceConfig.Patience")
		r.start()
		first := r.receiveOne(r.sendSome(1)[0])
		last := first
		over := func() bool { return !r.now().Before(first.at.Add(limit)) }
		r.until(limit+time.Second, func() bool {
			for _, a := range r.fresh() {
				r.seen++
				last = a
			}
			return over()
		})
		r.pass(max(limit/100, time.Millisecond))
		_ = r.tell(last, oncepipe.Returned, 0) // too late or not, it is given back
		r.nothing("when MaxRedelivery was over")
		if age := last.at.Sub(first.at); age > limit {
			r.fatal("MaxRedelivery is %v, and a delivery came %v after the first", limit, age)
		}
	}},
}

func (r *sourceRig) needsHold() {
	r.needsSettle()
	r.needs(r.cfg.Hold > 0, "SourceConfig.Hold is 0")
}

// notBefore checks that a came no sooner than wait after a moment; a clock may be
// rounded by a hundredth of that.
func notBefore(r *sourceRig, a *arrival, since time.Time, wait time.Duration) {
	if after := a.at.Sub(since); after < wait-wait/100 {
		r.fatal("%q came after %v, and not after %v", a.text, after, wait)
	}
}
