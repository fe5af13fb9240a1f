package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// This file makes random graphs and runs them in a bubble with fake time: what
// every function, source and sink of letters does follows from the plan, the
// order of goroutines does not.

// msg is what travels. root is the key that the source gave it.
type msg struct {
	key, root string
	delivery  int
}

var (
	errHandler = errors.New("handler failed")
	errRefused = errors.New("refused")
	quiet      = slog.New(slog.DiscardHandler)
)

// tape gives a builder its choices. Where it ends, the choice is 0, which is
// always the simplest.
type tape struct {
	choices []int
	next    int
}

func (c *tape) pick(n int) int {
	if c.next >= len(c.choices) {
		return 0
	}
	v := uint64(c.choices[c.next])
	c.next++
	return int(v * 0x9e3779b97f4a7c15 >> 33 % uint64(n)) // small ones are drawn too often
}

// plan is one case.
type plan struct {
	seed       uint64
	tape       []int
	keys       int
	deliveries int
	cancel     time.Duration // 0: when nothing else ends it
	drain      time.Duration
	steering   int // how often somebody pauses, resumes or injects
	hold       time.Duration
	join       int
	calm       bool // no inline function panics and no handler ignores its context
}

func drawPlan(t *rapid.T) plan {
	p := plan{
		seed:       rapid.Uint64().Draw(t, "seed"),
		tape:       rapid.SliceOfN(rapid.IntRange(0, 1<<20), 12, 80).Draw(t, "tape"),
		keys:       rapid.IntRange(1, 8).Draw(t, "keys"),
		deliveries: rapid.IntRange(1, 40).Draw(t, "deliveries"),
		drain:      rapid.SampledFrom([]time.Duration{30 * time.Second, time.Second, 10 * time.Millisecond, -1}).Draw(t, "drain"),
		steering:   rapid.IntRange(0, 10).Draw(t, "steering"),
		hold:       rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second}).Draw(t, "hold"),
		join:       rapid.SampledFrom([]int{16, 2, 0}).Draw(t, "join"),
	}
	if rapid.Bool().Draw(t, "cancelled") {
		p.cancel = time.Duration(rapid.IntRange(1, 10_000).Draw(t, "cancel")) * time.Millisecond
	}
	return p
}

// dice is a number that belongs to what it is asked about.
func (p *plan) dice(sides int, about ...any) int {
	h := fnv.New64a()
	fmt.Fprintln(h, p.seed)
	fmt.Fprintln(h, about...)
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return int(x % uint64(sides))
}

// planSource delivers by the plan, and again what was returned. It counts
// settlements.
type planSource struct {
	w *world

	mu      sync.Mutex
	queue   []msg
	handed  []*handed
	unsent  int // of the plan
	waiting int // to be delivered again, later
	open    int
	wake    chan struct{}
}

type handed struct {
	msg
	calls, taken int
	outcome      Outcome
}

const redeliveries = 3

func (s *planSource) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *planSource) HoldLimit() time.Duration { return s.w.plan.hold }

func (s *planSource) Receive(ctx context.Context) (Delivery[msg], error) {
	p := s.w.plan
	for {
		s.mu.Lock()
		if len(s.queue) == 0 && s.unsent > 0 {
			n := p.deliveries - s.unsent
			s.unsent--
			root := fmt.Sprintf("k%d", p.dice(p.keys, "key", n))
			gap := p.dice(4, "gap", n)
			s.mu.Unlock()
			if gap == 3 && !sleep(ctx, time.Duration(p.dice(1500, "gap", n, "ms"))*time.Millisecond) {
				return Delivery[msg]{}, ctx.Err()
			}
			if p.dice(20, "outage", n) == 19 {
				s.mu.Lock()
				s.queue = append(s.queue, msg{key: root, root: root})
				s.mu.Unlock()
				return Delivery[msg]{}, errRefused
			}
			s.mu.Lock()
			s.queue = append(s.queue, msg{key: root, root: root})
		}
		if len(s.queue) > 0 {
			h := &handed{msg: s.queue[0]}
			s.queue = s.queue[1:]
			h.delivery = len(s.handed) + 1
			s.handed = append(s.handed, h)
			s.open++
			s.mu.Unlock()
			return Delivery[msg]{Value: h.msg, Key: h.key, Settle: func(ctx context.Context, st Settlement) error {
				return s.settle(ctx, h, st)
			}}, nil
		}
		over := s.open == 0 && s.waiting == 0
		s.mu.Unlock()
		if over {
			return Delivery[msg]{}, io.EOF
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Delivery[msg]{}, ctx.Err()
		}
	}
}

