package oncepipe

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a Pipeline. The zero value is usable.
type Config struct {
	// DrainTimeout is how long handlers may go on after Run's context has ended,
	// before theirs ends too. 0: 30 s. Negative: no time at all.
	DrainTimeout time.Duration

	// AbandonAfter is how long Run then waits for handlers that ignore their
	// context, before it names them in an AbandonedError and returns. 0: 1 s.
	AbandonAfter time.Duration

	// SettleTimeout limits one call of a delivery's Settle and of DeadLetters. 0: 10 s.
	SettleTimeout time.Duration

	// DeadLetters keeps an item that was given up. The delivery is settled as Dead
	// only after it returned nil; on an error the item is returned to its source,
	// with a delay of 30 s. Without it, items that are given up are logged and
	// returned, with that delay. The context is
	// not ended by the shutdown. It is called from several goroutines.
	DeadLetters func(ctx context.Context, l DeadLetter) error

	// MaxReturned is how many items that their source can't take back are kept
	// for Run's error; with the last the pipeline begins to drain. 0: 10 000.
	MaxReturned int

	// Stores are the stores that the pipeline cares for, beside those that WithStore
	// names: all claims that Once and Dedup hold on one are renewed by one request,
	// it is pruned, and its Retention has to be longer than any source's
	// MaxRedelivery, or Run refuses. Once on a store that isn't among them
	// renews each of its claims by itself.
	Stores []Store

	// PruneEvery is how often each store is pruned, a little later each time, in
	// portions that leave it at least half of the time to others. 0:
	// DefaultPruneEvery. Negative: never, for somebody else does.
	PruneEvery time.Duration

	// PruneGrace is how long after the beginning of Run the first pruning waits:
	// what was on its way while nothing ran has to meet its records.
	// 0: DefaultPruneGrace. Negative: no time.
	PruneGrace time.Duration

	// AllowShortRetention makes Run log a warning, where a store forgets keys that
	// a source may deliver again, and run all the same.
	AllowShortRetention bool

	// Observers hear of what happens, each of everything.
	Observers []Observer

	// Logger gets what a person should see. nil: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.AbandonAfter <= 0 {
		c.AbandonAfter = time.Second
	}
	if c.SettleTimeout <= 0 {
		c.SettleTimeout = 10 * time.Second
	}
	if c.MaxReturned <= 0 {
		c.MaxReturned = 10_000
	}
	if c.PruneEvery == 0 {
		c.PruneEvery = DefaultPruneEvery
	}
	if c.PruneGrace == 0 {
		c.PruneGrace = DefaultPruneGrace
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Pipeline is a graph of sources, operators and stages. It is built by one
// goroutine and run once.
type Pipeline struct {
	name string
	cfg  Config
	log  *slog.Logger
	seed maphash.Seed

	nodes    []node
	ports    []interface{ dangling() error }
	counters []interface{ counted() SourceStats }
	stores   []*storeCare
	sources  int
	errs     []error // of wiring

	state      atomic.Int32
	epoch      time.Time
	receiving  context.Context // of sources: ends when the drain begins
	endReceive context.CancelFunc
	handlers   context.Context // of handlers: ends with a hard stop
	settleCtx  context.Context // of acks and dead letters: ends with Run
	draining   chan struct{}
	drained    atomic.Bool // draining is closed, and
	hard       atomic.Bool // handlers has ended, for those who look at it often
	acks       *acker
	returned   returnedList

	live  atomic.Int64  // goroutines, and claimed items times liveItem
	idle  chan struct{} // closed when there is neither
	still chan struct{} // a token each time that no goroutine is left

	stopOnce sync.Once
	stopErr  error
	endOnce  sync.Once
	stopping chan struct{}
}

// node is a source, a stage or a Dedup.
type node interface {
	label() (name, kind string)
	check() error
	open()                       // makes what others may use, before any node starts
	start()                      // spawns
	drain()                      // the drain has begun
	halt()                       // wakes what waits, after a hard stop
	abandon() []AbandonedHandler // what still runs after a hard stop
	sweep()                      // settles what is left, when nothing runs any more
}

const (
	stateBuilding int32 = iota
	stateOpening
	stateRunning
	stateEnded
)

// New returns an empty pipeline. Its name is part of the namespace of its keys
// in a store; see Namespace.
func New(name string, cfg Config) *Pipeline {
	cfg = cfg.withDefaults()
	p := &Pipeline{
		name: name, cfg: cfg, log: cfg.Logger.With("pipeline", name),
		seed:     maphash.MakeSeed(),
		draining: make(chan struct{}), idle: make(chan struct{}), still: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
	p.acks = newAcker(p)
	p.returned.p = p
	for _, st := range cfg.Stores {
		p.care(st)
	}
	return p
}

func (p *Pipeline) add(n node) { p.nodes = append(p.nodes, n) }

// wrong notes a fault of the graph, for Run to report.
func (p *Pipeline) wrong(err error) { p.errs = append(p.errs, err) }

// check returns all that is wrong with the graph.
func (p *Pipeline) check() error {
	errs := p.errs
	if p.name == "" {
		errs = append(errs, errors.New("the pipeline has no name"))
	}
	if p.sources == 0 {
		errs = append(errs, errors.New("there is no source"))
	}
	names := map[string]bool{}
	for _, n := range p.nodes {
		name, kind := n.label()
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("a %s has no name", kind))
		case names[name]:
			errs = append(errs, fmt.Errorf("two stages or sources are called %q", name))
		}
		names[name] = true
		if err := n.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", kind, name, err))
		}
	}
	for _, o := range p.ports {
		if err := o.dangling(); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, p.checkRetention()...)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("oncepipe: pipeline %q can't run: %w", p.name, err)
	}
	return nil
}

