package oncepipe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// inStore is the record of a key of the rig's Dedup.
func inStore(key string) oncepipe.RecordID {
	return oncepipe.RecordID{Namespace: oncepipe.Key("rig", "dedup"), Key: key}
}

func (s *faultyStore) wantRecord(t *testing.T, key string, want oncepipe.State) oncepipe.Record {
	t.Helper()
	rec := s.recordOf(t, inStore(key))
	if rec.State != want {
		t.Errorf("record of %q: %+v, want it %v", key, rec, want)
	}
	return rec
}

// claimedBy lets somebody else have the key.
func claimedBy(t *testing.T, st oncepipe.Store, key string, lease time.Duration) oncepipe.ClaimID {
	t.Helper()
	id := oncepipe.NewClaimID()
	ans, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{{RecordID: inStore(key), Claim: id, Lease: lease}})
	if err != nil || ans[0].Status != oncepipe.ClaimAcquired {
		t.Fatalf("%+v, %v", ans, err)
	}
	return id
}

// settled are the settlements of a key so far.
func (b *broker) settled(key string) []oncepipe.Settlement {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got[key])
}

func succeeds(context.Context, brokerMsg, int) error { return nil }

// storeRig is a rig with a Dedup on st and one stage.
func storeRig(t *testing.T, st oncepipe.Store, fn func(context.Context, brokerMsg, int) error, opts ...oncepipe.Option) *brokerRig {
	r := newRig(t)
	r.b.redeliver = true
	r.work(r.dedup(append(opts, oncepipe.WithStore(st))...), fn)
	return r
}

func (r *brokerRig) work(in oncepipe.Stream[brokerMsg], fn func(context.Context, brokerMsg, int) error, opts ...oncepipe.Option) {
	oncepipe.Sink(in, "work", r.handler(fn), opts...)
}

func (r *brokerRig) dedupStats() oncepipe.DedupStats { return r.p.Stats().Dedups[0] }

func TestStoreBehindDedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := storeRig(t, a, succeeds)
		r.run("a", "b", "a", "c", "a")
		for _, k := range []string{"a", "b", "c"} {
			r.wantRuns(k, 1)
			a.wantRecord(t, k, completed)
		}
		r.wantOutcomes("b", done)
		if r.b.count(duplicate) != 2 {
			t.Errorf("settled: %v", r.b.got)
		}
		if s := r.dedupStats(); s.Fresh != 3 || s.Committed+s.Joined != 2 || s.InFlight != 0 || s.Claiming != 0 || s.Recording != 0 {
			t.Errorf("%+v", s)
		}
		if s := storeStats(t, r.p, 0); s.Held != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Nothing is acked and nothing runs while the store can't be reached; then it
// runs once.
func TestR07_P27_StoreOutageHoldsItems(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			a.before = func(ctx context.Context, op string, n int) error {
				if op == "claim" && n <= 3 {
					if hang {
						<-ctx.Done()
					}
					return errLine
				}
				return nil
			}
			r := storeRig(t, a, func(context.Context, brokerMsg, int) error {
				if n := a.called("claim"); n != 4 {
					t.Errorf("runs after %d claims", n)
				}
				return nil
			})
			r.run("k")
			r.wantRuns("k", 1)
			r.wantOutcomes("k", done)
			if n := strings.Count(r.log.String(), "level=WARN"); n != 1 || strings.Contains(r.log.String(), "level=ERROR") {
				t.Errorf("want one warning:\n%s", r.log)
			}
		})
	}
}

// An outage that lasts reaches the source: it has the items again, with a delay.
func TestR08_LongOutageReturnsItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failFor("claim", 10*time.Minute)
		r := storeRig(t, a, succeeds)
		r.b.send("k", "k", "l")
		r.start()
		time.Sleep(5 * time.Minute)
		r.wantRuns("k", 0)
		got := append(r.b.settled("k"), r.b.settled("l")...)
		for _, s := range got {
			joined := errors.Is(s.Err, oncepipe.ErrBusy) // its wait was over
			if s.Outcome != returned || s.Delay < oncepipe.DefaultLease || !joined && !errors.Is(s.Err, errLine) {
				t.Errorf("settled with %+v", s)
			}
		}
		if n := len(got); n < 5 {
			t.Errorf("settled %d times", n)
		}
		r.b.end()
		r.finish()
		r.wantRuns("k", 1)
		r.wantRuns("l", 1)
		if s := r.dedupStats(); s.Unreached < 5 {
			t.Errorf("%+v", s)
		}
	})
}

