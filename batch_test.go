package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// batchRig is a pipeline with one batch stage, and what is seen of it.
type batchRig struct {
	t       *testing.T
	p       *Pipeline
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Time
	mu      sync.Mutex
	letters map[int]DeadLetter
	calls   []batchSeen
	done    []int // came out of the stage, in this order
}

type batchSeen struct {
	at       time.Duration
	values   []int
	attempts []int
}

func newBatchRig(t *testing.T, adjust ...func(*Config)) *batchRig {
	r := &batchRig{t: t, began: time.Now(), letters: map[int]DeadLetter{}}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	t.Cleanup(r.cancel)
	cfg := Config{Logger: quiet, DrainTimeout: 10 * time.Second, DeadLetters: func(_ context.Context, l DeadLetter) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.letters[l.Value.(int)] = l
		return nil
	}}
	for _, a := range adjust {
		a(&cfg)
	}
	r.p = New("p", cfg)
	return r
}

// numbers delivers 0 to n-1 with their text as key.
func (r *batchRig) numbers(n int) Stream[int] {
	return KeyBy(FromSeq(r.p, "source", ints(n)), text)
}

// stage wires the batch stage. fn gets the number of the call, from 1.
func (r *batchRig) stage(in Stream[int], fn func(ctx context.Context, call int, vs []int) error, opts ...Option) {
	out := BatchStage(in, "batch", func(ctx context.Context, vs []int) ([]int, error) {
		seen := batchSeen{at: time.Since(r.began), values: slices.Clone(vs)}
		for i, info := range BatchFrom(ctx) {
			if info.Key != text(vs[i]) && !strings.HasPrefix(info.Key, "injected") {
				r.t.Errorf("item %d has key %q", vs[i], info.Key)
			}
			seen.attempts = append(seen.attempts, info.Attempt)
		}
		r.mu.Lock()
		r.calls = append(r.calls, seen)
		call := len(r.calls)
		r.mu.Unlock()
		return slices.Clone(vs), fn(ctx, call, vs)
	}, opts...)
	Discard(Map(out, func(v int) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done = append(r.done, v)
		return v
	}))
}

func (r *batchRig) run() (StageStats, error) {
	r.t.Helper()
	err := r.p.Run(r.ctx)
	s := r.p.Stats()
	if !s.Conserved() || s.InFlight != 0 {
		r.t.Errorf("not conserved: %+v", s)
	}
	st := s.Stages[0]
	if st.Gathering != 0 || st.Done != int64(len(r.done)) || st.Runs != st.Done+st.Failed+st.Snoozed+int64(st.Running) {
		r.t.Errorf("%d came out of %+v", len(r.done), st)
	}
	if int64(len(r.calls)) != st.Batches {
		r.t.Errorf("%d calls, Stats say %d", len(r.calls), st.Batches)
	}
	return st, err
}

func (r *batchRig) mustRun() StageStats {
	r.t.Helper()
	st, err := r.run()
	if err != nil {
		r.t.Error(err)
	}
	return st
}

// wantCalls compares the batches that ran.
func (r *batchRig) wantCalls(want ...[]int) {
	r.t.Helper()
	var got [][]int
	for _, c := range r.calls {
		got = append(got, c.values)
	}
	if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		r.t.Errorf("calls %v, want %v", got, want)
	}
}

// wantDone says that each of 0 to n-1 came out once, but for some.
func (r *batchRig) wantDone(n int, but ...int) {
	r.t.Helper()
	var want []int
	for v := range n {
		if !slices.Contains(but, v) {
			want = append(want, v)
		}
	}
	if got := slices.Sorted(slices.Values(r.done)); !slices.Equal(got, want) {
		r.t.Errorf("done %v, want %v", got, want)
	}
}

func works(context.Context, int, []int) error { return nil }

// spoiled fails as a whole when one of the poisons is in the batch.
func spoiled(poisons ...int) func(context.Context, int, []int) error {
	return func(_ context.Context, _ int, vs []int) error {
		for _, v := range vs {
			if slices.Contains(poisons, v) {
				return errHandler
			}
		}
		return nil
	}
}

// trickle sends 0 to n-1, one after each gap, then closes.
func trickle(gaps ...time.Duration) <-chan int {
	ch := make(chan int, len(gaps))
	go func() {
		defer close(ch)
		for i, gap := range gaps {
			time.Sleep(gap)
			ch <- i
		}
	}()
	return ch
}

func (r *batchRig) trickle(gaps ...time.Duration) Stream[int] {
	return KeyBy(FromChan(r.p, "source", trickle(gaps...)), text)
}

// A full batch runs at once, and the last when the input has ended, however long
// it may wait.
func TestBatchRunsWhenFull(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for _, buffer := range []BufferPolicy{Fixed(0), Fixed(1), Fixed(16)} {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t)
				r.stage(r.numbers(10), works, BatchSize(4), BatchWait(time.Hour), Buffer(buffer), Workers(workers))
				r.mustRun()
				r.wantDone(10)
				var sizes []int
				for _, c := range r.calls {
					sizes = append(sizes, len(c.values))
				}
				if slices.Sort(sizes); !slices.Equal(sizes, []int{2, 4, 4}) || time.Since(r.began) != 0 {
					t.Errorf("sizes %v after %v", sizes, time.Since(r.began))
				}
			})
		}
	}
}

