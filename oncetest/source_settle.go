package oncetest

import (
	"sync"

	"github.com/oncepipe/oncepipe"
)

// The rules about settlements that are in time.
var settleRules = []sourceRule{
	{name: "done, duplicate, filtered and dead are acks", check: func(r *sourceRig) {
		r.needsSettle()
		r.start()
		for _, o := range []oncepipe.Outcome{oncepipe.Done, oncepipe.Duplicate, oncepipe.Filtered, oncepipe.Dead} {
			r.settle(o, r.receive(r.sendSome(1)...)...)
			r.nothing("after a settlement as " + o.String())
			r.left(0, "after a settlement as "+o.String())
		}
	}},
	{name: "shed is an ack or a return, as configured", check: func(r *sourceRig) {
		r.needsSettle()
		r.start()
		text := r.sendSome(1)[0]
		r.settle(oncepipe.Shed, r.receiveOne(text))
		if r.cfg.ReturnsShed {
			r.settle(oncepipe.Done, r.receiveOne(text))
		}
		r.finished()
	}},
	{name: "a settlement that was not taken is an error, and can be repeated", check: func(r *sourceRig) {
		r.needsSettle()
		r.needs(r.env.RefuseSettlements != nil, "there is no SourceEnv.RefuseSettlements")
		r.start()
		for _, o := range []oncepipe.Outcome{oncepipe.Done, oncepipe.Returned} {
			text := r.sendSome(1)[0]
			a := r.receiveOne(text)
			r.env.RefuseSettlements(true)
			err := r.tell(a, o, 0)
			r.env.RefuseSettlements(false)
			switch {
			case err != nil:
				r.settle(o, a)
			case o == oncepipe.Done: // a return can do without the queue
				r.fatal("the queue did not take %v, and Settle answers nil", o)
			}
			if o == oncepipe.Returned {
				r.settle(oncepipe.Done, r.receiveOne(text))
			}
			r.nothing("after a repeated settlement")
			r.left(0, "after a repeated settlement")
		}
	}},
	{name: "a settlement whose answer was lost can be repeated", check: func(r *sourceRig) {
		r.needsSettle()
		r.needs(r.env.LoseAnswers != nil, "there is no SourceEnv.LoseAnswers")
		r.start()
		for _, o := range []oncepipe.Outcome{oncepipe.Done, oncepipe.Returned} {
			texts := r.sendSome(2)
			got := r.receive(texts...)
			r.env.LoseAnswers(1)
			err := r.tell(got[0], o, 0)
			r.env.LoseAnswers(0)
			if err != nil {
				r.settle(o, got[0])
			}
			if o == oncepipe.Returned {
				r.settle(oncepipe.Done, r.receiveOne(texts[0]))
			}
			r.left(1, "when one of two messages is settled")
			r.finished(got[1])
		}
	}},
	{name: "to settle twice does no harm", check: func(r *sourceRig) {
		r.needsSettle()
		r.start()
		texts := r.sendSome(3)
		got := r.receive(texts...)
		for i, o := range []oncepipe.Outcome{oncepipe.Done, oncepipe.Returned} {
			r.settle(o, got[i])
			_ = r.tell(got[i], o, 0) // what it answers is its own affair
		}
		r.settle(oncepipe.Done, r.receiveOne(texts[1]))
		r.left(1, "when two of three messages are settled")
		r.settle(oncepipe.Returned, got[2])
		r.finished(r.receiveOne(texts[2]))
	}},
	{name: "deliveries can be settled all at once", check: func(r *sourceRig) {
		r.needsSettle()
		r.start()
		texts := r.sendSome(8)
		got := r.receive(texts...)
		errs := make([]error, len(got))
		var wg sync.WaitGroup
		for i, a := range got {
			o := oncepipe.Done
			if i%2 == 1 {
				o = oncepipe.Returned
			}
			wg.Go(func() { errs[i] = r.tell(a, o, 0) })
		}
		wg.Wait()
		var back []string
		for i, err := range errs {
			if err != nil {
				r.fatal("%q: settled beside others: %v", texts[i], err)
			}
			if i%2 == 1 {
				back = append(back, texts[i])
			}
		}
		r.finished(r.receive(back...)...)
	}},
	{name: "deliveries can be settled when the context of Receive has ended", check: func(r *sourceRig) {
		r.needsSettle()
		r.start()
		texts := r.sendSome(3)
		got := r.receive(texts...)
		r.stop()
		for i, o := range []oncepipe.Outcome{oncepipe.Done, oncepipe.Returned, oncepipe.Dead} {
			r.settle(o, got[i])
		}
		r.start()
		r.finished(r.receiveOne(texts[1]))
	}},
}