// A source that takes nothing back keeps its item where it is, however long that
// takes, and waits with the next one.
func TestR85_OutageHoldsUpASourceThatTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = failFor("claim", time.Hour)
		in := make(chan string)
		p := oncepipe.New("p", oncepipe.Config{Logger: slog.New(slog.DiscardHandler)})
		var runs atomic.Int32
		oncepipe.Sink(oncepipe.Dedup(oncepipe.FromChan(p, "in", in), "dedup", func(s string) string { return s },
			oncepipe.WithStore(a), oncepipe.Claims(oncepipe.ClaimPolicy{Window: 2})), "work",
			func(context.Context, string) error { runs.Add(1); return nil })
		ended := make(chan error)
		go func() { ended <- p.Run(t.Context()) }()
		sent := 0
		for began := time.Now(); time.Since(began) < 30*time.Minute; {
			select {
			case in <- fmt.Sprint(sent):
				sent++
			case <-time.After(time.Minute):
			}
			if sent > 300 {
				t.Fatal("the window has no bound")
			}
		}
		if runs.Load() > 0 {
			t.Error("ran during the outage")
		}
		close(in)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if int(runs.Load()) != sent {
			t.Errorf("%d runs of %d", runs.Load(), sent)
		}
	})
}

// What can't be recorded is not acked, and the guard doesn't know it: the
// redelivery runs again.
func TestR01_NotRecordedIsNotAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		up := time.Now().Add(2 * time.Minute)
		a.before = func(_ context.Context, op string, _ int) error {
			if (op == "complete" || op == "extend") && time.Now().Before(up) {
				return errLine
			}
			return nil
		}
		g := oncepipe.LRU(10)
		r := storeRig(t, a, func(_ context.Context, _ brokerMsg, run int) error {
			if run > 1 && time.Now().Before(up.Add(-time.Minute)) && g.Len() > 0 {
				t.Error("the guard knows what isn't recorded")
			}
			return nil
		}, oncepipe.WithGuard(g))
		r.b.send("k")
		r.start()
		time.Sleep(20 * time.Second)
		if n := len(r.b.outcomes("k")); n > 0 || g.Len() > 0 {
			t.Errorf("settled %v, guard knows %d", r.b.outcomes("k"), g.Len())
		}
		r.b.end()
		r.finish()
		got := r.b.outcomes("k")
		if n := r.runsOf("k"); n < 2 || len(got) != n || got[n-1] != done || got[0] != returned {
			t.Errorf("%d runs, settled as %v", n, got)
		}
		if g.Len() != 1 {
			t.Errorf("guard knows %d", g.Len())
		}
		a.wantRecord(t, "k", completed)
	})
}

// A Complete whose reply is lost, or that fails for a moment, is repeated: the
// item is acked after it and did not run twice.
func TestR51_CompleteOfDedupIsRepeated(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			if lost {
				a.after = failCalls("complete", 5)
			} else {
				a.before = failCalls("complete", 5)
			}
			r := storeRig(t, a, succeeds)
			r.run(keys(20)...)
			for _, k := range keys(20) {
				r.wantRuns(k, 1)
				r.wantOutcomes(k, done)
			}
		})
	}
}

// A record that a dead owner left is no reason to ack. When its lease is over the
// key is taken over, not before, and the handler is told.
func TestR09_R28_R49_RecordOfADeadOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		claimedBy(t, a, "k", 40*time.Second)
		began := time.Now()
		r := storeRig(t, a, func(ctx context.Context, _ brokerMsg, _ int) error {
			info, _ := oncepipe.InfoFrom(ctx)
			if d := time.Since(began); d < 40*time.Second || d > 41*time.Second {
				t.Errorf("taken over after %v", d)
			}
			if !info.Takeover || info.Attempt != 2 || info.Key != "k" {
				t.Errorf("%+v", info)
			}
			return nil
		})
		r.run("k")
		r.wantRuns("k", 1)
		r.wantOutcomes("k", returned, done)
		if s := r.b.got["k"][0]; s.Delay != 40*time.Second || !errors.Is(s.Err, oncepipe.ErrBusy) {
			t.Errorf("returned with %+v", s)
		}
		if s := r.dedupStats(); s.Busy == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Where the source takes nothing back, the item waits for the key within Wait.
