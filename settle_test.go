package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// crashes are the ways in which a callback can leave without returning.
var crashes = map[string]func(){
	"panic":  func() { panic("crash") },
	"Goexit": runtime.Goexit,
}

type countSettled struct {
	n       atomic.Int32
	verdict verdict
}

func (c *countSettled) settled(v verdict)        { c.n.Add(1); c.verdict = v }
func (c *countSettled) holdLimit() time.Duration { return 0 }
func (c *countSettled) takesBack() bool          { return true }

// A scope is settled once, when its last item is, with the worst outcome, or
// when it is forced, with that verdict.
func TestI5_Scope(t *testing.T) {
	check(t, 200, func(rt *rapid.T) {
		var outcomes []Outcome
		var owner countSettled
		s := &scope{owner: &owner}
		s.open.Store(1)
		var items errgroup.Group
		var mu sync.Mutex
		var split func(depth int) error
		forks := rapid.SliceOfN(rapid.IntRange(0, 3), 40, 40).Draw(rt, "forks")
		ends := rapid.SliceOfN(rapid.IntRange(int(Filtered), int(Returned)), 40, 40).Draw(rt, "ends")
		force := rapid.Bool().Draw(rt, "force")
		var next atomic.Int32
		split = func(depth int) error {
			i := int(next.Add(1)-1) % 40
			if depth < 3 {
				s.fork(int32(forks[i]))
				for range forks[i] {
					items.Go(func() error { return split(depth + 1) })
				}
			}
			o := Outcome(ends[i])
			mu.Lock()
			outcomes = append(outcomes, o)
			mu.Unlock()
			s.settle(verdict{outcome: o})
			return nil
		}
		items.Go(func() error { return split(0) })
		if force {
			items.Go(func() error { s.force(verdict{outcome: Returned, err: errRefused}); return nil })
		}
		_ = items.Wait()
		if n := owner.n.Load(); n != 1 {
			rt.Fatalf("settled %d times", n)
		}
		if v := owner.verdict; v.outcome != slices.Max(outcomes) && v.err == nil {
			rt.Fatalf("outcome %v of %v", v.outcome, outcomes)
		}
	})
}

// settling is a source of n deliveries that asks settle.
func settling(n int, settle func(ctx context.Context, i, call int, s Settlement) error) Source[int] {
	i := 0
	return SourceFunc[int](func(context.Context) (Delivery[int], error) {
		if i == n {
			return Delivery[int]{}, io.EOF
		}
		i++
		this, calls := i-1, 0
		return Delivery[int]{Value: this, Key: fmt.Sprint(this), Settle: func(ctx context.Context, s Settlement) error {
			calls++
			return settle(ctx, this, calls, s)
		}}, nil
	})
}

// A settlement that fails, in whatever way, is made again and runs no handler.
func TestI5_SettleThatCrashes(t *testing.T) {
	bad := map[string]func() error{"error": func() error { return errRefused }}
	for name, crash := range crashes {
		bad[name] = func() error { crash(); return nil }
	}
	for name, fail := range bad {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				var mu sync.Mutex
				taken := map[int]int{}
				p := New("p", Config{Logger: quiet})
				in := From(p, "source", settling(n, func(_ context.Context, i, call int, s Settlement) error {
					if call <= i%4 {
						return fail()
					}
					mu.Lock()
					defer mu.Unlock()
					taken[i]++
					if s.Outcome != Done {
						t.Errorf("delivery %d is %v", i, s.Outcome)
					}
					return nil
				}))
				var runs atomic.Int32
				Sink(in, "sink", func(context.Context, int) error { runs.Add(1); return nil }, Workers(2))
				if err := p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				for i := range n {
					if taken[i] != 1 {
						t.Errorf("delivery %d is settled %d times", i, taken[i])
					}
				}
				if runs.Load() != n {
					t.Errorf("%d runs", runs.Load())
				}
			})
		})
	}
}

// A source that never takes a settlement is named in Run's error.
func TestSettleThatAlwaysFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		in := From(p, "source", settling(3, func(_ context.Context, i, _ int, _ Settlement) error {
			if i == 1 {
				return errRefused
			}
			return nil
		}))
		Discard(in)
		err := p.Run(t.Context())
		if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), `source source, key "1"`) || strings.Contains(err.Error(), `key "2"`) {
			t.Error(err)
		}
		if s := p.Stats(); !s.Conserved() || s.Done != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// More refused settlements than the acker has room for: they wait, none is lost.
