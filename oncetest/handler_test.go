package oncetest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// order is the message of these tests.
type order struct {
	ID       string
	Received time.Time // by this delivery
}

func (o order) String() string { return o.ID }

func newOrder(id, copy int) order {
	return order{ID: fmt.Sprint("order-", id), Received: time.Unix(int64(copy), 0)}
}

// table is a database that a test keeps: rows by what makes them unique, and of
// whom they are.
type table struct {
	mu   sync.Mutex
	rows []row
}

type row struct{ key, order string }

var errExists = errors.New("the row exists")

func (t *table) insert(r row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
	return nil
}

// insertUnique is insert with a unique constraint on the key.
func (t *table) insertUnique(r row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.rows, func(old row) bool { return old.key == r.key }) {
		return errExists
	}
	t.rows = append(t.rows, r)
	return nil
}

func (t *table) has(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.rows, func(r row) bool { return r.key == key })
}

func (t *table) of(o order) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		if r.order == o.ID {
			n++
		}
	}
	return n
}

type handler = func(ctx context.Context, o order) error

// service is a handler with one table of effects, and one of whatever else it
// wants to remember for longer than a process lives.
func service(start func(p *oncetest.Process, effects, marks *table) handler) oncetest.Service[order] {
	return oncetest.Service[order]{
		Message: newOrder,
		New: func(*oncetest.World) oncetest.Program[order] {
			effects, marks := &table{}, &table{}
			return oncetest.Program[order]{
				Start:   func(p *oncetest.Process) func(context.Context, order) error { return start(p, effects, marks) },
				Effects: effects.of,
			}
		},
	}
}

// write is a step that inserts a row.
func write(ctx context.Context, p *oncetest.Process, t *table, r row) error {
	return p.Step(ctx, "insert", func() error { return t.insert(r) })
}