func TestBusyKeyOfASourceThatTakesNothingBack(t *testing.T) {
	for _, lease := range []time.Duration{40 * time.Second, 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			claimedBy(t, a, "k", lease)
			began := time.Now()
			var runs atomic.Int32
			p := oncepipe.New("rig", oncepipe.Config{Logger: slog.New(slog.DiscardHandler)})
			in := make(chan string, 3)
			in <- "k"
			in <- "other"
			close(in)
			oncepipe.Sink(oncepipe.Dedup(oncepipe.FromChan(p, "in", in), "dedup", func(s string) string { return s }, oncepipe.WithStore(a)), "work",
				func(_ context.Context, k string) error {
					if d := time.Since(began); k == "k" && d < lease || k == "other" && d > time.Second {
						t.Errorf("%s ran after %v", k, d)
					}
					runs.Add(1)
					return nil
				})
			err := p.Run(t.Context())
			var re *oncepipe.ReturnedError
			if far := lease > time.Minute; errors.As(err, &re) != far || far && !errors.Is(re.Items[0].Err, oncepipe.ErrBusy) {
				t.Errorf("lease %v: %v", lease, err)
			}
			if s := p.Stats(); s.Done+s.Returned != 2 || int64(runs.Load()) != s.Done {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A miss of the guard is a question to the store, not an answer; and a guard that
// knows nothing, after a restart, lets no duplicate through.
func TestR41_R42_StoreKnowsWhatTheGuardForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		all := keys(2000)
		r := storeRig(t, a, succeeds, oncepipe.WithGuard(oncepipe.LRU(1)))
		r.run(append(all, all...)...)
		for _, k := range all {
			r.wantRuns(k, 1)
		}
		again := storeRig(t, a, succeeds)
		again.run(all...)
		for _, k := range all {
			again.wantRuns(k, 0)
			again.wantOutcomes(k, duplicate)
		}
		if s := again.dedupStats(); s.Stored != 2000 || s.Committed != 0 || s.Guarded != 2000 || s.Fresh != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Duplicates are counted by who knew them, and are no errors.
func TestR87_DuplicatesByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		storeRig(t, a, succeeds).run("k")
		r := storeRig(t, a, succeeds)
		r.b.send("k")
		r.start()
		synctest.Wait()
		r.b.send("k")
		r.b.end()
		r.finish()
		var reasons []oncepipe.Reason
		for _, e := range r.events {
			if e.Kind == oncepipe.EventDuplicate {
				reasons = append(reasons, e.Reason)
			}
		}
		if !slices.Equal(reasons, []oncepipe.Reason{oncepipe.ReasonStore, oncepipe.ReasonGuard}) {
			t.Errorf("reasons %v", reasons)
		}
		if s := r.dedupStats(); s.Stored != 1 || s.Committed != 1 {
			t.Errorf("%+v", s)
		}
		if strings.Contains(r.log.String(), "level=") {
			t.Errorf("log:\n%s", r.log)
		}
	})
}

// An item that fails and is tried again is no duplicate of itself, and its claim
// is not another's.
func TestR04_RetryBehindAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		r.work(r.dedup(oncepipe.WithStore(a)), func(_ context.Context, _ brokerMsg, run int) error {
			if run < 3 {
				return errBroken
			}
			return nil
		}, oncepipe.Retry(brokerRetry(50*time.Second)))
		r.run("k")
		r.wantRuns("k", 3)
		r.wantOutcomes("k", done)
		if rec := a.wantRecord(t, "k", completed); rec.Takeovers != 0 {
			t.Errorf("%+v", rec)
		}
	})
}

// A dead letter's record has what a redrive needs, and a new delivery runs.
func TestR46_DeadLetterInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := storeRig(t, a, func(_ context.Context, _ brokerMsg, run int) error {
			if run == 1 {
				return oncepipe.Permanent(errBroken)
			}
			return nil
		})
		r.b.send("k")
		r.start()
		time.Sleep(time.Second)
		rec := a.wantRecord(t, "k", failed)
		var m brokerMsg
		if err := json.Unmarshal(rec.Payload, &m); err != nil || m.Key != "k" || rec.Reason != errBroken.Error() {
			t.Errorf("payload %s, reason %q: %v", rec.Payload, rec.Reason, err)
		}
		r.b.send("k")
		r.b.end()
		r.finish()
		r.wantRuns("k", 2)
		r.wantOutcomes("k", dead, done)
		a.wantRecord(t, "k", completed)
	})
}

// What a shutdown returns has given its claim back, on a context that lives. A
// run that the shutdown ended was no attempt.
func TestR38_ClaimGivenBackAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.before = func(ctx context.Context, op string, _ int) error { return ctx.Err() }
		r := newRig(t)
		r.work(r.dedup(oncepipe.WithStore(a)), func(ctx context.Context, m brokerMsg, _ int) error {
			if m.Key == "parked" {
				return oncepipe.RetryAfter(time.Hour, errBroken)
			}
			<-ctx.Done()
			return ctx.Err()
		}, oncepipe.Retry(oncepipe.RetryPolicy{}), oncepipe.Workers(2))
		r.b.send("running", "parked")
		r.start()
		time.Sleep(10 * time.Second)
		r.cancel()
		time.Sleep(time.Second)
		if rec := a.wantRecord(t, "parked", waiting); rec.Attempt != 1 || rec.Wait < 58*time.Minute || rec.Wait > time.Hour {
			t.Errorf("%+v", rec)
		}
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		r.settled()
		if rec := a.wantRecord(t, "running", waiting); rec.Attempt != 0 {
			t.Errorf("%+v", rec)
		}
		r.wantOutcomes("running", returned)
		if s := storeStats(t, r.p, 0); s.Held != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The order at success: the record, the guard, the ack, the acks of the copies.
