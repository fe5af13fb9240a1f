package record

import (
	"context"
	"errors"
	"slices"
)

// errAlone sends callers away to act by themselves: nobody shares their
// transaction, or something in it failed, and it may not be another's fault.
var errAlone = errors.New("not shared")

// OnceShared is Once in a transaction that may be others', too.
func (c *Core[N]) OnceShared(ctx context.Context, e Effect[N]) []Outcome {
	f := c.newEffect(ctx, e)
	err := c.ready(ctx)
	if err == nil {
		err = c.effects.do(ctx, []*effect[N]{f})
	}
	switch {
	case errors.Is(err, errAlone):
		return c.Once(ctx, e)
	case err != nil: // perhaps somebody is still writing to f
		failed := c.newEffect(ctx, e)
		c.refuse(failed, failed.places(), err)
		failed.repeat()
		return failed.out
	}
	f.repeat()
	return f.out
}

// commitEffects makes the effects of several callers happen in one transaction.
func (c *Core[N]) commitEffects(ctx context.Context, effects []*effect[N]) error {
	effects = slices.DeleteFunc(slices.Clone(effects), func(f *effect[N]) bool { return f.ctx.Err() != nil })
	if len(effects) < 2 {
		return errAlone
	}
	all, owners := c.joined(effects)
	f := c.newEffect(ctx, all)
	f.owners = owners
	t := &trial[N]{effect: f, core: c, ctx: ctx, places: f.places()}
	err := t.try()
	switch {
	case t.failed:
		return errAlone
	case err != nil && !errors.Is(err, errNothingNew):
		return err
	}
	f.repeat()
	for i, o := range owners {
		o.effect.out[o.place] = f.out[i]
	}
	return nil
}

// place is an item of one of several effects.
type place[N any] struct {
	effect *effect[N]
	place  int
}

// joined is one effect made of several.
func (c *Core[N]) joined(effects []*effect[N]) (Effect[N], []place[N]) {
	all := Effect[N]{Step: effects[0].Step}
	var owners []place[N]
	for _, f := range effects {
		for i, id := range f.IDs {
			all.IDs = append(all.IDs, id)
			all.Fingerprints = append(all.Fingerprints, f.Fingerprints[i])
			owners = append(owners, place[N]{f, i})
		}
	}
	all.Run = func(_ context.Context, tx N, items []int) (results []Result, err error) {
		// Nobody's panic or Goexit must unwind another's goroutine.
		done := make(chan struct{})
		err = errAlone
		go func() {
			defer close(done)
			defer func() { _ = recover() }() // it comes again when its owner acts alone
			for _, i := range items {
				o := owners[i]
				if o.effect.ctx.Err() != nil { // he has gone, and his function is not to run
					return
				}
				own, failed := o.effect.Run(inTx(o.effect.ctx, c.identity()), tx, []int{o.place})
				if failed != nil {
					err = failed
					return
				}
				results = append(results, own...)
			}
			err = nil
		}()
		<-done
		return results, err
	}
	return all, owners
}
