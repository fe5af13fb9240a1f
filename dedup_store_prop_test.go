package oncepipe_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/memstore"
	"pgregory.net/rapid"
)

// life is one process: how long it lives, its end, and its graph.
type life struct {
	lasts   int // seconds
	end     ending
	workers int
	buffer  int
	guard   int
	joins   int
	window  int
	retry   bool
	forked  bool // two children for each item
	faults  float64
	fails   float64 // of handlers
}

type ending int

const (
	drains ending = iota
	stopsHard
	crashes
)

func drawLife(rt *rapid.T) life {
	return life{
		lasts:   rapid.IntRange(0, 90).Draw(rt, "lasts"),
		end:     rapid.SampledFrom([]ending{drains, drains, stopsHard, crashes}).Draw(rt, "end"),
		workers: rapid.IntRange(1, 4).Draw(rt, "workers"),
		buffer:  rapid.IntRange(0, 4).Draw(rt, "buffer"),
		guard:   rapid.IntRange(1, 8).Draw(rt, "guard"),
		joins:   rapid.IntRange(0, 3).Draw(rt, "joins"),
		window:  rapid.IntRange(1, 6).Draw(rt, "window"),
		retry:   rapid.Bool().Draw(rt, "retry"),
		forked:  rapid.Bool().Draw(rt, "forked"),
		faults:  rapid.SampledFrom([]float64{0, 0.1, 0.4}).Draw(rt, "faults"),
		fails:   rapid.SampledFrom([]float64{0, 0.3}).Draw(rt, "fails"),
	}
}

// world has a store, a queue that forgets nothing that wasn't acked, and
// processes that come and go.
type world struct {
	mem *memstore.Store

	mu      sync.Mutex
	random  *rand.Rand
	open    map[int]string // messages that are not acked
	ready   []int
	changed chan struct{} // closed and replaced
	active  map[string]int
	acted   map[string]int
	wrong   []string
}

func newWorld(seed uint64, messages []int) *world {
	w := &world{
		mem: memstore.New(memstore.Config{}), random: rand.New(rand.NewPCG(seed, 2)),
		open: map[int]string{}, changed: make(chan struct{}), active: map[string]int{}, acted: map[string]int{},
	}
	for i, k := range messages {
		w.open[i] = fmt.Sprint("k", k)
		w.ready = append(w.ready, i)
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Float64() < p
}

func (w *world) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.random.Int64N(int64(d)))
}

// change is called with the lock.
func (w *world) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) deliver(id int, after time.Duration) {
	time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, open := w.open[id]; open {
			w.ready = append(w.ready, id)
			w.change()
		}
	})
}

func (w *world) state(key string) oncepipe.State {
	recs, err := w.mem.Lookup(context.Background(), []oncepipe.RecordID{{Namespace: oncepipe.Key("world", "dedup"), Key: key}})
	if err != nil {
		w.note("lookup: %v", err)
		return oncepipe.StateAbsent
	}
	return recs[0].State
}

// process is a consumer of the world's queue, and its line to the store.
type process struct {
	*world
	life life
	last bool // it lives until all is acked
	dead bool // under the world's lock: nobody hears it, and it hears nobody
	has  map[int]bool
}

func (p *process) Receive(ctx context.Context) (oncepipe.Delivery[string], error) {
	for {
		p.mu.Lock()
		changed := p.changed
		switch {
		case len(p.ready) > 0 && !p.dead:
			id := p.ready[0]
			p.ready = p.ready[1:]
			p.has[id] = true
			key := p.open[id]
			p.mu.Unlock()
			return oncepipe.Delivery[string]{Value: key, Settle: func(_ context.Context, s oncepipe.Settlement) error {
				p.settle(id, key, s)
				return nil
			}}, nil
		case p.last && len(p.open) == 0:
			p.mu.Unlock()
			return oncepipe.Delivery[string]{}, io.EOF
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return oncepipe.Delivery[string]{}, ctx.Err()
		}
	}
}

func (p *process) settle(id int, key string, s oncepipe.Settlement) {
	acked := s.Outcome == oncepipe.Done || s.Outcome == oncepipe.Duplicate
	if state := p.state(key); acked && state != oncepipe.StateCompleted {
		p.note("I1: %s is acked as %v, its record is %v", key, s.Outcome, state)
	}
	p.mu.Lock()
	heard := !p.dead && p.has[id]
	if heard {
		delete(p.has, id)
		if acked {
			delete(p.open, id)
			p.change()
		}
	}
	p.mu.Unlock()
	if heard && !acked {
		p.deliver(id, s.Delay) // a dead letter is redriven
	}
}

// crash cuts the process off. What it had comes again.
func (p *process) crash() {
	p.mu.Lock()
	p.dead = true
	var had []int
	for id := range p.has {
		had = append(had, id)
	}
	p.mu.Unlock()
	for _, id := range had {
		p.deliver(id, p.upTo(20*time.Second))
	}
}

func (p *process) line(_ context.Context, _ string, _ int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.random.Float64() < p.life.faults {
		return errLine
	}
	return nil
}

