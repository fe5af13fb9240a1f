package oncetest_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

// backoffFunc is a backoff without a Reset worth the name.
type backoffFunc func() time.Duration

func (f backoffFunc) NextBackOff() time.Duration { return f() }
func (backoffFunc) Reset()                       {}

// countingFrom1 makes backoffs that answer by the number of the failure, from 1.
func countingFrom1(wait func(n int) time.Duration) func() backoff.BackOff {
	return func() backoff.BackOff {
		n := 0
		return backoffFunc(func() time.Duration {
			n++
			return wait(n)
		})
	}
}

func steadyExponential(opts ...backoff.ExponentialBackOffOpts) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(append([]backoff.ExponentialBackOffOpts{backoff.WithRandomizationFactor(0)}, opts...)...)
}

func policyOf(p oncepipe.RetryPolicy) func() oncepipe.RetryPolicy {
	return func() oncepipe.RetryPolicy { return p }
}

// waitTable answers them one after the other, and then Stop.
type waitTable struct {
	list  []time.Duration
	again bool // after Stop
}

func (w *waitTable) NextBackOff() time.Duration {
	if len(w.list) == 0 {
		if w.again {
			w.list = []time.Duration{time.Second}
		}
		return backoff.Stop
	}
	d := w.list[0]
	w.list = w.list[1:]
	return d
}

func (*waitTable) Reset() {}

// pace lets one attempt through in each interval.
type pace struct {
	every time.Duration
	mu    sync.Mutex
	next  time.Time
}

func (p *pace) Wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now()
	at := now
	if p.next.After(now) {
		at = p.next
	}
	p.next = at.Add(p.every)
	p.mu.Unlock()
	t := time.NewTimer(at.Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func everySecond() oncepipe.Limiter { return &pace{every: time.Second} }

// blamedLaws returns the laws that an error names.
func blamedLaws(err error) (laws []string) {
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		if law, _, named := strings.Cut(line, ": "); named && !strings.HasPrefix(line, " ") {
			laws = append(laws, law)
		}
	}
	return laws
}

var sharedBackoff = steadyExponential(backoff.WithInitialInterval(50 * time.Millisecond))

