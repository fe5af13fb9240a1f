package chans_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/oncepipe/oncepipe/chans"
)

func typeOf(v any) string { return fmt.Sprintf("%T", v) }

func (coreAsync) N64_T_ByType(t *testing.T, ctx context.Context) {
	p := chans.Pub[string, any]{Topic: typeOf}
	var subs []chan any
	for range 2 {
		ints, words := make(chan any, 3), make(chan any, 3)
		p.Sub("int", ints, chans.CloseAtEnd)
		p.Sub("string", words, chans.CloseAtEnd)
		subs = append(subs, ints, words)
	}
	noError(t, p.Run(ctx, filled[any](1, "a", 2, "b", 3, "c")))
	for i, c := range subs {
		same(t, "values", taken(t, c), [][]any{{1, 2, 3}, {"a", "b", "c"}}[i%2])
	}
}

// letter is the topic of a word.
func letter(word string) string { return word[:1] }

// published starts a pub by first letter.
func published(ctx context.Context, from <-chan string, p *chans.Pub[string, string]) call[error] {
	p.Topic = letter
	return begin(func() error { return p.Run(ctx, from) })
}

func (coreAsync) N65_J2_TopicWithoutSubscribers(t *testing.T, ctx context.Context) {
	from, x := make(chan string), make(chan string, 9)
	var p chans.Pub[string, string]
	p.Sub("x", x, chans.CloseAtEnd)
	run := published(ctx, from, &p)
	for range 100 {
		noError(t, sending(ctx, from, "y").returns(t, "put"))
	}
	noError(t, chans.Send(ctx, from, "x1"))
	close(from)
	noError(t, run.returns(t, "pub"))
	same(t, "x", taken(t, x), []string{"x1"})
	equal(t, "discarded", p.Discarded(), 100)
}

// There, a topic that was seen once is there for ever.
func (coreAsync) N65_J2_TopicsGoWithTheirSubscribers(t *testing.T, _ context.Context) {
	p, c := chans.Pub[string, string]{Topic: letter}, make(chan string)
	for i := range 1000 {
		topic := fmt.Sprint(i)
		p.Sub(topic, c, chans.KeepOpen)
		equal(t, "topics", p.Topics(), 1)
		equal(t, "was subscribed", p.Unsub(topic, c), true)
	}
	equal(t, "topics", p.Topics(), 0)
}

// stuckAndLive starts a pub with a subscriber of x that doesn't read, and one of
// y that does.
func stuckAndLive(ctx context.Context, p *chans.Pub[string, string]) (from chan string, stuck, live chan string) {
	from, stuck, live = make(chan string), make(chan string), make(chan string, 99)
	p.Sub("x", stuck, chans.CloseAtEnd)
	p.Sub("y", live, chans.CloseAtEnd)
	published(ctx, from, p)
	return from, stuck, live
}

func (coreAsync) N66_J3_UnbufferedTopicsBlock(t *testing.T, ctx context.Context) {
	p := chans.Pub[string, string]{Buffer: func(string) int { return 0 }}
	from, stuck, live := stuckAndLive(ctx, &p)
	noError(t, chans.Send(ctx, from, "x1")) // waits for its reader
	noError(t, chans.Send(ctx, from, "x2")) // waits for x1
	put := sending(ctx, from, "y1")
	put.waits(t, "y1")
	empty(t, live)
	gives(t, stuck, "x1")
	noError(t, put.returns(t, "y1"))
	gives(t, live, "y1")
}

func (coreAsync) N66_J3_IsolatedByDefault(t *testing.T, ctx context.Context) {
	var p chans.Pub[string, string]
	from, _, live := stuckAndLive(ctx, &p)
	for i := range 10 {
		noError(t, sending(ctx, from, "x").returns(t, "x"))
		y := fmt.Sprint("y", i)
		noError(t, sending(ctx, from, y).returns(t, "y"))
		gives(t, live, y)
	}
}

