package oncepipe

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/chans"
	"pgregory.net/rapid"
)

// This file puts a Transduce into the random graphs of graph_test.go: groups of
// messages go through its steps and to a sink, which fails in all ways.

func TestI5_TransduceGraphs(t *testing.T) {
	check(t, 200, func(rt *rapid.T) {
		p := drawPlan(rt)
		runTransducePlan(t, rt, p, rapid.Bool().Draw(rt, "dedup"))
	})
}

// Every instant is as good as another to be cancelled at.
func TestI8_CancelledTransduceGraphs(t *testing.T) {
	check(t, 200, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.cancel = time.Duration(rapid.IntRange(1, 3000).Draw(rt, "instant")) * time.Millisecond
		p.drain = rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond, -1}).Draw(rt, "short drain")
		runTransducePlan(t, rt, p, rapid.Bool().Draw(rt, "dedup"))
	})
}

func runTransducePlan(t *testing.T, rt *rapid.T, p plan, dedup bool) {
	inBubble(t, rt, func() []string {
		w := newWorld(&p)
		w.p.cfg.DeadLetters = w.buryGroup
		in := flow{Stream: From(w.p, "source", Source[msg](w.src))}
		if dedup {
			in.Stream = Dedup(in.Stream, "dedup", func(v msg) string { return v.key }, JoinLimit(p.join, 64, 10*time.Second))
			in.unique = p.calm
		}
		if w.tape.pick(2) == 1 {
			in = w.stage(in)
		}
		branches := Broadcast(w.transduce(in), 1+w.tape.pick(2))
		var sinks []*stage[[]msg, struct{}]
		for _, b := range branches {
			sinks = append(sinks, w.groupSink(b))
		}
		w.run()
		for _, s := range sinks {
			if n := s.lane.index.Len(); n != 0 || s.lane.timer.Stop() {
				w.errorf("I8: %s is left with %d parked", s.name, n)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.faults
	})
}

// buryGroup is bury for what has several roots.
func (w *world) buryGroup(ctx context.Context, l DeadLetter) error {
	g, ok := l.Value.([]msg)
	if !ok {
		return w.bury(ctx, l)
	}
	for _, v := range g {
		l.Value = v
		if err := w.bury(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// transduce draws the steps of a run: some before a grouping, that, and some
// behind it.
func (w *world) transduce(in flow) Stream[[]msg] {
	name := w.name("steps")
	t := &w.tape
	before := []chans.Xform[msg, msg]{}
	for range t.pick(4) {
		step := w.name("step")
		switch t.pick(5) {
		case 0:
			before = append(before, chans.TryMap(func(v msg) (msg, error) { return v, w.step(step, v) }))
		case 1:
			before = append(before, chans.FlatMap(func(v msg) []msg { return slices.Repeat([]msg{v}, 1+w.plan.dice(3, step, v.root)) }))
		case 2:
			before = append(before, chans.Distinct(func(v msg) string { return v.root }, 1+t.pick(9)))
		case 3:
			// Each part of a group stems from all that went into it: so a member may be
			// dead or done for the sake of another.
			settled := w.onSettle
			w.onSettle = func(m msg, s Settlement) {
				if s.Outcome != Dead && s.Outcome != Done {
					settled(m, s)
				}
			}
			before = append(before, chans.Compose(chans.PartitionAll[msg](1+t.pick(4)), chans.FlatMap(func(g []msg) []msg { return g })))
		case 4:
			before = append(before, chans.Rescue(
				chans.TryMap(func(v msg) (msg, error) { return v, w.step(step, v) }),
				func(e *chans.ItemError, emit func(msg) error) error { return emit(e.Value.(msg)) }))
		}
	}
	if t.pick(6) == 5 {
		before = append(before, chans.Take[msg](1+t.pick(9)))
	}
	var grouping chans.Xform[msg, []msg]
	switch t.pick(3) {
	case 0:
		grouping = chans.PartitionAll[msg](1 + t.pick(6))
	case 1:
		grouping = chans.PartitionBy(func(v msg) string { return v.root })
	case 2:
		grouping = chans.Map(func(v msg) []msg { return []msg{v} })
	}
	behind := chans.TryMap(func(g []msg) ([]msg, error) { return g, w.step(name+"behind", g[0]) })
	opts := []Option{BatchWait([]time.Duration{0, 50 * time.Millisecond, 700 * time.Millisecond, time.Minute}[t.pick(4)])}
	if t.pick(3) == 2 {
		opts = append(opts, BatchSize(1+t.pick(4)))
	}
	places := 1 + t.pick(8)
	opts = append(opts, Buffer([]BufferPolicy{Fixed(places), Fixed(0), Dropping(places), Sliding(places)}[t.pick(4)]))
	s := newTransducer(in.Stream, name, chans.Compose3(chans.Chain(before...), grouping, behind), opts)
	w.stages = append(w.stages, name)
	w.lanes = append(w.lanes, func() (int, bool, int) {
		if n := s.gathering.Load(); n != 0 {
			w.errorf("%s: %d are kept after the end", name, n)
		}
		return s.lane.index.Len(), s.lane.timer.Stop() || s.crew[0].(*transducer[msg, []msg]).timer.Stop(), len(s.slots)
	})
	return Stream[[]msg]{s.out}
}

// step fails, panics, ends its goroutine or takes its time.
func (w *world) step(name string, v msg) error {
	switch d := w.plan.dice(24, name, v.key, v.delivery); d {
	case 0:
		return errHandler
	case 1:
		return Snooze(time.Second)
	case 2:
		panic("step")
	case 3:
		runtime.Goexit()
	case 4, 5:
		time.Sleep(time.Duration(d) * 20 * time.Millisecond)
	case 6:
		id := fmt.Sprint(name, v.key, v.delivery)
		w.mu.Lock()
		w.calls[id]++
		first := w.calls[id] == 1
		w.mu.Unlock()
		if first && !w.plan.calm {
			time.Sleep(1500 * time.Millisecond)
		}
	}
	return nil
}

func (w *world) groupSink(in Stream[[]msg]) *stage[[]msg, struct{}] {
	name := w.name("sink")
	opts := w.options(flow{Stream: Stream[msg]{newPort[msg](New("none", Config{}), "", traits{})}})
	s := newStage(in, "sink", name, func(ctx context.Context, g []msg) (struct{}, error) {
		info, _ := InfoFrom(ctx)
		w.mu.Lock()
		w.calls[name+info.Key]++
		call := w.calls[name+info.Key]
		w.mu.Unlock()
		ms := time.Duration(w.plan.dice(1000, name, info.Key, call, "ms")) * time.Millisecond
		switch w.plan.dice(14, name, info.Key, call) {
		case 0, 1:
			return struct{}{}, errHandler
		case 2:
			return struct{}{}, Permanent(errHandler)
		case 3:
			return struct{}{}, Snooze(ms)
		case 4:
			panic("sink")
		case 5:
			runtime.Goexit()
		case 6:
			return struct{}{}, fmt.Errorf("group: %w", ErrLeaseLost)
		case 7, 8:
			if !sleep(ctx, ms) {
				return struct{}{}, ctx.Err()
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, v := range g {
			w.effects[v.root]++
		}
		return struct{}{}, nil
	}, opts)
	Discard(Stream[struct{}]{s.out})
	return s
}
