package claimmodel

import (
	"fmt"
	"maps"
	"testing"
)

// A world and its canonical form, which is explored in its place, violate the
// same properties and can take the same steps. So nothing is missed.
func TestNamesDecideNothing(t *testing.T) {
	for _, w := range []struct {
		cfg    Config
		stride int // of the worlds, only each so many is looked at
	}{
		{Config{Mode: AtLeastOnce, Procs: 2, Late: 0, Watchdog: true}, 1},
		{Config{Mode: AtMostOnce, Procs: 2, Late: 0, Watchdog: true}, 1},
		{Config{Mode: AtLeastOnce, Procs: 3, Late: 1, Watchdog: true}, 100},
		{Config{Mode: AtMostOnce, Procs: 2, Late: 2, Watchdog: true}, 100},
		{Config{Mode: Tx, Procs: 3, Late: 1, Watchdog: true}, 1},
	} {
		const most = 20_000 // worlds; the others are more of the same
		cfg, renamed := w.cfg, 0
		cfg.Check = All
		if bounds() < normal {
			w.stride *= 10
		}
		x := explorer{cfg: cfg, index: map[world]int32{}}
		x.add(cfg.start(), -1)
		for at := 0; at < min(len(x.worlds), most); at++ {
			cfg.next(x.worlds[at], func(_ step, w2 world) {
				x.add(w2, int32(at))
				c, _ := w2.canonical()
				if at%w.stride != 0 || c == w2 {
					return
				}
				renamed++
				if cfg.violated(w2) != cfg.violated(c) || !sameSteps(cfg, w2, c) {
					t.Errorf("%+v\nis not like its canonical form\n%+v", w2, c)
				}
			})
		}
		t.Logf("%v, %d processes, %d late: %d worlds compared with their canonical form", cfg.Mode, cfg.Procs, cfg.Late, renamed)
	}
}

func sameSteps(cfg Config, a, b world) bool {
	after := func(w world) map[world]Property {
		set := map[world]Property{}
		cfg.next(w, func(_ step, to world) {
			c, _ := to.canonical()
			set[c] = cfg.violated(to)
		})
		return set
	}
	toA, toB := after(a), after(b)
	return maps.Equal(toA, toB) || maps.Equal(strictly(toA), strictly(toB))
}

// strictly names worlds so that two which differ only in names have the same one,
// also where canonical leaves them apart: it tries all orders.
func strictly(set map[world]Property) map[string]Property {
	named := map[string]Property{}
	for w, violated := range set {
		least := ""
		for _, o := range [][maxProcs]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for late := range maxLate {
				v := w
				for i, from := range o {
					v.procs[i] = w.procs[from]
				}
				v.late[0], v.late[1] = w.late[late], w.late[1-late]
				v, _ = v.canonical()
				if name := fmt.Sprint(v); least == "" || name < least {
					least = name
				}
			}
		}
		named[least] = violated
	}
	return named
}