// Run checks the graph, runs it, and returns when the sources are at their end
// and everything is settled.
//
// When ctx ends the pipeline drains: sources stop, what is in buffers is worked
// off, what waits for a retry is returned to its source. After DrainTimeout the
// handlers' contexts end too, and what is left is returned.
//
// The error is nil when every delivery was settled with its source, an ended
// ctx included. Otherwise it joins what there is of: the faults of the graph
// (nothing ran then), a source's error, a *ReturnedError, an *AbandonedError,
// and settlements that a source did not take. A pipeline runs once.
func (p *Pipeline) Run(ctx context.Context) error {
	if err := p.check(); err != nil {
		return err
	}
	if !p.state.CompareAndSwap(stateBuilding, stateOpening) {
		return fmt.Errorf("oncepipe: pipeline %q ran already", p.name)
	}
	base := context.WithoutCancel(ctx)
	var hardStop context.CancelCauseFunc
	p.receiving, p.endReceive = context.WithCancel(ctx)
	p.handlers, hardStop = context.WithCancelCause(base)
	settleCtx, endSettle := context.WithCancel(base)
	p.settleCtx = settleCtx
	defer endSettle()
	defer p.endReceive()
	defer hardStop(context.Canceled)

	p.epoch = time.Now()
	endStores := p.openStores(base)
	for _, n := range p.nodes {
		n.open()
	}
	go p.acks.run()
	p.live.Store(1) // Run's own share, so that idle is not closed before all have started
	p.state.Store(stateRunning)
	for _, n := range p.nodes {
		n.start()
	}
	p.left(p.live.Add(-1))

	select {
	case <-p.idle:
	case <-ctx.Done():
		p.drain()
	case <-p.stopping:
		p.drain()
	}
	abandoned := p.finish(hardStop)
	for _, n := range slices.Backward(p.nodes) { // the last one first, as it tells those before it
		if d, ok := n.(interface{ finish() []AbandonedHandler }); ok {
			abandoned = append(abandoned, d.finish()...)
		}
	}
	abandoned = append(abandoned, endStores()...)
	p.state.Store(stateEnded)
	close(p.acks.closing)
	<-p.acks.ended
	return p.result(abandoned)
}

// drain ends the sources and gives back what waits.
func (p *Pipeline) drain() {
	p.event(Event{Kind: EventDraining})
	p.drained.Store(true)
	close(p.draining)
	p.endReceive()
	for _, n := range p.nodes {
		n.drain()
	}
}

func (p *Pipeline) isDraining() bool { return p.drained.Load() }

// finish waits for the end, first gently, then for a limited time.
func (p *Pipeline) finish(hardStop context.CancelCauseFunc) []AbandonedHandler {
	if p.cfg.DrainTimeout > 0 && p.waitIdle(p.cfg.DrainTimeout) {
		return nil
	}
	p.hard.Store(true)
	hardStop(ErrDrainTimeout)
	for _, n := range p.nodes {
		n.halt()
	}
	var abandoned []AbandonedHandler
	if !p.waitStill(p.cfg.AbandonAfter) {
		for _, n := range p.nodes {
			abandoned = append(abandoned, n.abandon()...)
		}
	}
	for _, n := range p.nodes {
		n.sweep()
	}
	return abandoned
}

func (p *Pipeline) waitIdle(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.idle:
		return true
	case <-t.C:
		return false
	}
}

// waitStill waits for the goroutines alone: items that are claimed may be in
// buffers that none of them reads any more.
func (p *Pipeline) waitStill(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for p.live.Load()%liveItem != 0 {
		select {
		case <-p.still:
		case <-t.C:
			return false
		}
	}
	return true
}

func (p *Pipeline) result(abandoned []AbandonedHandler) error {
	errs := []error{p.stopErr}
	if len(abandoned) > 0 {
		errs = append(errs, &AbandonedError{Handlers: abandoned})
	}
	if err := p.returned.err(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, p.acks.lost...)...)
}

// stop makes the pipeline drain because of err.
func (p *Pipeline) stop(err error) {
	p.stopOnce.Do(func() { p.stopErr = err })
	p.end()
}

