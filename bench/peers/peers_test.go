package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", []string{ratesFile, faultsFile, runFile}, render)
}

// Each chain brings every item through its three steps.
func TestChains(t *testing.T) {
	for _, e := range entrants() {
		t.Run(e.label(e.workers), func(t *testing.T) {
			for _, items := range []int{0, 1, 1000} {
				if got, want := e.run(items, e.workers), totalOf(items); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
}

// Each is compared with bare channels and as many workers.
func TestBase(t *testing.T) {
	list := entrants()
	for _, e := range list {
		if b := list[e.base]; b.Name != "raw channels" || b.Shape != threeHops || b.workers != max(1, e.workers) {
			t.Errorf("%s is compared with %s", e.label(e.workers), b.label(b.workers))
		}
	}
}

func BenchmarkThreeStages(b *testing.B) {
	for _, e := range entrants() {
		b.Run(e.label(e.workers), func(b *testing.B) {
			b.ReportAllocs()
			e.check(b.N)
		})
	}
}

// judged is the verdict on each writer of p under each fault, in fake time.
func judged(t *testing.T, p peer, visit func(t *testing.T, w writer, f fault, v verdict)) {
	for _, w := range p.writers() {
		for _, f := range faults() {
			t.Run(w.Name+"/"+f.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					visit(t, w, f, judge(t.Context(), w, f, 200))
				})
			})
		}
	}
}

// Oncepipe loses nothing and doubles nothing, but for a reply that is lost where
// nobody is asked.
func TestFaults_Oncepipe(t *testing.T) {
	judged(t, oncePeer{}, func(t *testing.T, w writer, f fault, v verdict) {
		if err := broken([]verdict{v}); err != nil {
			t.Error(err)
		}
		if f.slow > 0 && v.During != v.Messages-f.slow {
			t.Errorf("%d messages written while the slow ones waited", v.During)
		}
		if f.Name == "reply lost" && (v.Doubled > 0) == strings.Contains(w.Name, "OnceWith") {
			t.Errorf("%+v", v)
		}
	})
}

// The faults are real: who does nothing against them has them.
func TestFaults_Raw(t *testing.T) {
	want := map[string]verdict{
		"raw channels/copy in flight":              {Doubled: 200},
		"raw channels/copy afterwards":             {Doubled: 200},
		"raw channels/slow item":                   {During: 0},
		"raw channels/re-queue, full":              {Stuck: true},
		"raw channels, set of keys/outage":         {Lost: 10},
		"raw channels, set of keys/re-queue, full": {Stuck: true},
	}
	judged(t, rawPeer{}, func(t *testing.T, w writer, f fault, v verdict) {
		wanted, ok := want[w.Name+"/"+f.Name]
		switch {
		case !ok:
			if v.Stuck {
				t.Errorf("%+v", v)
			}
		case v.Stuck != wanted.Stuck, !v.Stuck && (v.Lost != wanted.Lost || v.Doubled != wanted.Doubled):
			t.Errorf("%+v, want %+v", v, wanted)
		}
		if f.slow > 0 && v.During != 0 {
			t.Errorf("%d messages written while every worker waited", v.During)
		}
	})
}

// What is open comes again, what is acked doesn't, and the end is when nothing is open.
func TestBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(messages(3), 2)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var got []*delivery
		var end error
		go func() {
			for end == nil {
				var d *delivery
				if d, end = b.receive(ctx); d != nil {
					got = append(got, d)
				}
			}
		}()
		expect := func(keys ...int) {
			t.Helper()
			synctest.Wait()
			var ns []int
			for _, d := range got {
				ns = append(ns, d.N)
			}
			if !slices.Equal(ns, keys) {
				t.Fatalf("delivered %v, want %v", ns, keys)
			}
		}
		expect(0, 1)
		got[0].nack()
		got[0].ack() // too late
		expect(0, 1, 2)
		b.copy(got[1].msg)
		expect(0, 1, 2, 1)
		if n := b.takeBack(); n != 3 {
			t.Errorf("%d were open", n)
		}
		expectEnd := func(want bool) {
			t.Helper()
			synctest.Wait()
			if (end != nil) != want || end != nil && over(end) != nil {
				t.Fatalf("ended with %v", end)
			}
		}
		for i := 0; ; i++ {
			synctest.Wait()
			if i == len(got) {
				break
			}
			expectEnd(false)
			got[i].ack()
		}
		expectEnd(true)
		if len(got) != 8 {
			t.Errorf("%d deliveries", len(got))
		}
	})
}