var badHandlers = []struct {
	name  string
	blame oncetest.Blame
	start func(p *oncetest.Process, effects, marks *table) handler
}{
	{"a random key per attempt", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			return charge(ctx, p, effects, rand.Text(), o)
		}
	}},
	{"a token of the clock", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			return charge(ctx, p, effects, fmt.Sprint(o.ID, time.Now().UnixNano()), o)
		}
	}},
	{"a key from a field that changes", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			return charge(ctx, p, effects, fmt.Sprint(o.ID, o.Received), o)
		}
	}},
	{"a new key for a retry inside", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) (err error) {
			for try := range 3 {
				if err = charge(ctx, p, effects, fmt.Sprint(o.ID, try), o); err == nil {
					return nil
				}
			}
			return err
		}
	}},
	{"one key for all", oncetest.Lost, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error { return charge(ctx, p, effects, "order", o) }
	}},
	{"check, then act, on a set in memory", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		var mu sync.Mutex
		seen := map[string]bool{}
		return func(ctx context.Context, o order) error {
			mu.Lock()
			done := seen[o.ID]
			mu.Unlock()
			if done {
				return nil
			}
			if err := write(ctx, p, effects, row{order: o.ID}); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			seen[o.ID] = true
			return nil
		}
	}},
	{"a mark in memory before the write", oncetest.Lost, func(p *oncetest.Process, effects, _ *table) handler {
		var seen sync.Map
		return func(ctx context.Context, o order) error {
			if _, loaded := seen.LoadOrStore(o.ID, true); loaded {
				return nil
			}
			return write(ctx, p, effects, row{order: o.ID})
		}
	}},
	{"a durable mark before the write", oncetest.Lost, func(p *oncetest.Process, effects, marks *table) handler {
		return func(ctx context.Context, o order) error {
			err := p.Step(ctx, "mark", func() error { return marks.insertUnique(row{key: o.ID}) })
			if errors.Is(err, errExists) {
				return nil
			}
			if err != nil {
				return err
			}
			return write(ctx, p, effects, row{order: o.ID})
		}
	}},
	{"select, then insert, without a constraint", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			var found bool
			err := p.Step(ctx, "select", func() error { found = effects.has(o.ID); return nil })
			if found || err != nil {
				return err
			}
			return write(ctx, p, effects, row{key: o.ID, order: o.ID})
		}
	}},
	{"the same under a lock of the process", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		var mu sync.Mutex
		return func(ctx context.Context, o order) error {
			mu.Lock()
			defer mu.Unlock()
			var found bool
			err := p.Step(ctx, "select", func() error { found = effects.has(o.ID); return nil })
			if found || err != nil {
				return err
			}
			return write(ctx, p, effects, row{key: o.ID, order: o.ID})
		}
	}},
	{"a swallowed error", oncetest.Lost, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			_ = p.Step(ctx, "insert", func() error { return effects.insertUnique(row{key: o.ID, order: o.ID}) })
			return nil
		}
	}},
	{"an ack in the handler", oncetest.Lost, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			if err := p.Ack(ctx); err != nil {
				return err
			}
			return p.Step(ctx, "insert", func() error { return effects.insertUnique(row{key: o.ID, order: o.ID}) })
		}
	}},
	{"a write in the background", oncetest.Lost, func(p *oncetest.Process, effects, _ *table) handler {
		return func(_ context.Context, o order) error {
			go func() {
				time.Sleep(time.Millisecond)
				_ = p.Step(p.Context(), "insert", func() error { return effects.insertUnique(row{key: o.ID, order: o.ID}) })
			}()
			return nil
		}
	}},
	{"an effect outside of the transaction", oncetest.Twice, func(p *oncetest.Process, effects, marks *table) handler {
		return func(ctx context.Context, o order) error {
			return transaction(ctx, p, marks, o.ID, func(*[]func()) error {
				return write(ctx, p, effects, row{order: o.ID})
			})
		}
	}},
	{"an error of the commit ignored", oncetest.Lost, func(p *oncetest.Process, effects, marks *table) handler {
		return func(ctx context.Context, o order) error {
			_ = transaction(ctx, p, marks, o.ID, func(tx *[]func()) error {
				return p.Step(ctx, "insert", func() error {
					*tx = append(*tx, func() { _ = effects.insert(row{order: o.ID}) })
					return nil
				})
			})
			return nil
		}
	}},
	{"sleep in place of a backoff", oncetest.NoReturn, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			for wait := time.Second; ; wait *= 2 {
				if err := charge(ctx, p, effects, o.ID, o); err == nil {
					return nil
				}
				time.Sleep(wait)
			}
		}
	}},
	{"a memory of the last two", oncetest.Twice, func(p *oncetest.Process, effects, _ *table) handler {
		var mu sync.Mutex
		var last []string
		return func(ctx context.Context, o order) error {
			mu.Lock()
			defer mu.Unlock()
			if slices.Contains(last, o.ID) {
				return nil
			}
			if err := write(ctx, p, effects, row{order: o.ID}); err != nil {
				return err
			}
			last = append(last, o.ID)
			last = last[max(0, len(last)-2):]
			return nil
		}
	}},
	{"giving up at once", oncetest.GivenUp, func(*oncetest.Process, *table, *table) handler {
		return func(context.Context, order) error { return oncepipe.Permanent(errors.New("no")) }
	}},
	{"never a success", oncetest.Unsettled, func(*oncetest.Process, *table, *table) handler {
		return func(context.Context, order) error { return errors.New("no") }
	}},
	{"a panic", oncetest.Panicked, func(*oncetest.Process, *table, *table) handler {
		return func(context.Context, order) error { panic("no") }
	}},
	{"an end of its goroutine", oncetest.Panicked, func(p *oncetest.Process, _, _ *table) handler {
		return func(context.Context, order) error { (&testing.T{}).SkipNow(); return nil }
	}},
	{"a wait for ever", oncetest.NoReturn, func(*oncetest.Process, *table, *table) handler {
		return func(context.Context, order) error { <-make(chan int); return nil }
	}},
	{"a sleep under a lock", oncetest.Stuck, func(p *oncetest.Process, effects, _ *table) handler {
		var mu sync.Mutex
		return func(ctx context.Context, o order) error {
			mu.Lock()
			defer mu.Unlock()
			err := p.Step(ctx, "insert", func() error { return effects.insertUnique(row{key: o.ID, order: o.ID}) })
			if err == nil || errors.Is(err, errExists) {
				time.Sleep(time.Second)
				return nil
			}
			return err
		}
	}},
	{"a lock that a dead process keeps", oncetest.Unsettled, func(p *oncetest.Process, effects, marks *table) handler {
		return func(ctx context.Context, o order) error {
			if err := p.Step(ctx, "lock", func() error { return marks.insertUnique(row{key: o.ID}) }); err != nil {
				return err
			}
			if effects.has(o.ID) {
				return nil
			}
			if err := write(ctx, p, effects, row{key: o.ID, order: o.ID}); err != nil {
				return err
			}
			marks.mu.Lock()
			defer marks.mu.Unlock()
			marks.rows = slices.DeleteFunc(marks.rows, func(r row) bool { return r.key == o.ID })
			return nil
		}
	}},
	{"a lock that is not given back after an error", oncetest.Stuck, func(p *oncetest.Process, effects, _ *table) handler {
		var mu sync.Mutex
		return func(ctx context.Context, o order) error {
			mu.Lock()
			if err := charge(ctx, p, effects, o.ID, o); err != nil {
				return err
			}
			mu.Unlock()
			return nil
		}
	}},
	{"two at once", oncetest.Together, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			defer p.Enter(ctx)()
			return charge(ctx, p, effects, o.ID, o)
		}
	}},
	{"an answer of its own for each run", oncetest.Differs, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			if err := charge(ctx, p, effects, o.ID, o); err != nil {
				return err
			}
			p.Reply(ctx, rand.Text())
			return nil
		}
	}},
}