// Without BatchWait a batch is what is queued.
func TestBatchTakesWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.trickle(0, time.Millisecond, 0, 0, time.Minute), func(context.Context, int, []int) error {
			time.Sleep(time.Second)
			return nil
		})
		r.mustRun()
		r.wantCalls([]int{0}, []int{1, 2, 3}, []int{4})
	})
}

// BatchWait counts from the first item, and the next batch's from its own.
func TestBatchWaitCountsFromTheFirstItem(t *testing.T) {
	for _, buffer := range []BufferPolicy{Fixed(0), Fixed(16)} {
		synctest.Test(t, func(t *testing.T) {
			r := newBatchRig(t)
			const gap = 300 * time.Millisecond
			r.stage(r.trickle(gap, gap, gap, gap, 2*gap, 10*gap), works, BatchWait(time.Second), Buffer(buffer))
			r.mustRun()
			r.wantCalls([]int{0, 1, 2, 3}, []int{4}, []int{5})
			if r.calls[0].at != gap+time.Second || r.calls[1].at != 6*gap+time.Second || r.calls[2].at != 16*gap {
				t.Errorf("%+v", r.calls)
			}
		})
	}
}

// A due item goes first and meets others in its batch; alone it waits for no
// longer than BatchWait.
func TestBatchTakesDueItemsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.trickle(0, 5*time.Second, time.Second/2, time.Hour), func(_ context.Context, call int, _ []int) error {
			switch call {
			case 1, 2:
				return RetryAfter(5*time.Second, errHandler)
			}
			return nil
		}, BatchWait(time.Second), Retry(RetryPolicy{}))
		r.mustRun()
		// 0 alone at 1 s, due at 6 s; 1 comes at 5 s and 2 at 5.5 s, and they run at
		// 6 s, with 0 or before it. In any case it is there at 7 s.
		for _, c := range r.calls {
			if i := slices.Index(c.values, 0); i >= 0 && c.attempts[i] == 2 && c.at > 7*time.Second {
				t.Errorf("%+v", r.calls)
			}
		}
		r.wantDone(4)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		in := r.trickle(0, time.Second, 0)
		r.stage(in, func(_ context.Context, call int, _ []int) error {
			switch call {
			case 1:
				return RetryAfter(2*time.Second, errHandler)
			case 2:
				time.Sleep(5 * time.Second) // meanwhile 0 is due, and 2 is queued
			}
			return nil
		}, BatchSize(2), Retry(RetryPolicy{}), Buffer(Fixed(1)))
		r.mustRun()
		if last := r.calls[len(r.calls)-1]; !slices.Contains(last.values, 0) || last.values[0] != 0 || last.attempts[0] != 2 {
			t.Errorf("%+v", r.calls)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.trickle(0, time.Hour), func(_ context.Context, call int, _ []int) error {
			if call == 1 {
				return RetryAfter(5*time.Second, errHandler)
			}
			return nil
		}, BatchWait(time.Second), Retry(RetryPolicy{}))
		r.mustRun()
		if c := r.calls[1]; c.at != 7*time.Second || c.attempts[0] != 2 {
			t.Errorf("%+v", r.calls)
		}
	})
}

// Items with different attempt numbers share a batch.
func TestBatchMixesAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.trickle(0, 10*time.Second, time.Hour), func(_ context.Context, call int, vs []int) error {
			if call == 1 {
				return RetryAfter(10*time.Second-500*time.Millisecond, errHandler)
			}
			return nil
		}, BatchWait(time.Second), Retry(RetryPolicy{}))
		r.mustRun()
		if c := r.calls[1]; !slices.Equal(c.values, []int{1, 0}) || !slices.Equal(c.attempts, []int{1, 2}) {
			t.Errorf("%+v", r.calls)
		}
	})
}

// When nobody else can free a slot, a batch doesn't wait for more.
func TestBatchDoesNotWaitForSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.numbers(6), func(_ context.Context, _ int, vs []int) error {
			each := &BatchError{Errs: make([]error, len(vs))}
			for i, v := range vs {
				if v < 3 {
					each.Errs[i] = RetryAfter(time.Hour, errHandler)
				}
			}
			return each
		}, BatchSize(4), BatchWait(time.Minute), Retry(RetryPolicy{Slots: 4, MaxAttempts: 2}))
		r.mustRun()
		r.wantCalls([]int{0, 1, 2, 3}, []int{4}, []int{5}, []int{0, 1, 2})
		if r.calls[2].at != 0 || r.calls[3].at != time.Hour {
			t.Errorf("%+v", r.calls)
		}
	})
}

