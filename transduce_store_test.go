package oncepipe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/chans"
)

// A group behind a Dedup with a store holds the claims of all its members: none is
// given back during a long backoff, and all are complete when it is.
func TestTransduceGroupHoldsItsClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		b := st.beside()
		r := newRig(t)
		groups := oncepipe.Transduce(r.dedup(oncepipe.WithStore(st)), "steps", chans.PartitionAll[brokerMsg](3))
		attempts := 0
		oncepipe.Sink(groups, "sink", func(ctx context.Context, g []brokerMsg) error {
			attempts++
			for _, m := range g {
				b.wantRecord(t, m.Key, oncepipe.StateClaimed)
			}
			if attempts == 1 {
				return errBroken
			}
			return nil
		}, oncepipe.Retry(brokerRetry(time.Hour)))
		r.run(keys(3)...)
		for _, k := range keys(3) {
			r.wantOutcomes(k, done)
			b.wantRecord(t, k, oncepipe.StateCompleted)
		}
		if attempts != 2 {
			t.Errorf("%d attempts", attempts)
		}
	})
}

// When the claim of a member is lost, the group's context ends with it.
func TestTransduceGroupLosesALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.before = failFor("extend", time.Hour)
		r := newRig(t)
		groups := oncepipe.Transduce(r.dedup(oncepipe.WithStore(st)), "steps", chans.PartitionAll[brokerMsg](3))
		oncepipe.Sink(groups, "sink", func(ctx context.Context, _ []brokerMsg) error {
			<-ctx.Done()
			if context.Cause(ctx) != oncepipe.ErrLeaseLost {
				t.Errorf("cause is %v", context.Cause(ctx))
			}
			return oncepipe.Permanent(ctx.Err())
		})
		r.run(keys(3)...)
		for _, k := range keys(3) {
			r.wantOutcomes(k, returned)
			if s := r.b.got[k][0]; !errors.Is(s.Err, oncepipe.ErrLeaseLost) {
				t.Errorf("%+v", s)
			}
		}
		if len(r.letters) > 0 {
			t.Errorf("letters %+v", r.letters)
		}
	})
}
