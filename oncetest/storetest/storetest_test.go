package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest/storetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// faulty is a store with some of its methods replaced.
type faulty struct {
	oncepipe.Store
	claim    func(context.Context, []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error)
	complete func(context.Context, []oncepipe.Completion) ([]bool, error)
	extend   func(context.Context, []oncepipe.Extension) ([]bool, error)
	release  func(context.Context, []oncepipe.ReleaseRequest) ([]bool, error)
	lookup   func(context.Context, []oncepipe.RecordID) ([]oncepipe.Record, error)
	prune    func(context.Context, int) (int, error)
}

func (f *faulty) Claim(ctx context.Context, r []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	return f.claim(ctx, slices.Clone(r))
}

func (f *faulty) Complete(ctx context.Context, r []oncepipe.Completion) ([]bool, error) {
	return f.complete(ctx, slices.Clone(r))
}

func (f *faulty) Extend(ctx context.Context, r []oncepipe.Extension) ([]bool, error) {
	return f.extend(ctx, slices.Clone(r))
}

func (f *faulty) Release(ctx context.Context, r []oncepipe.ReleaseRequest) ([]bool, error) {
	return f.release(ctx, slices.Clone(r))
}

func (f *faulty) Lookup(ctx context.Context, r []oncepipe.RecordID) ([]oncepipe.Record, error) {
	return f.lookup(ctx, r)
}
func (f *faulty) Prune(ctx context.Context, limit int) (int, error) { return f.prune(ctx, limit) }

// claims builds faults of Claim: before sees the request, after the answer.
func claims(before func(*oncepipe.ClaimRequest), after func(oncepipe.ClaimRequest, *oncepipe.ClaimAnswer)) func(*faulty) {
	return func(f *faulty) {
		f.claim = func(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
			for i := range reqs {
				if before != nil {
					before(&reqs[i])
				}
			}
			answers, err := f.Store.Claim(ctx, reqs)
			for i := range answers {
				if after != nil {
					after(reqs[i], &answers[i])
				}
			}
			return answers, err
		}
	}
}

func releases(before func(*oncepipe.ReleaseRequest)) func(*faulty) {
	return func(f *faulty) {
		f.release = func(ctx context.Context, reqs []oncepipe.ReleaseRequest) ([]bool, error) {
			for i := range reqs {
				before(&reqs[i])
			}
			return f.Store.Release(ctx, reqs)
		}
	}
}

func completions(before func(*oncepipe.Completion)) func(*faulty) {
	return func(f *faulty) {
		f.complete = func(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
			for i := range reqs {
				before(&reqs[i])
			}
			return f.Store.Complete(ctx, reqs)
		}
	}
}

// keyed applies a change of keys to the three methods that most rules use.
func keyed(change func(string) string) func(*faulty) {
	return func(f *faulty) {
		claims(func(r *oncepipe.ClaimRequest) { r.Key = change(r.Key) }, nil)(f)
		completions(func(c *oncepipe.Completion) { c.Key = change(c.Key) })(f)
		releases(func(r *oncepipe.ReleaseRequest) { r.Key = change(r.Key) })(f)
		f.lookup = func(ctx context.Context, ids []oncepipe.RecordID) ([]oncepipe.Record, error) {
			changed := slices.Clone(ids)
			for i := range changed {
				changed[i].Key = change(changed[i].Key)
			}
			recs, err := f.Store.Lookup(ctx, changed)
			for i := range recs {
				recs[i].RecordID = ids[i]
			}
			return recs, err
		}
	}
}

func allHeld(f *faulty) {
	f.complete = func(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
		held, err := f.Store.Complete(ctx, reqs)
		for i := range held {
			held[i] = true
		}
		return held, err
	}
}

// checkThenAct remembers who won and lets two claims at once win both.
func checkThenAct(f *faulty) {
	f.claim = func(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
		ids := make([]oncepipe.RecordID, len(reqs))
		for i, r := range reqs {
			ids[i] = r.RecordID
		}
		recs, err := f.Store.Lookup(ctx, ids)
		if err != nil {
			return nil, err
		}
		time.Sleep(time.Millisecond) // in a bubble: until all the others have looked, too
		answers, err := f.Store.Claim(ctx, reqs)
		for i := range answers {
			if recs[i].State == oncepipe.StateAbsent && answers[i].Status == oncepipe.ClaimBusy {
				answers[i] = oncepipe.ClaimAnswer{Status: oncepipe.ClaimAcquired, Fence: 1, Attempt: 1}
			}
		}
		return answers, err
	}
}

// byOwner takes a claim by the same owner's name for a repetition.
func byOwner(f *faulty) {
	var mu sync.Mutex
	ids := map[string]oncepipe.ClaimID{}
	claims(func(r *oncepipe.ClaimRequest) {
		mu.Lock()
		defer mu.Unlock()
		if r.Owner == "" {
			return
		}
		if _, known := ids[r.Owner]; !known {
			ids[r.Owner] = r.Claim
		}
		r.Claim = ids[r.Owner]
	}, nil)(f)
}

