package oncetest_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

var errLine = errors.New("line is down")

// everyOp makes a call of each method.
var everyOp = map[oncetest.StoreOp]func(context.Context, oncepipe.Store) error{
	oncetest.OpClaim: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Claim(ctx, []oncepipe.ClaimRequest{claimOf("k")})
		return err
	},
	oncetest.OpExtend: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Extend(ctx, []oncepipe.Extension{{RecordID: idOf("k"), Lease: time.Minute}})
		return err
	},
	oncetest.OpComplete: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: idOf("k")}})
		return err
	},
	oncetest.OpRelease: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: idOf("k"), To: oncepipe.ToFailed}})
		return err
	},
	oncetest.OpLookup: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Lookup(ctx, []oncepipe.RecordID{idOf("k")})
		return err
	},
	oncetest.OpResolve: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Resolve(ctx, []oncepipe.Resolution{{RecordID: idOf("k"), To: oncepipe.StateWaiting}})
		return err
	},
	oncetest.OpForget: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Forget(ctx, []oncepipe.RecordID{idOf("k")}, false)
		return err
	},
	oncetest.OpList: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.List(ctx, oncepipe.Query{State: oncepipe.StateFailed})
		return err
	},
	oncetest.OpCount: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Count(ctx)
		return err
	},
	oncetest.OpPrune: func(ctx context.Context, st oncepipe.Store) error {
		_, err := st.Prune(ctx, 1)
		return err
	},
}

func idOf(key string) oncepipe.RecordID { return oncepipe.RecordID{Namespace: "p/s", Key: key} }

func claimOf(key string) oncepipe.ClaimRequest {
	return oncepipe.ClaimRequest{RecordID: idOf(key), Claim: oncepipe.NewClaimID(), Lease: time.Minute}
}

// stateOf asks the store itself.
func stateOf(t *testing.T, st oncepipe.Store, key string) oncepipe.State {
	t.Helper()
	recs, err := st.Lookup(context.Background(), []oncepipe.RecordID{idOf(key)})
	if err != nil {
		t.Fatal(err)
	}
	return recs[0].State
}

// A line on which all goes well changes nothing.
func TestFaultStore_IsAStore(t *testing.T) {
	oncetest.Store(t, func(t *testing.T, check func(*testing.T, oncetest.StoreEnv)) {
		synctest.Test(t, func(t *testing.T) {
			st := oncetest.NewFaultStore(memstore.New(memstore.Config{Retention: time.Hour}), nil)
			check(t, oncetest.StoreEnv{Store: st, Advance: time.Sleep, Retention: time.Hour})
		})
	})
}

func TestFaultStore_EveryMethod(t *testing.T) {
	if n := reflect.TypeFor[oncepipe.Store]().NumMethod(); n != len(everyOp) {
		t.Fatalf("a store has %d methods, the test knows %d", n, len(everyOp))
	}
	for op, call := range everyOp {
		t.Run(string(op), func(t *testing.T) {
			var seen []oncetest.StoreCall
			st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), func(c oncetest.StoreCall) oncetest.StoreFault {
				seen = append(seen, c)
				switch c.N {
				case 1:
					return oncetest.StoreFault{FailBefore: errLine}
				case 2:
					return oncetest.StoreFault{FailAfter: errLine}
				}
				return oncetest.StoreFault{}
			})
			for n, want := range []error{errLine, errLine, nil} {
				if err := call(t.Context(), st); !errors.Is(err, want) {
					t.Errorf("call %d: %v, want %v", n+1, err, want)
				}
			}
			if st.Calls(op) != 3 || st.Made(op) != 2 {
				t.Errorf("%d calls, %d made", st.Calls(op), st.Made(op))
			}
			for n, c := range seen {
				about := op != oncetest.OpList && op != oncetest.OpCount && op != oncetest.OpPrune
				if c.Op != op || c.N != n+1 || about != (len(c.IDs) == 1 && c.IDs[0] == idOf("k")) {
					t.Errorf("call %d was shown as %+v", n+1, c)
				}
			}
		})
	}
}

