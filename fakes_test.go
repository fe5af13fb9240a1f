package oncepipe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/oncepipe/oncepipe"
)

// brokerMsg is what the fake broker delivers.
type brokerMsg struct {
	ID   int
	Key  string
	Body string
}

// broker is a source that counts settlements and, where redeliver is set,
// delivers again what was returned, not before its delay.
type broker struct {
	redeliver bool
	hold      time.Duration

	mu       sync.Mutex
	ready    []brokerMsg
	ids      int
	open     int // sent and not settled for good
	closed   bool
	wake     chan struct{}
	delivery int
	settles  map[int]int // by delivery
	got      map[string][]oncepipe.Settlement
	badAcks  int // settlements to refuse
	deadCtx  int // settlements on a context that had ended
}

func newBroker() *broker {
	return &broker{wake: make(chan struct{}, 1), settles: map[int]int{}, got: map[string][]oncepipe.Settlement{}}
}

func (b *broker) HoldLimit() time.Duration { return b.hold }

func (b *broker) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *broker) send(keys ...string) {
	for _, k := range keys {
		b.sendMsg(brokerMsg{Key: k})
	}
}

func (b *broker) sendMsg(m brokerMsg) {
	b.mu.Lock()
	b.ids++
	m.ID = b.ids
	b.open++
	b.ready = append(b.ready, m)
	b.mu.Unlock()
	b.nudge()
}

// end lets Receive return io.EOF when everything is settled.
func (b *broker) end() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.nudge()
}

func (b *broker) Receive(ctx context.Context) (oncepipe.Delivery[brokerMsg], error) {
	for {
		b.mu.Lock()
		if len(b.ready) > 0 {
			m := b.ready[0]
			b.ready = b.ready[1:]
			b.delivery++
			id := b.delivery
			b.mu.Unlock()
			return oncepipe.Delivery[brokerMsg]{Value: m, Key: m.Key, Settle: func(ctx context.Context, s oncepipe.Settlement) error {
				return b.settle(ctx, id, m, s)
			}}, nil
		}
		over := b.closed && (!b.redeliver || b.open == 0)
		b.mu.Unlock()
		if over {
			return oncepipe.Delivery[brokerMsg]{}, io.EOF
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return oncepipe.Delivery[brokerMsg]{}, ctx.Err()
		}
	}
}

func (b *broker) settle(ctx context.Context, id int, m brokerMsg, s oncepipe.Settlement) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		b.deadCtx++
	}
	if b.badAcks > 0 {
		b.badAcks--
		return errors.New("broker is away")
	}
	b.settles[id]++
	b.got[m.Key] = append(b.got[m.Key], s)
	if s.Outcome == oncepipe.Returned && b.redeliver {
		time.AfterFunc(s.Delay, func() {
			b.mu.Lock()
			b.ready = append(b.ready, m)
			b.mu.Unlock()
			b.nudge()
		})
		return nil
	}
	b.open--
	b.nudge()
	return nil
}

// outcomes are those of a key, in the order in which they came.
func (b *broker) outcomes(key string) []oncepipe.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []oncepipe.Outcome
	for _, s := range b.got[key] {
		out = append(out, s.Outcome)
	}
	return out
}

func (b *broker) count(o oncepipe.Outcome) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.got {
		for _, s := range list {
			if s.Outcome == o {
				n++
			}
		}
	}
	return n
}

// brokerRig is a pipeline on a fake broker with everything that can be seen of
// it.
type brokerRig struct {
	t      *testing.T
	p      *oncepipe.Pipeline
	b      *broker
	in     oncepipe.Stream[brokerMsg]
	log    *brokerLog
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan error

	mu      sync.Mutex
	letters []oncepipe.DeadLetter
	events  []oncepipe.Event
	runs    map[string]int
	active  map[string]int
	most    map[string]int // at the same time
	order   []string
}

func newRig(t *testing.T, adjust ...func(*oncepipe.Config)) *brokerRig {
	return newRigOn(t, newBroker(), adjust...)
}