func TestI1_I2_OrderAtSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		a := newFaulty()
		a.after = func(_ context.Context, op string, _ int) error {
			if op == "complete" {
				time.Sleep(time.Second)
				note("recorded")
			}
			return nil
		}
		g := &notingGuard{Guard: oncepipe.LRU(10), note: note}
		r := newRig(t, func(c *oncepipe.Config) {
			c.Observers = []oncepipe.Observer{func(e oncepipe.Event) {
				if e.Kind == oncepipe.EventSettled {
					note(e.Outcome.String())
				}
			}}
		})
		r.work(r.dedup(oncepipe.WithStore(a), oncepipe.WithGuard(g)), func(context.Context, brokerMsg, int) error {
			time.Sleep(time.Second)
			note("effect")
			return nil
		})
		r.run("k", "k")
		if want := []string{"effect", "recorded", "guard", "done", "duplicate"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

type notingGuard struct {
	oncepipe.Guard
	note func(string)
}

func (g *notingGuard) Add(key, fp string) {
	g.note("guard")
	g.Guard.Add(key, fp)
}

// What waits to be claimed is bounded, in batches, and comes out in order.
func TestClaimWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		a.after = func(_ context.Context, op string, _ int) error {
			if op == "claim" {
				time.Sleep(time.Second)
			}
			return nil
		}
		st := newBatchStore(a)
		r := storeRig(t, st, succeeds, oncepipe.Claims(oncepipe.ClaimPolicy{Window: 10}))
		r.b.send(keys(100)...)
		r.b.end()
		r.start()
		time.Sleep(500 * time.Millisecond)
		if s := r.p.Stats(); s.Admitted > 11 || s.Dedups[0].Claiming > 11 {
			t.Errorf("%d admitted, %d in the window", s.Admitted, s.Dedups[0].Claiming)
		}
		r.finish()
		if !slices.Equal(r.order, keys(100)) {
			t.Errorf("order %v", r.order)
		}
		if n := len(st.sizes("claim")); n > 25 {
			t.Errorf("%d requests for 100 keys", n)
		}
	})
}

// A copy takes no place in the buffer behind Dedup: with the buffer full of other
// keys, and the window too, copies still join.
func TestI7_CopiesPassAFullWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		gate := make(chan struct{})
		r := storeRig(t, a, func(context.Context, brokerMsg, int) error { <-gate; return nil },
			oncepipe.JoinLimit(100, 100, time.Hour))
		r.b.send("k")
		for range 50 {
			r.b.send("k")
		}
		r.start()
		time.Sleep(time.Second)
		if s := r.dedupStats(); s.Waiting != 50 || s.InFlight != 1 || r.p.Stats().Stages[0].Depth != 0 {
			t.Errorf("%+v", s)
		}
		close(gate)
		r.b.end()
		r.finish()
		r.wantRuns("k", 1)
	})
}

// One key, another payload: the store remembers the fingerprint.
func TestR80_MismatchInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		for i, body := range []string{"one", "two"} {
			r := newRig(t)
			r.work(oncepipe.DedupFingerprint(r.in, "dedup", brokerKey, func(m brokerMsg) string { return m.Body }, oncepipe.WithStore(a)), succeeds)
			r.b.sendMsg(brokerMsg{Key: "k", Body: body})
			r.b.end()
			r.start()
			r.finish()
			want := []oncepipe.Outcome{done, dead}[i]
			r.wantOutcomes("k", want)
			if i == 1 && (r.letter(0).Reason != oncepipe.ReasonMismatch || r.dedupStats().Mismatched != 1) {
				t.Errorf("%+v", r.letter(0))
			}
		}
	})
}

// A record that a person has to look at is left to the person.
func TestUnknownRecordBehindDedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		id := claimedBy(t, a, "k", time.Minute)
		if _, err := a.Release(t.Context(), []oncepipe.ReleaseRequest{{RecordID: inStore("k"), Claim: id, To: oncepipe.ToUnknown}}); err != nil {
			t.Fatal(err)
		}
		r := storeRig(t, a, succeeds)
		r.run("k")
		r.wantRuns("k", 0)
		r.wantOutcomes("k", dead)
		if l := r.letter(0); l.Reason != oncepipe.ReasonUnknown || l.Stage != "dedup" {
			t.Errorf("%+v", l)
		}
		a.wantRecord(t, "k", unknown)
	})
}

// What kills its process again and again is given up.
func TestPoisonBehindDedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		for range 4 {
			claimedBy(t, a, "k", time.Second)
			time.Sleep(2 * time.Second)
		}
		r := storeRig(t, a, succeeds, oncepipe.Claims(oncepipe.ClaimPolicy{MaxTakeovers: 3}))
		r.run("k")
		r.wantRuns("k", 0)
		r.wantOutcomes("k", dead)
		if l := r.letter(0); l.Reason != oncepipe.ReasonTakeovers || !errors.Is(l.Err, oncepipe.ErrMaxTakeovers) {
			t.Errorf("%+v", l)
		}
		a.wantRecord(t, "k", failed)
	})
}