// end makes the pipeline drain.
func (p *Pipeline) end() { p.endOnce.Do(func() { close(p.stopping) }) }

// spawn runs fn in a goroutine that Run waits for.
func (p *Pipeline) spawn(fn func()) {
	p.live.Add(1)
	go func() {
		defer func() { p.left(p.live.Add(-1)) }()
		fn()
	}()
}

// liveItem is what a claimed item, which has to be recorded and settled before
// Run may end, counts among the goroutines.
const liveItem = 1 << 32

func (p *Pipeline) holdItem()  { p.live.Add(liveItem) }
func (p *Pipeline) letItemGo() { p.left(p.live.Add(-liveItem)) }

// left is told how many are left when there is one less.
func (p *Pipeline) left(n int64) {
	if n%liveItem == 0 {
		token(p.still)
	}
	if n == 0 {
		close(p.idle)
	}
}

// stopped is closed by a hard stop.
func (p *Pipeline) stopped() <-chan struct{} { return p.handlers.Done() }

func (p *Pipeline) now() time.Duration { return time.Since(p.epoch) }

// Stats returns what the pipeline has done and is doing. It may be called at any
// time, from anywhere, and holds nothing up.
func (p *Pipeline) Stats() Stats {
	st := Stats{Pipeline: p.name}
	for _, c := range p.counters {
		s := c.counted()
		st.Done += s.Done
		st.Duplicate += s.Duplicate
		st.Filtered += s.Filtered
		st.Shed += s.Shed
		st.Dead += s.Dead
		st.Returned += s.Returned
		st.Admitted += s.Admitted
		st.Sources = append(st.Sources, s)
	}
	st.InFlight = st.Admitted - st.Done - st.Duplicate - st.Filtered - st.Shed - st.Dead - st.Returned
	if p.state.Load() < stateRunning {
		return st
	}
	for _, n := range p.nodes {
		switch n := n.(type) {
		case interface{ stats() StageStats }:
			st.Stages = append(st.Stages, n.stats())
		case interface{ stats() DedupStats }:
			st.Dedups = append(st.Dedups, n.stats())
		}
	}
	for _, c := range p.stores {
		st.Stores = append(st.Stores, c.stats())
	}
	return st
}

// NodeInfo describes a source, stage or Dedup of a pipeline.
type NodeInfo struct {
	Name string
	Kind string   // source, dedup, stage, trystage, sink, batchstage, batchsink or transduce
	From []string // what it reads from
}

// Describe returns the graph, in the order in which it was built.
func (p *Pipeline) Describe() []NodeInfo {
	var out []NodeInfo
	for _, n := range p.nodes {
		name, kind := n.label()
		info := NodeInfo{Name: name, Kind: kind}
		if r, ok := n.(interface{ readsFrom() []string }); ok {
			info.From = r.readsFrom()
		}
		out = append(out, info)
	}
	return out
}

func (p *Pipeline) find(stage string) (any, error) {
	for _, n := range p.nodes {
		if name, _ := n.label(); name == stage {
			return n, nil
		}
	}
	return nil, fmt.Errorf("oncepipe: no stage %q in pipeline %q", stage, p.name)
}

// Pause makes a stage stop taking up items; what runs in it goes on. What is in
// it stays, and the stages before it fill up. When the pipeline drains while it
// is paused, its items are returned to their source. It may be called before Run.
func (p *Pipeline) Pause(stage string) error { return p.pause(stage, true) }

// Resume ends a Pause.
func (p *Pipeline) Resume(stage string) error { return p.pause(stage, false) }

func (p *Pipeline) pause(stage string, on bool) error {
	n, err := p.find(stage)
	if err != nil {
		return err
	}
	s, ok := n.(interface{ pause(bool) })
	if !ok {
		return fmt.Errorf("oncepipe: %q is not a stage", stage)
	}
	s.pause(on)
	kind := EventResumed
	if on {
		kind = EventPaused
	}
	p.event(Event{Kind: kind, Stage: stage})
	return nil
}

// Inject hands a value, such as that of a dead letter, to the stage named, as a
// new delivery with this key: it passes no Dedup on its way, and Run's error
// lists it if it can't be finished. Inject never blocks. The error is ErrFull
// when the stage has no free slot, ErrNotRunning before Run and once the pipeline drains
// or the stage has ended, or says that the value is of another type than the stage's.
func (p *Pipeline) Inject(stage, key string, value any) error {
	n, err := p.find(stage)
	if err != nil {
		return err
	}
	s, ok := n.(interface{ inject(any, string) error })
	if !ok {
		return fmt.Errorf("oncepipe: %q is not a stage", stage)
	}
	if p.state.Load() != stateRunning {
		return fmt.Errorf("inject into stage %q: %w", stage, ErrNotRunning)
	}
	if err := s.inject(value, key); err != nil {
		return fmt.Errorf("inject into stage %q: %w", stage, err)
	}
	return nil
}