// charge asks a provider that takes keys.
func charge(ctx context.Context, p *oncetest.Process, provider *table, key string, o order) error {
	err := p.Step(ctx, "charge", func() error { return provider.insertUnique(row{key, o.ID}) })
	if errors.Is(err, errExists) {
		return nil
	}
	return err
}

// transaction marks a key and does what f adds to it, both or neither.
func transaction(ctx context.Context, p *oncetest.Process, marks *table, key string, f func(tx *[]func()) error) error {
	if marks.has(key) {
		return nil
	}
	var tx []func()
	if err := f(&tx); err != nil {
		return err
	}
	err := p.Step(ctx, "commit", func() error {
		if err := marks.insertUnique(row{key: key}); err != nil {
			return err
		}
		for _, do := range tx {
			do()
		}
		return nil
	})
	if errors.Is(err, errExists) {
		return nil
	}
	return err
}

var goodHandlers = []struct {
	name  string
	share int
	start func(p *oncetest.Process, effects, marks *table) handler
}{
	{"a unique constraint", 1, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			err := p.Step(ctx, "insert", func() error { return effects.insertUnique(row{o.ID, o.ID}) })
			if errors.Is(err, errExists) {
				return nil
			}
			return err
		}
	}},
	{"a mark in the transaction", 1, func(p *oncetest.Process, effects, marks *table) handler {
		return func(ctx context.Context, o order) error {
			return transaction(ctx, p, marks, o.ID, func(tx *[]func()) error {
				return p.Step(ctx, "insert", func() error {
					*tx = append(*tx, func() { _ = effects.insert(row{order: o.ID}) })
					return nil
				})
			})
		}
	}},
	{"a provider that takes keys", 1, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error { return charge(ctx, p, effects, o.ID, o) }
	}},
	{"the same under a lock of the process", 10, func(p *oncetest.Process, effects, _ *table) handler {
		var mu sync.Mutex
		return func(ctx context.Context, o order) error {
			mu.Lock()
			defer mu.Unlock()
			return charge(ctx, p, effects, o.ID, o)
		}
	}},
	{"a wait that heeds the context", 1, func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			for {
				if err := charge(ctx, p, effects, o.ID, o); err == nil || ctx.Err() != nil {
					return err
				}
				select {
				case <-time.After(15 * time.Second):
				case <-ctx.Done():
				}
			}
		}
	}},
}

