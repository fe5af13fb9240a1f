package real

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncepipe/oncepipe"
)

// How the capacity is measured: after some effects that don't count, the median
// of so many looks, each so long, since a machine stalls now and then.
const (
	warmup = 32
	looks  = 7
	each   = 50 * time.Millisecond
)

// measure returns how many effects there are in a second when all workers are
// busy.
func measure(ctx context.Context, e effect, workers int) (perSecond float64, err error) {
	var n atomic.Int64
	one := func() error {
		key := fmt.Sprintf("measured-%d", n.Add(1))
		return e(oncepipe.WithKey(ctx, key), key)
	}
	for range warmup {
		if err := one(); err != nil {
			return 0, err
		}
	}
	rates := make([]float64, looks)
	for i := range rates {
		before, begun := n.Load(), time.Now()
		if err := keepBusy(workers, each, one); err != nil {
			return 0, err
		}
		rates[i] = float64(n.Load()-before) / time.Since(begun).Seconds()
	}
	slices.Sort(rates)
	return rates[looks/2], nil
}

// keepBusy has workers do a thing again and again.
func keepBusy(workers int, length time.Duration, one func() error) error {
	begun := time.Now()
	var g errgroup.Group
	for range workers {
		g.Go(func() error {
			for time.Since(begun) < length {
				if err := one(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
