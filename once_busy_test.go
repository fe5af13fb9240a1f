package oncepipe_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

// complete records a key as done.
func (s *faultyStore) complete(t *testing.T, ns, key string, result []byte) {
	t.Helper()
	id, claim := oncepipe.RecordID{Namespace: ns, Key: key}, oncepipe.NewClaimID()
	_, err1 := s.mem.Claim(t.Context(), []oncepipe.ClaimRequest{{RecordID: id, Claim: claim, Lease: time.Minute}})
	_, err2 := s.mem.Complete(t.Context(), []oncepipe.Completion{{RecordID: id, Claim: claim, Result: result, HasResult: result != nil}})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
}

// abandon leaves a claim behind, as a process that dies does, and lets its lease
// run out.
func (s *faultyStore) abandon(t *testing.T, ns, key string) {
	t.Helper()
	id := oncepipe.RecordID{Namespace: ns, Key: key}
	if _, err := s.mem.Claim(t.Context(), []oncepipe.ClaimRequest{{
		RecordID: id, Claim: oncepipe.NewClaimID(), Lease: oncepipe.DefaultLease,
	}}); err != nil {
		t.Fatal(err)
	}
}

// Many at once on one key: one of them runs, the others hear that it is busy,
// and get its result when they come again.
func TestR12_R24_ManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		var effects, busy atomic.Int32
		call := oncepipe.Once(a, "step", func(context.Context, int) (int32, error) {
			time.Sleep(time.Minute)
			return effects.Add(1), nil
		})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for {
					v, err := call(keyed(t), 0)
					if err == nil {
						if v != 1 {
							t.Errorf("result %d", v)
						}
						return
					}
					if !errors.Is(err, oncepipe.ErrBusy) || oncepipe.IsPermanent(err) {
						t.Errorf("got %v", err)
						return
					}
					busy.Add(1)
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		if effects.Load() != 1 || busy.Load() < 99 {
			t.Errorf("%d effects, %d times busy", effects.Load(), busy.Load())
		}
	})
}

// A stage waits for the other process without an attempt being counted, and
// passes on its result.
func TestR24_BusyIsASnooze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		out := oncepipe.Stage(r.in, "work", oncepipe.Once(a, "step", func(context.Context, brokerMsg) (string, error) {
			return "mine", nil
		})) // one attempt, no policy
		oncepipe.Sink(out, "see", func(_ context.Context, s string) error {
			if s != "theirs" {
				t.Errorf("result %q", s)
			}
			return nil
		})
		id, claim := oncepipe.RecordID{Namespace: "rig/step", Key: "k"}, oncepipe.NewClaimID()
		if _, err := a.Claim(t.Context(), []oncepipe.ClaimRequest{{RecordID: id, Claim: claim, Lease: time.Minute}}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(50*time.Second, func() {
			if _, err := a.Complete(t.Context(), []oncepipe.Completion{{RecordID: id, Claim: claim, Result: []byte(`"theirs"`), HasResult: true}}); err != nil {
				t.Error(err)
			}
		})
		st := r.run("k")
		r.wantOutcomes("k", done)
		if s := st.Stages[0]; s.Snoozed == 0 || s.Failed != 0 || s.Replayed != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A copy asks again soon while its key is busy, since most are done long before
// their lease would be over, and ever more seldom. The source's limit isn't reached for
// nothing.
func TestR24_BusyIsAskedAgainSoon(t *testing.T) {
	for _, c := range []struct {
		lasts, hold time.Duration
		late        time.Duration // at most
		asks        int           // at most
		ends        oncepipe.Outcome
	}{
		{lasts: 10 * time.Millisecond, late: 90 * time.Millisecond, asks: 2, ends: done},
		{lasts: time.Second, late: time.Second, asks: 6, ends: done},
		{lasts: time.Second, hold: 10 * time.Second, late: time.Second, asks: 6, ends: done},
		{lasts: 50 * time.Minute, late: 10 * time.Minute, asks: 18, ends: done}, // at 54.6 min it would be the end of the lease
		{lasts: 50 * time.Minute, hold: 10 * time.Second, asks: 8, ends: returned},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			a.claimed(t, "rig/step", "k", time.Hour, c.lasts)
			began := time.Now()
			b := newBroker()
			b.hold = c.hold
			r := newRigOn(t, b)
			oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(succeed)))
			r.run("k")
			r.wantRuns("k", 0)
			r.wantOutcomes("k", c.ends)
			if wait := time.Hour - time.Since(began); c.ends == returned && r.b.got["k"][0].Delay != wait {
				t.Errorf("returned with a delay of %v, and %v are left of the lease", r.b.got["k"][0].Delay, wait)
			}
			if late := time.Since(began) - c.lasts; late > c.late {
				t.Errorf("%+v: %v after it was done", c, late)
			}
			if n := a.called("claim"); n > c.asks {
				t.Errorf("%+v: asked %d times", c, n)
			}
		})
	}
}

