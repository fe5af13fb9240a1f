package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// check is rapid.Check with a number of runs that fits what one costs, unless
// somebody asked for another number.
func check(t *testing.T, runs int, prop func(*rapid.T)) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if old := f.Value.String(); old == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(runs)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Value.Set(old); err != nil {
				t.Error(err)
			}
		})
	}
	rapid.Check(t, prop)
}

func simulate(t interface {
	Helper()
	Fatal(args ...any)
}, j Job, c sim.Cell,
) sim.Result {
	t.Helper()
	c.Workers, c.Load, c.Service, c.Exponential, c.Timeout = j.Workers, j.Load, j.Service, j.Exponential, j.Timeout
	c.AckLoss, c.Fail, c.Backoff, c.Ring = j.AckLoss, j.Fail, j.Backoff, c.Capacity > 0
	r, err := sim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The advised buffer makes next to no extra effects without a guard, or the
// advice warns. The advised guard lets none through when acks are lost.
func TestAdviceHolds(t *testing.T) {
	check(t, 20, func(t *rapid.T) {
		j := Job{
			Service:     time.Duration(rapid.IntRange(20, 5000).Draw(t, "service, µs")) * time.Microsecond,
			Exponential: rapid.Bool().Draw(t, "exponential"),
			Workers:     rapid.IntRange(1, 8).Draw(t, "workers"),
			Load:        float64(rapid.IntRange(30, 97).Draw(t, "load, %")) / 100,
			Buffer:      AnyBuffer,
		}
		j.Timeout = j.Service * time.Duration(rapid.IntRange(15, 600).Draw(t, "timeout, tenths of a service")) / 10
		a := Advise(j)
		keys := 600
		r := simulate(t, j, sim.Cell{Guard: sim.None, Buffer: a.Buffer, Keys: keys, Burst: 100, Seed: 1})
		if r.Extra*100 > keys && !a.NeedsDedup {
			t.Errorf("%d extra effects for %d keys with buffer %d, and no warning: %+v", r.Extra, keys, a.Buffer, a)
		}
		j.AckLoss = float64(rapid.IntRange(1, 20).Draw(t, "lost acks, %")) / 100
		a = Advise(j)
		if !a.NeedsDedup {
			t.Error("no warning of lost acks")
		}
		r = simulate(t, j, sim.Cell{Guard: sim.Ours, Capacity: a.Guard, Buffer: a.Buffer, Keys: keys, Burst: 100, Seed: 1})
		if r.Extra != 0 || r.Lost != 0 {
			t.Errorf("%d extra effects and %d lost ones with guard %d", r.Extra, r.Lost, a.Guard)
		}
	})
}

// A buffer far beyond the place of the collapse collapses after a burst, and the
// advice says so; with Dedup it doesn't.
func TestCollapseIsAnnounced(t *testing.T) {
	for _, exponential := range []bool{false, true} {
		j := Job{Service: time.Millisecond / 2, Exponential: exponential, Workers: 4, Timeout: 20 * time.Millisecond, Load: 0.95, Buffer: AnyBuffer}
		if a := Advise(j); len(a.Warnings) != 0 || a.Buffer != 16 {
			t.Errorf("buffer %d, warnings %q", a.Buffer, a.Warnings)
		}
		j.Buffer = 4 * Advise(j).Collapse
		a := Advise(j)
		if !slices.ContainsFunc(a.Warnings, func(w string) bool { return strings.Contains(w, "collapsed equilibrium") }) {
			t.Errorf("buffer %d: no warning of a collapse in %q", j.Buffer, a.Warnings)
		}
		c := sim.Cell{Guard: sim.None, Buffer: j.Buffer, Keys: 2_500, Burst: j.Buffer + 500, Seed: 1}
		if r := simulate(t, j, c); !r.Collapsed || r.Extra < r.Keys {
			t.Errorf("no collapse with buffer %d: %+v", j.Buffer, r)
		}
		c.Guard, c.Capacity = sim.Ours, a.Guard
		if r := simulate(t, j, c); r.Extra != 0 {
			t.Errorf("extra effects with Dedup: %+v", r)
		}
	}
}

func TestWarnings(t *testing.T) {
	fine := Job{Service: time.Millisecond, Workers: 2, Timeout: time.Second, Load: 0.5, Buffer: AnyBuffer}
	for _, c := range []struct {
		change func(*Job)
		want   string // "": no warning
	}{
		{func(*Job) {}, ""},
		{func(j *Job) { j.Load = 1 }, "at least 3 workers"},
		{func(j *Job) { j.Load, j.Fail = 0.9, 0.2 }, "is 1.12"},
		{func(j *Job) { j.Timeout = j.Service / 2 }, "take longer than the sender waits"},
		{func(j *Job) { j.AckLoss = 0.5 }, "lost ack"},
		{func(j *Job) { j.Fail, j.Backoff = 0.01, time.Minute }, "backoff of 1m0s"},
		{func(j *Job) { j.Fail, j.Backoff = 0.01, time.Millisecond }, ""},
		{func(j *Job) { j.Service, j.Workers, j.Timeout, j.AckLoss = 100, 10_000, 10*time.Millisecond, 0.5 }, "No Ring holds"},
	} {
		j := fine
		c.change(&j)
		got := strings.Join(Advise(j).Warnings, " ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", j, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	j := Job{
		Service: time.Millisecond, Workers: 10, Timeout: time.Second, Load: 0.5, Buffer: AnyBuffer,
		Fail: 0.1, Backoff: time.Second, AckLoss: 0.01, Redelivery: time.Hour,
	}
	a := Advise(j)
	// Backoffs of 1, 2, 4 … 30 s with shares of 0.1, 0.01 …: 0.1 + 0.02 + 0.004 …
	if want := 5000 * 0.125; a.Parked < want-10 || a.Parked > want {
		t.Errorf("%v items are parked, want about %v", a.Parked, want)
	}
	if a.Slots < int(a.Parked)+10 || a.Slots > 2*int(a.Parked) {
		t.Errorf("%d slots for %v items", a.Slots, a.Parked)
	}
	// A minute for copies that JoinLimit doesn't let wait, and four timeouts.
	if a.Timeouts != 5 || a.Span != 64*time.Second || a.Guard < 640_000 || a.Guard > 650_000 {
		t.Errorf("guard %d for %v, %d timeouts", a.Guard, a.Span, a.Timeouts)
	}
	steady := j
	steady.Fail = 0
	if a := Advise(steady); a.Timeouts != 5 || a.Span != 5*time.Second || a.Guard < 50_000 || a.Guard > 60_000 {
		t.Errorf("guard %d for %v, %d timeouts", a.Guard, a.Span, a.Timeouts)
	}
	if a.Retention <= j.Redelivery {
		t.Errorf("retention %v", a.Retention)
	}
	if j.Timeout = 4 * time.Millisecond; Advise(j).Buffer >= int(Advise(j).BStar) {
		t.Errorf("buffer %d, B* %v", Advise(j).Buffer, Advise(j).BStar)
	}
}

// Whether a store is needed within one process depends on how long the guard knows
// a key; the reasons name that time and -redelivery, each with its own number.
func TestStore(t *testing.T) {
	base := Job{Service: time.Millisecond / 2, Workers: 4, Timeout: 20 * time.Millisecond, Load: 0.9, AckLoss: 0.01, Buffer: AnyBuffer}
	for _, c := range []struct {
		name   string
		change func(*Job)
		want   Store
		why    []string
		not    string
	}{
		{
			"comes again for a day", func(j *Job) { j.Redelivery = 24 * time.Hour },
			StoreAlways,
			[]string{"suffices for what comes again within 100ms, but a key may come again for 24h0m0s (-redelivery)", "restart or a kill", "Tx", "a guard of 691 million keys"},
			"no guard",
		},
		{
			"a little later than the guard knows it", func(j *Job) { j.Redelivery = 101 * time.Millisecond },
			StoreAlways,
			[]string{"within 100ms, but a key may come again for 101ms (-redelivery)"},
			"no guard",
		},
		{
			"as long as the guard knows it", func(j *Job) { j.Redelivery = 100 * time.Millisecond },
			StoreForRestarts,
			[]string{"within one process the guard suffices: it knows a key for 100ms, and one may come again for 100ms", "restart or a kill needs a store", "Tx"},
			"later",
		},
		{
			"the guard knows it longer, for copies that are returned", func(j *Job) { j.Buffer, j.Redelivery = 1024, time.Minute },
			StoreForRestarts,
			[]string{"it knows a key for 1m0.08s, and one may come again for 1m0s"},
			"later",
		},
		{
			"a guard of the whole time is no Ring", func(j *Job) { j.Redelivery = 10_000 * time.Hour },
			StoreAlways,
			[]string{"again for 10000h0m0s"},
			"a guard of",
		},
		{
			"no Ring holds what the timeouts need", func(j *Job) { j.Service, j.Workers, j.Timeout = 100, 10_000, 10*time.Millisecond },
			StoreAlways,
			[]string{"no guard holds that many keys", "restart or a kill, needs a store"},
			"suffices",
		},
	} {
		j := base
		c.change(&j)
		a := Advise(j)
		if a.Store != c.want || strings.Contains(a.Reasons.Store, c.not) {
			t.Errorf("%s: %q: %s", c.name, a.Store, a.Reasons.Store)
		}
		for _, want := range c.why {
			if !strings.Contains(a.Reasons.Store, want) {
				t.Errorf("%s: no %q in %q", c.name, want, a.Reasons.Store)
			}
		}
		if want := "at least " + a.Span.String() + " after it was done"; !strings.Contains(a.Reasons.Guard, want) {
			t.Errorf("%s: no %q in %q", c.name, want, a.Reasons.Guard)
		}
		if want := j.Redelivery.String() + " for which it may come again"; !strings.Contains(a.Reasons.Retention, want) {
			t.Errorf("%s: no %q in %q", c.name, want, a.Reasons.Retention)
		}
	}
}

func TestRun(t *testing.T) {
	good := []string{"-service", "0.5ms", "-workers", "4", "-timeout", "20ms", "-load", "0.9"}
	var out, diag bytes.Buffer
	if code := run(good, &out, &diag); code != 0 || diag.Len() > 0 {
		t.Fatalf("exit %d: %s", code, &diag)
	}
	for _, want := range []string{"Buffer(Fixed(16))", "Retry(RetryPolicy{Slots: 256})", "WithGuard(Ring(", "Retention", "26h24m0s", "\nstore      yes "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	out.Reset()
	if code := run(append(good, "-json", "-buffer", "1000"), &out, &diag); code != 0 {
		t.Fatalf("exit %d: %s", code, &diag)
	}
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || a.Buffer != 1000 || a.Collapse != 157 || a.GuardSpan != "1m0s" || a.Store != StoreAlways || a.WhyStore == "" || len(a.Warnings) != 1 {
		t.Errorf("%v: %s", err, &out)
	}
	out.Reset()
	if code := run(append(good, "-ack-loss", "0.01"), &out, &diag); code != 0 || !strings.Contains(out.String(), "no later than 100ms after it was done") {
		t.Errorf("exit %d: no span in\n%s", code, &out)
	}
	out.Reset()
	if code := run(append(good, "-redelivery", "20ms"), &out, &diag); code != 0 || !strings.Contains(out.String(), "\nstore      for restarts ") {
		t.Errorf("exit %d: no store for restarts alone in\n%s", code, &out)
	}
	for _, bad := range [][]string{
		{},
		append(slices.Clone(good), "-workers", "0"),
		append(slices.Clone(good), "-load", "NaN"),
		append(slices.Clone(good), "-fail", "1"),
		append(slices.Clone(good), "-ack-loss", "-0.1"),
		append(slices.Clone(good), "-buffer", "-2"),
		append(slices.Clone(good), "-timeout", "1000h"),
		append(slices.Clone(good), "-redelivery", "-1h"),
		append(slices.Clone(good), "-nonsense"),
		append(slices.Clone(good), "rest"),
	} {
		out.Reset()
		diag.Reset()
		if code := run(bad, &out, &diag); code != 2 || out.Len() > 0 || !strings.Contains(diag.String(), "-service") {
			t.Errorf("%q: exit %d\n%s%s", bad, code, &out, &diag)
		}
	}
	if code := run([]string{"-help"}, &out, &diag); code != 0 {
		t.Errorf("-help: exit %d", code)
	}
}