func TestBatchGraphFaults(t *testing.T) {
	one := func(context.Context, []int) error { return nil }
	for name, c := range map[string]struct {
		opts []Option
		want string
	}{
		"no size":         {[]Option{BatchSize(0)}, "BatchSize(0)"},
		"negative wait":   {[]Option{BatchWait(-1)}, "BatchWait(-1ns)"},
		"few slots":       {[]Option{BatchSize(9), Retry(RetryPolicy{Slots: 8})}, "batches of 9 items don't fit into 8 slots"},
		"default size":    {[]Option{Retry(RetryPolicy{Slots: 8})}, "batches of 64 items don't fit into 8 slots"},
		"ordered":         {[]Option{Ordered()}, "option Ordered has no meaning here"},
		"by partition":    {[]Option{PerPartition()}, "option PerPartition has no meaning here"},
		"guard":           {[]Option{WithGuard(Ring(1))}, "option WithGuard has no meaning here"},
		"everything else": {[]Option{Workers(0), Timeout(-1)}, "Workers(0)"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New("p", Config{Logger: quiet})
			BatchSink(FromSeq(p, "source", ints(3)), "sink", one, c.opts...)
			if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("option of a batch", func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		Sink(FromSeq(p, "source", ints(3)), "sink", nothing, BatchSize(3))
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "option BatchSize has no meaning here") {
			t.Error(err)
		}
	})
	t.Run("nil function", func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		BatchSink(FromSeq(p, "source", ints(3)), "sink", nil)
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "function is nil") {
			t.Error(err)
		}
	})
}

// Slots that nobody asked for are enough for two batches of each worker.
func TestBatchDefaultSlots(t *testing.T) {
	for _, c := range []struct{ size, workers, slots int }{{1, 1, 256}, {64, 2, 256}, {256, 4, 2048}} {
		synctest.Test(t, func(t *testing.T) {
			r := newBatchRig(t)
			r.stage(r.numbers(1), works, BatchSize(c.size), Workers(c.workers), Retry(RetryPolicy{}))
			if st := r.mustRun(); st.Slots != c.slots || st.Kind != "batchstage" {
				t.Errorf("%+v: %+v", c, st)
			}
		})
	}
	if o := (options{workers: 1 << 20, batchSize: 1 << 30}); o.slots() != 1<<31-1 {
		t.Errorf("%d slots", o.slots())
	}
}

// One worker without retry keeps the order, also when a batch is cut.
func TestBatchKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		in := PartitionBy(r.numbers(50), text)
		r.stage(in, spoiled(3, 17), BatchSize(16))
		r.mustRun()
		if !slices.IsSorted(r.done) {
			t.Errorf("%v", r.done)
		}
		r.wantDone(50, 3, 17)
	})
}

// Another number of results fails every item for good, and the function is not
// called again for those that it has acted for.
func TestBatchResultsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		results int
		err     error
		dead    []int
	}{
		"too few":                     {2, nil, []int{0, 1, 2}},
		"too many":                    {4, nil, []int{0, 1, 2}},
		"errors for too few":          {3, &BatchError{Errs: make([]error, 2)}, []int{0, 1, 2}},
		"marked errors for too many":  {3, &BatchError{Errs: []error{RetryAfter(0, errHandler), nil, nil, nil}}, []int{0, 1, 2}},
		"no results beside an error":  {0, &BatchError{Errs: []error{nil, nil, Snooze(time.Second)}}, []int{0, 1}},
		"no results, nothing is done": {0, &BatchError{Errs: []error{Snooze(1), Snooze(1), Snooze(1)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t)
				calls := 0
				Discard(BatchStage(r.numbers(3), "batch", func(_ context.Context, vs []int) ([]int, error) {
					if calls++; calls > 1 {
						return vs, nil
					}
					return make([]int, c.results), c.err
				}, BatchWait(time.Second), Retry(RetryPolicy{})))
				if err := r.p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				for _, v := range c.dead {
					if l := r.letters[v]; !errors.Is(l.Err, ErrBatchResults) || l.Reason != ReasonPermanent || l.Attempts != 1 {
						t.Errorf("%d: %+v", v, l)
					}
				}
				s := r.p.Stats()
				if want := map[bool]int64{true: 1, false: 2}[len(c.dead) == 3]; s.Stages[0].Batches != want ||
					s.Dead != int64(len(c.dead)) || s.Done != int64(3-len(c.dead)) || !s.Conserved() {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Each item has the outcome that the BatchError gives it, with its marks.
func TestBatchErrorOfEachItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.numbers(8), func(_ context.Context, call int, vs []int) error {
			if call > 1 {
				return nil
			}
			return fmt.Errorf("wrapped: %w", &BatchError{Errs: []error{
				nil, errHandler, Permanent(errHandler), RetryAfter(time.Minute, errHandler), Snooze(time.Hour),
				NotApplied(errHandler), Unknown(errHandler), nil,
			}})
		}, BatchWait(time.Second), Retry(RetryPolicy{Backoff: constant(time.Second)}))
		st := r.mustRun()
		r.wantCalls([]int{0, 1, 2, 3, 4, 5, 6, 7}, []int{1, 5, 6}, []int{3}, []int{4})
		r.wantDone(8, 2)
		if l := r.letters[2]; l.Err != errHandler || l.Reason != ReasonPermanent || l.Key != "2" || l.Stage != "batch" {
			t.Errorf("%+v", l)
		}
		if r.calls[1].at != time.Second || r.calls[2].at != time.Minute || r.calls[3].at != time.Hour || r.calls[3].attempts[0] != 1 {
			t.Errorf("%+v", r.calls)
		}
		if st.Failed != 5 || st.Snoozed != 1 || st.Retried != 4 || st.Dead != 1 || st.Runs != 13 {
			t.Errorf("%+v", st)
		}
	})
}

