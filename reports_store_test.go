package oncepipe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
)

// This file has the faults that were reported of pipelines with a store, and that
// the tests of its parts don't show.

// windowBroker is a broker whose producers' messages are dropped when their id was
// published within the window. What is given back to it is no message of a producer.
type windowBroker struct {
	*broker
	window    time.Duration
	at        map[string]time.Time
	published int
	swallowed int
}

func (b *windowBroker) publish(id string) {
	if at, known := b.at[id]; known && time.Since(at) < b.window {
		b.swallowed++
		return
	}
	b.at[id] = time.Now()
	b.published++
	b.send(id)
}

// A second attempt doesn't go through the broker as a message, where its id would
// be one that was published already.
func TestR11_SecondAttemptIsNotPublished(t *testing.T) {
	for _, c := range []struct {
		name      string
		said      error
		delivered int
		outcomes  []oncepipe.Outcome
	}{
		{"retry", errBroken, 1, []oncepipe.Outcome{done}},
		{"retry after", oncepipe.RetryAfter(time.Minute, errBroken), 1, []oncepipe.Outcome{done}},
		{"snooze", oncepipe.Snooze(time.Minute), 1, []oncepipe.Outcome{done}},
		{"given back", oncepipe.Permanent(errBroken), 2, []oncepipe.Outcome{returned, done}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = nil })
				r.b.redeliver = true
				b := &windowBroker{broker: r.b, window: time.Hour, at: map[string]time.Time{}}
				r.work(r.dedup(oncepipe.WithStore(newFaulty())), func(_ context.Context, _ brokerMsg, run int) error {
					if run == 1 {
						return c.said
					}
					return nil
				}, oncepipe.Retry(brokerRetry(time.Second)))
				r.start()
				b.publish("k")
				time.Sleep(b.window / 2)
				r.wantRuns("k", 2)
				r.wantOutcomes("k", c.outcomes...)
				if b.published != 1 || b.swallowed != 0 || r.b.delivery != c.delivered {
					t.Errorf("published %d, swallowed %d, delivered %d times", b.published, b.swallowed, r.b.delivery)
				}
				b.publish("k") // as a retry of others is
				if b.swallowed != 1 {
					t.Error("the broker has no window")
				}
				r.b.end()
				r.finish()
			})
		})
	}
}

// forget makes a key of the rig's Dedup new again.
func (s *faultyStore) forget(t *testing.T, id oncepipe.RecordID) {
	t.Helper()
	if gone, err := s.Forget(t.Context(), []oncepipe.RecordID{id}, false); err != nil || !gone[0] {
		t.Fatalf("forget %+v: %v, %v", id, gone, err)
	}
}

// A key that was forgotten runs again at its next delivery, wherever no guard knows
// it: in other processes, and after a restart. A guard that has it answers until as
// many other keys as it has places were done, or somebody removes the key from it.
func TestR84_ForgottenKeyRunsAgain(t *testing.T) {
	const places = 3
	for name, guard := range map[string]func(int) oncepipe.Guard{"LRU": oncepipe.LRU, "Ring": oncepipe.Ring} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				g := guard(places)
				one := storeRig(t, a, succeeds, oncepipe.WithGuard(g))
				two := storeRig(t, a.beside(), succeeds)
				deliver := func(to *brokerRig, keys ...string) {
					to.b.send(keys...)
					time.Sleep(time.Second)
				}
				one.start()
				two.start()
				deliver(one, "k")
				a.forget(t, inStore("k"))
				deliver(one, "k")
				one.wantRuns("k", 1)
				one.wantOutcomes("k", done, duplicate)
				deliver(two, "k")
				two.wantRuns("k", 1)

				a.forget(t, inStore("k"))
				deliver(one, keys(places)...)
				deliver(one, "k")
				one.wantRuns("k", 2)

				a.forget(t, inStore("k"))
				g.Remove("k")
				deliver(one, "k")
				one.wantRuns("k", 3)

				for _, r := range []*brokerRig{one, two} {
					r.b.end()
					r.finish()
				}
				a.forget(t, inStore("k"))
				restarted := storeRig(t, a, succeeds)
				restarted.run("k")
				restarted.wantRuns("k", 1)
				restarted.wantOutcomes("k", done)
			})
		})
	}
}

// Inject asks no guard: a key that was forgotten runs at once, and one that was
// not has its result replayed.
func TestR84_InjectAfterForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		oncepipe.Sink(r.dedup(), "work", oncepipe.OnceDo(a, "step", r.handler(succeed)))
		r.b.send("k")
		r.start()
		synctest.Wait()
		inject := func() {
			t.Helper()
			if err := r.p.Inject("work", "k", brokerMsg{Key: "k"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		inject()
		r.wantRuns("k", 1)
		if s := r.p.Stats().Stages[0]; s.Replayed != 1 {
			t.Errorf("%+v", s)
		}
		id := oncepipe.RecordID{Namespace: "rig/step", Key: "k"}
		a.forget(t, id)
		inject()
		r.wantRuns("k", 2)
		if rec := a.recordOf(t, id); rec.State != completed {
			t.Errorf("%+v", rec)
		}
		r.b.end()
		r.finish()
	})
}

// claiming puts a handler behind a claim: that of Dedup's store, or of Once.
type claiming struct {
	name string
	ns   string // of its records
	put  func(r *brokerRig, st oncepipe.Store, fn func(context.Context, brokerMsg, int) error, opts ...oncepipe.Option)
}

