package oncepipe

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// This file puts batch stages into the random graphs of graph_test.go, with what
// holds for every graph.

func TestI5_BatchGraphs(t *testing.T) {
	check(t, 150, func(rt *rapid.T) {
		p := drawPlan(rt)
		runBatchPlan(t, rt, p, rapid.Bool().Draw(rt, "dedup"))
	})
}

func TestI4_BatchGraphs(t *testing.T) {
	check(t, 100, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.calm = true
		runBatchPlan(t, rt, p, true)
	})
}

// Every instant is as good as another to be cancelled at.
func TestI8_CancelledBatchGraphs(t *testing.T) {
	check(t, 150, func(rt *rapid.T) {
		p := drawPlan(rt)
		p.cancel = time.Duration(rapid.IntRange(1, 3000).Draw(rt, "instant")) * time.Millisecond
		p.drain = rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond, -1}).Draw(rt, "short drain")
		runBatchPlan(t, rt, p, rapid.Bool().Draw(rt, "dedup"))
	})
}

// runBatchPlan runs p on a graph of two batch stages with whatever the plan puts
// around them.
func runBatchPlan(t *testing.T, rt *rapid.T, p plan, dedup bool) {
	inBubble(t, rt, func() []string {
		w := newWorld(&p)
		in := flow{Stream: From(w.p, "source", Source[msg](w.src))}
		if dedup {
			in.Stream = Dedup(in.Stream, "dedup", func(v msg) string { return v.key }, JoinLimit(p.join, 64, 10*time.Second))
			in.unique = p.calm
		}
		if w.tape.pick(2) == 1 {
			in = w.stage(in)
		}
		in = w.batchStage(in)
		if w.tape.pick(2) == 1 {
			left, right := Split(in.Stream, func(v msg) bool { return p.dice(2, "split", v.key) == 0 })
			w.batchSink(flow{left, in.unique})
			in.Stream = right
		}
		w.grow(in)
		w.run()
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.faults
	})
}

func (w *world) batchOptions() []Option {
	t := &w.tape
	opts := []Option{Workers(1 + t.pick(3))}
	places := t.pick(9)
	switch t.pick(5) {
	case 3:
		opts = append(opts, Buffer(Dropping(max(1, places))))
	case 4:
		opts = append(opts, Buffer(Sliding(max(1, places))))
	default:
		opts = append(opts, Buffer(Fixed(places)))
	}
	size := 1 + t.pick(8)
	opts = append(opts, BatchSize(size), BatchWait([]time.Duration{0, 0, 50 * time.Millisecond, 700 * time.Millisecond, time.Hour}[t.pick(5)]))
	if t.pick(5) != 4 {
		opts = append(opts, Retry(RetryPolicy{MaxAttempts: []int{0, 1, 2, 3, 8}[t.pick(5)], Slots: size + t.pick(5), MaxDelay: []time.Duration{0, time.Second}[t.pick(2)]}))
	}
	if t.pick(4) == 3 {
		opts = append(opts, Timeout(300*time.Millisecond))
	}
	return opts
}

func (w *world) batchStage(in flow) flow {
	name := w.name("batch")
	var self *stage[msg, msg]
	s := newBatchStage(in.Stream, "batchstage", name, w.batchHandler(name, in.unique, false, &self), w.batchOptions())
	self = s
	w.watch(s)
	return flow{Stream[msg]{s.out}, in.unique}
}

func (w *world) batchSink(in flow) {
	name := w.name("batchsink")
	var self *stage[msg, msg]
	s := newBatchStage(in.Stream, "batchsink", name, w.batchHandler(name, in.unique, true, &self), w.batchOptions())
	self = s
	w.watch(s)
	Discard(Stream[msg]{s.out})
}

// batchHandler is the function of a batch stage. Some keys spoil every batch that
// they are in for some calls; else it fails as a whole, for some items, by panic,
// or takes too long.
func (w *world) batchHandler(name string, unique, leaf bool, self **stage[msg, msg]) func(context.Context, []msg) ([]msg, error) {
	return func(ctx context.Context, vs []msg) (_ []msg, err error) {
		p := w.plan
		call := w.enterBatch(ctx, name, unique, self, vs)
		var done []msg
		defer func() { w.leaveBatch(name, leaf, vs, done) }()
		if most := (*self).opt.batchSize; len(vs) > most || len(vs) == 0 {
			w.errorf("%s: batch of %d items, at most %d", name, len(vs), most)
		}
		ms := time.Duration(p.dice(600, name, "ms", call, vs[0].key)) * time.Millisecond
		if p.dice(3, name, "slow", call, vs[0].key) == 0 && !sleep(ctx, ms) {
			return nil, ctx.Err()
		}
		for _, v := range vs {
			switch p.dice(20, name, "poison", v.key, call) {
			case 0:
				return nil, errHandler
			case 1:
				if p.dice(2, name, "panics", v.key) == 0 {
					panic("batch")
				}
				runtime.Goexit()
			case 2:
				return nil, Permanent(errHandler)
			}
		}
		switch p.dice(16, name, "batch", call, vs[0].key) {
		case 0:
			return nil, RetryAfter(ms, errHandler)
		case 1:
			return nil, Snooze(ms)
		case 2:
			return nil, WholeBatch(errHandler)
		case 3:
			return nil, fmt.Errorf("batch: %w", ErrLeaseLost)
		case 4:
			if !p.calm {
				time.Sleep(4 * ms)
			}
		case 5:
			return vs[:len(vs)-1], nil
		case 6, 7, 8, 9:
			each := &BatchError{Errs: make([]error, len(vs))}
			for i, v := range vs {
				each.Errs[i] = []error{nil, errHandler, Permanent(errHandler), RetryAfter(ms, errHandler), Snooze(ms), ErrLeaseLost}[p.dice(6, name, "item", v.key, call)]
				if each.Errs[i] == nil {
					done = append(done, v)
				}
			}
			return append([]msg(nil), vs...), each
		}
		done = append(done, vs...)
		return done, nil
	}
}

// enterBatch checks what holds when a batch begins and returns how often its
// first item was in one.
func (w *world) enterBatch(ctx context.Context, name string, unique bool, self **stage[msg, msg], vs []msg) (call int) {
	infos := BatchFrom(ctx)
	if len(infos) != len(vs) || ctx.Err() != nil && !w.p.hard.Load() {
		w.errorf("%s: %d infos of %d items, context %v", name, len(infos), len(vs), ctx.Err())
	}
	for i, v := range vs {
		id := name + " " + v.key
		if infos[i].Key != v.key || infos[i].Stage != name || infos[i].Attempt < 1 {
			w.errorf("info %+v of item %q in %s", infos[i], v.key, name)
		}
		w.mu.Lock()
		w.calls[id]++
		w.running[id]++
		if i == 0 {
			call = w.calls[id]
		}
		if unique && w.running[id] > 1 {
			w.faults = append(w.faults, fmt.Sprintf("I4: %s runs %d times at once", id, w.running[id]))
		}
		w.mu.Unlock()
		if unique && parkedIn(*self, v.key) {
			w.errorf("I4: %s runs while it is parked", id)
		}
	}
	return call
}

func (w *world) leaveBatch(name string, leaf bool, vs, done []msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range vs {
		w.running[name+" "+v.key]--
	}
	for _, v := range done {
		w.success[name+" "+v.key]++
		if leaf {
			w.effects[v.root]++
		}
	}
}