func TestBatchErrorText(t *testing.T) {
	other := errors.New("other")
	err := &BatchError{Errs: []error{nil, errHandler, other}}
	if err.Error() != "2 of 3 items failed; the first: handler failed" || !errors.Is(err, errHandler) || !errors.Is(err, other) {
		t.Error(err)
	}
	if err := (&BatchError{Errs: make([]error, 2)}); err.Error() != "0 of 2 items failed" || err.Unwrap() != nil {
		t.Error(err)
	}
}

// mostCalls is what it takes to find one item in n.
func mostCalls(n int) int { return 1 + 2*bits.Len(uint(n-1)) }

// One poison among many good items: they are done in their first attempt, with
// few calls, wherever it stands; its own rules are those of any item.
func TestP53_PoisonInABatch(t *testing.T) {
	for _, n := range []int{1, 2, 3, 64, 100} {
		for poison := range n {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t)
				r.stage(r.numbers(n), spoiled(poison), BatchSize(n), BatchWait(time.Second),
					Retry(RetryPolicy{MaxAttempts: 3, Backoff: constant(time.Minute)}))
				st := r.mustRun()
				r.wantDone(n, poison)
				if l := r.letters[poison]; l.Attempts != 3 || l.Reason != ReasonExhausted || !errors.Is(l.Err, errHandler) || len(r.letters) != 1 {
					t.Errorf("%+v", r.letters)
				}
				if st.Batches > int64(mostCalls(n)+2) || st.Failed != 3 || st.Retried != 2 || st.Runs != int64(n+2) {
					t.Errorf("%d among %d: %+v", poison, n, st)
				}
				for _, c := range r.calls[:len(r.calls)-2] {
					if c.at != 0 || slices.Max(c.attempts) != 1 {
						t.Errorf("%+v", c)
					}
				}
			})
		}
	}
}

// A poison that takes the goroutine with it is a dead letter like any other
// panic, and nothing else happens to the batch.
func TestBatchFunctionCrashes(t *testing.T) {
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t)
				r.stage(r.numbers(20), func(_ context.Context, _ int, vs []int) error {
					if slices.Contains(vs, 13) {
						crash()
					}
					return nil
				}, BatchSize(16), BatchWait(time.Second), Retry(RetryPolicy{}))
				st := r.mustRun()
				r.wantDone(20, 13)
				if l := r.letters[13]; l.Reason != ReasonPanic || l.Attempts != 1 || len(r.letters) != 1 {
					t.Errorf("%+v", r.letters)
				}
				if st.Failed != 1 || st.Dead != 1 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// What crashes behind the stage takes one item with it, and none of its batch.
func TestBatchOperatorBehindCrashes(t *testing.T) {
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t)
				out := BatchStage(r.numbers(20), "batch", func(_ context.Context, vs []int) ([]int, error) { return slices.Clone(vs), nil },
					BatchSize(8), Workers(2))
				Discard(Map(out, func(v int) int {
					if v%5 == 3 {
						crash()
					}
					return v
				}))
				if err := r.p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				s := r.p.Stats()
				if len(r.letters) != 4 || s.Dead != 4 || s.Done != 16 || !s.Conserved() {
					t.Errorf("%v %+v", r.letters, s)
				}
			})
		})
	}
}

