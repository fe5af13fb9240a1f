package oncepipe_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// onceRig is a rig whose one stage calls fn under Once, on a store that the
// pipeline cares for.
func onceRig(t *testing.T, st oncepipe.Store, cfg oncepipe.OnceConfig[brokerMsg, struct{}], fn func(context.Context, brokerMsg, int) error, opts ...oncepipe.Option) *brokerRig {
	r := newRig(t, caredFor(st))
	oncepipe.Sink(r.in, "work", oncepipe.DoWith(st, "step", cfg, r.handler(fn)), opts...)
	return r
}

func keys(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "k" + strconv.Itoa(i)
	}
	return out
}

// All claims are renewed by one request, and those that end meanwhile no more.
func TestKeeperRenewsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newBatchStore(memstore.New(memstore.Config{}))
		r := onceRig(t, st, oncepipe.OnceConfig[brokerMsg, struct{}]{}, func(ctx context.Context, m brokerMsg, _ int) error {
			i, _ := strconv.Atoi(m.Key[1:])
			time.Sleep(time.Duration(i) * time.Millisecond) // begun at several times
			if i < 40 {
				time.Sleep(15 * time.Second)
				return ctx.Err()
			}
			time.Sleep(45 * time.Second)
			return ctx.Err()
		}, oncepipe.Workers(100))
		r.b.send(keys(100)...)
		r.b.end()
		r.start()
		time.Sleep(5 * time.Second)
		if s := storeStats(t, r.p, 0); s.Held != 100 || s.Renewed != 0 {
			t.Errorf("%+v", s)
		}
		r.finish()
		if got := st.sizes("extend"); !slices.Equal(got, []int{100, 60, 60, 60}) {
			t.Errorf("renewals of %v", got)
		}
		if s := storeStats(t, r.p, 0); s.Held != 0 || s.Renewed != 280 || s.RenewErrors != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What is quicker than the first renewal asks for none.
func TestKeeperQuickHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newBatchStore(memstore.New(memstore.Config{}))
		r := onceRig(t, st, oncepipe.OnceConfig[brokerMsg, struct{}]{}, func(context.Context, brokerMsg, int) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		r.run(keys(20)...)
		if got := st.sizes("extend"); len(got) > 0 {
			t.Errorf("renewals of %v", got)
		}
	})
}

// A store that isn't named in Config.Stores is nothing to the keeper.
func TestKeeperOnlyOfNamedStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named, other := newBatchStore(memstore.New(memstore.Config{})), newBatchStore(memstore.New(memstore.Config{}))
		r := newRig(t, caredFor(named))
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(other, "step", func(ctx context.Context, _ brokerMsg) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		}), oncepipe.Workers(3))
		r.run(keys(3)...)
		if got := other.sizes("extend"); len(got) < 15 || len(got) > 18 || slices.Max(got) != 1 {
			t.Errorf("renewals of %v", got)
		}
		if s := storeStats(t, r.p, 0); s.Renewed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Once inside Once finds the keeper as well, and so does one lease beside another.
func TestKeeperOfSeveralLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		st := newBatchStore(a)
		r := newRig(t, caredFor(st))
		inner := oncepipe.DoWith(st, "inner", oncepipe.OnceConfig[brokerMsg, struct{}]{Lease: time.Second}, func(ctx context.Context, _ brokerMsg) error {
			time.Sleep(10 * time.Second)
			return ctx.Err()
		})
		outer := func(ctx context.Context, m brokerMsg) error {
			if err := inner(ctx, m); err != nil {
				return err
			}
			time.Sleep(time.Minute)
			return ctx.Err()
		}
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(st, "outer", outer))
		r.run("k")
		r.wantOutcomes("k", done)
		// 30 of the inner in 10 s, and 6 or 7 of the outer.
		if got := len(st.sizes("extend")); got < 34 || got > 40 {
			t.Errorf("%d renewals", got)
		}
	})
}

func TestR31_R33_KeeperRenewsWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		b := a.beside()
		// Some replies are lost.
		a.after = func(_ context.Context, op string, n int) error {
			if op == "extend" && n%3 != 0 {
				return errLine
			}
			return nil
		}
		var log brokerLog
		r := newRig(t, caredFor(a), func(c *oncepipe.Config) { c.Logger = textLogger(&log) })
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", func(ctx context.Context, _ brokerMsg) error {
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		}))
		r.b.send("k")
		r.b.end()
		r.start()
		other := oncepipe.New("rig", oncepipe.Config{Stores: []oncepipe.Store{b}})
		ctx, cancel := context.WithCancel(t.Context())
		in := make(chan int)
		oncepipe.Sink(oncepipe.KeyBy(oncepipe.FromChan(other, "in", in), func(int) string { return "k" }), "work",
			oncepipe.OnceDo(b, "step", func(context.Context, int) error { t.Error("ran beside"); return nil }), oncepipe.Retry(oncepipe.RetryPolicy{}))
		ended := make(chan error)
		go func() { ended <- other.Run(ctx) }()
		time.Sleep(time.Second)
		in <- 1
		r.finish()
		time.Sleep(time.Minute)
		r.wantOutcomes("k", done)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 0 {
			t.Errorf("log:\n%s", &log)
		}
	})
}

