package oncetest

import (
	"bytes"
	"runtime"
	"runtime/metrics"
)

// watch looks at goroutines. What it needs for that serves all looks.
type watch struct {
	buf    []byte
	counts []metrics.Sample
}

func newWatch() *watch {
	return &watch{counts: []metrics.Sample{
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
// can't: it is for the caller to make the holder of the lock go on. locked says that some do wait for one: then the bubble's clock can't advance.
//
// The states are read off the runtime's own dump, since nothing else tells them.
func (w *watch) quiet() (is, locked bool) {
	dump := w.stacks()
	mine, rest := header(dump)
	bubble := bubbleOf(mine)
	for len(rest) > 0 {
		var h []byte
		h, rest = header(rest)
		switch state, _, _ := bytes.Cut(h, []byte(",")); {
		case !bytes.Equal(bubbleOf(h), bubble):
		case bytes.Contains(state, []byte("(durable)")):
		case bytes.HasPrefix(state, []byte("sync.Mutex")), bytes.HasPrefix(state, []byte("sync.RWMutex")):
			locked = true
		default:
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

// header returns what stands in the brackets of the next "goroutine 7 [sleep
// (durable), synctest bubble 1]:" and what is behind that line.
func header(dump []byte) (h, rest []byte) {
	const begin = "goroutine "
	for len(dump) > 0 {
		var line []byte
		line, dump, _ = bytes.Cut(dump, []byte("\n"))
		if bytes.HasPrefix(line, []byte(begin)) && bytes.HasSuffix(line, []byte("]:")) {
			_, h, _ = bytes.Cut(line, []byte("["))
			return bytes.TrimSuffix(h, []byte("]:")), dump
		}
	}
	return nil, nil
}

func bubbleOf(h []byte) []byte {
	_, bubble, _ := bytes.Cut(h, []byte("synctest bubble "))
	return bubble
}