func (s *planSource) settle(ctx context.Context, h *handed, st Settlement) error {
	w := s.w
	if err := ctx.Err(); err != nil {
		w.errorf("delivery %d is settled on a context that has ended: %v", h.delivery, err)
	}
	s.mu.Lock()
	h.calls++
	calls := h.calls
	s.mu.Unlock()
	if calls < 3 {
		switch w.plan.dice(24, "settle", h.delivery, calls) {
		case 23, 22:
			return errRefused
		case 21:
			panic("settle")
		case 20:
			runtime.Goexit()
		case 19:
			sleep(ctx, 20*time.Millisecond)
		}
	}
	w.onSettle(h.msg, st)
	s.mu.Lock()
	h.taken++
	h.outcome = st.Outcome
	s.open--
	again := st.Outcome == Returned && len(s.handed) < redeliveries*w.plan.deliveries
	if again {
		s.waiting++
	}
	s.mu.Unlock()
	if again {
		time.AfterFunc(st.Delay, func() {
			s.mu.Lock()
			s.waiting--
			s.queue = append(s.queue, msg{key: h.root, root: h.root})
			s.mu.Unlock()
			s.nudge()
		})
	}
	s.nudge()
	return nil
}

// world is one run of a plan: the graph and what is known of it.
type world struct {
	plan     *plan
	tape     tape
	p        *Pipeline
	src      *planSource
	stages   []string
	injected atomic.Int64
	onSettle func(msg, Settlement)
	nodes    int
	lanes    []func() (parked int, timer bool, slots int)

	mu      sync.Mutex
	calls   map[string]int // by stage and key
	running map[string]int
	effects map[string]int // of a sink, by root
	success map[string]int // by stage and key
	letters map[string]int // by root
	faults  []string
}

func (w *world) errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func newWorld(p *plan) *world {
	w := &world{
		plan: p, tape: tape{choices: p.tape},
		calls: map[string]int{}, running: map[string]int{}, effects: map[string]int{}, success: map[string]int{}, letters: map[string]int{},
	}
	w.onSettle = w.settled
	w.src = &planSource{w: w, unsent: p.deliveries, wake: make(chan struct{}, 1)}
	w.p = New("random", Config{
		Logger: quiet, DrainTimeout: p.drain, SettleTimeout: 5 * time.Second,
		DeadLetters: w.bury,
		Observers:   []Observer{w.observe, w.observe},
	})
	return w
}

// settled looks at a settlement at the moment at which its source gets it.
func (w *world) settled(m msg, s Settlement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s.Outcome {
	case Done:
		if w.effects[m.root] == 0 {
			w.faults = append(w.faults, fmt.Sprintf("I1: delivery %d of %s is acked before any effect", m.delivery, m.root))
		}
	case Dead:
		if w.letters[m.root] == 0 {
			w.faults = append(w.faults, fmt.Sprintf("I1: delivery %d of %s is dead before its letter is written", m.delivery, m.root))
		}
	}
}