// claimed leaves a claim of somebody else, who completes it after a time.
func (s *faultyStore) claimed(t *testing.T, ns, key string, lease, lasts time.Duration) {
	t.Helper()
	id, claim := oncepipe.RecordID{Namespace: ns, Key: key}, oncepipe.NewClaimID()
	if _, err := s.mem.Claim(t.Context(), []oncepipe.ClaimRequest{{RecordID: id, Claim: claim, Lease: lease}}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(lasts, func() {
		if _, err := s.mem.Complete(t.Context(), []oncepipe.Completion{{RecordID: id, Claim: claim}}); err != nil {
			t.Error(err)
		}
	})
}

// What the drain gives back of a busy key is not to come again before its lease
// is over.
func TestR24_DrainReturnsBusyWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.claimed(t, "rig/step", "k", time.Hour, 50*time.Minute)
		r := newRig(t)
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(succeed)),
			oncepipe.Retry(oncepipe.RetryPolicy{MaxDelay: 60 * time.Millisecond})) // of a nap, not of the lease
		r.b.send("k")
		r.start()
		time.Sleep(50 * time.Millisecond)
		r.cancel()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		r.wantOutcomes("k", returned)
		if d := r.b.got["k"][0].Delay; d != time.Hour-50*time.Millisecond {
			t.Errorf("delay %v", d)
		}
	})
}

// An item is not too old while its key may still be done in time.
func TestBusyUntilMaxAge(t *testing.T) {
	for lasts, want := range map[time.Duration]oncepipe.Outcome{7 * time.Second: done, 11 * time.Second: dead} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			a.claimed(t, "rig/step", "k", 30*time.Second, lasts)
			began := time.Now()
			r := newRig(t)
			oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(succeed)), oncepipe.Retry(oncepipe.RetryPolicy{MaxAge: 10 * time.Second}))
			r.run("k")
			r.wantRuns("k", 0)
			r.wantOutcomes("k", want)
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("after %v", d)
			}
		})
	}
}

// A step inside another one that is busy does not hold the outer key for as long.
func TestBusyInsideAnotherStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.claimed(t, "rig/inner", "k", 30*time.Second, time.Second)
		began := time.Now()
		r := newRig(t)
		inner := oncepipe.OnceDo(a, "inner", r.handler(succeed))
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "outer", inner))
		r.run("k")
		r.wantOutcomes("k", done)
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// A row that a dead owner left is no finished work: the redelivery is not
// acked, and runs once the lease is over, with the takeover told.
func TestR09_R28_R49_DeadOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.abandon(t, "rig/step", "k")
		began := time.Now()
		r := newRig(t)
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", r.handler(func(ctx context.Context, _ brokerMsg, run int) error {
			info, _ := oncepipe.InfoFrom(ctx)
			if !info.Takeover || info.Attempt != run+1 || info.Key != "k" || info.Step != "step" || info.Stage != "work" {
				t.Errorf("info %+v in run %d", info, run)
			}
			if run == 1 {
				return errBroken // whoever comes next has to know as well
			}
			return nil
		})), oncepipe.Retry(brokerRetry(time.Second)))
		r.b.send("k")
		r.b.end()
		r.start()
		time.Sleep(oncepipe.DefaultLease - time.Second)
		r.wantOutcomes("k")
		r.wantRuns("k", 0)
		r.finish()
		r.wantRuns("k", 2)
		r.wantOutcomes("k", done)
		if d := time.Since(began); d > oncepipe.DefaultLease+5*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// A key that kills the process again and again is given up, and a person may
