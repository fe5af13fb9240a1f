package chans

import "sync/atomic"

// gate stands between one loop, which works with a state, and those who replace
// that state while it does. Once a replacement is settled, the loop has nothing to
// do with any state before it, so that what was removed from it can be closed.
//
// Inside, the loop does what can't wait, or waits until its version is old. It
// calls no user code there, which may replace the state.
type gate[S any] struct {
	latest atomic.Pointer[version[S]]
	inside atomic.Pointer[version[S]] // what the loop works with; nil outside
}

type version[S any] struct {
	is   S
	n    uint64
	old  chan struct{} // closed when there is a newer one: the loop has to leave
	left chan struct{} // closed when the loop has left a version that is old
}

func newVersion[S any](n uint64, is S) *version[S] {
	return &version[S]{is: is, n: n, old: make(chan struct{}), left: make(chan struct{})}
}

// now is the latest version.
func (g *gate[S]) now() *version[S] {
	for {
		if v := g.latest.Load(); v != nil {
			return v
		}
		var none S
		g.latest.CompareAndSwap(nil, newVersion(0, none))
	}
}

// enter gives the loop the latest version to work with until it leaves.
func (g *gate[S]) enter() *version[S] {
	for {
		v := g.now()
		g.inside.Store(v)
		if g.latest.Load() == v {
			return v
		}
		g.leave(v)
	}
}

func (g *gate[S]) leave(v *version[S]) {
	g.inside.Store(nil)
	if g.latest.Load() != v {
		close(v.left)
	}
}

// replace makes is the latest state. Its callers hold a lock that excludes one
// another, and settle what it returns when they have released it.
func (g *gate[S]) replace(is S) replaced[S] {
	before := g.now()
	after := newVersion(before.n+1, is)
	g.latest.Store(after)
	return replaced[S]{g, before, after}
}

type replaced[S any] struct {
	gate          *gate[S]
	before, after *version[S]
}

// settle makes the loop leave the versions before, and returns when it has.
func (r replaced[S]) settle() {
	if r.gate == nil {
		return
	}
	close(r.before.old)
	if v := r.gate.inside.Load(); v != nil && v.n < r.after.n {
		<-v.left
	}
}