func (w *world) bury(_ context.Context, l DeadLetter) error {
	root := rootOf(l.Value)
	switch w.plan.dice(40, "bury", l.Stage, l.Key) {
	case 39:
		return errRefused
	case 38:
		panic("bury")
	case 37:
		runtime.Goexit()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.letters[root]++
	return nil
}

func rootOf(v any) string {
	switch v := v.(type) {
	case msg:
		return v.root
	case Failed[msg]:
		return v.Value.root
	}
	return "?"
}

func (w *world) observe(e Event) {
	switch w.plan.dice(50, "observe", e.Kind, e.Key, e.Attempt) {
	case 49:
		panic("observer")
	case 48:
		runtime.Goexit()
	}
	w.balance()
}

func (w *world) balance() {
	s := w.p.Stats()
	if s.InFlight < 0 || s.Admitted < s.Done+s.Duplicate+s.Filtered+s.Shed+s.Dead+s.Returned {
		w.errorf("I9: %+v", s)
	}
}

// inline is what every function of an inline operator does first.
func (w *world) inline(op string, v msg) {
	if w.plan.calm {
		return
	}
	switch w.plan.dice(200, op, v.key, v.delivery) {
	case 199:
		panic("inline")
	case 198:
		runtime.Goexit()
	}
}

// laneKeys tells whether key is parked in a stage.
func parkedIn(s *stage[msg, msg], key string) bool {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	for place, since := range s.lane.since {
		if since != noJob && s.lane.jobs[place].t.key == key {
			return true
		}
	}
	return false
}

// handler is the function of a stage. unique says that at most one item of a key
// may be inside.
func (w *world) handler(name string, unique, leaf bool, self **stage[msg, msg]) func(context.Context, msg) (msg, error) {
	return func(ctx context.Context, v msg) (_ msg, err error) {
		info, ok := InfoFrom(ctx)
		if !ok || info.Key != v.key || info.Stage != name || ctx.Err() != nil && !w.p.hard.Load() {
			w.errorf("info %+v of item %q in stage %s, context %v", info, v.key, name, ctx.Err())
		}
		id := name + " " + v.key
		w.mu.Lock()
		w.calls[id]++
		call := w.calls[id]
		w.running[id]++
		if unique && w.running[id] > 1 {
			w.faults = append(w.faults, fmt.Sprintf("I4: %s runs %d times at once", id, w.running[id]))
		}
		w.mu.Unlock()
		if unique && parkedIn(*self, v.key) {
			w.errorf("I4: %s runs while it is parked", id)
		}
		succeeded := false
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.running[id]--
			if succeeded {
				w.success[id]++
				if leaf {
					w.effects[v.root]++
				}
			}
		}()
		ms := time.Duration(w.plan.dice(1000, id, call, "ms")) * time.Millisecond
		switch w.plan.dice(40, id, call) {
		case 20, 21, 22, 23, 24:
			return v, errHandler
		case 25:
			return v, Permanent(errHandler)
		case 26, 27:
			return v, RetryAfter(ms, errHandler)
		case 28, 29:
			return v, Snooze(ms)
		case 30:
			panic("handler")
		case 31:
			runtime.Goexit()
		case 32, 33, 34:
			if !sleep(ctx, ms) {
				return v, ctx.Err()
			}
		case 35:
			if !w.plan.calm {
				time.Sleep(4 * ms)
			}
		case 36:
			return v, ErrLeaseLost
		case 37:
			return v, Unknown(errHandler)
		case 38:
			return v, fmt.Errorf("wrapped: %w", backoff.Permanent(errHandler))
		}
		succeeded = true
		return v, nil
	}
}

// flow is a stream and what is known of it.
type flow struct {
	Stream[msg]
	unique bool // at most one item of a key is in it and behind it
}

