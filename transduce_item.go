package oncepipe

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/oncepipe/oncepipe/chans"
)

// into is an item in a run: an origin, which hears what becomes of its value
// there. It has one share of its scope until the run has nothing of it any more.
type into[A, B any] struct {
	it      item[A]
	x       *transducer[A, B]
	memory  *memory // nil: the run remembers nothing
	holds   int     // one for its Put, one for each value that is kept
	outputs int     // that stem from it, alone or before others
	err     error   // why it failed
	place   *list.Element
	since   time.Duration // kept, on the pipeline's clock
}

// admit makes an input of an item.
func (x *transducer[A, B]) admit(it item[A]) *into[A, B] {
	in := &into[A, B]{it: it, x: x, holds: 1}
	if x.run.Remembers() {
		in.memory = remember(it.t, x.lose)
		in.it.t = &in.memory.ticket
	}
	return in
}

// Keep adds the input to those that are kept.
func (in *into[A, B]) Keep() {
	in.holds++
	x := in.x
	x.dirty = true
	if in.place == nil {
		in.since = x.s.p.now()
		x.mu.Lock()
		in.place = x.kept.PushBack(in)
		x.mu.Unlock()
		x.s.gathering.Add(1)
	}
}

// Release settles the input when the run has nothing of it any more.
func (in *into[A, B]) Release(err error) {
	if in.err == nil {
		in.err = err
	}
	if in.holds--; in.holds > 0 {
		return
	}
	in.leave()
	if in.err != nil {
		in.x.s.fail(job[A]{item: in.it}, Permanent(cause(in.err)))
		return
	}
	in.it.t.settle(verdict{outcome: Filtered, apart: true}) // what came out of it counts
}

// giveBack settles the input although the run may have something of it. The run
// must not go on after that.
func (in *into[A, B]) giveBack(why error) {
	in.leave()
	in.x.s.returned(in.it, 0, why)
}

func (in *into[A, B]) leave() {
	if in.place == nil {
		return
	}
	x := in.x
	x.mu.Lock()
	x.kept.Remove(in.place)
	x.mu.Unlock()
	in.place = nil
	x.s.gathering.Add(-1)
}

// cause is the error of a step, as the steps of a pipeline have it.
func cause(err error) error {
	var e *chans.ItemError
	if errors.As(err, &e) {
		err = e.Err
	}
	var p *chans.PanicError
	switch {
	case errors.As(err, &p):
		return &PanicError{Value: p.Value, Stack: p.Stack}
	case errors.Is(err, chans.ErrGoexit):
		return ErrGoexit
	}
	return err
}

// emit takes what comes out of the run.
func (x *transducer[A, B]) emit(v B, from []chans.Origin) error {
	if x.s.p.hard.Load() {
		x.run.Stop()
		return ErrDrainTimeout
	}
	x.s.out.pass(item[B]{v, x.descend(from)})
	return nil
}

// descend makes the ticket of a value that stems from inputs.
func (x *transducer[A, B]) descend(from []chans.Origin) *ticket {
	number := 0
	members := make([]*ticket, len(from))
	for i, o := range from {
		in := o.(*into[A, B])
		members[i] = in.it.t
		if i == 0 {
			number = in.outputs
			in.outputs++
		}
	}
	if len(members) == 1 {
		return members[0].child(number)
	}
	return newGroup(x.s.p, number, members)
}

// child is the ticket of a value that stems from the item alone.
func (t *ticket) child(number int) *ticket {
	t.scope.fork(1)
	if number == 0 {
		return t
	}
	c := &ticket{partition: t.partition, scope: t.scope}
	if t.key != "" {
		c.key = Key(t.key, strconv.Itoa(number))
	}
	return c
}

// memory settles an item that a run remembers.
type memory struct {
	parent *ticket
	ticket ticket
	scope  scope
	forget atomic.Pointer[func()]
	lose   func(forget func())
}

func remember(t *ticket, lose func(func())) *memory {
	m := &memory{parent: t, lose: lose, ticket: ticket{key: t.key, partition: t.partition}}
	m.ticket.scope = &m.scope
	m.scope.owner, m.scope.admitted, m.scope.claim = m, t.scope.admitted, t.scope.claim
	m.scope.open.Store(1)
	return m
}

func (m *memory) holdLimit() time.Duration { return m.parent.scope.owner.holdLimit() }
func (m *memory) takesBack() bool          { return m.parent.scope.owner.takesBack() }

// taken is called when the steps are through with the item, which may have been
// settled over their heads.
func (m *memory) taken(forget func()) {
	m.forget.Store(&forget)
	if m.scope.open.Load() <= 0 {
		forget()
	}
}

// settled has the item forgotten before anybody can deliver it again.
func (m *memory) settled(v verdict) {
	if forget := m.forget.Load(); forget != nil && !v.complete() {
		m.lose(*forget)
	}
	m.parent.settle(v)
}

// group settles items that have become one: each as that one is.
type group struct {
	members []*ticket
	ticket  ticket
	scope   scope
	leave   func() // what its claim holds on to
}

func newGroup(p *Pipeline, number int, members []*ticket) *ticket {
	g := &group{members: members, ticket: ticket{key: groupKey(number, members)}}
	g.ticket.scope = &g.scope
	g.scope.owner = g
	g.scope.admitted = p.now()
	g.scope.open.Store(1)
	for _, m := range members {
		m.scope.fork(1)
		g.scope.admitted = min(g.scope.admitted, m.scope.admitted)
	}
	g.scope.claim, g.leave = joinClaims(p, members)
	return &g.ticket
}

// groupKey is made of the members' keys, in their order. Of the groups that begin
// with the same member each has its number.
func groupKey(number int, members []*ticket) string {
	if len(members) == 0 {
		return ""
	}
	keys := []string{strconv.Itoa(number)}
	for _, m := range members {
		if m.key == "" {
			return ""
		}
		keys = append(keys, m.key)
	}
	sum := sha256.Sum256([]byte(Key(keys...)))
	return Key("group", hex.EncodeToString(sum[:16]))
}

func (g *group) settled(v verdict) {
	g.leave()
	v.apart = true
	for _, m := range g.members {
		m.settle(v)
	}
}

// holdLimit is the shortest of the members'.
func (g *group) holdLimit() (limit time.Duration) {
	for _, m := range g.members {
		if h := m.scope.owner.holdLimit(); h > 0 && (limit == 0 || h < limit) {
			limit = h
		}
	}
	return limit
}

func (g *group) takesBack() bool {
	return !slices.ContainsFunc(g.members, func(m *ticket) bool { return !m.scope.owner.takesBack() })
}

// joinClaims makes the claim of a group: its context ends with the claim of any
// member. It is nil where these have none.
func joinClaims(p *Pipeline, members []*ticket) (c *claim, leave func()) {
	var each []*claim
	met := map[*claim]bool{nil: true}
	for _, m := range members {
		if c := m.scope.claim; !met[c] {
			met[c] = true
			each = append(each, c)
		}
	}
	if len(each) == 0 {
		return nil, func() {}
	}
	c = &claim{p: p, each: each}
	c.ctx, c.end = context.WithCancelCause(p.handlers)
	stops := make([]func() bool, len(each))
	attempt := int32(0)
	for i, m := range each {
		stops[i] = context.AfterFunc(m.ctx, func() { c.end(context.Cause(m.ctx)) })
		attempt = max(attempt, m.attempt.Load())
		if m.takeover.Load() {
			c.takeover.Store(true)
		}
	}
	c.attempt.Store(attempt)
	return c, func() {
		for _, stop := range stops {
			stop()
		}
		c.end(context.Canceled)
	}
}