// Its dead letter may be kept in the record that it was claimed by.
func TestPoisonBehindDedup_LettersInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		for range 4 {
			claimedBy(t, a, "k", time.Second)
			time.Sleep(2 * time.Second)
		}
		r := newRig(t, func(c *oncepipe.Config) { c.DeadLetters = oncepipe.DeadLettersIn(a, nil) })
		r.b.redeliver = true
		r.work(r.dedup(oncepipe.WithStore(a), oncepipe.Claims(oncepipe.ClaimPolicy{MaxTakeovers: 3})), succeeds)
		r.run("k")
		r.wantRuns("k", 0)
		r.wantOutcomes("k", dead)
		if rec := a.wantRecord(t, "k", failed); len(rec.Payload) == 0 || !strings.Contains(rec.Reason, string(oncepipe.ReasonTakeovers)) {
			t.Errorf("%+v", rec)
		}
	})
}

// A lost lease ends the attempt that runs, keeps those in the buffer from
// beginning, and all are returned: before another process can have the keys.
func TestR35_LostLeaseBehindDedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		b := a.beside()
		a.before = failFor("extend", time.Hour)
		r := newRig(t)
		r.work(r.dedup(oncepipe.WithStore(a)), func(ctx context.Context, m brokerMsg, _ int) error {
			<-ctx.Done()
			if context.Cause(ctx) != oncepipe.ErrLeaseLost {
				t.Errorf("cause is %v", context.Cause(ctx))
			}
			if rec := b.wantRecord(t, m.Key, oncepipe.StateClaimed); rec.Lease < time.Second {
				t.Errorf("at the end of the context: %+v", rec)
			}
			return oncepipe.Permanent(ctx.Err())
		})
		r.run(keys(5)...)
		total := 0
		for _, k := range keys(5) {
			total += r.runsOf(k)
			r.wantOutcomes(k, returned)
			if s := r.b.got[k][0]; !errors.Is(s.Err, oncepipe.ErrLeaseLost) || s.Delay != 0 {
				t.Errorf("%+v", s)
			}
		}
		if total != 1 || len(r.letters) > 0 {
			t.Errorf("%d runs, letters %+v", total, r.letters)
		}
	})
}

// Another process takes a key over whose owner was cut off; the old owner's
// item is returned, finds it done, and one of both is right.
func TestR31_TwoPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		b := a.beside()
		cut := time.Now().Add(2 * time.Minute)
		a.before = func(context.Context, string, int) error {
			if d := time.Since(cut); d > 0 && d < 10*time.Minute {
				return errLine
			}
			return nil
		}
		slow := func(ctx context.Context, _ brokerMsg, _ int) error {
			select {
			case <-time.After(3 * time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		one, two := storeRig(t, a, slow), storeRig(t, b, slow)
		one.b.send("k")
		one.start()
		time.Sleep(time.Second)
		two.b.send("k")
		two.start()
		time.Sleep(100 * time.Second)
		two.wantRuns("k", 0) // heartbeats flow
		one.b.end()
		two.b.end()
		one.finish()
		two.finish()
		if n := one.runsOf("k") + two.runsOf("k"); n != 2 {
			t.Errorf("%d runs", n)
		}
		if n := one.b.count(done) + two.b.count(done); n != 1 {
			t.Errorf("done %d times", n)
		}
		if rec := b.wantRecord(t, "k", completed); rec.Takeovers > 1 {
			t.Errorf("%+v", rec)
		}
	})
}

// When the first copy loses its lease, the copy that takes over asks the store
// like any other.
func TestR21_HeirClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		b := a.beside()
		r := storeRig(t, a, func(ctx context.Context, _ brokerMsg, run int) error {
			if run > 1 {
				return nil
			}
			// Somebody forces the key and has it for a while.
			if _, err := b.Forget(t.Context(), []oncepipe.RecordID{inStore("k")}, true); err != nil {
				t.Error(err)
			}
			claimedBy(t, b, "k", time.Minute)
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		r.run("k", "k")
		if d := time.Since(began); d < time.Minute {
			t.Errorf("over after %v", d)
		}
		r.wantRuns("k", 2)
		if s := r.dedupStats(); s.TookOver != 1 {
			t.Errorf("%+v", s)
		}
		if r.b.count(done) != 1 || r.b.count(duplicate) != 1 {
			t.Errorf("settled: %v", r.b.got)
		}
	})
}

