package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func nothing(context.Context, int) error { return nil }

func same(_ context.Context, v int) (int, error) { return v, nil }

func text(v int) string { return fmt.Sprint(v) }

func ints(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// Every fault of a graph is named, and nothing of it runs.
func TestGraphFaults(t *testing.T) {
	numbers := func(p *Pipeline) Stream[int] { return FromSeq(p, "source", ints(3)) }
	for name, c := range map[string]struct {
		wire func(p *Pipeline)
		want string
	}{
		"no source":       {func(*Pipeline) {}, "no source"},
		"nil source":      {func(p *Pipeline) { Discard(From[int](p, "source", nil)) }, `source "source" is nil`},
		"unnamed source":  {func(p *Pipeline) { Discard(FromSeq(p, "", ints(1))) }, "a source has no name"},
		"unnamed stage":   {func(p *Pipeline) { Sink(numbers(p), "", nothing) }, "a sink has no name"},
		"unnamed Dedup":   {func(p *Pipeline) { Discard(Dedup(numbers(p), "", text)) }, "a dedup has no name"},
		"two names":       {func(p *Pipeline) { Sink(Stage(numbers(p), "x", same), "x", nothing) }, `two stages or sources are called "x"`},
		"source and sink": {func(p *Pipeline) { Sink(numbers(p), "source", nothing) }, `called "source"`},
		"never read":      {func(p *Pipeline) { Map(numbers(p), func(v int) int { return v }) }, `from "source" is never read`},
		"stage not read":  {func(p *Pipeline) { Stage(numbers(p), "stage", same) }, `from "stage" is never read`},
		"failed not read": {func(p *Pipeline) {
			ok, _ := TryStage(numbers(p), "try", same)
			Discard(ok)
		}, `from "try" is never read`},
		"read twice": {func(p *Pipeline) {
			in := numbers(p)
			Discard(in)
			Discard(in)
		}, `from "source" is read twice; use Broadcast`},
		"merged with itself": {func(p *Pipeline) {
			in := numbers(p)
			Discard(Merge(in, in))
		}, "read twice"},
		"two pipelines": {func(p *Pipeline) {
			Discard(Merge(numbers(p), numbers(New("other", Config{}))))
		}, `two pipelines: "p" and "other"`},
		"Broadcast to none": {func(p *Pipeline) { Discard(Broadcast(numbers(p), 0)[0]) }, "Broadcast after"},
		"route twice": {func(p *Pipeline) {
			a, rest := Route(numbers(p), func(v int) int { return v }, 1, 1)
			Discard(Merge(a[0], a[1], rest))
		}, "names the route 1 twice"},
		"nil function":      {func(p *Pipeline) { Discard(Stage[int, int](numbers(p), "stage", nil)) }, "function is nil"},
		"nil sink":          {func(p *Pipeline) { Sink(numbers(p), "sink", nil) }, "function is nil"},
		"no workers":        {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Workers(0)) }, "Workers(0)"},
		"negative buffer":   {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Buffer(Fixed(-1))) }, "buffer of -1"},
		"dropping nothing":  {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Buffer(Dropping(0))) }, "at least one place"},
		"sliding nothing":   {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Buffer(Sliding(0))) }, "at least one place"},
		"negative attempts": {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Retry(RetryPolicy{MaxAttempts: -1})) }, "negative MaxAttempts"},
		"negative delay":    {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Retry(RetryPolicy{MaxDelay: -1})) }, "negative MaxDelay"},
		"negative slots":    {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Retry(RetryPolicy{Slots: -1})) }, "slots out of range"},
		"no time":           {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Timeout(0)) }, "Timeout(0s)"},
		"nil limiter":       {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Limit(nil)) }, "Limit(nil)"},
		"empty namespace":   {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, Namespace("")) }, "Namespace is empty"},
		"nil guard":         {func(p *Pipeline) { Discard(Dedup(numbers(p), "dedup", text, WithGuard(nil))) }, "WithGuard(nil)"},
		"join limit":        {func(p *Pipeline) { Discard(Dedup(numbers(p), "dedup", text, JoinLimit(1, 1, 0))) }, "JoinLimit(1, 1, 0s)"},
		"option of a stage": {func(p *Pipeline) { Discard(Dedup(numbers(p), "dedup", text, Workers(2))) }, "option Workers has no meaning here"},
		"option of a Dedup": {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, WithGuard(Ring(1))) }, "option WithGuard has no meaning here"},
		"two orders": {func(p *Pipeline) {
			Sink(PartitionBy(numbers(p), text), "sink", nothing, Ordered(), PerPartition())
		}, "exclude each other"},
		"no partition": {func(p *Pipeline) { Sink(numbers(p), "sink", nothing, PerPartition()) }, "PerPartition needs PartitionBy"},
		"out of order": {func(p *Pipeline) {
			Sink(PartitionBy(Stage(numbers(p), "stage", same, Workers(2)), text), "sink", nothing, PerPartition())
		}, `PerPartition behind "stage", which emits out of order`},
		"a retry out of order": {func(p *Pipeline) {
			Sink(PartitionBy(Stage(numbers(p), "stage", same, Retry(RetryPolicy{})), text), "sink", nothing, PerPartition())
		}, "emits out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New("p", Config{Logger: quiet})
			c.wire(p)
			err := p.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `pipeline "p" can't run`) {
				t.Errorf("Run: %v; want %q", err, c.want)
			}
			if s := p.Stats(); s.Admitted != 0 {
				t.Error("something ran")
			}
		})
	}
	t.Run("unnamed pipeline", func(t *testing.T) {
		p := New("", Config{Logger: quiet})
		Discard(FromSeq(p, "source", ints(1)))
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the pipeline has no name") {
			t.Error(err)
		}
	})
	t.Run("all at once", func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		Sink(FromSeq(p, "x", ints(1)), "x", nothing, Workers(0))
		Map(FromSeq(p, "y", ints(1)), func(v int) int { return v })
		err := p.Run(t.Context())
		for _, want := range []string{"called", "Workers(0)", "never read"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q too", err, want)
			}
		}
	})
}