// What says by itself what to do is not cut.
func TestBatchIsNotCut(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		opts []Option
		want func(st StageStats) bool
	}{
		"RetryAfter":             {RetryAfter(time.Minute, errHandler), nil, func(st StageStats) bool { return st.Retried == 8 && st.Done == 8 }},
		"Snooze":                 {Snooze(time.Minute), nil, func(st StageStats) bool { return st.Snoozed == 8 && st.Done == 8 && st.Failed == 0 }},
		"wrapped Snooze":         {fmt.Errorf("tx: %w", Snooze(time.Minute)), nil, func(st StageStats) bool { return st.Snoozed == 8 && st.Done == 8 }},
		"WholeBatch":             {WholeBatch(errHandler), nil, func(st StageStats) bool { return st.Retried == 8 && st.Done == 8 }},
		"wrapped WholeBatch":     {fmt.Errorf("tx: %w", WholeBatch(errHandler)), nil, func(st StageStats) bool { return st.Retried == 8 && st.Done == 8 }},
		"WholeBatch, permanent":  {WholeBatch(Permanent(errHandler)), nil, func(st StageStats) bool { return st.Dead == 8 }},
		"WholeBatch, RetryAfter": {WholeBatch(RetryAfter(time.Second, errHandler)), nil, func(st StageStats) bool { return st.Retried == 8 && st.Done == 8 }},
		"lease lost":             {fmt.Errorf("tx: %w", ErrLeaseLost), nil, func(st StageStats) bool { return st.Failed == 8 && st.Done == 0 && st.Dead == 0 }},
		"time-out":               {nil, []Option{Timeout(time.Second)}, func(st StageStats) bool { return st.Retried == 8 && st.Done == 8 }},
		"limiter":                {nil, []Option{Limit(&brokenLimiter{failures: 1})}, func(st StageStats) bool { return st.Retried == 8 && st.Done == 8 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t)
				first := true
				calls := 0
				var texts []string
				BatchSink(r.numbers(8), "batch", func(ctx context.Context, vs []int) error {
					calls++
					if len(vs) != 8 {
						t.Errorf("%d items", len(vs))
					}
					if c.opts != nil && name == "time-out" && first {
						first = false
						<-ctx.Done()
						return errors.New("the driver doesn't say that it is the context")
					}
					if first {
						first = false
						return c.err
					}
					return nil
				}, append(c.opts, BatchSize(8), BatchWait(time.Minute), Retry(RetryPolicy{Backoff: constant(time.Second)}))...)
				err := r.p.Run(t.Context())
				var re *ReturnedError
				if name == "lease lost" != errors.As(err, &re) {
					t.Error(err)
				}
				s := r.p.Stats()
				if st := s.Stages[0]; !c.want(st) || st.Batches > 2 || !s.Conserved() {
					t.Errorf("%v: %+v", texts, st)
				}
				for _, l := range r.letters {
					if l.Err != errHandler { // the marks are off
						t.Errorf("%+v", l)
					}
				}
			})
		})
	}
}

type brokenLimiter struct{ failures int }

func (l *brokenLimiter) Wait(context.Context) error {
	if l.failures--; l.failures >= 0 {
		return errHandler
	}
	return nil
}

// WholeBatch changes nothing for a single item.
func TestWholeBatchElsewhere(t *testing.T) {
	if WholeBatch(nil) != nil || !IsPermanent(WholeBatch(Permanent(errHandler))) || IsPermanent(WholeBatch(errHandler)) {
		t.Error("permanent?")
	}
	if j := judge(fmt.Errorf("x: %w", WholeBatch(RetryAfter(time.Second, errHandler)))); j.kind != markRetryAfter || j.delay != time.Second ||
		!errors.Is(j.err, errHandler) || isWholeBatch(j.err) {
		t.Errorf("%+v", j)
	}
	if j := judge(&PanicError{Value: WholeBatch(errHandler)}); j.kind != markPermanent {
		t.Errorf("%+v", j)
	}
}

// An outage costs few calls for a batch, and all are done after it.
func TestBatchOutage(t *testing.T) {
	for _, n := range []int{2, 8, 64, 256} {
		synctest.Test(t, func(t *testing.T) {
			r := newBatchRig(t)
			r.stage(r.numbers(n), func(context.Context, int, []int) error {
				if time.Since(r.began) < time.Hour {
					return errHandler
				}
				return nil
			}, BatchSize(n), BatchWait(time.Second), Retry(RetryPolicy{Backoff: constant(time.Minute)}))
			st := r.mustRun()
			r.wantDone(n)
			rounds := int(st.Runs)/n - 1
			if most := rounds*(2*bits.Len(uint(n-1))+2) + 1; st.Batches > int64(most) || rounds < 30 || st.Retried != int64(rounds*n) {
				t.Errorf("%d: at most %d calls in %d rounds: %+v", n, most, rounds, st)
			}
		})
	}
}

// Many poisons that look like an outage give nobody else up: who has no other
// attempt is looked at alone.
func TestBatchManyPoisons(t *testing.T) {
	poisons := []int{0, 1, 2, 3, 5, 8, 13, 21, 34, 55}
	for attempts := range 4 {
		synctest.Test(t, func(t *testing.T) {
			r := newBatchRig(t)
			opts := []Option{BatchSize(64), BatchWait(time.Second)}
			if attempts > 0 {
				opts = append(opts, Retry(RetryPolicy{MaxAttempts: attempts, Backoff: constant(time.Minute)}))
			}
			r.stage(r.numbers(64), spoiled(poisons...), opts...)
			r.mustRun()
			r.wantDone(64, poisons...)
			if len(r.letters) != len(poisons) {
				t.Errorf("%d attempts: %v", attempts, r.letters)
			}
		})
	}
}

// Cancelled with half a batch: what waits to be filled up is run and emitted, at
// once.
func TestP68_CancelWithHalfABatch(t *testing.T) {
	for _, buffer := range []BufferPolicy{Fixed(0), Fixed(16)} {
		synctest.Test(t, func(t *testing.T) {
			r := newBatchRig(t)
			ch := make(chan int)
			r.stage(KeyBy(FromChan(r.p, "source", ch), text), works, BatchSize(10), BatchWait(time.Hour), Buffer(buffer))
			go func() {
				for i := range 3 {
					ch <- i
				}
				time.Sleep(time.Minute)
				if st := r.p.Stats().Stages[0]; st.Gathering != 3 || st.Running != 0 || st.Runs != 0 {
					t.Errorf("%+v", st)
				}
				r.cancel()
			}()
			r.mustRun()
			r.wantCalls([]int{0, 1, 2})
			r.wantDone(3)
			if r.calls[0].at != time.Minute {
				t.Errorf("%+v", r.calls)
			}
		})
	}
}

