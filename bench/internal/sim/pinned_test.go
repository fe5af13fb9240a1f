package sim_test

import (
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// Results that are the same on every machine. When one of them changes, so do
// the documents that are made of such results.
func TestPinned(t *testing.T) {
	guarded := func(guard sim.Guard, buffer int) sim.Cell {
		c := cell(guard)
		c.Buffer, c.Load = buffer, 1.4
		return c
	}
	burst := func(guard sim.Guard) sim.Cell {
		c := guarded(guard, 256)
		c.Load, c.Burst, c.Exponential, c.StoreTime = 0.8, 300, true, 100*time.Microsecond
		return c
	}
	crash := guarded(sim.Store, 64)
	crash.StoreTime, crash.Crash, crash.Lease = 200*time.Microsecond, 100*time.Millisecond, time.Second
	for _, c := range []struct {
		name string
		cell sim.Cell
		want sim.Result
	}{
		{"none, 64", guarded(sim.None, 64), sim.Result{
			Keys: 1800, Effects: 1800, Sends: 2000, Items: 2000,
			Goodput: 1,
			Sojourn: 8_500_000, SojournP99: 8_500_000, Simulated: 250_335_003,
		}},
		{"none, 256", guarded(sim.None, 256), sim.Result{
			Keys: 1800, Effects: 3195, Extra: 1395, Late: 1395, Sends: 3395, Items: 3395,
			P: 0.775, Goodput: 0.5921077523914913, Collapsed: true,
			Sojourn: 27_296_599, SojournP99: 32_500_000, Simulated: 423_739_202,
		}},
		{"none, 1024", guarded(sim.None, 1024), sim.Result{
			Keys: 1800, Effects: 6810, Extra: 5010, Late: 5010, Sends: 7010, Items: 7010,
			P: 0.775, Goodput: 0.28974968529896006, Collapsed: true,
			Sojourn: 72_609_544, SojournP99: 128_500_000, Simulated: 795_739_202,
		}},
		{"ours, 1024", guarded(sim.Ours, 1024), sim.Result{
			Keys: 1800, Effects: 1800, Sends: 4555, Items: 4555,
			P: 0.775, Goodput: 1, Collapsed: true,
			Sojourn: 38_707_340, SojournP99: 70_507_002, Simulated: 250_335_003,
		}},
		{"none, after a burst", burst(sim.None), sim.Result{
			Keys: 1800, Effects: 3600, Extra: 1800, Late: 1800, Sends: 3854, Items: 3854,
			P: 1, Goodput: 0.5116845748333874, Collapsed: true,
			Sojourn: 32_029_101, SojournP99: 35_159_398, Simulated: 468_495_202,
		}},
		{"completed, after a burst", burst(sim.Completed), sim.Result{
			Keys: 1800, Effects: 1802, Extra: 2, Claim: 2, Sends: 2457, Items: 2457,
			P: 0.2238888888888889, Goodput: 0.9363335361957803,
			Sojourn: 12_734_789, SojournP99: 34_990_000, Simulated: 269_528_200,
		}},
		{"store, after a burst", burst(sim.Store), sim.Result{
			Keys: 1800, Effects: 1800, Sends: 3407, Items: 3407,
			P: 0.75, Goodput: 0.6656299791366136, Collapsed: true,
			Sojourn: 30_810_994, SojournP99: 46_597_400, Simulated: 372_028_528,
		}},
		{"ours and store, after a burst", burst(sim.OursStore), sim.Result{
			Keys: 1800, Effects: 1800, Sends: 2587, Items: 2587,
			P: 0.30333333333333334, Goodput: 0.9199962952059303,
			Sojourn: 13_236_494, SojournP99: 36_096_529, Simulated: 269_836_128,
		}},
		{"store, a crash", crash, sim.Result{
			Keys: 1800, Effects: 1804, Extra: 4, Restart: 4, Sends: 2265, Items: 2196,
			P: 0.03833333333333333, Goodput: 0.5445524710912512,
			Sojourn: 17_725_825, SojournP99: 35_828_197, Simulated: 1_108_251_728,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := run(t, c.cell); got != c.want {
				t.Errorf("got  %#v\nwant %#v", got, c.want)
			}
		})
	}
}