// A hard stop while the store is down ends in time, and everything is returned.
func TestR88_HardStopWithoutAStore(t *testing.T) {
	for _, op := range []string{"claim", "complete", "release", "extend"} {
		for _, hang := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				a := newFaulty()
				a.before = func(ctx context.Context, o string, _ int) error {
					if o != op {
						return nil
					}
					if hang {
						<-ctx.Done()
					}
					return errLine
				}
				r := newRig(t)
				r.work(r.dedup(oncepipe.WithStore(a)), func(ctx context.Context, m brokerMsg, _ int) error {
					if op == "complete" {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				})
				r.b.send(keys(30)...)
				r.start()
				time.Sleep(time.Second)
				r.cancel()
				began := time.Now()
				if err := <-r.ended; err != nil {
					t.Errorf("%s: Run: %v", op, err)
				}
				if d := time.Since(began); d > 45*time.Second {
					t.Errorf("%s: Run took %v to end", op, d)
				}
				r.settled()
				if n := r.b.count(returned); n != r.b.delivery {
					t.Errorf("%s: %d of %d are returned: %v", op, n, r.b.delivery, r.b.got)
				}
				if s := storeStats(t, r.p, 0); s.Held != 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// A store that is deaf to its contexts doesn't keep Run.
func TestR88_DeafStore(t *testing.T) {
	for _, op := range []string{"claim", "complete", "release", "extend"} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			gate := make(chan struct{})
			a.before = func(_ context.Context, o string, _ int) error {
				if o == op {
					<-gate
				}
				return nil
			}
			r := newRig(t)
			r.work(r.dedup(oncepipe.WithStore(a)), func(ctx context.Context, _ brokerMsg, _ int) error {
				switch op {
				case "release":
					return oncepipe.Permanent(errBroken)
				case "extend":
					time.Sleep(12 * time.Second)
				}
				return nil
			})
			r.b.send("k")
			r.start()
			time.Sleep(11 * time.Second)
			r.cancel()
			began := time.Now()
			<-r.ended
			if d := time.Since(began); d > time.Minute {
				t.Errorf("%s: Run took %v to end", op, d)
			}
			close(gate)
			time.Sleep(time.Minute)
		})
	}
}

// A handler that Run didn't wait for has its key until the lease is over.
func TestAbandonedHandlerKeepsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		gate := make(chan struct{})
		r := newRig(t)
		r.work(r.dedup(oncepipe.WithStore(a)), func(context.Context, brokerMsg, int) error { <-gate; return nil })
		r.b.send("k")
		r.start()
		time.Sleep(time.Second)
		r.cancel()
		var abandoned *oncepipe.AbandonedError
		if err := <-r.ended; !errors.As(err, &abandoned) {
			t.Errorf("Run: %v", err)
		}
		if rec := a.wantRecord(t, "k", oncepipe.StateClaimed); rec.Lease <= 0 {
			t.Errorf("%+v", rec)
		}
		r.wantOutcomes("k", returned)
		if d := r.b.got["k"][0].Delay; d != oncepipe.DefaultLease {
			t.Errorf("returned with delay %v", d)
		}
		close(gate)
		synctest.Wait()
		a.wantRecord(t, "k", oncepipe.StateClaimed) // what it says now is not heard
	})
}

// Goexit in an operator takes one item with it and not the claim window.
func TestGoexitBehindTheClaimWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		mapped := oncepipe.Map(r.dedup(oncepipe.WithStore(a)), func(m brokerMsg) brokerMsg {
			if m.Key == "k3" {
				runtime.Goexit()
			}
			return m
		})
		r.work(mapped, succeeds)
		r.run(keys(10)...)
		if r.b.count(done) != 9 || r.b.count(dead) != 1 {
			t.Errorf("settled: %v", r.b.got)
		}
		a.wantRecord(t, "k3", failed)
	})
}

// One Dedup with a store behind another: both have their records, and the loss of
// either lease ends the attempt.
func TestTwoStoresOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFaulty(), newFaulty()
		r := newRig(t)
		second := oncepipe.Dedup(r.dedup(oncepipe.WithStore(a)), "second", brokerKey, oncepipe.WithStore(b))
		r.work(second, func(ctx context.Context, m brokerMsg, run int) error {
			if m.Key != "lost" || run > 1 {
				return nil
			}
			if _, err := a.Forget(t.Context(), []oncepipe.RecordID{inStore("lost")}, true); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		r.b.redeliver = true
		r.run("k", "lost")
		r.wantOutcomes("k", done)
		r.wantRuns("lost", 2)
		r.wantOutcomes("lost", returned, done)
		a.wantRecord(t, "k", completed)
		id := oncepipe.RecordID{Namespace: oncepipe.Key("rig", "second"), Key: "k"}
		if rec := b.recordOf(t, id); rec.State != completed {
			t.Errorf("%+v", rec)
		}
		if n := len(r.p.Stats().Stores); n != 2 {
			t.Errorf("%d stores cared for", n)
		}
	})
}