// onceService is a handler behind Once with a store in memory.
func onceService(cfg oncepipe.OnceConfig[order, string], key func(ctx context.Context, o order) string) oncetest.Service[order] {
	return oncetest.Service[order]{
		Message: newOrder,
		New: func(*oncetest.World) oncetest.Program[order] {
			effects, st := &table{}, memstore.New(memstore.Config{})
			return oncetest.Program[order]{
				Effects: effects.of,
				Start: func(p *oncetest.Process) func(context.Context, order) error {
					once := oncepipe.OnceWith(p.Store(st), "charge", cfg, func(ctx context.Context, o order) (string, error) {
						defer p.Enter(ctx)()
						return "receipt of " + o.ID, charge(ctx, p, effects, key(ctx, o), o)
					})
					return func(ctx context.Context, o order) error {
						receipt, err := once(oncepipe.WithKey(ctx, o.ID), o)
						if err == nil {
							p.Reply(ctx, receipt)
						}
						return err
					}
				},
			}
		},
	}
}

func randomKey(context.Context, order) string { return rand.Text() }

func tokenKey(ctx context.Context, _ order) string {
	info, _ := oncepipe.InfoFrom(ctx)
	return info.Token()
}

func TestHandler(t *testing.T) {
	for _, bad := range badHandlers {
		t.Run("bad/"+bad.name, func(t *testing.T) { mustBlame(t, bad.blame, service(bad.start)) })
	}
	t.Run("bad/Once, and a provider without keys", func(t *testing.T) {
		mustBlame(t, oncetest.Twice, onceService(oncepipe.OnceConfig[order, string]{}, randomKey))
	})
	for _, good := range goodHandlers {
		t.Run("good/"+good.name, func(t *testing.T) { clean(t, good.share, service(good.start)) })
	}
	t.Run("good/Once, and a provider that takes keys", func(t *testing.T) {
		clean(t, 1, onceService(oncepipe.OnceConfig[order, string]{}, tokenKey))
	})
	t.Run("good/Once at most once", func(t *testing.T) {
		clean(t, 1, onceService(oncepipe.OnceConfig[order, string]{AtMostOnce: true}, randomKey))
	})
}

// within2s is how many schedules there is time for within the two seconds in which
// a fault is to be found, without -race, on a machine with nothing else to do: the
// slowest, those in a pipeline and those stuck at a lock, take 30 ms. Time itself
// would be that of a busy machine.
const within2s = 50

func mustBlame(t *testing.T, want oncetest.Blame, s oncetest.Service[order]) {
	var tried atomic.Int64 // also those that look for a simpler schedule
	open := s.New
	s.New = func(w *oncetest.World) oncetest.Program[order] {
		tried.Add(1)
		return open(w)
	}
	start := time.Now()
	err := oncetest.CheckHandler(s)
	took := time.Since(start)
	f, ok := errors.AsType[*oncetest.Failure](err)
	if !ok {
		t.Fatalf("was not blamed: %v", err)
	}
	t.Logf("schedule %d of %d, %v, %s\n%v", f.Tried, tried.Load(), took.Round(time.Millisecond), f.Replay, f)
	if f.Blame != want {
		t.Errorf("was blamed for %q, want %q", f.Blame, want)
	}
	if len(f.Story) > 8 {
		t.Errorf("the story has %d steps", len(f.Story))
	}
	if n := tried.Load(); n > within2s {
		t.Errorf("took %d schedules, and %v", n, took)
	}
	s.Replay = f.Replay
	again, ok := errors.AsType[*oncetest.Failure](oncetest.CheckHandler(s))
	if !ok || again.Blame != want || !slices.Equal(again.Story, f.Story) {
		t.Errorf("another story when replayed: %v", again)
	}
}

// clean tries 10 000 schedules, or a share of them for what takes long.
func clean(t *testing.T, share int, s oncetest.Service[order]) {
	s.Schedules = 10_000
	if raceEnabled {
		s.Schedules = 1_000
	} else if testing.Short() {
		s.Schedules = 500
	}
	s.Schedules /= share
	start := time.Now()
	oncetest.Handler(t, s)
	t.Logf("%.0f schedules a second", float64(s.Schedules)/time.Since(start).Seconds())
}

// A run that is cut off notices at its next step, however many contexts lie between
// that one and the handler's.
func TestHandler_CutReachesDerivedContexts(t *testing.T) {
	s := service(func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			for range 1000 {
				next, cancel := context.WithCancel(ctx)
				defer cancel()
				ctx = next
			}
			if err := p.Step(ctx, "insert", func() error { return effects.insert(row{order: o.ID}) }); err != nil {
				return oncepipe.Permanent(err)
			}
			return nil
		}
	})
	s.Replay, s.NoDeadLetters = "1:cut-before@1", true
	for range 20 {
		if err := oncetest.CheckHandler(s); err != nil {
			t.Fatal(err) // twice: the cut came too late for the step
		}
	}
}