// options draws those of a stage.
func (w *world) options(in flow) []Option {
	t := &w.tape
	opts := []Option{Workers(1 + t.pick(4))}
	size := t.pick(9)
	switch t.pick(5) {
	case 3:
		opts = append(opts, Buffer(Dropping(max(1, size))))
	case 4:
		opts = append(opts, Buffer(Sliding(max(1, size))))
	default:
		opts = append(opts, Buffer(Fixed(size)))
	}
	if t.pick(5) != 4 {
		opts = append(opts, Retry(RetryPolicy{MaxAttempts: []int{0, 1, 2, 3, 8}[t.pick(5)], Slots: 1 + t.pick(5), MaxDelay: []time.Duration{0, time.Second}[t.pick(2)]}))
	}
	if t.pick(4) == 3 {
		opts = append(opts, Timeout(300*time.Millisecond))
	}
	switch t.pick(3) {
	case 1:
		opts = append(opts, Ordered())
	case 2:
		if in.out.keyed && in.out.order != unordered {
			opts = append(opts, PerPartition())
		}
	}
	return opts
}

func (w *world) name(kind string) string {
	w.nodes++
	return fmt.Sprintf("%s%d", kind, w.nodes)
}

func (w *world) watch(s *stage[msg, msg]) {
	w.stages = append(w.stages, s.name)
	w.lanes = append(w.lanes, func() (int, bool, int) {
		return s.lane.index.Len(), s.lane.timer.Stop(), len(s.slots)
	})
}

func (w *world) stage(in flow) flow {
	name := w.name("stage")
	var self *stage[msg, msg]
	opts := w.options(in)
	s := newStage(in.Stream, "stage", name, w.handler(name, in.unique, false, &self), opts)
	self = s
	w.watch(s)
	return flow{Stream[msg]{s.out}, in.unique}
}

func (w *world) tryStage(in flow) (ok, failed flow) {
	name := w.name("try")
	var self *stage[msg, msg]
	s := newStage(in.Stream, "trystage", name, w.handler(name, in.unique, false, &self), w.options(in))
	self = s
	s.failed = newPort[Failed[msg]](w.p, name, traits{shared: true})
	w.watch(s)
	bad := Map(Stream[Failed[msg]]{s.failed}, func(f Failed[msg]) msg {
		w.inline(name+"failed", f.Value)
		return f.Value
	})
	return flow{Stream[msg]{s.out}, in.unique}, flow{bad, in.unique}
}

func (w *world) sink(in flow) {
	name := w.name("sink")
	var self *stage[msg, msg]
	s := newStage(in.Stream, "sink", name, w.handler(name, in.unique, true, &self), w.options(in))
	self = s
	w.watch(s)
	Discard(Stream[msg]{s.out})
}

// grow reads a stream to its end.
func (w *world) grow(in flow) {
	t := &w.tape
	for w.nodes < 14 {
		name := w.name("op")
		switch t.pick(14) {
		case 0, 1:
			w.sink(in)
			return
		case 2:
			in.Stream = Map(in.Stream, func(v msg) msg { w.inline(name, v); return v })
		case 3:
			in.Stream = TryMap(in.Stream, func(v msg) (msg, error) {
				w.inline(name, v)
				if w.plan.dice(12, name, v.key, "error") == 11 {
					return v, Permanent(errHandler)
				}
				return v, nil
			})
		case 4:
			in.Stream = Filter(in.Stream, func(v msg) bool { w.inline(name, v); return w.plan.dice(6, name, v.key, "keep") > 0 })
		case 5:
			in.Stream = FlatMap(in.Stream, func(v msg) []msg {
				w.inline(name, v)
				out := make([]msg, w.plan.dice(4, name, v.key, "children"))
				for i := range out {
					out[i] = v
					out[i].key = Key(v.key, fmt.Sprint(i))
				}
				return out
			})
		case 6:
			in.Stream = KeyBy(in.Stream, func(v msg) string { w.inline(name, v); return v.key })
		case 7:
			in.Stream = PartitionBy(in.Stream, func(v msg) string { w.inline(name, v); return v.root })
		case 8:
			a, b := Split(in.Stream, func(v msg) bool { w.inline(name, v); return w.plan.dice(2, name, v.key, "left") == 0 })
			if t.pick(2) == 0 {
				w.grow(flow{a, in.unique})
				in.Stream = b
			} else {
				in.Stream = Merge(w.stage(flow{a, in.unique}).Stream, b)
			}
		case 9:
			branches := Broadcast(in.Stream, 2+t.pick(2))
			for _, b := range branches[1:] {
				if t.pick(2) == 0 {
					w.grow(flow{b, in.unique})
				} else {
					branches[0] = Merge(branches[0], b)
					in.unique = false
				}
			}
			in.Stream = branches[0]
		case 10:
			ok, failed := w.tryStage(in)
			if t.pick(2) == 0 {
				w.grow(failed)
				in = ok
			} else {
				in = flow{Merge(ok.Stream, failed.Stream), in.unique}
			}
		case 11:
			in.Stream = Dedup(in.Stream, name, func(v msg) string { w.inline(name, v); return v.key },
				JoinLimit(w.plan.join, 64, 10*time.Second))
			// What the scope of a key behind a Dedup ends with Goexit is not counted on.
			in.unique = in.unique || w.plan.calm
		default:
			in = w.stage(in)
		}
	}
	w.sink(in)
}