// When the heartbeats stop, another process takes over, and what the old one says
// later is nothing.
func TestR31_KeeperThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		b := a.beside()
		a.before = failFor("extend", never)
		r := onceRig(t, a, oncepipe.OnceConfig[brokerMsg, struct{}]{}, func(context.Context, brokerMsg, int) error {
			time.Sleep(2 * time.Minute) // deaf to its context
			return nil
		})
		r.b.send("k")
		r.b.end()
		r.start()
		time.Sleep(31 * time.Second)
		id := oncepipe.RecordID{Namespace: oncepipe.Key("rig", "step"), Key: "k"}
		ans, err := b.Claim(t.Context(), []oncepipe.ClaimRequest{{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: time.Hour}})
		if err != nil || ans[0].Status != oncepipe.ClaimAcquired || !ans[0].Takeover {
			t.Errorf("takeover: %+v, %v", ans, err)
		}
		r.finish()
		r.wantOutcomes("k", returned)
		if rec := b.recordOf(t, id); rec.State != oncepipe.StateClaimed || rec.Fence != 2 {
			t.Errorf("%+v", rec)
		}
	})
}

// An outage shorter than the lease ends nothing; a longer one ends every context
// before another process could have the key, and no later.
func TestR35_KeeperWatchdog(t *testing.T) {
	for _, c := range []struct {
		name string
		down time.Duration
		hang bool
	}{{"short", 15 * time.Second, false}, {"long", time.Hour, false}, {"hanging", time.Hour, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				up := time.Now().Add(95*time.Second + c.down)
				down := time.Now().Add(95 * time.Second)
				a.before = func(ctx context.Context, op string, _ int) error {
					if op != "extend" || time.Now().Before(down) || time.Now().After(up) {
						return nil
					}
					if c.hang {
						<-ctx.Done()
					}
					return errLine
				}
				r := onceRig(t, a, oncepipe.OnceConfig[brokerMsg, struct{}]{}, func(ctx context.Context, m brokerMsg, _ int) error {
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Minute):
						return nil
					}
					if cause := context.Cause(ctx); cause != oncepipe.ErrLeaseLost {
						t.Errorf("cause is %v", cause)
					}
					rec := a.recordOf(t, oncepipe.RecordID{Namespace: oncepipe.Key("rig", "step"), Key: m.Key})
					if rec.State != oncepipe.StateClaimed || rec.Lease <= time.Second || rec.Lease > 10*time.Second {
						t.Errorf("at the end of the context: %+v", rec)
					}
					return ctx.Err()
				}, oncepipe.Workers(5))
				r.run(keys(5)...)
				want := done
				if c.down > time.Minute {
					want = returned
				}
				if n := r.b.count(want); n != 5 {
					t.Errorf("%d are %v, want 5", n, want)
				}
				if n := strings.Count(r.log.String(), "not renewed"); n < 1 || n > 2 {
					t.Errorf("an outage has to be logged once:\n%s", r.log)
				}
			})
		})
	}
}

// A claim that is gone ends its own handler and no other.
func TestR35_KeeperNotHeldEndsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := onceRig(t, a, oncepipe.OnceConfig[brokerMsg, struct{}]{}, func(ctx context.Context, m brokerMsg, _ int) error {
			if m.Key == "k1" {
				id := oncepipe.RecordID{Namespace: oncepipe.Key("rig", "step"), Key: "k1"}
				if _, err := a.Forget(t.Context(), []oncepipe.RecordID{id}, true); err != nil {
					t.Error(err)
				}
			}
			began := time.Now()
			select {
			case <-ctx.Done():
				if m.Key != "k1" || time.Since(began) > 10*time.Second || context.Cause(ctx) != oncepipe.ErrLeaseLost {
					t.Errorf("%s ended after %v because of %v", m.Key, time.Since(began), context.Cause(ctx))
				}
			case <-time.After(time.Minute):
			}
			return ctx.Err()
		}, oncepipe.Workers(3))
		r.run(keys(3)...)
		if r.b.count(done) != 2 || r.b.count(returned) != 1 {
			t.Errorf("settled: %v", r.b.got)
		}
	})
}

// Drain and hard stop leave nothing of the keeper; while they last, claims are
// renewed.
func TestR88_KeeperEndsWithRun(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := newBatchStore(memstore.New(memstore.Config{}))
			r := newRig(t, caredFor(st), func(c *oncepipe.Config) { c.DrainTimeout = time.Minute })
			oncepipe.Sink(r.in, "work", oncepipe.OnceDo(st, "step", func(ctx context.Context, _ brokerMsg) error {
				<-ctx.Done()
				if deaf {
					time.Sleep(5 * time.Minute)
				}
				return ctx.Err()
			}), oncepipe.Workers(4))
			r.b.send(keys(4)...)
			r.start()
			time.Sleep(time.Second)
			r.cancel()
			err := <-r.ended
			var abandoned *oncepipe.AbandonedError
			if errors.As(err, &abandoned) != deaf || !deaf && err != nil {
				t.Errorf("Run: %v", err)
			}
			renewals := len(st.sizes("extend"))
			if renewals < 5 {
				t.Errorf("%d renewals during the drain", renewals)
			}
			s := storeStats(t, r.p, 0)
			if deaf != (s.Held == 4) || !deaf && s.Held != 0 {
				t.Errorf("%+v", s)
			}
			time.Sleep(10 * time.Minute)
			// Handlers that Run didn't wait for keep their claims until they return.
			if more := len(st.sizes("extend")) - renewals; deaf != (more > 20) || more > 32 {
				t.Errorf("%d renewals after Run", more)
			}
			if s := storeStats(t, r.p, 0); s.Held != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