func (coreAsync) N66_J4_IsolatedUntilFull(t *testing.T, ctx context.Context) {
	p := chans.Pub[string, string]{Buffer: func(string) int { return 10 }}
	from, stuck, live := stuckAndLive(ctx, &p)
	for range 1 + 10 + 1 { // for the subscriber, in the buffer, before the buffer
		noError(t, sending(ctx, from, "x").returns(t, "x"))
	}
	put := sending(ctx, from, "y1")
	put.waits(t, "y1")
	gives(t, stuck, "x")
	noError(t, put.returns(t, "y1"))
	gives(t, live, "y1")
}

func (coreAsync) N67_J5_SourceEndsSubscribers(t *testing.T, ctx context.Context) {
	var p chans.Pub[string, string]
	x, y := make(chan string, 9), make(chan string, 9)
	p.Sub("x", x, chans.CloseAtEnd)
	p.Sub("y", y, chans.CloseAtEnd)
	noError(t, published(ctx, filled("x1", "x2"), &p).returns(t, "pub"))
	same(t, "x", taken(t, x), []string{"x1", "x2"})
	isClosed(t, x)
	isClosed(t, y)
}

func (coreAsync) N67_J5_KeptOpen(t *testing.T, ctx context.Context) {
	var p chans.Pub[string, string]
	x := make(chan string, 9)
	p.Sub("x", x, chans.KeepOpen)
	noError(t, published(ctx, filled("x1"), &p).returns(t, "pub"))
	gives(t, x, "x1")
	empty(t, x)
}

func (coreAsync) N67_J6_UnsubDoesNotClose(t *testing.T, ctx context.Context) {
	var p chans.Pub[string, string]
	gone, stays := make(chan string, 9), make(chan string, 9)
	p.Sub("x", gone, chans.CloseAtEnd)
	p.Sub("x", stays, chans.CloseAtEnd)
	equal(t, "was subscribed", p.Unsub("x", gone), true)
	noError(t, published(ctx, filled("x1"), &p).returns(t, "pub"))
	gives(t, stays, "x1")
	empty(t, gone)
}

// There, they are never closed, not even when the source ends.
func (coreAsync) N67_J7_UnsubTopicEndsSubscribers(t *testing.T, ctx context.Context) {
	var p chans.Pub[string, string]
	x, kept, y := make(chan string), make(chan string), make(chan string)
	p.Sub("x", x, chans.CloseAtEnd)
	p.Sub("x", kept, chans.KeepOpen)
	p.Sub("y", y, chans.CloseAtEnd)
	from := make(chan string)
	run := published(ctx, from, &p)
	p.UnsubTopic("x")
	isClosed(t, x)
	empty(t, kept)
	empty(t, y)
	p.UnsubAll()
	isClosed(t, y)
	close(from)
	noError(t, run.returns(t, "pub"))
	equal(t, "topics", p.Topics(), 0)
}

// brokenPub has a topic function that panics for values without a letter.
func brokenPub(rescue func(*chans.ItemError) error) (p *chans.Pub[string, string], x chan string) {
	p, x = &chans.Pub[string, string]{Rescue: rescue}, make(chan string, 9)
	p.Sub("x", x, chans.CloseAtEnd)
	return p, x
}

// There, the pub is dead, its source blocks, and nobody is told.
func (coreAsync) N68_J8_TopicPanics(t *testing.T, ctx context.Context) {
	p, x := brokenPub(nil)
	from := filled("x1", "", "x2")
	err := published(ctx, from, p).returns(t, "pub")
	panicked(t, err)
	blames(t, err, "")
	gives(t, x, "x1")
	isClosed(t, x)
	same(t, "still in the source", taken(t, from), []string{"x2"})
}

func (coreAsync) N68_J8_TopicPanicsAndGoesOn(t *testing.T, ctx context.Context) {
	var failed []any
	p, x := brokenPub(func(e *chans.ItemError) error {
		failed = append(failed, e.Value)
		return nil
	})
	noError(t, published(ctx, filled("x1", "", "x2"), p).returns(t, "pub"))
	same(t, "x", taken(t, x), []string{"x1", "x2"})
	same(t, "failed", failed, []any{""})
	equal(t, "discarded", p.Discarded(), 1)
}