func TestRetry(t *testing.T) {
	for _, bad := range []struct {
		name string
		laws oncetest.RetryLaws
		law  string
	}{
		{"one backoff for all", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxAttempts: 5, Backoff: func() backoff.BackOff { return sharedBackoff }}),
		}, "a backoff for each item"},
		{"one backoff for all, wrapped for each", oncetest.RetryLaws{
			Policy: func() oncepipe.RetryPolicy {
				inner := steadyExponential()
				return oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return backoff.WithMaxRetries(inner, 4) }}
			},
		}, "a backoff for each item"},
		{"backoffs that are used again", oncetest.RetryLaws{
			Policy: func() oncepipe.RetryPolicy {
				pool := []backoff.BackOff{steadyExponential(), steadyExponential()}
				var next atomic.Int32
				return oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return pool[next.Add(1)%2] }}
			},
		}, "a backoff for each item"},
		{"attempt to the fourth", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxAttempts: 25, Backoff: countingFrom1(func(n int) time.Duration {
				return time.Duration(n*n*n*n) * time.Second
			})}),
		}, "delays are not negative and capped"},
		{"overflow behind a cap", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxAge: -1, MaxDelay: time.Minute, Backoff: countingFrom1(func(n int) time.Duration {
				return time.Second << min(n, 34)
			})}),
			Endless: true,
		}, "delays are not negative and capped"},
		{"no cap", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff {
				return steadyExponential(backoff.WithMaxInterval(math.MaxInt64), backoff.WithMaxElapsedTime(0))
			}}),
		}, "delays are not negative and capped"},
		{"no wait", oncetest.RetryLaws{
			Policy:   policyOf(oncepipe.RetryPolicy{MaxAttempts: 10, Backoff: func() backoff.BackOff { return &backoff.ZeroBackOff{} }}),
			MinDelay: 10 * time.Millisecond,
		}, "delays are not negative and capped"},
		{"jitter on top of the cap", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: countingFrom1(func(n int) time.Duration {
				d := min(time.Second<<min(n, 10), 30*time.Second)
				return d + rand.N(d/2)
			})}),
			MaxDelay: 30 * time.Second,
		}, "delays are not negative and capped"},
		{"jitter below nothing", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxAttempts: 10, Backoff: countingFrom1(func(int) time.Duration {
				return time.Second + rand.N(3*time.Second) - 3*time.Second/2
			})}),
		}, "delays are not negative and capped"},
		{"elapsed limit before the attempts promised", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxAttempts: 10, Backoff: func() backoff.BackOff {
				return steadyExponential(backoff.WithMaxElapsedTime(5 * time.Second))
			}}),
			MinAttempts: 10,
		}, "not given up early"},
		{"MaxAge before the attempts promised", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxAge: time.Minute, Backoff: func() backoff.BackOff {
				return backoff.NewConstantBackOff(20 * time.Second)
			}}),
			MinAttempts: 5,
		}, "not given up early"},
		{"never given up", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxAge: -1, Backoff: func() backoff.BackOff {
				return steadyExponential(backoff.WithMaxElapsedTime(0))
			}}),
		}, "given up at last"},
		{"index out of range", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: countingFrom1(func(n int) time.Duration {
				return []time.Duration{time.Second, time.Minute}[n-1]
			})}),
		}, "backoff does not panic"},
		{"no backoff at all", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return nil }}),
		}, "backoff does not panic"},
		{"Goexit", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { runtime.Goexit(); return nil }}),
		}, "backoff does not panic"},
		{"budget without a limiter", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }}),
			Budget: oncetest.RetryBudget{Attempts: 2, Per: time.Second},
		}, "budget"},
		{"retries in step", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }}),
			Budget: oncetest.RetryBudget{Retries: 3, Per: time.Second},
		}, "budget"},
	} {
		t.Run("bad/"+bad.name, func(t *testing.T) {
			t.Parallel()
			bad.laws.Schedules = 300
			err := oncetest.CheckRetry(bad.laws)
			if got := blamedLaws(err); !slices.Equal(got, []string{bad.law}) {
				t.Errorf("blamed for %q, not for %q:\n%v", got, bad.law, err)
			}
		})
	}
	for _, good := range []struct {
		name string
		laws oncetest.RetryLaws
	}{
		{"default", oncetest.RetryLaws{Policy: policyOf(oncepipe.RetryPolicy{}), MinDelay: 50 * time.Millisecond, MaxDelay: 45 * time.Second}},
		{"exponential", oncetest.RetryLaws{
			Policy:      policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return backoff.NewExponentialBackOff() }}),
			MinAttempts: 10,
		}},
		{"exponential, limited and wrapped", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff {
				return backoff.WithContext(backoff.WithMaxRetries(backoff.NewExponentialBackOff(), 3), context.Background())
			}}),
			MinAttempts: 4,
		}},
		{"constant", oncetest.RetryLaws{
			Policy:   policyOf(oncepipe.RetryPolicy{MaxAttempts: 7, Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }}),
			MinDelay: time.Second, MaxDelay: time.Second, MinAttempts: 7,
		}},
		{"one constant for all", oncetest.RetryLaws{Policy: func() oncepipe.RetryPolicy {
			one := backoff.NewConstantBackOff(time.Second)
			return oncepipe.RetryPolicy{MaxAttempts: 7, Backoff: func() backoff.BackOff { return one }}
		}}},
		{"table", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff {
				return &waitTable{list: []time.Duration{time.Second, time.Minute, 10 * time.Minute}}
			}}),
			MinDelay: time.Second, MinAttempts: 4,
		}},
		{"table that begins again", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff {
				return &waitTable{list: []time.Duration{time.Second, time.Minute}, again: true}
			}}),
		}},
		{"no retry", oncetest.RetryLaws{Policy: policyOf(oncepipe.RetryPolicy{MaxAttempts: 1}), MinAttempts: 1}},
		{"no wait", oncetest.RetryLaws{Policy: policyOf(oncepipe.RetryPolicy{MaxAttempts: 4, Backoff: func() backoff.BackOff { return &backoff.ZeroBackOff{} }})}},
		{"stop at once", oncetest.RetryLaws{Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return &backoff.StopBackOff{} }})}},
		{"capped by the policy", oncetest.RetryLaws{
			Policy: policyOf(oncepipe.RetryPolicy{MaxDelay: 10 * time.Second, MaxAge: 10 * time.Minute, Backoff: func() backoff.BackOff {
				return steadyExponential(backoff.WithMaxInterval(math.MaxInt64))
			}}),
			MaxDelay: 10 * time.Second,
		}},
		{"young items only", oncetest.RetryLaws{Policy: policyOf(oncepipe.RetryPolicy{MaxAge: time.Second, MaxAttempts: 3})}},
		{"one slot", oncetest.RetryLaws{Policy: policyOf(oncepipe.RetryPolicy{Slots: 1, MaxAttempts: 3})}},
		{"endless by intention", oncetest.RetryLaws{Policy: policyOf(oncepipe.RetryPolicy{MaxAge: -1}), Endless: true}},
		{"limiter", oncetest.RetryLaws{
			Policy:  policyOf(oncepipe.RetryPolicy{MaxAttempts: 4}),
			Limiter: everySecond,
			Budget:  oncetest.RetryBudget{Attempts: 1, Per: time.Second},
		}},
		{"budget in the backoff", oncetest.RetryLaws{
			Policy: func() oncepipe.RetryPolicy {
				g := &pace{every: time.Minute}
				return oncepipe.RetryPolicy{Backoff: countingFrom1(func(int) time.Duration {
					g.mu.Lock()
					defer g.mu.Unlock()
					if time.Now().Before(g.next) {
						return backoff.Stop
					}
					g.next = time.Now().Add(g.every)
					return time.Second
				})}
			},
		}},
	} {
		t.Run("good/"+good.name, func(t *testing.T) {
			t.Parallel()
			good.laws.Schedules = 2000
			if raceEnabled || testing.Short() {
				good.laws.Schedules = 200
			}
			oncetest.Retry(t, good.laws)
		})
	}
}