func TestI5_ManyRefusedSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4 * ackQueue
		var taken atomic.Int32
		p := New("p", Config{Logger: quiet})
		in := From(p, "source", settling(n, func(_ context.Context, _, call int, _ Settlement) error {
			if call < 3 {
				return errRefused
			}
			taken.Add(1)
			return nil
		}))
		Sink(in, "sink", func(context.Context, int) error { return nil }, Workers(4))
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if taken.Load() != n {
			t.Errorf("%d of %d", taken.Load(), n)
		}
	})
}

// A Settle that ignores its context and fails when Run has given up on it harms
// nobody.
func TestSettleThatOutlivesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet, DrainTimeout: time.Second})
		in := From(p, "source", settling(1, func(context.Context, int, int, Settlement) error {
			time.Sleep(time.Hour)
			return errRefused
		}))
		Sink(in, "sink", func(context.Context, int) error { return nil })
		time.AfterFunc(time.Minute, cancel)
		err := p.Run(ctx)
		var ae *AbandonedError
		if !errors.As(err, &ae) {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
	})
}

// An ack whose try ended with Run is made again by who made it.
func TestI5_AckAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet, DrainTimeout: -1})
		var taken atomic.Int32
		in := From(p, "source", settling(1, func(ctx context.Context, _, call int, _ Settlement) error {
			switch call {
			case 1:
				<-ctx.Done()
				return ctx.Err()
			case 2:
				return errRefused
			}
			taken.Add(1)
			return nil
		}))
		Sink(in, "sink", func(context.Context, int) error { return nil })
		time.AfterFunc(time.Second, cancel)
		err := p.Run(ctx)
		var ae *AbandonedError
		if !errors.As(err, &ae) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if n := taken.Load(); n != 1 {
			t.Errorf("%d of 1 taken", n)
		}
	})
}

// A source whose Receive returns when Run has given up on it gets its delivery
// back.
func TestI5_ReceiveThatOutlivesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New("p", Config{Logger: quiet, DrainTimeout: time.Second})
		var got []Settlement
		src := SourceFunc[int](func(context.Context) (Delivery[int], error) {
			time.Sleep(time.Hour)
			return Delivery[int]{Value: 1, Settle: func(ctx context.Context, s Settlement) error {
				if ctx.Err() != nil {
					t.Error(ctx.Err())
				}
				got = append(got, s)
				return nil
			}}, nil
		})
		Sink(From(p, "source", Source[int](src)), "sink", func(context.Context, int) error { t.Error("ran"); return nil })
		time.AfterFunc(time.Minute, cancel)
		err := p.Run(ctx)
		var ae *AbandonedError
		if !errors.As(err, &ae) || len(ae.Handlers) != 1 || ae.Handlers[0].Stage != "source" {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(got) != 1 || got[0].Outcome != Returned {
			t.Errorf("%+v", got)
		}
		if s := p.Stats(); !s.Conserved() {
			t.Errorf("%+v", s)
		}
	})
}

// Observers see everything, each of them, whatever another does.
func TestObserverThatCrashes(t *testing.T) {
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := map[EventKind]int{}
				p := New("p", Config{
					Logger:      quiet,
					DeadLetters: func(context.Context, DeadLetter) error { return nil },
					Observers:   []Observer{func(Event) { crash() }, func(e Event) { seen[e.Kind]++ }, func(Event) { crash() }},
				})
				in := From(p, "source", settling(3, func(context.Context, int, int, Settlement) error { return nil }))
				tries := map[int]int{}
				Sink(in, "sink", func(_ context.Context, v int) error {
					tries[v]++
					switch {
					case v == 0:
						return Permanent(errHandler)
					case v == 1 && tries[v] == 1:
						return errHandler
					case v == 1 && tries[v] == 2:
						return Snooze(time.Second)
					}
					return nil
				}, Retry(RetryPolicy{}))
				if err := p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				want := map[EventKind]int{EventSettled: 3, EventFailed: 2, EventRetried: 1, EventSnoozed: 1, EventDead: 1}
				if fmt.Sprint(seen) != fmt.Sprint(want) {
					t.Errorf("seen %v, want %v", seen, want)
				}
				if s := p.Stats(); s.Done != 2 || s.Dead != 1 || tries[1] != 3 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A dead letter that is not written leaves the item with its source.
func TestI1_DeadLettersThatFail(t *testing.T) {
	bad := map[string]func() error{"error": func() error { return errRefused }}
	for name, crash := range crashes {
		bad[name] = func() error { crash(); return nil }
	}
	for name, fail := range bad {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New("p", Config{Logger: quiet, DeadLetters: func(_ context.Context, l DeadLetter) error {
					if l.Value == 1 || l.Value == 3 {
						return fail()
					}
					return nil
				}})
				outcomes := make([]Outcome, 5)
				in := From(p, "source", settling(5, func(_ context.Context, i, _ int, s Settlement) error {
					outcomes[i] = s.Outcome
					return nil
				}))
				ok := TryMap(in, func(v int) (int, error) {
					if v == 3 {
						return v, errHandler
					}
					return v, nil
				})
				Sink(ok, "sink", func(_ context.Context, v int) error {
					switch v {
					case 1, 2:
						panic(v)
					default:
						return nil
					}
				})
				if err := p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				if want := []Outcome{Done, Returned, Dead, Returned, Done}; !slices.Equal(outcomes, want) {
					t.Errorf("%v, want %v", outcomes, want)
				}
			})
		})
	}
}