func newRigOn(t *testing.T, b *broker, adjust ...func(*oncepipe.Config)) *brokerRig {
	r := &brokerRig{
		t: t, b: b, log: &brokerLog{}, ended: make(chan error, 1),
		runs: map[string]int{}, active: map[string]int{}, most: map[string]int{},
	}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	cfg := oncepipe.Config{
		DrainTimeout: 10 * time.Second,
		DeadLetters: func(_ context.Context, l oncepipe.DeadLetter) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.letters = append(r.letters, l)
			return nil
		},
		Observers: []oncepipe.Observer{func(e oncepipe.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		}},
		Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	for _, a := range adjust {
		a(&cfg)
	}
	r.p = oncepipe.New("rig", cfg)
	r.in = oncepipe.From(r.p, "broker", r.b)
	return r
}

func brokerKey(m brokerMsg) string { return m.Key }

func (r *brokerRig) dedup(opts ...oncepipe.Option) oncepipe.Stream[brokerMsg] {
	return oncepipe.Dedup(r.in, "dedup", brokerKey, opts...)
}

// handler counts runs by key and calls fn with the number of this one.
func (r *brokerRig) handler(fn func(ctx context.Context, m brokerMsg, run int) error) func(context.Context, brokerMsg) error {
	return func(ctx context.Context, m brokerMsg) error {
		r.mu.Lock()
		r.runs[m.Key]++
		run := r.runs[m.Key]
		r.active[m.Key]++
		r.most[m.Key] = max(r.most[m.Key], r.active[m.Key])
		r.order = append(r.order, m.Key)
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			r.active[m.Key]--
			r.mu.Unlock()
		}()
		return fn(ctx, m, run)
	}
}

func (r *brokerRig) start() {
	go func() { r.ended <- r.p.Run(r.ctx) }()
}

// finish waits for Run, and checks that nothing is lost and nothing is settled
// twice.
func (r *brokerRig) finish() oncepipe.Stats {
	r.t.Helper()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
	r.cancel()
	return r.settled()
}

func (r *brokerRig) settled() oncepipe.Stats {
	r.t.Helper()
	st := r.p.Stats()
	if !st.Conserved() {
		r.t.Errorf("not conserved: %+v", st)
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for id := 1; id <= r.b.delivery; id++ {
		if n := r.b.settles[id]; n != 1 {
			r.t.Errorf("delivery %d was settled %d times", id, n)
		}
	}
	for key, n := range r.active {
		if n != 0 {
			r.t.Errorf("%d handlers of %q still run", n, key)
		}
	}
	return st
}

// run sends the keys and runs the pipeline to the end.
func (r *brokerRig) run(keys ...string) oncepipe.Stats {
	r.t.Helper()
	r.b.send(keys...)
	r.b.end()
	r.start()
	return r.finish()
}

func (r *brokerRig) runsOf(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[key]
}

func (r *brokerRig) wantRuns(key string, n int) {
	r.t.Helper()
	if got := r.runsOf(key); got != n {
		r.t.Errorf("handler ran %d times for %q, want %d", got, key, n)
	}
}

// wantOutcomes compares the settlements of a key, in order.
func (r *brokerRig) wantOutcomes(key string, want ...oncepipe.Outcome) {
	r.t.Helper()
	got := r.b.outcomes(key)
	same := len(got) == len(want)
	for i := range want {
		same = same && got[i] == want[i]
	}
	if !same {
		r.t.Errorf("%q was settled as %v, want %v", key, got, want)
	}
}

// wantAlone says that no key was ever run twice at the same time.
func (r *brokerRig) wantAlone() {
	r.t.Helper()
	for key, n := range r.most {
		if n > 1 {
			r.t.Errorf("%q ran %d times at once", key, n)
		}
	}
}

func (r *brokerRig) letter(i int) oncepipe.DeadLetter {
	r.t.Helper()
	if i >= len(r.letters) {
		r.t.Fatalf("%d dead letters, want %d at least", len(r.letters), i+1)
	}
	return r.letters[i]
}

// brokerRetry is a policy with a constant wait.
func brokerRetry(wait time.Duration) oncepipe.RetryPolicy {
	return oncepipe.RetryPolicy{Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(wait) }}
}

var errBroken = errors.New("broken")

// brokerLog keeps what is logged.
type brokerLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *brokerLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *brokerLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
