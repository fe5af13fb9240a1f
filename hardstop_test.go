package oncepipe_test

import (
	"context"
	"fmt"
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