// A panic or Goexit in the function of an operator, behind a source, a stage or a
// TryStage, is a dead letter of the item and takes nothing else with it.
func TestOperatorThatCrashes(t *testing.T) {
	const n, bad = 6, 2
	type op func(in Stream[int], hit func(int)) Stream[int]
	ops := map[string]op{
		"Map": func(in Stream[int], hit func(int)) Stream[int] { return Map(in, func(v int) int { hit(v); return v }) },
		"TryMap": func(in Stream[int], hit func(int)) Stream[int] {
			return TryMap(in, func(v int) (int, error) { hit(v); return v, nil })
		},
		"Filter": func(in Stream[int], hit func(int)) Stream[int] {
			return Filter(in, func(v int) bool { hit(v); return true })
		},
		"FlatMap": func(in Stream[int], hit func(int)) Stream[int] {
			return FlatMap(in, func(v int) []int { hit(v); return []int{v} })
		},
		"FlatMapSeq": func(in Stream[int], hit func(int)) Stream[int] {
			return FlatMapSeq(in, func(v int) iter.Seq[int] {
				return func(yield func(int) bool) {
					yield(v)
					hit(v)
				}
			})
		},
		"KeyBy": func(in Stream[int], hit func(int)) Stream[int] {
			return KeyBy(in, func(v int) string { hit(v); return "k" })
		},
		"PartitionBy": func(in Stream[int], hit func(int)) Stream[int] {
			return PartitionBy(in, func(v int) string { hit(v); return "k" })
		},
		"Split": func(in Stream[int], hit func(int)) Stream[int] {
			a, b := Split(in, func(v int) bool { hit(v); return v%2 == 0 })
			return Merge(a, b)
		},
		"Route": func(in Stream[int], hit func(int)) Stream[int] {
			a, rest := Route(in, func(v int) int { hit(v); return v % 3 }, 0, 1)
			return Merge(a[0], a[1], rest)
		},
		"Broadcast": func(in Stream[int], hit func(int)) Stream[int] {
			b := Broadcast(in, 2)
			Discard(b[0])
			return Map(b[1], func(v int) int { hit(v); return v })
		},
		"Dedup": func(in Stream[int], hit func(int)) Stream[int] {
			return Dedup(in, "dedup", func(v int) string { hit(v); return fmt.Sprint(v) })
		},
		"behind Dedup": func(in Stream[int], hit func(int)) Stream[int] {
			return Map(Dedup(in, "dedup", func(v int) string { return fmt.Sprint(v) }), func(v int) int { hit(v); return v })
		},
	}
	before := map[string]func(p *Pipeline, in Stream[int]) Stream[int]{
		"source": func(_ *Pipeline, in Stream[int]) Stream[int] { return in },
		"stage": func(_ *Pipeline, in Stream[int]) Stream[int] {
			return Stage(in, "before", func(_ context.Context, v int) (int, error) { return v, nil })
		},
		"ordered": func(_ *Pipeline, in Stream[int]) Stream[int] {
			return Stage(in, "before", func(_ context.Context, v int) (int, error) { return v, nil }, Ordered(), Workers(3))
		},
		"try": func(_ *Pipeline, in Stream[int]) Stream[int] {
			ok, failed := TryStage(in, "before", func(_ context.Context, v int) (int, error) { panic("handler") })
			return Merge(ok, Map(failed, func(f Failed[int]) int { return f.Value }))
		},
	}
	for name, crash := range crashes {
		for from, wire := range before {
			for opName, op := range ops {
				t.Run(name+"/"+from+"/"+opName, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var letters []DeadLetter
						p := New("p", Config{Logger: quiet, DeadLetters: func(_ context.Context, l DeadLetter) error {
							letters = append(letters, l)
							return nil
						}})
						var mu sync.Mutex
						outcomes := make([]Outcome, n)
						in := From(p, "source", settling(n, func(_ context.Context, i, _ int, s Settlement) error {
							mu.Lock()
							defer mu.Unlock()
							outcomes[i] = s.Outcome
							return nil
						}))
						Discard(op(wire(p, in), func(v int) {
							if v == bad {
								crash()
							}
						}))
						if err := p.Run(t.Context()); err != nil {
							t.Error(err)
						}
						want := []Outcome{Done, Done, Dead, Done, Done, Done}
						if !slices.Equal(outcomes, want) || len(letters) != 1 || letters[0].Reason != ReasonPanic {
							t.Errorf("%v, want %v; letters %+v", outcomes, want, letters)
						}
					})
				})
			}
		}
	}
}