// Whether a call was made is to be seen in the store.
func TestFaultStore_WhatTheStoreKnows(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault oncetest.StoreFault
		limit time.Duration // of the caller
		err   error
		after time.Duration
		made  bool
	}{
		{"good", oncetest.StoreFault{}, time.Hour, nil, 0, true},
		{"fail before", oncetest.StoreFault{FailBefore: errLine}, time.Hour, errLine, 0, false},
		{"fail after", oncetest.StoreFault{FailAfter: errLine}, time.Hour, errLine, 0, true},
		{"late", oncetest.StoreFault{Delay: time.Second, DelayAfter: time.Minute}, time.Hour, nil, time.Minute + time.Second, true},
		{"late failure", oncetest.StoreFault{Delay: time.Second, FailBefore: errLine}, time.Hour, errLine, time.Second, false},
		{"late loss", oncetest.StoreFault{DelayAfter: time.Second, FailAfter: errLine}, time.Hour, errLine, time.Second, true},
		{"given up before", oncetest.StoreFault{Delay: time.Minute}, time.Second, context.DeadlineExceeded, time.Second, false},
		{"given up after", oncetest.StoreFault{DelayAfter: time.Minute}, time.Second, context.DeadlineExceeded, time.Second, true},
		{"hangs before", oncetest.StoreFault{Delay: oncetest.Forever}, time.Hour, context.DeadlineExceeded, time.Hour, false},
		{"hangs after", oncetest.StoreFault{DelayAfter: oncetest.Forever}, time.Hour, context.DeadlineExceeded, time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(memstore.Config{})
				st := oncetest.NewFaultStore(mem, func(oncetest.StoreCall) oncetest.StoreFault { return c.fault })
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				begin := time.Now()
				answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{claimOf("k")})
				if !errors.Is(err, c.err) || (err == nil) != (len(answers) == 1) {
					t.Errorf("answer %v, %v, want the error %v", answers, err, c.err)
				}
				if took := time.Since(begin); took != c.after {
					t.Errorf("took %v, want %v", took, c.after)
				}
				if made := stateOf(t, mem, "k") == oncepipe.StateClaimed; made != c.made || (st.Made(oncetest.OpClaim) == 1) != made {
					t.Errorf("made: %v, and counted %d", made, st.Made(oncetest.OpClaim))
				}
			})
		})
	}
}

// A call that failed by itself keeps its error, although its reply is lost.
func TestFaultStore_OwnErrors(t *testing.T) {
	st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), nil)
	st.Next(oncetest.OpClaim, 1, oncetest.StoreFault{FailAfter: errLine})
	if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{claimOf("")}); !errors.Is(err, oncepipe.ErrNoKey) {
		t.Errorf("got %v, want ErrNoKey", err)
	}
}

func TestFaultStore_Next(t *testing.T) {
	asked := 0
	st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), func(oncetest.StoreCall) oncetest.StoreFault {
		asked++
		return oncetest.StoreFault{}
	})
	other := errors.New("other")
	st.Next(oncetest.OpCount, 2, oncetest.StoreFault{FailBefore: errLine})
	st.Next(oncetest.OpCount, 1, oncetest.StoreFault{FailBefore: other})
	if err := everyOp[oncetest.OpPrune](t.Context(), st); err != nil {
		t.Errorf("prune: %v", err)
	}
	for n, want := range []error{errLine, errLine, other, nil} {
		if err := everyOp[oncetest.OpCount](t.Context(), st); !errors.Is(err, want) {
			t.Errorf("count %d: %v, want %v", n+1, err, want)
		}
	}
	if asked != 2 {
		t.Errorf("the function was asked %d times, want for prune and the last count", asked)
	}
}

func TestFaultStore_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), nil)
		all := func(want error) {
			t.Helper()
			for op, call := range everyOp {
				if err := call(t.Context(), st); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", op, err, want)
				}
			}
		}
		st.Outage(time.Minute)
		time.Sleep(time.Minute - 1)
		all(oncetest.ErrOutage)
		time.Sleep(time.Nanosecond)
		all(nil)
		st.Outage(oncetest.Forever)
		time.Sleep(1000 * time.Hour)
		all(oncetest.ErrOutage)
		st.EndOutage()
		all(nil)
		for op := range everyOp {
			if st.Calls(op) != 4 || st.Made(op) != 2 {
				t.Errorf("%s: %d calls, %d made", op, st.Calls(op), st.Made(op))
			}
		}
	})
}

