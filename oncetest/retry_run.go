package oncetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
)

// retryRun is one schedule in a pipeline, and what was seen of it.
type retryRun struct {
	laws     RetryLaws
	schedule retrySchedule

	refused error // the pipeline doesn't run at all
	stuck   bool  // it never ended
	faults  map[retryLaw]retryFault

	policy  oncepipe.RetryPolicy // as the stage has it, but for Backoff
	slots   int
	ownWait bool // the policy has a backoff that can be listened to
	epoch   time.Time
	arrived int   // items
	err     error // of Run
	stats   oncepipe.Stats
	pipe    *oncepipe.Pipeline

	// deciding is full while the stage decides what becomes of a failed item: of
	// one at a time, so that it is known for which item a backoff is asked.
	deciding chan struct{}

	mu        sync.Mutex
	log       []retryEvent
	failed    int // the item that is decided on; -1: none
	runs      []int
	taken     []oncepipe.Settlement // what a source that takes back was told, by item
	told      []int
	instances []*listener
	bounded   string // what was found to be beyond its bounds in Stats

	drained time.Duration // when the drain began; 0: never
}

// retryEvent is something that happened to an item.
type retryEvent struct {
	at      time.Duration
	item    int // -1: the pipeline
	kind    retryKind
	attempt int
	does    retryOutcome  // ended
	delay   time.Duration // asked, parked, settled, and ended with a wait
	own     *listener     // asked
	reason  oncepipe.Reason
	outcome oncepipe.Outcome
	err     error
}

type retryKind uint8

const (
	arrived retryKind = iota
	began
	ended
	counts // as a failed attempt
	asked
	parked
	snoozed
	buried
	settled
	draining
)

// horizon is when a run is cancelled in any case.
const horizon = 2 * 365 * 24 * time.Hour

// run runs a schedule and checks all laws.
func (l RetryLaws) run(s retrySchedule) *retryRun {
	r := &retryRun{
		laws: l, schedule: s, faults: map[retryLaw]retryFault{},
		runs: make([]int, len(s.items)), told: make([]int, len(s.items)),
		taken: make([]oncepipe.Settlement, len(s.items)),
	}
	if err := inBubble(r.play); err != nil {
		r.stuck = true
		r.fault(lawNotLost, len(r.log), "Run doesn't end, or leaves goroutines behind: %v", err)
		return r
	}
	if r.refused == nil {
		r.judge()
	}
	return r
}

// play runs the pipeline, in a bubble.
func (r *retryRun) play() {
	r.epoch = time.Now()
	r.deciding = make(chan struct{}, 1)
	r.failed = -1
	r.policy = r.laws.Policy()
	if r.schedule.slots > 0 {
		r.policy.Slots = r.schedule.slots
	}
	p := oncepipe.New("retry", oncepipe.Config{
		DrainTimeout: r.schedule.drainTimeout(),
		DeadLetters:  func(context.Context, oncepipe.DeadLetter) error { return nil },
		Observers:    []oncepipe.Observer{r.observe},
		Logger:       slog.New(slog.DiscardHandler),
	})
	r.pipe = p
	in := oncepipe.PartitionBy(oncepipe.From(p, "source", oncepipe.SourceFunc[int](r.receive)), r.partition)
	oncepipe.Sink(in, "stage", r.handle, r.options()...)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := r.schedule.cancel
	if end == 0 {
		end = horizon
	}
	stop := time.AfterFunc(end, cancel)
	defer stop.Stop()
	r.err = p.Run(ctx)
	r.stats = p.Stats()
	if r.stats.Admitted == 0 && r.err != nil {
		r.refused = fmt.Errorf("oncetest: the stage can't be run: %w", r.err)
	}
}

func (r *retryRun) options() []oncepipe.Option {
	s := r.schedule
	policy := r.policy
	if makes := policy.Backoff; makes != nil {
		r.ownWait = true
		policy.Backoff = func() backoff.BackOff { return r.listen(makes()) }
	}
	opts := []oncepipe.Option{oncepipe.Retry(policy), oncepipe.Workers(s.workers), oncepipe.Buffer(oncepipe.Fixed(s.buffer))}
	if s.partitions {
		opts = append(opts, oncepipe.PerPartition())
	}
	if s.timeout > 0 {
		opts = append(opts, oncepipe.Timeout(s.timeout))
	}
	if r.laws.Limiter != nil {
		opts = append(opts, oncepipe.Limit(r.laws.Limiter()))
	}
	r.slots = policy.Slots
	if r.slots == 0 {
		r.slots = oncepipe.DefaultSlots
	}
	if r.policy.MaxAge == 0 {
		r.policy.MaxAge = oncepipe.DefaultMaxAge
	}
	return opts
}