// A panic or Goexit of what a stage calls is as good as one of its handler.
func TestHandlerThatCrashes(t *testing.T) {
	for name, crash := range crashes {
		for kind, opts := range map[string][]Option{
			"plain": nil, "timeout": {Timeout(time.Second)}, "ordered": {Ordered(), Workers(2)}, "retry": {Retry(RetryPolicy{Slots: 1})},
			"limiter": {Limit(limiter(func(ctx context.Context) error {
				if i, _ := InfoFrom(ctx); i.Key == "2" {
					crash()
				}
				return nil
			}))},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var letters []DeadLetter
					p := New("p", Config{Logger: quiet, DeadLetters: func(_ context.Context, l DeadLetter) error {
						letters = append(letters, l)
						return nil
					}})
					in := From(p, "source", settling(5, func(context.Context, int, int, Settlement) error { return nil }))
					Discard(Stage(in, "stage", func(_ context.Context, v int) (int, error) {
						if v == 2 && kind != "limiter" {
							crash()
						}
						return v, nil
					}, opts...))
					if err := p.Run(t.Context()); err != nil {
						t.Error(err)
					}
					if s := p.Stats(); s.Done != 4 || s.Dead != 1 || letters[0].Reason != ReasonPanic || letters[0].Attempts != 1 {
						t.Errorf("%+v %+v", s, letters)
					}
				})
			})
		}
	}
}

type limiter func(context.Context) error

func (l limiter) Wait(ctx context.Context) error { return l(ctx) }

// A source that panics or ends its goroutine ends the pipeline, not the items
// that are under way.
func TestSourceThatCrashes(t *testing.T) {
	for name, crash := range crashes {
		for kind, wire := range map[string]func(p *Pipeline) Stream[int]{
			"Receive": func(p *Pipeline) Stream[int] {
				src := settling(3, func(context.Context, int, int, Settlement) error { return nil })
				return From(p, "source", Source[int](SourceFunc[int](func(ctx context.Context) (Delivery[int], error) {
					d, err := src.Receive(ctx)
					if err != nil {
						crash()
					}
					return d, err
				})))
			},
			"FromSeq": func(p *Pipeline) Stream[int] {
				return FromSeq(p, "source", func(yield func(int) bool) {
					for i := range 3 {
						yield(i)
					}
					crash()
				})
			},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := New("p", Config{Logger: quiet})
					Sink(wire(p), "sink", func(context.Context, int) error { time.Sleep(time.Second); return nil })
					err := p.Run(t.Context())
					var pe *PanicError
					if !errors.As(err, &pe) && !errors.Is(err, ErrGoexit) || !strings.Contains(err.Error(), "source source") {
						t.Error(err)
					}
					if s := p.Stats(); s.Done != 3 {
						t.Errorf("%+v", s)
					}
				})
			})
		}
	}
}