// What is under way when the line is cut is lost, on either way.
func TestFaultStore_OutageMeetsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(memstore.Config{})
		st := oncetest.NewFaultStore(mem, func(c oncetest.StoreCall) oncetest.StoreFault {
			if c.IDs[0].Key == "request" {
				return oncetest.StoreFault{Delay: time.Second}
			}
			return oncetest.StoreFault{DelayAfter: time.Second}
		})
		var wg sync.WaitGroup
		for _, key := range []string{"request", "reply"} {
			wg.Go(func() {
				if _, err := st.Claim(t.Context(), []oncepipe.ClaimRequest{claimOf(key)}); !errors.Is(err, oncetest.ErrOutage) {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
		synctest.Wait()
		st.Outage(time.Minute)
		wg.Wait()
		if stateOf(t, mem, "request") != oncepipe.StateAbsent || stateOf(t, mem, "reply") != oncepipe.StateClaimed {
			t.Error("the request got through, or the reply was to nothing")
		}
	})
}

func TestFaultStore_ManyAtOnce(t *testing.T) {
	const callers, calls = 16, 50
	st := oncetest.NewFaultStore(memstore.New(memstore.Config{}), func(c oncetest.StoreCall) oncetest.StoreFault {
		if c.N%2 == 0 {
			return oncetest.StoreFault{FailBefore: errLine}
		}
		return oncetest.StoreFault{}
	})
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				for op, call := range everyOp {
					if err := call(t.Context(), st); err != nil && !errors.Is(err, errLine) {
						t.Errorf("%s: %v", op, err)
					}
				}
			}
		})
	}
	wg.Wait()
	for op := range everyOp {
		if st.Calls(op) != callers*calls || st.Made(op) != callers*calls/2 {
			t.Errorf("%s: %d calls, %d made", op, st.Calls(op), st.Made(op))
		}
	}
}

// plain is a store that doesn't say for how long it keeps a record.
type plain struct{ oncepipe.Store }

func TestFaultStore_Retention(t *testing.T) {
	mem := memstore.New(memstore.Config{Retention: 3 * time.Hour})
	if got := oncetest.NewFaultStore(mem, nil).Retention(); got != 3*time.Hour {
		t.Errorf("retention %v", got)
	}
	for _, c := range []struct {
		st   oncepipe.Store
		good bool
	}{{mem, false}, {plain{mem}, true}} {
		st := oncetest.NewFaultStore(c.st, nil)
		p := oncepipe.New("p", oncepipe.Config{Stores: []oncepipe.Store{st}})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		oncepipe.Discard(oncepipe.From(p, "in", daily{}))
		if err := p.Run(ctx); (err == nil) != c.good {
			t.Errorf("%T: %v", c.st, err)
		}
	}
}

// daily is a source that may deliver again after a day.
type daily struct{}

func (daily) Receive(ctx context.Context) (oncepipe.Delivery[string], error) {
	<-ctx.Done()
	return oncepipe.Delivery[string]{}, ctx.Err()
}

func (daily) MaxRedelivery() time.Duration { return 24 * time.Hour }

func TestStepStore(t *testing.T) {
	mem := memstore.New(memstore.Config{Retention: time.Hour})
	var steps []string
	st := oncetest.StepStore(mem, func(_ context.Context, name string, do func() error) error {
		steps = append(steps, name)
		return do()
	})
	for op, call := range everyOp {
		steps = nil
		if err := call(t.Context(), st); err != nil || len(steps) != 1 || steps[0] != string(op) {
			t.Errorf("%s: steps %q, %v", op, steps, err)
		}
	}
	if r, ok := st.(oncepipe.Retainer); !ok || r.Retention() != time.Hour {
		t.Error("the retention is not the store's")
	}
}

func TestStepStore_Answers(t *testing.T) {
	ctx := t.Context()
	mem := memstore.New(memstore.Config{})
	var step func(do func() error) error
	st := oncetest.StepStore(mem, func(_ context.Context, _ string, do func() error) error { return step(do) })
	claim := func(key string) ([]oncepipe.ClaimAnswer, error) {
		return st.Claim(ctx, []oncepipe.ClaimRequest{claimOf(key)})
	}

	step = func(func() error) error { return errLine }
	if answers, err := claim("lost"); answers != nil || !errors.Is(err, errLine) || stateOf(t, mem, "lost") != oncepipe.StateAbsent {
		t.Errorf("lost request: %v, %v", answers, err)
	}
	step = func(do func() error) error { return errors.Join(do(), errLine) }
	if answers, err := claim("reply"); answers != nil || !errors.Is(err, errLine) || stateOf(t, mem, "reply") != oncepipe.StateClaimed {
		t.Errorf("lost reply: %v, %v", answers, err)
	}
	step = func(do func() error) error { return errors.Join(do(), do()) }
	if answers, err := claim("twice"); err != nil || len(answers) != 1 || answers[0].Status != oncepipe.ClaimAcquired {
		t.Errorf("repeated: %v, %v", answers, err)
	}
	step = func(func() error) error { return nil }
	if _, err := claim("nothing"); err == nil || !strings.Contains(err.Error(), "claim") {
		t.Errorf("no call and no error: %v", err)
	}
	step = func(do func() error) error {
		if do() == nil {
			t.Error("a claim without a key went well")
		}
		return nil
	}
	if _, err := claim(""); !errors.Is(err, oncepipe.ErrNoKey) {
		t.Errorf("swallowed: %v", err)
	}
}