// What can't be run is no fault of a law.
func TestRetryRefuses(t *testing.T) {
	for name, laws := range map[string]oncetest.RetryLaws{
		"no policy":          {},
		"policy that panics": {Policy: func() oncepipe.RetryPolicy { panic("no policy") }},
		"limiter that panics": {
			Policy: policyOf(oncepipe.RetryPolicy{}), Limiter: func() oncepipe.Limiter { panic("no limiter") },
		},
		"negative attempts": {Policy: policyOf(oncepipe.RetryPolicy{MaxAttempts: -1})},
	} {
		if err := oncetest.CheckRetry(laws); err == nil || !strings.HasPrefix(err.Error(), "oncetest: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// deaf is a limiter that doesn't look at its context.
type deaf struct{}

func (deaf) Wait(context.Context) error { select {} }

// What never ends is told, and nothing more is run.
func TestRetryStuck(t *testing.T) {
	err := oncetest.CheckRetry(oncetest.RetryLaws{
		Policy:  policyOf(oncepipe.RetryPolicy{}),
		Limiter: func() oncepipe.Limiter { return deaf{} },
	})
	if got := blamedLaws(err); !slices.Equal(got, []string{"cancel loses nothing"}) || !strings.Contains(err.Error(), "goroutines") {
		t.Error(err)
	}
}

// A seed finds again what it found.
func TestRetrySeed(t *testing.T) {
	laws := oncetest.RetryLaws{
		Policy: policyOf(oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }}),
		Budget: oncetest.RetryBudget{Attempts: 2, Per: time.Second},
		Seed:   7,
	}
	first, second := oncetest.CheckRetry(laws), oncetest.CheckRetry(laws)
	if first == nil || !strings.Contains(first.Error(), "Seed: 7") || second == nil || first.Error() != second.Error() {
		t.Errorf("%v\nand\n%v", first, second)
	}
}