// Whatever moment it is that the drain begins at: nothing is lost, and an item
// is run on until it is done or given back.
func TestBatchDrainAtEachMoment(t *testing.T) {
	for ms := range 120 {
		synctest.Test(t, func(t *testing.T) {
			r := newBatchRig(t, func(c *Config) {
				c.DrainTimeout = []time.Duration{-1, 7 * time.Millisecond, time.Second}[ms%3]
			})
			gaps := make([]time.Duration, 30)
			for i := range gaps {
				gaps[i] = time.Duration(i%5) * time.Millisecond
			}
			tries, seen := map[int]int{}, map[int]bool{}
			r.stage(r.trickle(gaps...), func(ctx context.Context, call int, vs []int) error {
				r.mu.Lock()
				for i, info := range BatchFrom(ctx) {
					if !seen[vs[i]] && info.Attempt != 1 { // another item's number
						t.Errorf("%d begins with attempt %d", vs[i], info.Attempt)
					}
					seen[vs[i]] = true
				}
				r.mu.Unlock()
				if !sleep(ctx, time.Duration(call%4)*time.Millisecond) {
					return ctx.Err()
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				bad := false
				for _, v := range vs {
					if v%4 == 1 {
						tries[v]++
						bad = bad || len(vs) > 1 || tries[v] < 9
					}
				}
				if bad {
					return errHandler
				}
				return nil
			}, BatchSize(6), BatchWait(5*time.Millisecond), Workers(2), Buffer(Fixed(ms%4)),
				Retry(RetryPolicy{Backoff: constant(3 * time.Millisecond), Slots: 9}))
			time.AfterFunc(time.Duration(ms)*time.Millisecond, r.cancel)
			_, err := r.run()
			time.Sleep(time.Second) // for the sender
			var re *ReturnedError
			returned := 0
			if errors.As(err, &re) {
				returned = len(re.Items)
			} else if err != nil {
				t.Error(err)
			}
			if s := r.p.Stats(); int(s.Done) != len(r.done) || int(s.Returned) != returned {
				t.Errorf("%v: %+v", err, s)
			}
		})
	}
}

// After a hard stop no half of a batch is run any more.
func TestBatchHardStopWhileCutting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t, func(c *Config) { c.DrainTimeout = time.Second })
		r.stage(r.numbers(8), func(ctx context.Context, call int, vs []int) error {
			if call < 3 {
				return errHandler
			}
			<-ctx.Done()
			return ctx.Err()
		}, BatchSize(8), BatchWait(time.Second))
		time.AfterFunc(time.Minute, r.cancel)
		_, err := r.run()
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 8 {
			t.Fatal(err)
		}
		for _, it := range re.Items {
			if !errors.Is(it.Err, ErrDrainTimeout) || errors.Is(it.Err, errHandler) != (it.Value.(int) >= 2) {
				t.Errorf("%v: %v", it.Value, it.Err)
			}
		}
		r.wantCalls([]int{0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 1, 2, 3}, []int{0, 1})
	})
}

// A batch function that ignores its context is named with each of its items, and
// what waits behind them in the batch is returned.
func TestBatchAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t, func(c *Config) { c.DrainTimeout = time.Second })
		r.stage(r.numbers(8), func(_ context.Context, call int, vs []int) error {
			if call == 1 {
				return errHandler
			}
			time.Sleep(time.Hour)
			return nil
		}, BatchSize(4), BatchWait(time.Second))
		time.AfterFunc(time.Minute, r.cancel)
		err := r.p.Run(r.ctx)
		var ae *AbandonedError
		if !errors.As(err, &ae) || !slices.Equal(ae.Handlers, []AbandonedHandler{{"batch", "0", 1}, {"batch", "1", 1}}) {
			t.Error(err)
		}
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 8 {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		if s := r.p.Stats(); !s.Conserved() || s.Returned != 8 || len(r.done) != 0 || len(r.calls) != 2 {
			t.Errorf("%v %+v", r.done, s)
		}
	})
}

// A paused stage keeps the batch that it has formed, and forms no other.
func TestBatchPause(t *testing.T) {
	for _, drained := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newBatchRig(t)
			r.stage(r.numbers(20), works, BatchSize(4), BatchWait(time.Second), Workers(3), Buffer(Fixed(4)))
			if err := r.p.Pause("batch"); err != nil {
				t.Error(err)
			}
			time.AfterFunc(time.Minute, func() {
				if s := r.p.Stats(); s.Admitted != 9 || s.Stages[0].Gathering != 4 || s.Stages[0].Depth != 4 || s.Stages[0].Runs != 0 {
					t.Errorf("%+v", s)
				}
				if drained {
					r.cancel()
				} else if err := r.p.Resume("batch"); err != nil {
					t.Error(err)
				}
			})
			_, err := r.run()
			var re *ReturnedError
			switch {
			case !drained:
				r.wantDone(20)
				if err != nil {
					t.Error(err)
				}
			case !errors.As(err, &re) || len(re.Items) < 9 || len(r.calls) != 0:
				t.Errorf("%d calls: %v", len(r.calls), err)
			}
		})
	}
}