// A copy that takes over and meets a Goexit on its way leaves nothing behind
// that Run would wait for.
func TestTakeoverThatCrashes(t *testing.T) {
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New("p", Config{Logger: quiet, DeadLetters: func(context.Context, DeadLetter) error { return nil }})
				in := From(p, "source", settling(3, func(context.Context, int, int, Settlement) error { return nil }))
				fresh := Dedup(in, "dedup", func(int) string { return "k" })
				passed := 0
				Sink(Map(fresh, func(v int) int {
					if passed++; passed == 2 {
						crash()
					}
					return v
				}), "sink", func(context.Context, int) error { time.Sleep(time.Second); return ErrLeaseLost })
				if err := p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				if s := p.Stats(); s.Returned != 1 || s.Dead != 2 || passed != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// What comes out of a stage at the moment of a hard stop, behind a Dedup too, is
// returned and no panic.
func TestI5_EmitDuringHardStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var letters atomic.Int32
		p := New("p", Config{Logger: quiet, DrainTimeout: -1, DeadLetters: func(context.Context, DeadLetter) error {
			letters.Add(1)
			return nil
		}})
		in := FromSeq(p, "source", func(yield func(int) bool) {
			for i := range 4 {
				yield(i)
			}
		})
		mid := Stage(in, "stage", func(_ context.Context, v int) (int, error) {
			time.Sleep(time.Minute + 100*time.Millisecond)
			return v, nil
		}, Workers(4))
		Sink(Dedup(mid, "dedup", func(v int) string { return fmt.Sprint(v) }), "sink", func(context.Context, int) error { return nil })
		time.AfterFunc(time.Minute, cancel)
		err := p.Run(ctx)
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 4 || letters.Load() != 0 {
			t.Errorf("%d letters: %v", letters.Load(), err)
		}
	})
}

// The first copy is lost in the moment in which the joined one has waited long
// enough: it runs or is returned, not both.
func TestI5_HeirWhoseTimeIsUp(t *testing.T) {
	p := New("p", Config{Logger: quiet})
	p.acks = newAcker(p)
	p.settleCtx, p.epoch = context.Background(), time.Now()
	settles := make([]int, 3)
	in := From(p, "source", settling(3, nil))
	Discard(Dedup(in, "dedup", func(int) string { return "k" }))
	d := p.nodes[1].(*dedup[int])
	d.open()
	n := p.nodes[0].(*sourceNode[int])
	var led *entry[int]
	for i := range settles {
		it := n.admit(Delivery[int]{Value: i, Settle: func(context.Context, Settlement) error { settles[i]++; return nil }})
		if e, _ := d.enter(it, d.digest("k"), "k", ""); e != nil {
			led = e
		}
	}
	heir := d.waiting.Front().Value.(*copied[int])
	led.scope.settle(verdict{outcome: Returned, err: ErrLeaseLost})
	if d.unjoin(heir) {
		t.Error("the heir is taken for one that waits")
	}
	it, ok := d.nextTakeover()
	if !ok || it.v != 1 {
		t.Fatalf("%v takes over", it.v)
	}
	it.t.settle(verdict{outcome: Done})
	if !slices.Equal(settles, []int{1, 1, 1}) {
		t.Errorf("settled %v", settles)
	}
}

// Of several children that are returned, the longest delay is the delivery's.
func TestSettleLongestDelay(t *testing.T) {
	for _, delays := range [][]time.Duration{{1, 3, 2}, {3, 2, 1}, {1, 2, 3}} {
		got := &heardVerdict{}
		s := &scope{owner: got}
		s.open.Store(int32(len(delays) + 1))
		s.settle(verdict{outcome: Done})
		for _, d := range delays {
			s.settle(verdict{outcome: Returned, delay: d})
		}
		if got.outcome != Returned || got.delay != 3 {
			t.Errorf("delays %v: settled as %v with delay %d", delays, got.outcome, got.delay)
		}
	}
}

type heardVerdict struct{ verdict }

func (h *heardVerdict) settled(v verdict)        { h.verdict = v }
func (h *heardVerdict) holdLimit() time.Duration { return 0 }
func (h *heardVerdict) takesBack() bool          { return true }