// What is allowed behind what.
func TestGraphOrders(t *testing.T) {
	for name, wire := range map[string]func(in Stream[int]) Stream[int]{
		"source":     func(in Stream[int]) Stream[int] { return in },
		"one worker": func(in Stream[int]) Stream[int] { return Stage(in, "stage", same) },
		"ordered": func(in Stream[int]) Stream[int] {
			return Stage(in, "stage", same, Workers(4), Ordered(), Retry(RetryPolicy{}))
		},
		"per partition": func(in Stream[int]) Stream[int] {
			return Stage(in, "stage", same, Workers(4), PerPartition(), Retry(RetryPolicy{}))
		},
		"operators": func(in Stream[int]) Stream[int] {
			return KeyBy(Filter(Dedup(in, "dedup", text), func(int) bool { return true }), text)
		},
		"merge of split": func(in Stream[int]) Stream[int] {
			a, b := Split(in, func(v int) bool { return v%2 == 0 })
			return Merge(a, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := New("p", Config{Logger: quiet})
			in := PartitionBy(FromSeq(p, "source", ints(20)), text)
			Sink(wire(in), "sink", nothing, PerPartition(), Workers(2))
			if err := p.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunTwice(t *testing.T) {
	p := New("p", Config{Logger: quiet})
	started, leave := make(chan struct{}), make(chan struct{})
	Sink(FromSeq(p, "source", ints(1)), "sink", func(context.Context, int) error { close(started); <-leave; return nil })
	first := make(chan error)
	go func() { first <- p.Run(context.Background()) }()
	<-started
	again := func() {
		t.Helper()
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ran already") {
			t.Error(err)
		}
	}
	again()
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	again()
}

func TestStreamOfNothing(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Discard(Stream[int]{})
}

// An item that a handler keeps beyond all limits is named, returned, and not
// heard of again; what waited behind it is returned too.
func TestAbandonedHandlerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet, DrainTimeout: time.Second, AbandonAfter: 2 * time.Second})
		in := KeyBy(FromSeq(p, "source", ints(4)), func(v int) string { return "key" + text(v) })
		out := Stage(in, "stubborn", func(_ context.Context, v int) (int, error) {
			if v == 1 {
				time.Sleep(time.Hour)
			}
			return v, nil
		})
		Sink(TryMap(out, func(v int) (int, error) {
			if v == 1 {
				t.Error("heard of the abandoned item")
			}
			return v, nil
		}), "sink", nothing)
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		err := p.Run(ctx)
		if took := time.Since(began); took != time.Minute+3*time.Second {
			t.Errorf("Run took %v", took)
		}
		var ae *AbandonedError
		if !errors.As(err, &ae) || !slices.Equal(ae.Handlers, []AbandonedHandler{{"stubborn", "key1", 1}}) ||
			!strings.Contains(err.Error(), `stage stubborn, key "key1", attempt 1`) {
			t.Error(err)
		}
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 3 {
			t.Error(err)
		}
		before := p.Stats()
		time.Sleep(2 * time.Hour)
		if after := p.Stats(); !after.Conserved() || after.Done != before.Done || after.Returned != 3 {
			t.Errorf("%+v", after)
		}
	})
}