// A program that panics outside of its handler is an error, in real time too.
func TestHandler_PanicInRealTime(t *testing.T) {
	s := service(func(*oncetest.Process, *table, *table) handler { panic("no database") })
	s.RealTime = true
	if err := oncetest.CheckHandler(s); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("got %v", err)
	}
}

// What Effects says is waited for where nothing else could come.
func TestHandler_SlowEffects(t *testing.T) {
	slow := func(s oncetest.Service[order]) oncetest.Service[order] {
		open := s.New
		s.New = func(w *oncetest.World) oncetest.Program[order] {
			p := open(w)
			effects := p.Effects
			p.Effects = func(o order) int { time.Sleep(time.Millisecond); return effects(o) }
			return p
		}
		s.Schedules = 200
		return s
	}
	mustBlame(t, oncetest.Twice, slow(service(badHandlers[0].start)))
	if err := oncetest.CheckHandler(slow(service(goodHandlers[0].start))); err != nil {
		t.Error(err)
	}
	s := service(goodHandlers[0].start)
	open := s.New
	s.New = func(w *oncetest.World) oncetest.Program[order] {
		p := open(w)
		p.Effects = func(order) int { time.Sleep(time.Hour); return 1 }
		return p
	}
	if err := oncetest.CheckHandler(s); err == nil {
		t.Error("no error where Effects does not answer")
	}
	s.New = func(w *oncetest.World) oncetest.Program[order] {
		p := open(w)
		p.Effects = func(order) int { panic("no") }
		return p
	}
	if err := oncetest.CheckHandler(s); err == nil {
		t.Error("no error where Effects panics")
	}
}

// A goroutine that the program leaves behind is not kept at its step for ever.
func TestHandler_LeavesNoGoroutines(t *testing.T) {
	var begun, ended atomic.Int64
	s := service(func(p *oncetest.Process, effects, _ *table) handler {
		return func(ctx context.Context, o order) error {
			if err := charge(ctx, p, effects, o.ID, o); err != nil {
				return err
			}
			begun.Add(1)
			go func() {
				defer ended.Add(1)
				_ = p.Step(context.WithoutCancel(ctx), "audit", func() error { return nil })
			}()
			return nil
		}
	})
	if err := oncetest.CheckHandler(s); err != nil {
		t.Fatal(err)
	}
	if begun.Load() == 0 || begun.Load() != ended.Load() {
		t.Errorf("%d goroutines begun, %d ended", begun.Load(), ended.Load())
	}
}

func TestHandler_RefusesNonsense(t *testing.T) {
	good := service(goodHandlers[0].start)
	for name, change := range map[string]func(s *oncetest.Service[order]){
		"no Message":         func(s *oncetest.Service[order]) { s.Message = nil },
		"no New":             func(s *oncetest.Service[order]) { s.New = nil },
		"negative Schedules": func(s *oncetest.Service[order]) { s.Schedules = -1 },
		"negative Messages":  func(s *oncetest.Service[order]) { s.Messages = -1 },
		"unknown fault":      func(s *oncetest.Service[order]) { s.Faults = 1 << 31 },
		"unknown replay":     func(s *oncetest.Service[order]) { s.Replay = "1:nothing" },
		"no Start": func(s *oncetest.Service[order]) {
			s.New = func(*oncetest.World) oncetest.Program[order] { return oncetest.Program[order]{} }
		},
		"a panic in Cleanup": func(s *oncetest.Service[order]) {
			s.New = func(*oncetest.World) oncetest.Program[order] {
				return oncetest.Program[order]{
					Effects: func(order) int { return 1 },
					Start: func(p *oncetest.Process) func(context.Context, order) error {
						p.Cleanup(func() { panic("no") })
						return func(context.Context, order) error { return nil }
					},
				}
			}
		},
	} {
		s := good
		change(&s)
		err := oncetest.CheckHandler(s)
		if _, blamed := errors.AsType[*oncetest.Failure](err); err == nil || blamed {
			t.Errorf("%s: %v", name, err)
		}
	}
}