var claimings = []claiming{
	{"Dedup", oncepipe.Key("rig", "dedup"), func(r *brokerRig, st oncepipe.Store, fn func(context.Context, brokerMsg, int) error, opts ...oncepipe.Option) {
		oncepipe.Sink(r.dedup(oncepipe.WithStore(st)), "work", r.handler(fn), opts...)
	}},
	{"Once", oncepipe.Key("rig", "step"), func(r *brokerRig, st oncepipe.Store, fn func(context.Context, brokerMsg, int) error, opts ...oncepipe.Option) {
		oncepipe.Sink(r.dedup(), "work", oncepipe.OnceDo(st, "step", r.handler(fn)), opts...)
	}},
}

// mortal is a line to st that is cut for good by kill.
func mortal(st *faultyStore) (line *faultyStore, kill func()) {
	var dead atomic.Bool
	line = st.beside()
	line.before = func(context.Context, string, int) error {
		if dead.Load() {
			return errLine
		}
		return nil
	}
	return line, func() { dead.Store(true) }
}

// A process is killed between the claims of many keys and their outcomes. The
// claims were there before the first effect, and none of them is for good: when
// its lease is over, and not before, each key runs again, and who runs it is told.
func TestP14_P37_KilledBetweenClaimAndOutcome(t *testing.T) {
	const n = 200
	for _, c := range claimings {
		for _, at := range []string{"before the effect", "after the effect"} {
			t.Run(c.name+"/"+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newFaulty()
					id := func(key string) oncepipe.RecordID { return oncepipe.RecordID{Namespace: c.ns, Key: key} }
					var effects tally
					killed := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout = -1 })
					line, kill := mortal(a)
					c.put(killed, line, func(ctx context.Context, m brokerMsg, _ int) error {
						if rec := a.recordOf(t, id(m.Key)); rec.State != oncepipe.StateClaimed {
							t.Errorf("before the effect: %+v", rec)
						}
						if at == "after the effect" {
							effects.add(m.Key)
						}
						<-ctx.Done() // whatever it does after this it does not do
						return ctx.Err()
					}, oncepipe.Workers(n))
					killed.b.send(keys(n)...)
					killed.start()
					time.Sleep(time.Second)
					kill()
					killed.cancel()
					if err := <-killed.ended; err != nil {
						t.Error(err)
					}
					if counts, err := a.Count(t.Context()); err != nil || counts[oncepipe.StateClaimed] != n {
						t.Fatalf("left %v, %v", counts, err)
					}
					lease := a.recordOf(t, id("k0")).Lease

					began := time.Now()
					r := newRig(t)
					r.b.redeliver = true
					c.put(r, a, func(ctx context.Context, m brokerMsg, _ int) error {
						info, _ := oncepipe.InfoFrom(ctx)
						if d := time.Since(began); d < lease || d > lease+5*time.Second || !info.Takeover {
							t.Errorf("%s after %v: %+v", m.Key, d, info)
						}
						effects.add(m.Key)
						return nil
					}, oncepipe.Workers(n))
					r.run(keys(n)...)
					want := map[string]int{"before the effect": 1, "after the effect": 2}[at] // the gap, which Takeover tells of
					for _, k := range keys(n) {
						r.wantRuns(k, 1)
						if got := r.b.outcomes(k); got[len(got)-1] != done || effects.of(k) != want {
							t.Errorf("%s: settled as %v, %d effects", k, got, effects.of(k))
						}
					}
					if counts, err := a.Count(t.Context()); err != nil || len(counts) != 1 || counts[completed] != n {
						t.Errorf("at the end: %v, %v", counts, err)
					}
				})
			})
		}
	}
}

// A death takes none of a stage's attempts: an item whose owner died may be run as
// often as any other. It counts as a takeover, which has a limit of its own, and in
// Info.Attempt, since a run had begun.
func TestP38_DeathIsNoAttemptOfTheStage(t *testing.T) {
	for _, c := range claimings {
		for attempts := 1; attempts <= 3; attempts++ {
			t.Run(fmt.Sprint(c.name, attempts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newFaulty()
					id := oncepipe.RecordID{Namespace: c.ns, Key: "k"}
					const deaths = oncepipe.DefaultMaxTakeovers
					for range deaths {
						claim := oncepipe.ClaimRequest{RecordID: id, Claim: oncepipe.NewClaimID(), Lease: time.Second}
						if _, err := a.Claim(t.Context(), []oncepipe.ClaimRequest{claim}); err != nil {
							t.Fatal(err)
						}
						time.Sleep(2 * time.Second)
					}
					var told []int
					policy := brokerRetry(time.Second)
					policy.MaxAttempts = attempts
					r := newRig(t)
					c.put(r, a, func(ctx context.Context, _ brokerMsg, run int) error {
						info, _ := oncepipe.InfoFrom(ctx)
						told = append(told, info.Attempt)
						if rec := a.recordOf(t, id); rec.Takeovers != deaths || !info.Takeover {
							t.Errorf("run %d: %+v, %+v", run, info, rec)
						}
						return errBroken
					}, oncepipe.Retry(policy))
					r.run("k")
					r.wantRuns("k", attempts)
					r.wantOutcomes("k", dead)
					if l := r.letter(0); l.Reason != oncepipe.ReasonExhausted || !errors.Is(l.Err, errBroken) {
						t.Errorf("%+v", l)
					}
					if told[0] != deaths+1 || !slices.IsSorted(told) {
						t.Errorf("attempts %v", told)
					}
				})
			})
		}
	}
}