// Namespace pins the record's name across a rename of the pipeline.
func TestNamespaceOfDedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(memstore.Config{})
		var runs int
		for _, name := range []string{"old", "new"} {
			p := oncepipe.New(name, oncepipe.Config{})
			in := make(chan string, 1)
			in <- "k"
			close(in)
			oncepipe.Sink(oncepipe.Dedup(oncepipe.FromChan(p, "in", in), "dedup", func(s string) string { return s },
				oncepipe.WithStore(st), oncepipe.Namespace("orders")), "work", func(context.Context, string) error { runs++; return nil })
			if err := p.Run(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
		id := oncepipe.RecordID{Namespace: oncepipe.Key("orders", "dedup"), Key: "k"}
		recs, err := st.Lookup(t.Context(), []oncepipe.RecordID{id})
		if err != nil || recs[0].State != completed {
			t.Errorf("%+v, %v", recs, err)
		}
	})
}

func TestStoreOptionsMisused(t *testing.T) {
	for want, opts := range map[string][]oncepipe.Option{
		"WithStore(nil)":  {oncepipe.WithStore(nil)},
		"without WithSto": {oncepipe.Claims(oncepipe.ClaimPolicy{})},
		"negative Lease":  {oncepipe.WithStore(memstore.New(memstore.Config{})), oncepipe.Claims(oncepipe.ClaimPolicy{Lease: -1, Wait: -1, Window: -1})},
	} {
		p := oncepipe.New("p", oncepipe.Config{})
		oncepipe.Discard(oncepipe.Dedup(oncepipe.FromChan(p, "in", make(chan string)), "dedup", func(s string) string { return s }, opts...))
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

// An item whose retry is far away doesn't hold its claim through it: another
// process sees the key wait, and until when.
func TestLongBackoffGivesTheClaimBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		r.work(r.dedup(oncepipe.WithStore(a)), func(ctx context.Context, m brokerMsg, run int) error {
			a.wantRecord(t, m.Key, oncepipe.StateClaimed)
			info, _ := oncepipe.InfoFrom(ctx)
			if info.Attempt != run || info.Takeover || ctx.Err() != nil {
				t.Errorf("run %d: %+v, %v", run, info, ctx.Err())
			}
			if run < 3 {
				return errBroken
			}
			return nil
		}, oncepipe.Retry(brokerRetry(10*time.Minute)))
		r.b.send("k")
		r.start()
		time.Sleep(5 * time.Minute)
		rec := a.wantRecord(t, "k", waiting)
		if rec.Wait != 5*time.Minute {
			t.Errorf("%+v", rec)
		}
		r.b.send("k")
		synctest.Wait()
		if s := r.dedupStats(); s.Joined != 1 {
			t.Errorf("the key is still in flight here: %+v", s)
		}
		if s := storeStats(t, r.p, 0); s.Held != 0 || s.Renewed != 0 {
			t.Errorf("%+v", s)
		}
		r.b.end()
		r.finish()
		r.wantRuns("k", 3)
		r.wantAlone()
		if rec := a.wantRecord(t, "k", completed); rec.Takeovers != 0 || rec.Fence != 3 {
			t.Errorf("%+v", rec)
		}
		if n := len(r.b.outcomes("k")); n != 2 || r.b.count(done) != 1 {
			t.Errorf("settled: %v", r.b.got)
		}
	})
}

// What another process does meanwhile is respected: while it has the key the item
// waits on, without an attempt; when it is done, so is the item.
func TestLongBackoffMeetsAnotherProcess(t *testing.T) {
	for _, finishes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			b := a.beside()
			r := newRig(t)
			g := oncepipe.LRU(10)
			r.work(r.dedup(oncepipe.WithStore(a), oncepipe.WithGuard(g)), func(_ context.Context, _ brokerMsg, run int) error {
				if run == 1 {
					return errBroken
				}
				return nil
			}, oncepipe.Retry(brokerRetry(10*time.Minute)))
			r.b.send("k")
			r.b.end()
			r.start()
			time.Sleep(9 * time.Minute)
			// Somebody pushes the key.
			if _, err := b.Forget(t.Context(), []oncepipe.RecordID{inStore("k")}, false); err != nil {
				t.Fatal(err)
			}
			id := claimedBy(t, b, "k", 5*time.Minute)
			time.Sleep(3 * time.Minute)
			r.wantRuns("k", 1)
			if finishes {
				if _, err := b.Complete(t.Context(), []oncepipe.Completion{{RecordID: inStore("k"), Claim: id}}); err != nil {
					t.Fatal(err)
				}
			}
			st := r.finish()
			runs, want := 1, duplicate
			if !finishes { // its lease ran out
				runs, want = 2, done
			}
			r.wantRuns("k", runs)
			r.wantOutcomes("k", want)
			if g.Len() != 1 || st.Stages[0].Done != int64(runs-1) || st.Stages[0].Runs != int64(runs) {
				t.Errorf("%+v", st.Stages[0])
			}
		})
	}
}