// handle acts once its time is over.
func (p *process) handle(ctx context.Context, key string) error {
	p.mu.Lock()
	p.active[key]++
	twice := p.active[key] > 1
	p.mu.Unlock()
	if twice {
		p.note("%s runs twice at once", key)
	}
	defer func() {
		p.mu.Lock()
		p.active[key]--
		p.mu.Unlock()
	}()
	long := 2 * time.Second
	if p.chance(0.1) {
		long = time.Minute
	}
	select {
	case <-time.After(p.upTo(long)):
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.chance(p.life.fails) {
		return errBroken
	}
	p.mu.Lock()
	p.acted[key]++
	p.mu.Unlock()
	return nil
}

// knowing is a guard that must know nothing but what is recorded.
type knowing struct {
	oncepipe.Guard
	w *world
}

func (g knowing) Add(key, fp string) {
	if state := g.w.state(key); state != oncepipe.StateCompleted {
		g.w.note("I2: the guard learns %s, whose record is %v", key, state)
	}
	g.Guard.Add(key, fp)
}

func (p *process) run(ctx context.Context) {
	line := lineTo(p.mem)
	line.before, line.after = p.line, p.line
	cfg := oncepipe.Config{
		DrainTimeout: 90 * time.Second, Logger: slog.New(slog.DiscardHandler),
		DeadLetters: func(context.Context, oncepipe.DeadLetter) error { return nil },
	}
	if p.life.end != drains {
		cfg.DrainTimeout = -1
	}
	pipe := oncepipe.New("world", cfg)
	fresh := oncepipe.Dedup(oncepipe.From(pipe, "queue", p), "dedup", func(s string) string { return s },
		oncepipe.WithStore(line), oncepipe.WithGuard(knowing{oncepipe.LRU(p.life.guard), p.world}),
		oncepipe.JoinLimit(p.life.joins, 10, 30*time.Second), oncepipe.Claims(oncepipe.ClaimPolicy{Window: p.life.window, MaxTakeovers: -1}))
	if p.life.forked {
		fresh = oncepipe.FlatMap(fresh, func(s string) []string { return []string{s + ".0", s + ".1"} })
	}
	opts := []oncepipe.Option{oncepipe.Workers(p.life.workers), oncepipe.Buffer(oncepipe.Fixed(p.life.buffer))}
	pass := oncepipe.Stage(fresh, "pass", func(_ context.Context, s string) (string, error) { return s, nil }, opts...)
	if p.life.retry {
		opts = append(opts, oncepipe.Retry(oncepipe.RetryPolicy{}))
	}
	oncepipe.Sink(pass, "act", p.handle, opts...)
	if err := pipe.Run(ctx); err != nil {
		p.note("Run: %v", err)
	}
	st := pipe.Stats()
	if !st.Conserved() {
		p.note("not conserved: %+v", st)
	}
	if st.Stores[0].Held != 0 || st.Dedups[0].InFlight != 0 || st.Dedups[0].Recording != 0 {
		p.note("left behind: %+v %+v", st.Stores, st.Dedups)
	}
}

func (w *world) live(t *testing.T, l life, last bool) {
	p := &process{world: w, life: l, last: last, has: map[int]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if !last {
		time.AfterFunc(time.Duration(l.lasts)*time.Second, func() {
			if l.end == crashes {
				p.crash()
			}
			cancel()
		})
	}
	p.run(ctx)
}

// Processes come, two at a time, drain, are stopped hard or die, on lines to the
// store that lose requests and replies; the last one lives until everything is
// acked. Whatever they do: a delivery is acked only when its key is recorded as done
// (I1), no guard knows more than that (I2), a key runs once at a time, and in the
// end every key has acted. Where everybody lives and drains and the lines are
// good, it has acted exactly once (I6).
func TestI1_I2_I6_ProcessesComeAndGo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lives := rapid.SliceOfN(rapid.Custom(drawLife), 0, 6).Draw(rt, "lives")
		messages := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 30).Draw(rt, "messages")
		clean := rapid.Bool().Draw(rt, "clean")
		seed := rapid.Uint64().Draw(rt, "seed")
		if clean {
			for i := range lives {
				lives[i].end, lives[i].faults, lives[i].forked = drains, 0, false
			}
		}
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(seed, messages)
			var processes sync.WaitGroup
			for i := range 2 {
				processes.Go(func() {
					for j := i; j < len(lives); j += 2 {
						w.live(t, lives[j], false)
					}
				})
			}
			processes.Wait()
			w.live(t, life{workers: 2, buffer: 2, guard: 4, joins: 2, window: 4, retry: true}, true)
		})
		for _, k := range messages {
			key := fmt.Sprint("k", k)
			n := w.acted[key]
			forked := w.acted[key+".0"] > 0 && w.acted[key+".1"] > 0
			if n == 0 && !forked || clean && n != 1 {
				w.wrong = append(w.wrong, fmt.Sprintf("%s has acted %d times", key, n))
			}
		}
		if len(w.wrong) > 0 {
			rt.Fatal(strings.Join(w.wrong[:min(len(w.wrong), 5)], "\n"))
		}
	})
}
