package oncetest

import (
	"bytes"
	"runtime"
	"runtime/metrics"
	"slices"
)

// watch looks at goroutines. What it needs for that serves all looks.
type watch struct {
	buf     []byte
	counts  []metrics.Sample
	bubble  []byte          // of the last look
	ours    map[string]bool // numbers of the goroutines that were seen in it
	outside []goroutine     // of no bubble, in the last look
}

func newWatch() *watch {
	return &watch{ours: map[string]bool{}, counts: []metrics.Sample{
		{Name: "/sched/goroutines/running:goroutines"},
		{Name: "/sched/goroutines/runnable:goroutines"},
		{Name: "/sched/goroutines/not-in-go:goroutines"},
	}}
}

// busy reports, at a hundredth of what quiet costs, whether some goroutine but the
// caller is at work, of whatever bubble. It is no more than a guess.
func (w *watch) busy() bool {
	metrics.Read(w.counts)
	n := uint64(0)
	for _, c := range w.counts {
		if c.Value.Kind() == metrics.KindUint64 {
			n += c.Value.Uint64()
		}
	}
	return n > 1
}

// quiet reports whether no goroutine of the caller's bubble but the caller can
// go on by itself. Other than for synctest.Wait, a goroutine that waits for a lock
// can't: it is for the caller to make the holder of the lock go on. locked says that
// some do wait for one: then the bubble's clock can't advance.
//
// The states are read off the runtime's own dump, since nothing else tells them.
// A goroutine that helps the garbage collector is in no bubble there; where it
// belongs is known from an earlier look, or from who created it.
func (w *watch) quiet() (is, locked bool) {
	rest := w.stacks()
	me, rest := first(rest)
	if !bytes.Equal(me.bubble, w.bubble) {
		w.bubble = bytes.Clone(me.bubble)
		clear(w.ours)
	}
	w.ours[string(me.id)] = true
	w.outside = w.outside[:0]
	for len(rest) > 0 {
		var g goroutine
		g, rest = first(rest)
		if !bytes.Equal(g.bubble, w.bubble) {
			if g.bubble == nil {
				w.outside = append(w.outside, g)
			}
			continue
		}
		w.ours[string(g.id)] = true
		switch {
		case bytes.Contains(g.state, []byte("(durable)")):
		case bytes.HasPrefix(g.state, []byte("sync.Mutex")), bytes.HasPrefix(g.state, []byte("sync.RWMutex")):
			locked = true
		default:
			return false, false
		}
	}
	for _, g := range w.outside {
		if w.ours[string(g.id)] || w.ours[string(g.creator())] || g.assists() || g.ofTimer() && !g.waits() {
			return false, false
		}
	}
	return true, locked
}

func (w *watch) stacks() []byte {
	for {
		if n := runtime.Stack(w.buf, true); n < len(w.buf) {
			return w.buf[:n]
		}
		w.buf = make([]byte, 2*len(w.buf)+1<<14)
	}
}

// goroutine is one of a dump.
type goroutine struct {
	id, state []byte
	bubble    []byte // nil: in none
	stack     []byte
}

// first takes the first goroutine off a dump. It begins with a line such as
// "goroutine 7 [sleep (durable), synctest bubble 1]:" and ends with an empty one.
func first(dump []byte) (g goroutine, rest []byte) {
	dump, rest, _ = bytes.Cut(dump, []byte("\n\n"))
	line, stack, _ := bytes.Cut(dump, []byte("\n"))
	g.stack = stack
	g.id, line, _ = bytes.Cut(bytes.TrimPrefix(line, []byte("goroutine ")), []byte(" ["))
	line = bytes.TrimSuffix(line, []byte("]:"))
	g.state, _, _ = bytes.Cut(line, []byte(","))
	if _, bubble, is := bytes.Cut(line, []byte("synctest bubble ")); is {
		g.bubble = bubble
	}
	return g, rest
}

// creator is the number of the goroutine that created g.
func (g goroutine) creator() []byte {
	at := bytes.LastIndex(g.stack, []byte("\ncreated by "))
	if at < 0 {
		return nil
	}
	line, _, _ := bytes.Cut(g.stack[at+1:], []byte("\n"))
	_, id, _ := bytes.Cut(line, []byte(" in goroutine "))
	return id
}

// assists tells that g helps the collector, for whichever bubble.
func (g goroutine) assists() bool { return bytes.HasPrefix(g.state, []byte("GC assist")) }

// ofTimer tells that a timer has created g, of which the dump names no creator.
func (g goroutine) ofTimer() bool {
	return bytes.Contains(g.stack, []byte("\ncreated by time.goFunc\n"))
}

// waits tells that g waits, and not for what the runtime has to do.
func (g goroutine) waits() bool {
	return slices.ContainsFunc(waiting, func(state string) bool { return bytes.HasPrefix(g.state, []byte(state)) })
}

var waiting = []string{"chan ", "select", "sleep", "sync.", "IO wait", "syscall"}