// A negative DrainTimeout ends the handlers' contexts with the pipeline's.
func TestDrainTimeoutNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet, DrainTimeout: -1})
		var cause error
		Sink(FromSeq(p, "source", ints(2)), "sink", func(ctx context.Context, _ int) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		err := p.Run(ctx)
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 2 || re.Items[0].Value != 0 || re.Items[1].Value != 1 || !errors.Is(re.Items[0].Err, ErrDrainTimeout) {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute || cause != ErrDrainTimeout {
			t.Errorf("after %v: %v", took, cause)
		}
	})
}

// During the drain handlers have a live context and what is buffered is worked
// off; what is parked is not run before its time.
func TestDrainWorksOffBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet})
		ran := map[int]int{}
		Sink(FromSeq(p, "source", ints(5)), "sink", func(ctx context.Context, v int) error {
			time.Sleep(time.Second)
			if ran[v]++; v == 0 {
				return errHandler
			}
			return ctx.Err()
		}, Retry(RetryPolicy{Backoff: constant(time.Hour)}))
		time.AfterFunc(1500*time.Millisecond, cancel)
		err := p.Run(ctx)
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 1 || re.Items[0].Value != 0 || re.Items[0].Source != "source" ||
			!errors.Is(re.Items[0].Err, ErrShutdown) || !errors.Is(re.Items[0].Err, errHandler) {
			t.Error(err)
		}
		if s := p.Stats(); s.Done != 4 || ran[0] != 1 {
			t.Errorf("%v %+v", ran, s)
		}
	})
}

// At MaxReturned the pipeline drains.
func TestMaxReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("p", Config{Logger: quiet, MaxReturned: 3})
		endless := func(yield func(int) bool) {
			for i := 0; yield(i); i++ {
			}
		}
		Sink(FromSeq(p, "source", endless), "sink", func(context.Context, int) error { time.Sleep(time.Second); return Permanent(errHandler) }, Buffer(Fixed(0)))
		err := p.Run(t.Context())
		var re *ReturnedError
		if !errors.Is(err, ErrReturnedFull) || !errors.As(err, &re) || len(re.Items) < 3 || len(re.Items) > 6 {
			t.Error(err)
		}
	})
}

// A paused stage keeps what is in it, and gives it back when the pipeline drains.
func TestPauseAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet})
		Sink(FromSeq(p, "source", ints(10)), "sink", func(_ context.Context, v int) error { time.Sleep(time.Second); return nil }, Workers(2), Buffer(Fixed(4)))
		time.AfterFunc(1500*time.Millisecond, func() {
			if err := p.Pause("sink"); err != nil {
				t.Error(err)
			}
		})
		time.AfterFunc(time.Hour, func() {
			if s := p.Stats(); s.Done != 4 || !s.Stages[0].Paused {
				t.Errorf("%+v", s)
			}
			cancel()
		})
		err := p.Run(ctx)
		var re *ReturnedError
		if s := p.Stats(); !errors.As(err, &re) || int64(len(re.Items)) != s.Returned || s.Done != 4 || s.Admitted-s.Done != s.Returned {
			t.Errorf("%v %+v", err, s)
		}
	})
}

func TestInject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		ch := make(chan int)
		got := map[string]int{}
		Sink(FromChan(p, "source", ch), "sink", func(ctx context.Context, v int) error {
			i, _ := InfoFrom(ctx)
			got[i.Key] += v
			if v == 7 {
				time.Sleep(time.Minute)
			}
			return nil
		}, Retry(RetryPolicy{Slots: 2}))
		if err := p.Inject("sink", "k", 1); !errors.Is(err, ErrNotRunning) {
			t.Error(err)
		}
		go func() {
			synctest.Wait()
			if err := p.Inject("sink", "k", 1); err != nil {
				t.Error(err)
			}
			if err := p.Inject("sink", "k", "text"); err == nil || !strings.Contains(err.Error(), "takes int, not string") {
				t.Error(err)
			}
			if err := p.Inject("nowhere", "k", 1); err == nil {
				t.Error("no error")
			}
			if err := p.Inject("source", "k", 1); err == nil {
				t.Error("no error")
			}
			synctest.Wait()
			if err := p.Inject("sink", "slow", 7); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if err := p.Inject("sink", "second", 3); err != nil {
				t.Error(err)
			}
			if err := p.Inject("sink", "third", 3); !errors.Is(err, ErrFull) {
				t.Error(err)
			}
			close(ch)
		}()
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if err := p.Inject("sink", "k", 1); !errors.Is(err, ErrNotRunning) {
			t.Error(err)
		}
		if s := p.Stats(); s.Done != 3 || got["k"] != 1 || got["slow"] != 7 || got["second"] != 3 {
			t.Errorf("%v %+v", got, s)
		}
	})
}
