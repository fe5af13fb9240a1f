package real

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// In fake time a cell has the same result each time: the effect takes exactly as
// long as was measured.
func TestSend(t *testing.T) {
	const service = time.Millisecond
	for _, c := range []struct {
		cell  Cell
		extra bool // effects
	}{
		{cell: Cell{Guard: None, Buffer: 16, Workers: 1, Load: 1.5}},
		{cell: Cell{Guard: None, Buffer: 256, Workers: 1, Load: 1.5}, extra: true},
		{cell: Cell{Guard: None, Buffer: 128, Workers: 4, Load: 1.5}},
		{cell: Cell{Guard: None, Buffer: 256, Workers: 4, Load: 1.5}, extra: true},
		{cell: Cell{Guard: Completed, Buffer: 256, Workers: 1, Load: 1.5}},
		{cell: Cell{Guard: Ours, Buffer: 256, Workers: 1, Load: 1.5}},
		{cell: Cell{Guard: Ours, Buffer: 1024, Workers: 4, Load: 1.5}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.cell.For, c.cell.Seed = 2*time.Second, 1
			var mu sync.Mutex
			written := map[string]int{}
			r := expect(c.cell, float64(c.cell.Workers)*float64(time.Second)/float64(service))
			err := r.send(t.Context(), c.cell, func(_ context.Context, key string) error {
				time.Sleep(service)
				mu.Lock()
				defer mu.Unlock()
				written[key]++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			extra := 0
			for _, n := range written {
				extra += n - 1
			}
			t.Logf("%d extra: %+v", extra, r)
			if len(written) != r.Keys || (extra > 0) != c.extra {
				t.Errorf("guard %s, buffer %d: %d keys written of %d, and %d times too often", c.cell.Guard, c.cell.Buffer, len(written), r.Keys, extra)
			}
			if c.cell.Guard == Ours && r.Share < 0.98 {
				t.Errorf("goodput is %.2f of the capacity", r.Share)
			}
			if c.extra && r.Share > 0.9 {
				t.Errorf("copies cost nothing: goodput is %.2f of the capacity", r.Share)
			}
		})
	}
}