// have it run again.
func TestMaxTakeovers(t *testing.T) {
	for _, limit := range []int{0, 2, -1} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			deaths := max(limit, 0)
			if limit == 0 {
				deaths = oncepipe.DefaultMaxTakeovers
			}
			for range deaths + 1 {
				a.abandon(t, "rig/step", "k")
				time.Sleep(oncepipe.DefaultLease)
			}
			r := newRig(t)
			cfg := oncepipe.OnceConfig[brokerMsg, struct{}]{MaxTakeovers: limit}
			oncepipe.Sink(r.in, "work", oncepipe.DoWith(a, "step", cfg, r.handler(succeed)))
			r.b.send("k")
			r.start()
			synctest.Wait()
			if limit < 0 {
				r.wantOutcomes("k", done)
			} else {
				r.wantOutcomes("k", dead)
				r.wantRuns("k", 0)
				if l := r.letter(0); l.Reason != oncepipe.ReasonTakeovers {
					t.Errorf("dead letter %+v", l)
				}
				if rec := a.recordOf(t, oncepipe.RecordID{Namespace: "rig/step", Key: "k"}); rec.State != oncepipe.StateFailed {
					t.Errorf("record %+v", rec)
				}
				if err := r.p.Inject("work", "k", brokerMsg{Key: "k"}); err != nil {
					t.Error(err)
				}
			}
			r.b.end()
			r.finish()
			r.wantRuns("k", 1)
		})
	}
}

// Each consumer of a key has its own record.
func TestR77_OneStoreTwoPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		run := func(pipeline, stage, step string, opts ...oncepipe.Option) (runs int, token string) {
			p := oncepipe.New(pipeline, oncepipe.Config{})
			in := oncepipe.KeyBy(oncepipe.FromSeq(p, "src", slices.Values([]string{"k"})), func(s string) string { return s })
			oncepipe.Sink(in, stage, oncepipe.OnceDo(a, step, func(ctx context.Context, _ string) error {
				info, _ := oncepipe.InfoFrom(ctx)
				runs, token = runs+1, info.Token()
				return nil
			}), opts...)
			if err := p.Run(t.Context()); err != nil {
				t.Error(err)
			}
			return runs, token
		}
		tokens := map[string]bool{}
		for _, c := range []struct {
			pipeline, stage, step, namespace string
			runs                             int
		}{
			{"a", "s", "x", "", 1},
			{"b", "s", "x", "", 1},
			{"a", "s", "y", "", 1},
			{"a", "renamed", "x", "", 0},
			{"a", "s", "x", "pinned", 1},
			{"renamed", "s", "x", "pinned", 0},
			{"renamed", "s", "x", "a", 0}, // what was a's
			{"a/x", "s", "", "", 1},
		} {
			var opts []oncepipe.Option
			if c.namespace != "" {
				opts = append(opts, oncepipe.Namespace(c.namespace))
			}
			runs, token := run(c.pipeline, c.stage, c.step, opts...)
			if runs != c.runs {
				t.Errorf("%+v: %d runs", c, runs)
			}
			if runs > 0 && tokens[token] {
				t.Errorf("%+v: the token of another", c)
			}
			tokens[token] = true
		}
	})
}

// A handler that Run gave up keeps its claim until it returns, so that nobody
// runs beside it, and then gives it back.
func TestI8_AbandonedHandlerKeepsItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout = time.Second })
		free := make(chan struct{})
		oncepipe.Sink(r.in, "work", oncepipe.OnceDo(a, "step", func(context.Context, brokerMsg) error { <-free; return errBroken }))
		r.b.send("k")
		r.start()
		synctest.Wait()
		r.cancel()
		var left *oncepipe.AbandonedError
		if err := <-r.ended; !errors.As(err, &left) {
			t.Errorf("Run: %v", err)
		}
		id := oncepipe.RecordID{Namespace: "rig/step", Key: "k"}
		time.Sleep(time.Hour)
		if rec := a.recordOf(t, id); rec.State != oncepipe.StateClaimed || rec.Lease <= 0 {
			t.Errorf("while it runs: %+v", rec)
		}
		close(free)
		synctest.Wait()
		if rec := a.recordOf(t, id); rec.State != oncepipe.StateWaiting {
			t.Errorf("afterwards: %+v", rec)
		}
	})
}
