package oncetest

import (
	"context"
	"fmt"
	"time"

	"github.com/oncepipe/oncepipe"
)

// settle is the Settle of a delivery.
func (b *Broker[M]) settle(ctx context.Context, d *BrokerDelivery[M], s oncepipe.Settlement) error {
	b.change(func() { b.judge(ctx, d, s) })
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("oncetest: broker: settle delivery %d: %w", d.Number, err)
	}
	if b.cfg.OnSettle != nil {
		if err := b.cfg.OnSettle(d.Value, s); err != nil {
			return err
		}
	}
	var err error
	b.change(func() {
		if b.refusals.hits() {
			err = b.refusals.err
			return
		}
		if err = b.settled(d, s); err == nil {
			d.answered = true
		}
	})
	return err
}

// judge notes what a caller may not do.
func (b *Broker[M]) judge(ctx context.Context, d *BrokerDelivery[M], s oncepipe.Settlement) {
	blame := func(format string, args ...any) {
		b.broken = append(b.broken, fmt.Errorf("%v %s", d, fmt.Sprintf(format, args...)))
	}
	switch {
	case d.answered:
		blame("was settled a second time, as %v, after %v was taken", s.Outcome, d.Settlement.Outcome)
	case d.Calls > 0 && d.asked != s.Outcome:
		blame("was settled as %v, and after an error as %v", d.asked, s.Outcome)
	}
	if ctx.Err() != nil {
		blame("was settled on a context that had ended: %v", context.Cause(ctx))
	}
	if s.Outcome < oncepipe.Filtered || s.Outcome > oncepipe.Returned {
		blame("was settled without an outcome")
	}
	if s.Delay < 0 {
		blame("was settled with a delay of %v", s.Delay)
	}
	d.Calls++
	d.asked = s.Outcome
}

// settled takes a settlement, if it is the first one and in time.
func (b *Broker[M]) settled(d *BrokerDelivery[M], s oncepipe.Settlement) error {
	now := time.Now()
	b.advance(now)
	if d.Settled {
		return nil
	}
	if d.Expired {
		if !d.Late {
			d.Late, d.Settlement, d.SettledAt = true, s, now
		}
		return b.cfg.LateError
	}
	d.Settled, d.Settlement, d.SettledAt = true, s, now
	b.release(d.message)
	if s.Outcome == oncepipe.Returned || s.Outcome == oncepipe.Shed && b.cfg.ReturnsShed {
		b.again(d.message, now.Add(max(s.Delay, b.cfg.RedeliveryDelay)))
	} else {
		b.left--
	}
	if b.losses.hits() {
		return b.losses.err
	}
	return nil
}