func (r *retryRun) partition(item int) string {
	return strconv.Itoa(r.schedule.items[item].partition)
}

func (r *retryRun) note(e retryEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(e)
}

func (r *retryRun) noteLocked(e retryEvent) {
	e.at = time.Since(r.epoch)
	r.log = append(r.log, e)
}

// receive is the source. It has one caller.
func (r *retryRun) receive(ctx context.Context) (oncepipe.Delivery[int], error) {
	item := r.arrived
	if item == len(r.schedule.items) {
		return oncepipe.Delivery[int]{}, io.EOF
	}
	if err := rest(ctx, r.schedule.items[item].gap); err != nil {
		return oncepipe.Delivery[int]{}, err
	}
	d := oncepipe.Delivery[int]{Value: item, Key: strconv.Itoa(item)}
	if r.schedule.takesBack {
		d.Settle = func(_ context.Context, s oncepipe.Settlement) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told[item]++
			r.taken[item] = s
			return nil
		}
	}
	r.arrived++
	r.note(retryEvent{item: item, kind: arrived})
	return d, nil
}

// rest waits for d.
func rest(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errRetry = errors.New("oncetest: the schedule says so")

// handle is the stage's function.
func (r *retryRun) handle(ctx context.Context, item int) error {
	info, _ := oncepipe.InfoFrom(ctx)
	st := r.begin(item, info.Attempt)
	if r.schedule.looked {
		r.look()
	}
	var cut error
	if st.takes > 0 {
		cut = rest(ctx, st.takes)
	}
	switch {
	case cut != nil && errors.Is(context.Cause(ctx), oncepipe.ErrDrainTimeout):
		st.does = isStopped
	case cut != nil:
		st.does = isCut
	}
	r.note(retryEvent{item: item, kind: ended, attempt: info.Attempt, does: st.does, delay: st.delay})
	switch st.does {
	case succeeds:
		return nil
	case isCut, isStopped:
		return cut
	case failsUnknown:
		return oncepipe.Unknown(errRetry)
	case asksRetryAfter:
		return oncepipe.RetryAfter(st.delay, errRetry)
	case snoozes:
		return oncepipe.Snooze(st.delay)
	case failsForGood:
		return oncepipe.Permanent(errRetry)
	case panics:
		panic(errRetry)
	case exits:
		runtime.Goexit()
	}
	return errRetry
}

func (r *retryRun) begin(item, attempt int) retryStep {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(retryEvent{item: item, kind: began, attempt: attempt})
	n := r.runs[item]
	r.runs[item]++
	if steps := r.schedule.items[item].steps; n < len(steps) {
		return steps[n]
	}
	return retryStep{does: succeeds}
}

// look reads what a monitor would. It must change nothing.
func (r *retryRun) look() {
	r.pipe.Describe()
	s := r.pipe.Stats()
	if len(s.Stages) == 1 && s.Stages[0].Parked > int64(r.slots) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bounded = fmt.Sprintf("%d items are parked in %s", s.Stages[0].Parked, counted(r.slots, "slot"))
	}
}

// observe hears of what the stage decides.
func (r *retryRun) observe(e oncepipe.Event) {
	if e.Kind == oncepipe.EventDraining {
		r.note(retryEvent{item: -1, kind: draining})
		return
	}
	item, err := strconv.Atoi(e.Key)
	if err != nil {
		return
	}
	seen := retryEvent{item: item, attempt: e.Attempt, delay: e.Delay, reason: e.Reason, outcome: e.Outcome, err: e.Err}
	switch e.Kind {
	case oncepipe.EventFailed:
		r.deciding <- struct{}{}
		seen.kind = counts
		r.mu.Lock()
		r.failed = item
		r.noteLocked(seen)
		r.mu.Unlock()
		return
	case oncepipe.EventRetried:
		seen.kind = parked
	case oncepipe.EventSnoozed:
		seen.kind = snoozed
	case oncepipe.EventDead:
		seen.kind = buried
	case oncepipe.EventSettled:
		seen.kind = settled
	}
	r.note(seen)
	r.decided(item)
}

// decided lets the stage decide on the next item.
func (r *retryRun) decided(item int) {
	r.mu.Lock()
	mine := len(r.deciding) > 0 && r.failed == item
	if mine {
		r.failed = -1
	}
	r.mu.Unlock()
	if mine {
		<-r.deciding
	}
}