// An injected item is due at once and fills a batch that waits.
func TestBatchInject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.trickle(0, time.Hour), works, BatchSize(3), BatchWait(time.Minute), Retry(RetryPolicy{}))
		time.AfterFunc(time.Second, func() {
			for i := range 2 {
				if err := r.p.Inject("batch", fmt.Sprint("injected", i), 100+i); err != nil {
					t.Error(err)
				}
			}
		})
		r.mustRun()
		r.wantCalls([]int{0, 100, 101}, []int{1})
		if r.calls[0].at != time.Second {
			t.Errorf("%+v", r.calls)
		}
	})
}

// As many items can be injected as there are slots.
func TestBatchIsFullAtItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		block := make(chan struct{})
		r.stage(KeyBy(FromChan(r.p, "source", make(chan int)), text), func(context.Context, int, []int) error { <-block; return nil },
			BatchSize(4), Retry(RetryPolicy{Slots: 4}))
		time.AfterFunc(time.Second, func() {
			full := 0
			for i := range 6 {
				switch err := r.p.Inject("batch", fmt.Sprint("injected", i), i); {
				case errors.Is(err, ErrFull):
					full++
				case err != nil:
					t.Error(err)
				}
				synctest.Wait()
			}
			if full != 2 {
				t.Errorf("full %d times", full)
			}
			close(block)
			synctest.Wait()
			r.cancel()
		})
		r.mustRun()
		if len(r.done) != 4 {
			t.Errorf("%v", r.done)
		}
	})
}

// While a batch runs its items count as running, and the oldest is theirs.
func TestBatchStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.numbers(5), func(context.Context, int, []int) error { time.Sleep(time.Minute); return nil },
			BatchSize(3), BatchWait(time.Second), Workers(2))
		time.AfterFunc(time.Second, func() {
			st := r.p.Stats().Stages[0]
			if st.Running != 5 || st.Oldest != time.Second || st.Runs != 5 || st.Done != 0 || st.Batches != 2 || st.Gathering != 0 {
				t.Errorf("%+v", st)
			}
		})
		if st := r.mustRun(); st.Running != 0 || st.Oldest != 0 || st.Runs != 5 || st.Done != 5 {
			t.Errorf("%+v", st)
		}
	})
}

// What a batch function is told of its items, and what its context is worth
// afterwards.
func TestBatchInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		var kept []context.Context
		BatchSink(r.numbers(4), "batch", func(ctx context.Context, vs []int) error {
			kept = append(kept, ctx)
			if info, ok := InfoFrom(ctx); !ok || info != (Info{Pipeline: "p", Stage: "batch", Namespace: "space"}) {
				t.Errorf("%+v", info)
			}
			if _, err := StepID(ctx, "step"); !errors.Is(err, ErrNoKey) {
				t.Error(err)
			}
			slices.Reverse(vs) // which is nobody else's business
			if len(vs) == 4 {
				return errHandler
			}
			ReplayedItem(ctx, 1)
			ReplayedItem(ctx, 1)
			return nil
		}, BatchSize(4), BatchWait(time.Second), Namespace("space"))
		if err := r.p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		for i, want := range [][]string{{"0", "1", "2", "3"}, {"0", "1"}, {"2", "3"}} {
			ids, err := BatchStepIDs(kept[i], "step")
			if err != nil || len(ids) != len(want) {
				t.Fatal(ids, err)
			}
			for j, id := range ids {
				if id != (RecordID{Namespace: Key("space", "step"), Key: want[j]}) {
					t.Errorf("%+v", id)
				}
			}
			infos := BatchFrom(kept[i])
			if infos[0] != (Info{Pipeline: "p", Stage: "batch", Namespace: "space", Key: want[0], Attempt: 1}) {
				t.Errorf("%+v", infos)
			}
			if kept[i].Err() == nil || context.Cause(kept[i]) == nil {
				t.Error("the context has outlived Run")
			}
			if _, ok := kept[i].Deadline(); ok {
				t.Error("deadline")
			}
		}
		if st := r.p.Stats().Stages[0]; st.Replayed != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// What was replayed in a call that failed doesn't count.
func TestBatchReplayedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		r.stage(r.numbers(4), func(ctx context.Context, _ int, vs []int) error {
			Replayed(ctx)
			return spoiled(3)(ctx, 0, vs)
		}, BatchSize(4), BatchWait(time.Second))
		if st := r.mustRun(); st.Replayed != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestBatchKeysWithoutPipeline(t *testing.T) {
	keys := []string{"a", "b"}
	ctx := WithKeys(t.Context(), keys...)
	keys[0] = "changed"
	if got := BatchFrom(ctx); !slices.Equal(got, []Info{{Key: "a", Attempt: 1}, {Key: "b", Attempt: 1}}) {
		t.Errorf("%+v", got)
	}
	if info, ok := InfoFrom(ctx); !ok || info != (Info{}) {
		t.Errorf("%+v", info)
	}
	Replayed(ctx)
	ReplayedItem(ctx, 1)
	one := WithKey(t.Context(), "k")
	id, err := StepID(one, "a/b")
	ids, err2 := BatchStepIDs(one, "a/b")
	if err != nil || err2 != nil || !slices.Equal(ids, []RecordID{id}) {
		t.Error(ids, id, err, err2)
	}
	if BatchFrom(t.Context()) != nil {
		t.Error("there is no batch")
	}
	for _, ctx := range []context.Context{t.Context(), WithKeys(t.Context()), WithKeys(t.Context(), "a", ""), WithKey(t.Context(), "")} {
		if ids, err := BatchStepIDs(ctx, "step"); !errors.Is(err, ErrNoKey) || ids != nil {
			t.Error(ids, err)
		}
	}
}

// An item without a key is found among those that have one.
func TestBatchItemWithoutKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		in := KeyBy(FromSeq(r.p, "source", ints(9)), func(v int) string {
			if v == 5 {
				return ""
			}
			return text(v)
		})
		BatchSink(in, "batch", func(ctx context.Context, _ []int) error {
			_, err := BatchStepIDs(ctx, "step")
			return err
		}, Retry(RetryPolicy{}))
		if err := r.p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if l := r.letters[5]; l.Reason != ReasonNoKey || len(r.letters) != 1 {
			t.Errorf("%+v", r.letters)
		}
	})
}

// Timeout and Limit count for each call.
func TestBatchLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		l := &brokenLimiter{}
		r.stage(r.numbers(4), func(ctx context.Context, _ int, vs []int) error {
			if at, ok := ctx.Deadline(); !ok || time.Until(at) != time.Second {
				t.Errorf("deadline %v", at)
			}
			time.Sleep(900 * time.Millisecond)
			return spoiled(0)(ctx, 0, vs)
		}, BatchSize(4), BatchWait(time.Second), Timeout(time.Second), Limit(l))
		r.mustRun()
		r.wantDone(4, 0)
		if l.failures != -len(r.calls) || len(r.calls) != 5 {
			t.Errorf("%d calls, asked %d times", len(r.calls), -l.failures)
		}
	})
}

// An item of a batch costs few allocations of its own.
func TestBatchAllocations(t *testing.T) {
	const items = 20_000
	p := New("p", Config{Logger: quiet})
	BatchSink(FromSeq(p, "source", ints(items)), "sink", func(context.Context, []int) error { return nil }, Buffer(Fixed(256)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := p.Run(t.Context()); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	batches := p.Stats().Stages[0].Batches
	if allocs := int64(after.Mallocs - before.Mallocs); allocs > items/2+8*batches+1000 {
		t.Errorf("%d allocations for %d items in %d batches", allocs, items, batches)
	}
}

// claimOp gives items the claims that a Dedup with a store would.
type claimOp struct {
	out    *port[int]
	claims map[int]context.Context
}

func (o *claimOp) accept(it item[int]) {
	if ctx := o.claims[it.v]; ctx != nil {
		c := &claim{ctx: ctx, hold: &leaseHold{}}
		c.attempt.Store(7)
		c.takeover.Store(true)
		it.t.scope.claim = c
	}
	o.out.next.accept(it)
}
func (o *claimOp) close() { o.out.next.close() }

// An item whose claim is lost is returned, before it runs or as its call ends; the
// others of its batch run.
func TestBatchLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		claims, lose := map[int]context.Context{}, map[int]context.CancelCauseFunc{}
		for v := range 8 {
			claims[v], lose[v] = context.WithCancelCause(t.Context())
		}
		lose[0](ErrLeaseLost)
		lose[2](ErrLeaseLost)
		lose[3](ErrLeaseLost)
		numbers := r.numbers(9)
		out, in := derive[int](numbers)
		read(numbers, &claimOp{out, claims})
		r.stage(in, func(ctx context.Context, _ int, vs []int) error {
			for i, info := range BatchFrom(ctx) {
				if want := vs[i] < 8; info.Takeover != want || info.Attempt == 7 != want {
					t.Errorf("%+v", info)
				}
			}
			if slices.Contains(vs, 5) {
				time.AfterFunc(time.Second, func() { lose[5](ErrLeaseLost) })
				<-ctx.Done()
				if context.Cause(ctx) != ErrLeaseLost {
					t.Error(context.Cause(ctx))
				}
				return context.Cause(ctx)
			}
			return ctx.Err()
		}, BatchSize(9), BatchWait(time.Second))
		_, err := r.run()
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 4 {
			t.Fatal(err)
		}
		for _, it := range re.Items {
			if !errors.Is(it.Err, ErrLeaseLost) {
				t.Errorf("%+v", it)
			}
		}
		r.wantDone(9, 0, 2, 3, 5)
		r.wantCalls([]int{1}, []int{4, 5, 6, 7, 8}, []int{4}, []int{6, 7, 8})
	})
}
