package oncepipe_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// After DrainTimeout Run waits for handlers that ignore their context, and for
// nobody else: what is in buffers is returned at once, claimed or not.
func TestHardStop_DoesNotWaitForItemsInBuffers(t *testing.T) {
	const drain, abandon = time.Second, time.Hour
	block := func(ctx context.Context, _ brokerMsg) error {
		<-ctx.Done()
		return ctx.Err()
	}
	sinks := map[string]func(oncepipe.Stream[brokerMsg]){
		"one by one": func(in oncepipe.Stream[brokerMsg]) { oncepipe.Sink(in, "work", block) },
		"with retries": func(in oncepipe.Stream[brokerMsg]) {
			oncepipe.Sink(in, "work", block, oncepipe.Workers(2), oncepipe.Retry(brokerRetry(time.Minute)))
		},
		"ordered": func(in oncepipe.Stream[brokerMsg]) {
			out := oncepipe.Stage(in, "work", func(ctx context.Context, m brokerMsg) (brokerMsg, error) {
				return m, block(ctx, m)
			}, oncepipe.Workers(2), oncepipe.Ordered())
			oncepipe.Sink(out, "after", block)
		},
		"by partition": func(in oncepipe.Stream[brokerMsg]) {
			oncepipe.Sink(oncepipe.PartitionBy(in, func(m brokerMsg) string { return m.Key[:1] }), "work", block, oncepipe.PerPartition())
		},
		"in batches": func(in oncepipe.Stream[brokerMsg]) {
			oncepipe.BatchSink(in, "work", func(ctx context.Context, m []brokerMsg) error { return block(ctx, m[0]) }, oncepipe.BatchSize(2))
		},
	}
	for name, sink := range sinks {
		for _, stored := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/store %v", name, stored), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := memstore.New(memstore.Config{})
					var opts []oncepipe.Option
					if stored {
						opts = append(opts, oncepipe.WithStore(st))
					}
					r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout, c.AbandonAfter = drain, abandon })
					sink(r.dedup(opts...))
					const items = 9
					for i := range items {
						r.b.send(fmt.Sprint(i%2, "-", i))
					}
					r.start()
					synctest.Wait()
					began := time.Now()
					r.cancel()
					if err := <-r.ended; err != nil {
						t.Error(err)
					}
					if d := time.Since(began); d != drain {
						t.Errorf("Run took %v", d)
					}
					if n := r.b.count(returned); n != items {
						t.Errorf("%d of %d returned", n, items)
					}
					for i := range items {
						id := oncepipe.RecordID{Namespace: "rig/dedup", Key: fmt.Sprint(i%2, "-", i)}
						records, err := st.Lookup(t.Context(), []oncepipe.RecordID{id})
						if err != nil {
							t.Fatal(err)
						}
						if stored && records[0].State != waiting {
							t.Errorf("record of %s: %+v", id.Key, records[0])
						}
					}
				})
			})
		}
	}
}

// A copy that takes over when nobody looks any more is returned: the settlement
// of the first one took longer than Run.
func TestI5_HardStop_TakeoverThatComesLate(t *testing.T) {
	for name, wire := range map[string]func(in oncepipe.Stream[brokerMsg]) oncepipe.Stream[brokerMsg]{
		"no store": func(in oncepipe.Stream[brokerMsg]) oncepipe.Stream[brokerMsg] {
			return oncepipe.Dedup(in, "dedup", brokerKey)
		},
		"before a store": func(in oncepipe.Stream[brokerMsg]) oncepipe.Stream[brokerMsg] {
			st := memstore.New(memstore.Config{})
			return oncepipe.Dedup(oncepipe.Dedup(in, "outer", brokerKey), "inner", brokerKey, oncepipe.WithStore(st))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := oncepipe.New("rig", oncepipe.Config{DrainTimeout: -1, PruneEvery: -1, Logger: slog.New(slog.DiscardHandler)})
				var mu sync.Mutex
				settled := map[int]int{}
				n := 0
				in := oncepipe.From(p, "src", oncepipe.SourceFunc[brokerMsg](func(ctx context.Context) (oncepipe.Delivery[brokerMsg], error) {
					if n == 2 {
						<-ctx.Done()
						return oncepipe.Delivery[brokerMsg]{}, ctx.Err()
					}
					n++
					id := n
					return oncepipe.Delivery[brokerMsg]{Value: brokerMsg{ID: id, Key: "k"}, Settle: func(context.Context, oncepipe.Settlement) error {
						time.Sleep(5 * time.Second) // longer than AbandonAfter
						mu.Lock()
						defer mu.Unlock()
						settled[id]++
						return nil
					}}, nil
				}))
				oncepipe.Sink(wire(in), "work", func(context.Context, brokerMsg) error {
					time.Sleep(time.Second)
					return oncepipe.ErrLeaseLost
				})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(1100*time.Millisecond, cancel)
				err := p.Run(ctx)
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if s := p.Stats(); settled[1] != 1 || settled[2] != 1 || !s.Conserved() {
					t.Errorf("Run: %v; settled %v; %+v", err, settled, s)
				}
			})
		})
	}
}

// A store that doesn't answer any more holds up a hard stop for a time that does
// not grow with the number of its keys.
func TestHardStop_StoreHangs(t *testing.T) {
	for _, items := range []int{3, 600} {
		t.Run(fmt.Sprint(items), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newFaulty()
				hangs := time.Now().Add(900 * time.Millisecond)
				st.before = func(ctx context.Context, _ string, _ int) error {
					if time.Now().After(hangs) {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
				const settle = 10 * time.Second
				r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout, c.PruneEvery, c.SettleTimeout = -1, -1, settle })
				oncepipe.Sink(r.dedup(oncepipe.WithStore(st)), "work", func(ctx context.Context, m brokerMsg) error {
					if m.Key == "k0" && items == 3 {
						time.Sleep(950 * time.Millisecond) // is recorded when the store hangs already
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}, oncepipe.Workers(3), oncepipe.Buffer(oncepipe.Fixed(1000)))
				for i := range items {
					r.b.send(fmt.Sprint("k", i))
				}
				r.start()
				time.Sleep(time.Second)
				began := time.Now()
				r.cancel()
				err := <-r.ended
				if d := time.Since(began); err != nil || d > 2*settle+time.Second {
					t.Errorf("after %v: %v", d, err)
				}
				if s := r.p.Stats(); !s.Conserved() || s.Returned != int64(items) {
					t.Errorf("%+v", s)
				}
				for i := range items {
					if s := r.b.got[fmt.Sprint("k", i)]; len(s) != 1 || s[0].Delay < oncepipe.DefaultLease {
						t.Errorf("k%d was settled so: %+v", i, s)
					}
				}
			})
		})
	}
}
