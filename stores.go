package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Config's care for stores.
const (
	DefaultPruneEvery = 10 * time.Minute
	DefaultPruneGrace = time.Minute
)

const (
	prunePortion = 1000
	pruneLimit   = time.Minute // for one portion
)

// Retainer is implemented by stores that know for how long they keep a record
// once nothing more will become of it. That is the time in which a duplicate is
// recognised, so Run compares it with the sources' RedeliveryLimiter.
type Retainer interface {
	Retention() time.Duration
}

// storeCare is what a pipeline does for a store while it runs: renew the claims
// on it, and prune it.
type storeCare struct {
	st     Store
	name   string
	keeper *keeper // from open on

	pruned, pruneErrors atomic.Int64
}

// care takes a store into the pipeline's care, once.
func (p *Pipeline) care(st Store) {
	switch {
	case st == nil:
		p.wrong(errors.New("Config.Stores: a store is nil"))
	case !reflect.ValueOf(st).Comparable():
		p.wrong(fmt.Errorf("store %T can't be told from others; use a pointer to it", st))
	case p.cared(st) == nil:
		p.stores = append(p.stores, &storeCare{st: st, name: fmt.Sprintf("%T", st)})
	}
}

func (p *Pipeline) cared(st Store) *storeCare {
	for _, c := range p.stores {
		if c.st == st {
			return c
		}
	}
	return nil
}

// keeper returns what renews claims on st, or nil where the pipeline doesn't.
func (p *Pipeline) keeper(st Store) *keeper {
	if c := p.cared(st); c != nil {
		return c.keeper
	}
	return nil
}

// checkRetention holds the retention of every store against the redelivery of
// every source.
func (p *Pipeline) checkRetention() (errs []error) {
	for _, c := range p.stores {
		r, ok := c.st.(Retainer)
		if !ok {
			continue
		}
		for _, n := range p.nodes {
			src, ok := n.(interface{ maxRedelivery() time.Duration })
			if !ok || src.maxRedelivery() == 0 || r.Retention() > src.maxRedelivery() {
				continue
			}
			name, _ := n.label()
			err := fmt.Errorf("store %s forgets a key after %v, and source %q may deliver it again after %v",
				c.name, r.Retention(), name, src.maxRedelivery())
			if p.cfg.AllowShortRetention {
				p.log.Warn("oncepipe: duplicates can get through", "error", err)
			} else {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// openStores begins to care for the stores. What it returns ends that.
func (p *Pipeline) openStores(base context.Context) (end func() []AbandonedHandler) {
	ctx, cancel := context.WithCancel(p.receiving)
	var pruning sync.WaitGroup
	for _, c := range p.stores {
		c.keeper = newKeeper(base, c.st)
		c.keeper.down = newOutage(p.log, "claims are not renewed; trying again", "store", c.name)
		if p.cfg.PruneEvery > 0 {
			pruning.Go(func() { p.prune(ctx, c) })
		}
	}
	return func() []AbandonedHandler {
		cancel()
		quiet := within(p.cfg.AbandonAfter, func() {
			for _, c := range p.stores {
				c.keeper.close()
			}
			pruning.Wait()
		})
		if !quiet {
			return []AbandonedHandler{{Stage: "stores"}}
		}
		return nil
	}
}

// within reports whether fn returned in time.
func within(d time.Duration, fn func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// prune removes what is over, again and again until ctx ends.
func (p *Pipeline) prune(ctx context.Context, c *storeCare) {
	down := newOutage(p.log, "store is not pruned; trying again", "store", c.name)
	again := defaultBackoff()
	for wait := p.cfg.PruneGrace; sleep(ctx, wait); {
		err := c.pruneAll(ctx)
		if ctx.Err() != nil {
			return
		}
		down.note(err)
		if err == nil {
			again.Reset()
			// Processes that were started together shall not prune together.
			wait = p.cfg.PruneEvery + rand.N(p.cfg.PruneEvery/10+1)
			continue
		}
		c.pruneErrors.Add(1)
		wait = min(again.NextBackOff(), p.cfg.PruneEvery)
	}
}

// pruneAll prunes portion by portion until none is left. It leaves the store
// alone between two of them for as long as the first one took.
func (c *storeCare) pruneAll(ctx context.Context) error {
	for {
		began := time.Now()
		n, err := c.pruneSome(ctx)
		c.pruned.Add(int64(n))
		if err != nil || n == 0 {
			return err
		}
		if !sleep(ctx, time.Since(began)) {
			return ctx.Err()
		}
	}
}

func (c *storeCare) pruneSome(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pruneLimit)
	defer cancel()
	perr := protect(func() error { n, err = c.st.Prune(ctx, prunePortion); return nil })
	return n, errors.Join(perr, err)
}

func (c *storeCare) stats() StoreStats {
	st := StoreStats{Name: c.name, Pruned: c.pruned.Load(), PruneErrors: c.pruneErrors.Load()}
	if k := c.keeper; k != nil {
		st.Held, st.Renewed, st.RenewErrors = k.held(), k.renewed.Load(), k.failed.Load()
	}
	return st
}

// outage logs that something fails when it begins to, and not every time.
type outage struct {
	log  *slog.Logger
	what string
	down atomic.Bool
}

func newOutage(log *slog.Logger, what string, args ...any) *outage {
	return &outage{log: log.With(args...), what: what}
}

// note takes in how a try ended. It does nothing for a nil outage.
func (o *outage) note(err error) {
	switch {
	case o == nil:
	case err == nil:
		if o.down.CompareAndSwap(true, false) {
			o.log.Info("oncepipe: over: " + o.what)
		}
	case o.down.CompareAndSwap(false, true):
		o.log.Warn("oncepipe: "+o.what, "error", err)
	}
}