// A claim that can't be given back is kept; one that can't be had again yet
// is waited for; and a drain returns what has none, with the rest of its wait.
func TestLongBackoffWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		op       string
		from, to time.Duration
	}{{"release", 0, time.Minute}, {"claim", 9 * time.Minute, 15 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			a := newFaulty()
			began := time.Now()
			a.before = func(_ context.Context, op string, _ int) error {
				if d := time.Since(began); op == c.op && d >= c.from && d < c.to {
					return errLine
				}
				return nil
			}
			r := newRig(t)
			r.work(r.dedup(oncepipe.WithStore(a)), func(_ context.Context, m brokerMsg, run int) error {
				if run == 1 || m.Key == "never" {
					return errBroken
				}
				return nil
			}, oncepipe.Retry(brokerRetry(10*time.Minute)))
			r.b.send("k", "never")
			r.start()
			time.Sleep(16 * time.Minute)
			r.wantRuns("k", 2)
			r.wantOutcomes("k", done)
			r.cancel()
			r.finish()
			r.wantOutcomes("never", returned)
			a.wantRecord(t, "never", waiting)
			if s := r.b.got["never"][0]; s.Delay <= 0 || s.Delay > 10*time.Minute {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Of a batch, the items whose claim was given back are claimed again, each by itself.
func TestLongBackoffInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		runs := 0
		oncepipe.BatchSink(r.dedup(oncepipe.WithStore(a)), "work", func(_ context.Context, list []brokerMsg) error {
			if runs++; runs == 1 {
				return oncepipe.WholeBatch(oncepipe.RetryAfter(10*time.Minute, errBroken))
			}
			for _, m := range list {
				a.wantRecord(t, m.Key, oncepipe.StateClaimed)
			}
			return nil
		}, oncepipe.Retry(oncepipe.RetryPolicy{}), oncepipe.BatchWait(time.Second))
		r.b.send(keys(5)...)
		r.b.end()
		r.start()
		time.Sleep(5 * time.Minute)
		for _, k := range keys(5) {
			a.wantRecord(t, k, waiting)
		}
		id := claimedBySoon(t, a, "k2")
		r.finish()
		for _, k := range keys(5) {
			a.wantRecord(t, k, completed)
		}
		if r.b.count(done) != 4 || r.b.count(duplicate) != 1 {
			t.Errorf("%v: settled %v", id, r.b.got)
		}
	})
}

// claimedBySoon lets somebody else do a key that waits.
func claimedBySoon(t *testing.T, st oncepipe.Store, key string) oncepipe.ClaimID {
	t.Helper()
	if _, err := st.Forget(t.Context(), []oncepipe.RecordID{inStore(key)}, false); err != nil {
		t.Fatal(err)
	}
	id := claimedBy(t, st, key, time.Hour)
	if _, err := st.Complete(t.Context(), []oncepipe.Completion{{RecordID: inStore(key), Claim: id}}); err != nil {
		t.Fatal(err)
	}
	return id
}

// A hard stop gives back the claims of both of two Dedups.
func TestR88_HardStopOfTwoStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFaulty(), newFaulty()
		b.after = func(_ context.Context, op string, _ int) error {
			if op == "release" {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		r := newRig(t, func(c *oncepipe.Config) { c.DrainTimeout = -1 })
		second := oncepipe.Dedup(r.dedup(oncepipe.WithStore(a)), "second", brokerKey, oncepipe.WithStore(b))
		r.work(second, func(ctx context.Context, _ brokerMsg, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		r.b.send(keys(10)...)
		r.start()
		time.Sleep(time.Second)
		r.cancel()
		r.finish()
		for _, k := range keys(10) {
			a.wantRecord(t, k, waiting)
			r.wantOutcomes(k, returned)
			id := oncepipe.RecordID{Namespace: oncepipe.Key("rig", "second"), Key: k}
			if rec := b.recordOf(t, id); rec.State != waiting {
				t.Errorf("%+v", rec)
			}
		}
	})
}

// An item whose claim is lost is no fault of the others in its batch, also where
// the function has an error for each of them.
func TestLostLeaseInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFaulty()
		r := newRig(t)
		calls := 0
		oncepipe.BatchSink(r.dedup(oncepipe.WithStore(a)), "work", func(ctx context.Context, ms []brokerMsg) error {
			if calls++; calls > 1 {
				return nil
			}
			if _, err := a.mem.Forget(ctx, []oncepipe.RecordID{inStore("a")}, true); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			errs := make([]error, len(ms))
			for i := range errs {
				errs[i] = ctx.Err()
			}
			return &oncepipe.BatchError{Errs: errs}
		}, oncepipe.BatchSize(4), oncepipe.BatchWait(time.Second))
		r.run("a", "b", "c", "d")
		r.wantOutcomes("a", returned)
		for _, key := range []string{"b", "c", "d"} {
			r.wantOutcomes(key, done)
		}
	})
}
