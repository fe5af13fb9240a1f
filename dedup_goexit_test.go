package oncepipe_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// A store that ends the goroutine of its caller, as a fake does with t.FailNow, is
// out of reach like any other: it is asked again after a backoff, not in a loop.
func TestDedup_StoreEndsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), nil)
		var ended atomic.Bool
		goexit := oncetest.StepStore(st, func(_ context.Context, name string, do func() error) error {
			if !ended.Load() && name == string(oncetest.OpClaim) {
				if err := do(); err != nil {
					return err
				}
				runtime.Goexit()
			}
			return do()
		})
		src := oncetest.NewBroker(oncetest.BrokerConfig[string]{Key: func(s string) string { return s }})
		src.Send("a")
		src.Close()
		p := oncepipe.New("p", oncepipe.Config{Stores: []oncepipe.Store{goexit}, Logger: slog.New(slog.DiscardHandler)})
		fresh := oncepipe.Dedup(oncepipe.From(p, "source", src), "dedup", func(s string) string { return s }, oncepipe.WithStore(goexit))
		oncepipe.Discard(fresh)
		time.AfterFunc(10*time.Second, func() { ended.Store(true) })
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if n := src.Count(oncepipe.Done); n != 1 {
			t.Errorf("%d done, want 1", n)
		}
		if n := st.Calls(oncetest.OpClaim); n < 3 || n > 50 {
			t.Errorf("%d claims in 10 s", n)
		}
		if err := src.Check(); err != nil {
			t.Error(err)
		}
	})
}
