package chans

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Pub puts each value of a source into the channels that are subscribed to its
// topic. Each topic is a [Mult]: its subscribers get all its values, in order, and
// the slowest holds up the others, unless it is [Lossy].
//
// Topics have buffers, and don't hold up one another until a buffer is full. So
// values of different topics don't keep their order. A topic exists while it has
// subscribers. A value of another topic is discarded, and so is what is in the
// buffer when the last subscriber goes; both are counted.
//
// Its methods can be called by any goroutine at any time, also before and after
// Run. Its fields are set before the first call.
type Pub[K comparable, T any] struct {
	// Topic is the topic of a value. It has to be set.
	Topic func(T) K
	// Buffer is how many values of a topic can wait for its subscribers. Without
	// it the number is TopicBuffer. With 0, a subscriber that doesn't read holds up
	// all topics. It is called by Sub, which panics if the number is below 0.
	Buffer func(K) int
	// Rescue gets a value whose topic is not known because Topic panicked. When it
	// returns nil, the value is discarded, and the next one is taken; an error ends
	// Run. Without it Run ends with the ItemError.
	Rescue func(*ItemError) error

	mu           sync.Mutex
	topics       map[K]*topic[K, T]
	subs         map[any]*subscriber[T] // by channel
	began, ended bool
	discarded    atomic.Uint64
}

// TopicBuffer is how many values of a topic can wait where nothing else is said.
const TopicBuffer = 16

// Sub subscribes c to a topic. A channel may be subscribed to many topics; how it
// ends is what was said last. When Run has ended, c has no values to wait for and
// is ended at once.
//
// At the end of the source, Run closes c when all values of its topics are in it,
// unless it is to be kept open. Nobody else should close it before it was
// unsubscribed. One that is found closed is removed.
func (p *Pub[K, T]) Sub(topic K, c chan<- T, atEnd AtEnd) { p.sub(topic, plainTap(c, atEnd)) }

// SubLossy is Sub for a lossy channel. It may be closed at any time.
func (p *Pub[K, T]) SubLossy(topic K, l *Lossy[T], atEnd AtEnd) { p.sub(topic, lossyTap(l, atEnd)) }

// Unsub ends a subscription and doesn't close c. It releases whoever waits for c,
// and no value of this topic is put into c after Unsub has returned. It reports
// whether there was this subscription until then.
func (p *Pub[K, T]) Unsub(topic K, c chan<- T) bool { return p.unsub(topic, c) }

// UnsubLossy is Unsub for a lossy channel. A value that is being put into it may
// come through.
func (p *Pub[K, T]) UnsubLossy(topic K, l *Lossy[T]) bool { return p.unsub(topic, l) }

// UnsubTopic ends all subscriptions to a topic. As their readers can't know of it
// otherwise, those that are left without a topic are ended as Run does: they are
// closed unless they are kept open.
func (p *Pub[K, T]) UnsubTopic(topic K) {
	var after aftermath[K, T]
	defer after.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	if tp := p.topics[topic]; tp != nil {
		p.release(tp, &after)
	}
}

// UnsubAll is UnsubTopic for all topics.
func (p *Pub[K, T]) UnsubAll() {
	var after aftermath[K, T]
	defer after.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tp := range p.topics {
		p.release(tp, &after)
	}
}

// Topics is the number of topics that have subscribers.
func (p *Pub[K, T]) Topics() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.topics)
}

// Discarded is the number of values so far that no subscriber got.
func (p *Pub[K, T]) Discarded() uint64 { return p.discarded.Load() }

// Run takes the values of from and puts them into the channels that are subscribed
// to their topics, until from ends and the buffers of the topics are empty. It
// ends its subscribers when their last topic is done. It panics if it was called before.
//
// The first failure ends it: a panic of Topic that is not rescued, or one of the
// observer of a lossy channel. Both are an ItemError. When ctx ends, or after an
// observer's failure, the values that had been taken and that not all subscribers
// of their topic have got come back as Unsent, those of each topic in order.
func (p *Pub[K, T]) Run(ctx context.Context, from <-chan T) (err error) {
	p.begin()
	r := newPublishing(ctx, p)
	defer func() { err = r.finish(err) }()
	return r.route(from)
}

func (p *Pub[K, T]) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.Topic == nil:
		panic("chans: a Pub needs a Topic")
	case p.began:
		panic("chans: a Pub runs once")
	}
	p.began = true
}

func (p *Pub[K, T]) sub(k K, t *tap[T]) {
	room := TopicBuffer
	if p.Buffer != nil {
		room = p.Buffer(k)
	}
	if room < 0 {
		panic(fmt.Sprintf("chans: the buffer of a topic needs a number of at least 0, got %d", room))
	}
	var after aftermath[K, T]
	defer after.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.subs[t.key()]
	switch {
	case s != nil:
		s.tap.atEnd = t.atEnd
	case p.ended:
		after.over = append(after.over, t)
	default:
		s = p.newSubscriber(t)
	}
	if !p.ended {
		p.topic(k, room).add(s, &after)
	}
}

func (p *Pub[K, T]) unsub(k K, key any) bool {
	var after aftermath[K, T]
	defer after.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	tp := p.topics[k]
	if tp == nil || tp.subs[key] == nil {
		return false
	}
	_, change := tp.mult.remove(key)
	after.changes = append(after.changes, change)
	p.leave(tp, key, &after)
	return true
}