// build wires the whole graph; the first operator is a Dedup where first is.
func (w *world) build(first bool) {
	in := flow{Stream: From(w.p, "source", Source[msg](w.src))}
	if first {
		in.Stream = Dedup(in.Stream, "dedup", func(v msg) string { return v.key }, JoinLimit(w.plan.join, 64, 10*time.Second))
		in.unique = w.plan.calm
	}
	w.grow(in)
}

// run runs the plan and checks what holds for every graph.
func (w *world) run() {
	p := w.plan
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	limit := p.cancel
	if limit == 0 {
		limit = 2 * time.Hour
	}
	stop := time.AfterFunc(limit, cancel)
	defer stop.Stop()
	over := make(chan struct{})
	var outside errgroup.Group
	for i := range 2 {
		outside.Go(func() error { w.look(over, i); return nil })
	}
	outside.Go(func() error { w.steer(over); return nil })

	began := time.Now()
	err := w.p.Run(ctx)
	took := time.Since(began)
	close(over)
	_ = outside.Wait()

	// The last handlers end by themselves after at most 4 s; what they return
	// must not be heard.
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if took > limit+max(p.drain, 0)+10*time.Second {
		w.errorf("Run ended %v after its limit", took-limit)
	}
	w.conclude(err)
}

func (w *world) look(over chan struct{}, who int) {
	for i := 0; ; i++ {
		w.balance()
		_ = w.p.Describe()
		select {
		case <-over:
			return
		case <-time.After(time.Duration(1+w.plan.dice(400, "look", who, i%50)) * time.Millisecond << min(i/50, 8)):
		}
	}
}

func (w *world) steer(over chan struct{}) {
	p := w.plan
	for i := range p.steering {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(p.dice(2000, "steer", i)) * time.Millisecond):
		}
		name := w.stages[p.dice(len(w.stages), "which", i)]
		switch p.dice(3, "what", i) {
		case 0:
			_ = w.p.Pause(name)
		case 1:
			_ = w.p.Resume(name)
		case 2:
			key := fmt.Sprintf("injected%d", i)
			err := w.p.Inject(name, key, msg{key: key, root: key})
			switch {
			case err == nil:
				w.injected.Add(1)
			case !errors.Is(err, ErrFull) && !errors.Is(err, ErrNotRunning):
				w.errorf("Inject: %v", err)
			}
		}
	}
	for _, name := range w.stages {
		_ = w.p.Resume(name)
	}
}