// A source is told on a context that ends with SettleTimeout, and at once when it
// has answered. What is derived from it ends with it.
func TestSettleContext(t *testing.T) {
	type key struct{}
	for name, handler := range map[string]func() error{
		"done": func() error { return nil },
		"dead": func() error { return Permanent(errHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 3 * time.Second
				p := New("p", Config{Logger: quiet, SettleTimeout: limit, DeadLetters: func(context.Context, DeadLetter) error { return nil }})
				var mu sync.Mutex
				var given, derived, unasked context.Context
				src := settling(2, func(ctx context.Context, i, call int, _ Settlement) error {
					if i == 1 {
						mu.Lock()
						defer mu.Unlock()
						unasked = ctx
						return nil
					}
					began := time.Now()
					if at, ok := ctx.Deadline(); !ok || !at.Equal(began.Add(limit)) || ctx.Err() != nil || ctx.Value(key{}) != "value" {
						t.Errorf("deadline %v %v, error %v, value %v", at, ok, ctx.Err(), ctx.Value(key{}))
					}
					if call == 1 { // the first try is given up, the second answers
						<-ctx.Done()
						if d := time.Since(began); d != limit || ctx.Err() != context.DeadlineExceeded {
							t.Errorf("ended after %v: %v", d, ctx.Err())
						}
						return ctx.Err()
					}
					mu.Lock()
					defer mu.Unlock()
					given = ctx
					var cancel context.CancelFunc
					derived, cancel = context.WithCancel(ctx)
					context.AfterFunc(derived, cancel)
					return nil
				})
				in := From(p, "source", SourceFunc[int](func(ctx context.Context) (Delivery[int], error) {
					d, err := src.Receive(ctx)
					if err != nil {
						time.Sleep(time.Minute) // both have answered, and Run goes on
						mu.Lock()
						defer mu.Unlock()
						for name, ctx := range map[string]context.Context{"given": given, "derived": derived, "unasked": unasked} {
							if ctx.Err() != context.Canceled {
								t.Errorf("%s: %v after the answer", name, ctx.Err())
							}
						}
					}
					return d, err
				}))
				Sink(in, "sink", func(context.Context, int) error { return handler() })
				if err := p.Run(context.WithValue(t.Context(), key{}, "value")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whoever hears of a delivery's end hears its key, though the source had none.
func TestKeyOfADeliveryIsThatOfDedup(t *testing.T) {
	for _, c := range []struct {
		name    string
		dedup   func(Stream[string]) Stream[string]
		outcome Outcome
		letter  string
	}{
		{"dead behind it", func(in Stream[string]) Stream[string] {
			return Dedup(in, "dedup", func(s string) string { return s[:7] })
		}, Dead, "order-7"},
		{"no key", func(in Stream[string]) Stream[string] {
			return Dedup(in, "dedup", func(string) string { return "" })
		}, Dead, ""},
		{"another payload", func(in Stream[string]) Stream[string] {
			return DedupFingerprint(in, "dedup", func(s string) string { return s[:7] }, func(s string) string { return s })
		}, Dead, "order-7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var settled, letters []string
				p := New("p", Config{
					Logger: quiet,
					DeadLetters: func(_ context.Context, l DeadLetter) error {
						mu.Lock()
						defer mu.Unlock()
						letters = append(letters, l.Key)
						return nil
					},
					Observers: []Observer{func(e Event) {
						mu.Lock()
						defer mu.Unlock()
						if e.Kind == EventSettled && e.Outcome == c.outcome {
							settled = append(settled, e.Key)
						}
					}},
				})
				values := []string{"order-7 a", "order-7 b"}
				Sink(c.dedup(FromSeq(p, "source", slices.Values(values))), "sink", func(context.Context, string) error {
					time.Sleep(time.Second)
					return Permanent(errHandler)
				})
				if err := p.Run(t.Context()); err != nil {
					t.Error(err)
				}
				if len(letters) == 0 || len(settled) == 0 {
					t.Fatalf("%q %q", letters, settled)
				}
				for _, key := range slices.Concat(letters, settled) {
					if key != c.letter {
						t.Errorf("letters of %q, settled %q; want %q", letters, settled, c.letter)
					}
				}
			})
		})
	}
	t.Run("returned", func(t *testing.T) {
		p := New("p", Config{Logger: quiet})
		in := Dedup(FromSeq(p, "source", slices.Values([]string{"order-7"})), "dedup", func(s string) string { return s })
		Sink(in, "sink", func(context.Context, string) error { return ErrLeaseLost })
		err := p.Run(t.Context())
		var re *ReturnedError
		if !errors.As(err, &re) || len(re.Items) != 1 || re.Items[0].Key != "order-7" {
			t.Error(err)
		}
	})
}
