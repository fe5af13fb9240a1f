package chans

import (
	"context"
	"errors"
	"sync/atomic"
)

// topic is a Mult with a buffer before it.
type topic[K comparable, T any] struct {
	key  K
	c    chan T
	mult Mult[T]
	subs map[any]*subscriber[T] // by channel; not empty while the Pub has the topic

	// From its first value on:
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when no value of it moves any more
}

// errEvicted is why a topic ends when its last subscriber has gone.
var errEvicted = errors.New("chans: topic without subscribers")

// subscriber is a channel with the number of its topics. It is closed with the
// last one.
type subscriber[T any] struct {
	tap    *tap[T]
	topics int
}

// topicHooks is what the Mult of a topic tells its Pub.
type topicHooks struct {
	closed    func(key any) // a tap was found closed
	discarded *atomic.Uint64
}

// aftermath is what is left to do when the lock of a Pub has been released.
type aftermath[K comparable, T any] struct {
	changes []replaced[taps[T]]
	evicted []*topic[K, T]
	over    []*tap[T]
}

func (a *aftermath[K, T]) settle() {
	for _, change := range a.changes {
		change.settle()
	}
	for _, tp := range a.evicted {
		if tp.cancel != nil {
			tp.cancel(errEvicted)
		}
	}
	for _, t := range a.over {
		t.end()
	}
}

func (p *Pub[K, T]) newSubscriber(t *tap[T]) *subscriber[T] {
	if p.subs == nil {
		p.subs = make(map[any]*subscriber[T])
	}
	s := &subscriber[T]{tap: t}
	p.subs[t.key()] = s
	return s
}

// topic finds or makes a topic, which then gets a subscriber.
func (p *Pub[K, T]) topic(k K, room int) *topic[K, T] {
	if tp := p.topics[k]; tp != nil {
		return tp
	}
	if p.topics == nil {
		p.topics = make(map[K]*topic[K, T])
	}
	tp := &topic[K, T]{key: k, c: make(chan T, room), subs: make(map[any]*subscriber[T])}
	tp.mult.topic = &topicHooks{func(key any) { p.closed(tp, key) }, &p.discarded}
	p.topics[k] = tp
	return tp
}

func (tp *topic[K, T]) add(s *subscriber[T], after *aftermath[K, T]) {
	if tp.subs[s.tap.key()] == nil {
		tp.subs[s.tap.key()] = s
		s.topics++
	}
	_, change := tp.mult.add(&tap[T]{c: s.tap.c, lossy: s.tap.lossy, atEnd: KeepOpen})
	after.changes = append(after.changes, change)
}

// closed removes a subscriber that somebody else has closed.
func (p *Pub[K, T]) closed(tp *topic[K, T], key any) {
	var after aftermath[K, T]
	defer after.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	if tp.subs[key] != nil {
		p.leave(tp, key, &after)
	}
}

// leave takes a subscriber out of a topic. It reports whether that was its last.
func (p *Pub[K, T]) leave(tp *topic[K, T], key any, after *aftermath[K, T]) (last bool) {
	s := tp.subs[key]
	delete(tp.subs, key)
	if s.topics--; s.topics == 0 {
		delete(p.subs, key)
	}
	if len(tp.subs) == 0 && p.topics[tp.key] == tp {
		delete(p.topics, tp.key)
		after.evicted = append(after.evicted, tp)
	}
	return s.topics == 0
}

// release takes all subscribers out of a topic, and ends those who have no other.
func (p *Pub[K, T]) release(tp *topic[K, T], after *aftermath[K, T]) {
	_, change := tp.mult.removeAll(false)
	after.changes = append(after.changes, change)
	for key, s := range tp.subs {
		if p.leave(tp, key, after) {
			after.over = append(after.over, s.tap)
		}
	}
}
