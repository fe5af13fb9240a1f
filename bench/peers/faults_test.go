package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// The cells of the document, of 200 messages, in the order of faults. What a "?"
// stands for hangs on how fast the machine is: in real time a pool can get some
// messages done before it is full.
var cells = map[string][]string{
	"raw channels": {
		"**0 / 200**", "**0 / 200**", "0 / 0", "0 / 0", "**0 / 36**", "0; 0 / 0", "**stuck** after 0", "0 / 0",
	},
	"raw channels, set of keys": {
		"0 / 0", "0 / 0", "0 / 0", "**10 / 0**", "**0 / 36**", "0; 0 / 0", "**stuck** after 0", "0 / 0",
	},
	"oncepipe: Dedup, Retry": {
		"0 / 0", "0 / 0", "0 / 0", "0 / 0", "**0 / 36**", "196; 0 / 0", "parks it instead: 0 / 0", "0 / 0",
	},
	"oncepipe: Dedup, Retry, OnceWith": {
		"0 / 0", "0 / 0", "0 / 0", "0 / 0", "0 / 0", "196; 0 / 0", "parks it instead: 0 / 0", "0 / 0",
	},
	"conc pool": {
		"**0 / 200**", "**0 / 200**", "0 / 0", "0 / 0", "**0 / 36**", "0; 0 / 0", "**stuck** after ?", "0 / 0",
	},
	"pond pool": {
		"**0 / 200**", "**0 / 200**", "0 / 0", "0 / 0", "**0 / 36**", "0; 0 / 0", "**stuck** after ?", "0 / 0",
	},
	"ants pool": {
		"**0 / 200**", "**0 / 200**", "0 / 0", "0 / 0", "**0 / 36**", "0; 0 / 0", "**stuck** after ?", "0 / 0",
	},
	"ro: RetryWithConfig": {
		"**0 / 200**", "**0 / 200**", "0 / 0", "0 / 0", "**0 / 36**", "0; 0 / 0", "no queue to put an item back into", "0 / 0",
	},
	"ro: DistinctBy, RetryWithConfig": {
		"**stuck** after 2", "**stuck** after 16", "0 / 0", "**stuck** after 190", "**0 / 36**", "0; 0 / 0",
		"no queue to put an item back into", "0 / 0",
	},
	"watermill: gochannel, Retry": {
		"**0 / 200**", "**0 / 200**", "0 / 0", "0 / 0", "**0 / 36**", "0; 0 / 0", "nacks it instead: 0 / 0", "**1 / 0**",
	},
	"watermill: Retry": {
		"**0 / 200**", "**0 / 200**", "0 / 0", "0 / 0", "**0 / 36**", "196; 0 / 0", "nacks it instead: 0 / 0", "0 / 0",
	},
	"watermill: Deduplicator, Retry": {
		"0 / 0", "0 / 0", "0 / 0", "**10 / 0**", "**0 / 36**", "?", "nacks it instead: **200 / 0**", "0 / 0",
	},
	"watermill: Retry, Deduplicator": {
		"0 / 0", "0 / 0", "**36 / 0**", "**10 / 0**", "0 / 0", "**4 / 0**", "nacks it instead: **200 / 0**", "0 / 0",
	},
}

// Each fault does to each writer what the document says.
func TestFaults(t *testing.T) {
	for _, w := range allWriters() {
		for i, f := range faults() {
			judged(t, w, f, func(t *testing.T, v verdict) {
				want, fast := strings.CutSuffix(cells[w.Name][i], "?")
				if v.cell() != want && !(fast && strings.HasPrefix(v.cell(), want)) {
					t.Errorf("%q, want %q: %+v", v.cell(), cells[w.Name][i], v)
				}
				if err := broken([]verdict{v}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// judged visits the verdict, made in fake time where that is possible.
func judged(t *testing.T, w writer, f fault, visit func(*testing.T, verdict)) {
	t.Run(w.Name+"/"+f.Name, func(t *testing.T) {
		if keepsGoroutines(w, f) {
			t.Parallel()
			visit(t, judge(t.Context(), w, f, 200))
			return
		}
		synctest.Test(t, func(t *testing.T) {
			visit(t, judge(t.Context(), w, f, 200))
		})
	})
}

// keepsGoroutines says who works with goroutines that began before it or go on
// after it, which a bubble doesn't allow: pond's stop pools by a pool that all have,
// the Deduplicator's clean up for ever, and those of stuck pools can't be stopped.
func keepsGoroutines(w writer, f fault) bool {
	stuck := f.requeue && slices.Contains([]string{"conc pool", "ants pool"}, w.Name)
	return stuck || w.Name == "pond pool" || strings.Contains(w.Name, "Deduplicator")
}

// Oncepipe breaks its promise with whatever is lost, doubled or left, but for a
// reply that is lost where nobody is asked. The others promise nothing here.
func TestBroken(t *testing.T) {
	const plain, asks = "oncepipe: Dedup, Retry", "oncepipe: Dedup, Retry, OnceWith"
	for _, c := range []struct {
		v    verdict
		want bool
	}{
		{verdict{Peer: plain}, false},
		{verdict{Peer: plain, Lost: 1}, true},
		{verdict{Peer: plain, Doubled: 1}, true},
		{verdict{Peer: plain, Open: 1}, true},
		{verdict{Peer: plain, Stuck: true}, true},
		{verdict{Peer: plain, Error: errors.ErrUnsupported.Error()}, true},
		{verdict{Peer: plain, Fault: "reply lost", Doubled: 1}, false},
		{verdict{Peer: plain, Fault: "reply lost", Lost: 1}, true},
		{verdict{Peer: asks, Fault: "reply lost", Doubled: 1}, true},
		{verdict{Peer: "raw channels", Lost: 1, Doubled: 1, Stuck: true}, false},
	} {
		if err := broken([]verdict{c.v}); (err != nil) != c.want {
			t.Errorf("%+v: %v", c.v, err)
		}
	}
}