func (w *world) conclude(err error) {
	s := w.p.Stats()
	if !s.Conserved() || s.InFlight != 0 {
		w.errorf("I9: not conserved after Run: %+v", s)
	}
	w.src.mu.Lock()
	outcomes := map[Outcome]int64{}
	for _, h := range w.src.handed {
		if h.taken != 1 {
			w.errorf("I5: delivery %d of %s is settled %d times (%v)", h.delivery, h.root, h.taken, h.outcome)
		}
		outcomes[h.outcome]++
	}
	handed := int64(len(w.src.handed))
	w.src.mu.Unlock()
	if s.Admitted != handed+w.injected.Load() {
		w.errorf("I9: %d admitted, %d delivered, %d injected", s.Admitted, handed, w.injected.Load())
	}
	src := s.Sources[0]
	for o, n := range map[Outcome]int64{Done: src.Done, Duplicate: src.Duplicate, Filtered: src.Filtered, Shed: src.Shed, Dead: src.Dead, Returned: src.Returned} {
		if outcomes[o] != n {
			w.errorf("I9: the source heard %v %d times, Stats say %d", o, outcomes[o], n)
		}
	}
	w.concludeError(err, s.Returned-src.Returned)
	for i, lane := range w.lanes {
		if parked, timer, _ := lane(); parked != 0 || timer {
			w.errorf("I8: stage %s is left with %d parked, timer %v", w.stages[i], parked, timer)
		}
	}
	if n := w.p.live.Load(); n != 0 {
		w.errorf("I8: %d goroutines", n)
	}
}

func (w *world) concludeError(err error, unreturnable int64) {
	var re *ReturnedError
	var ae *AbandonedError
	listed := 0
	if errors.As(err, &re) {
		listed = len(re.Items)
	}
	if int64(listed) != unreturnable {
		w.errorf("Run lists %d items of %d: %v", listed, unreturnable, err)
	}
	if errors.As(err, &ae) {
		for _, h := range ae.Handlers {
			if h.Key == "" || h.Stage == "" || h.Attempt < 1 {
				w.errorf("abandoned: %+v", h)
			}
		}
		if w.plan.calm {
			w.errorf("abandoned a handler that honours its context: %v", err)
		}
	}
	joined, _ := err.(interface{ Unwrap() []error })
	if joined == nil {
		if err != nil {
			w.errorf("Run: %v", err)
		}
		return
	}
	for _, e := range joined.Unwrap() {
		switch e.(type) {
		case *ReturnedError, *AbandonedError:
		default:
			w.errorf("Run: %v", e)
		}
	}
}

// inBubble runs fn in a bubble of its own and reports outside of it.
func inBubble(t *testing.T, rt *rapid.T, fn func() []string) {
	var faults []string
	synctest.Test(t, func(*testing.T) { faults = fn() })
	if len(faults) > 0 {
		rt.Fatalf("%d faults:\n%s", len(faults), strings.Join(faults[:min(8, len(faults))], "\n"))
	}
}

// runPlan runs p on its graph.
func runPlan(t *testing.T, rt *rapid.T, p plan, dedup bool, more func(w *world)) {
	inBubble(t, rt, func() []string {
		w := newWorld(&p)
		w.build(dedup)
		w.run()
		if more != nil {
			more(w)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.faults
	})
}

// What an Ordered stage emits behind an item that the drain returns can end the
// goroutine that returns; the others are returned all the same.
func TestI5_GoexitBehindWhatTheDrainReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settled := map[int]Outcome{}
		var mu sync.Mutex
		p := New("p", Config{Logger: quiet, DrainTimeout: -1})
		in := From(p, "source", settling(4, func(_ context.Context, i, call int, s Settlement) error {
			if i == 1 && call == 1 {
				runtime.Goexit()
			}
			mu.Lock()
			defer mu.Unlock()
			settled[i] = s.Outcome
			return nil
		}))
		out := Stage(in, "stage", func(_ context.Context, i int) (int, error) {
			if i == 0 || i > 1 {
				return i, Snooze(time.Hour) // 1 is done, and waits for 0
			}
			return i, nil
		}, Ordered())
		Discard(out)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		want := map[int]Outcome{0: Returned, 1: Done, 2: Returned, 3: Returned}
		if !maps.Equal(settled, want) || !p.Stats().Conserved() {
			t.Errorf("settled %v, want %v; %+v", settled, want, p.Stats())
		}
	})
}