var faults = map[string]struct {
	fault func(*faulty)
	rule  string // one of the rules that must notice
}{
	"completion is always held":   {allHeld, "I3_token_of_an_older_claim"},
	"owner is the fence":          {byOwner, "R27_"},
	"check then act":              {checkThenAct, "R13_"},
	"keys without case":           {keyed(strings.ToLower), "R76_"},
	"keys without trailing space": {keyed(func(k string) string { return strings.TrimRight(k, " ") }), "R76_"},
	"keys end at NUL":             {keyed(func(k string) string { k, _, _ = strings.Cut(k, "\x00"); return k + "x" }), "R76_"},
	"keys are made valid UTF-8":   {keyed(func(k string) string { return strings.ToValidUTF8(k, "\ufffd") }), "R76_"},
	"keys are truncated":          {keyed(func(k string) string { return k[:min(len(k), 1024)] }), "R76_"},
	"one namespace":               {claims(func(r *oncepipe.ClaimRequest) { r.Namespace = "p/s" }, nil), "R77_"},
	"lease 0 means a default":     {claims(func(r *oncepipe.ClaimRequest) { r.Lease = max(r.Lease, 1) }, nil), "R29_"},
	"fingerprint ignored":         {claims(func(r *oncepipe.ClaimRequest) { r.Fingerprint = "" }, nil), "R80_"},
	"NoTakeover ignored":          {claims(func(r *oncepipe.ClaimRequest) { r.NoTakeover = false }, nil), "NoTakeover_turns"},
	"claim id of its own":         {claims(func(r *oncepipe.ClaimRequest) { r.Claim = oncepipe.NewClaimID() }, nil), "claim_that_is_repeated"},
	"takeover not told":           {claims(nil, func(_ oncepipe.ClaimRequest, a *oncepipe.ClaimAnswer) { a.Takeover = false }), "R28_"},
	"fence stands still":          {claims(nil, func(_ oncepipe.ClaimRequest, a *oncepipe.ClaimAnswer) { a.Fence = 1 }), "fence_grows"},
	"empty result is none":        {completions(func(c *oncepipe.Completion) { c.HasResult = len(c.Result) > 0 }), "result_may_be_nil"},
	"result is always there":      {completions(func(c *oncepipe.Completion) { c.HasResult = true }), "result_may_be_nil"},
	"snooze is an attempt":        {releases(func(r *oncepipe.ReleaseRequest) { r.Uncounted = false }), "uncounted_release"},
	"delay ignored":               {releases(func(r *oncepipe.ReleaseRequest) { r.Delay = 0 }), "waiting_key_is_not"},
	"payload lost":                {releases(func(r *oncepipe.ReleaseRequest) { r.Payload = nil }), "payload_of_a_failure"},
	"mismatch hidden behind busy": {claims(nil, func(_ oncepipe.ClaimRequest, a *oncepipe.ClaimAnswer) {
		if a.Status == oncepipe.ClaimMismatch {
			a.Status = oncepipe.ClaimBusy
		}
	}), "R80_"},
	"duplicate of a busy key is complete": {claims(nil, func(_ oncepipe.ClaimRequest, a *oncepipe.ClaimAnswer) {
		if a.Status == oncepipe.ClaimBusy {
			a.Status = oncepipe.ClaimCompleted
		}
	}), "claim_of_a_claimed_key"},
	"answers sorted by key": {func(f *faulty) {
		f.claim = func(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
			slices.SortStableFunc(reqs, func(a, b oncepipe.ClaimRequest) int { return strings.Compare(a.Key, b.Key) })
			return f.Store.Claim(ctx, reqs)
		}
	}, "answers_come_item_by_item"},
	"last of a batch wins": {func(f *faulty) {
		f.claim = func(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
			slices.Reverse(reqs)
			answers, err := f.Store.Claim(ctx, reqs)
			slices.Reverse(answers)
			return answers, err
		}
	}, "key_twice_in_a_batch"},
	"extension refused once its lease is over": {func(f *faulty) {
		f.extend = func(ctx context.Context, reqs []oncepipe.Extension) ([]bool, error) {
			recs, err := f.Store.Lookup(ctx, []oncepipe.RecordID{reqs[0].RecordID})
			if err != nil || recs[0].Lease <= 0 {
				return make([]bool, len(reqs)), err
			}
			return f.Store.Extend(ctx, reqs)
		}
	}, "claim_whose_lease_is_over_is_held"},
	"prune without a limit": {func(f *faulty) {
		f.prune = func(ctx context.Context, limit int) (int, error) { return f.Store.Prune(ctx, 1000) }
	}, "prune_removes_at_most"},
	"outage is an answer": {func(f *faulty) {
		f.claim = func(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
			answers, err := f.Store.Claim(ctx, reqs)
			if ctx.Err() != nil {
				return make([]oncepipe.ClaimAnswer, len(reqs)), nil
			}
			return answers, err
		}
	}, "cancelled_context"},
}

const faultVariable = "STORETEST_FAULT"

// TestFaultyStore is run by TestFaultsAreNoticed in a process of its own, since
// it has to fail.
func TestFaultyStore(t *testing.T) {
	fault := faults[os.Getenv(faultVariable)].fault
	storetest.Run(t, func(t *testing.T, rule storetest.Rule) {
		synctest.Test(t, func(t *testing.T) {
			f := &faulty{Store: memstore.New(memstore.Config{Retention: time.Hour, MaxResult: 1000})}
			f.claim, f.complete, f.extend = f.Store.Claim, f.Store.Complete, f.Store.Extend
			f.release, f.lookup, f.prune = f.Store.Release, f.Store.Lookup, f.Store.Prune
			if fault != nil {
				fault(f)
			}
			rule(t, storetest.Env{Store: f, Advance: time.Sleep, Retention: time.Hour, MaxResult: 1000})
		})
	})
}

func TestFaultsAreNoticed(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestFaultyStore$", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), faultVariable+"="+name, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatal("no rule noticed")
			}
			if !strings.Contains(string(out), "--- FAIL: TestFaultyStore/"+f.rule) {
				t.Errorf("the rule %s did not notice:\n%s", f.rule, out)
			}
		})
	}
}
