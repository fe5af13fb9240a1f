package oncetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// sourceRig is a source under test, and one that receives from it as a pipeline
// does: in one goroutine, without waiting for settlements.
type sourceRig struct {
	cfg    SourceConfig[*sourceItem]
	env    SourceEnv[*sourceItem]
	source oncepipe.Source[*sourceItem]
	run    *sourceRun // nil: nobody receives
	used   bool       // there was a run before
	sent   int
	seen   int // of arrived

	mu      sync.Mutex
	skipped time.Duration // by Advance
	arrived []*arrival
	outage  error // the last one that Receive reported
	faults  []error
	why     string // the rule is not applicable
}

// sourceRun is a time in which somebody receives.
type sourceRun struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of the last Receive
}

func (u *sourceRun) over() bool {
	select {
	case <-u.ended:
		return true
	default:
		return false
	}
}

// arrival is a delivery.
type arrival struct {
	*sourceItem
	key    string
	at     time.Time
	settle func(context.Context, oncepipe.Settlement) error
}

func (r *sourceRig) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

// fatal ends the rule.
func (r *sourceRig) fatal(format string, args ...any) {
	r.fault(format, args...)
	runtime.Goexit()
}

// needs ends the rule, as one that is not applicable, unless ok.
func (r *sourceRig) needs(ok bool, why string) {
	if ok {
		return
	}
	r.mu.Lock()
	r.why = why
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *sourceRig) needsSettle() {
	r.needs(!r.cfg.NoSettle, "SourceConfig.NoSettle says that nothing is settled")
}

// send puts messages with these texts into the queue.
func (r *sourceRig) send(texts ...string) {
	for _, text := range texts {
		if err := r.env.Send(text); err != nil {
			r.fatal("Send(%q): %w", text, err)
		}
	}
}

// sendSome sends n messages and returns their texts.
func (r *sourceRig) sendSome(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		r.sent++
		texts[i] = fmt.Sprint("message ", r.sent)
	}
	r.send(texts...)
	return texts
}

// start begins to receive.
func (r *sourceRig) start() {
	r.reopen()
	ctx, cancel := context.WithCancel(context.Background())
	run := &sourceRun{cancel: cancel, ended: make(chan struct{})}
	r.run = run
	src := r.source
	go func() {
		defer close(run.ended)
		run.err = r.receiveAll(ctx, src)
	}()
}

// reopen goes on with another source, where there was a run before.
func (r *sourceRig) reopen() {
	if r.used && r.env.Reopen != nil {
		src, err := r.env.Reopen()
		if err != nil {
			r.fatal("%w", err)
		}
		r.source = src
	}
	r.used = true
}

// recovered makes a fault and an error of a panic of the source.
func (r *sourceRig) recovered(where string, err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic in %s: %v\n%s", where, v, debug.Stack())
		r.fault("%w", *err)
	}
}

func (r *sourceRig) receiveAll(ctx context.Context, src oncepipe.Source[*sourceItem]) (err error) {
	defer r.recovered("Receive", &err)
	for {
		d, err := src.Receive(ctx)
		switch {
		case err == nil:
			r.arrive(d)
			pace()
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return err
		default: // an outage, as a pipeline sees it
			r.mu.Lock()
			r.outage = err
			r.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// pace lets time go by in a bubble even where a source delivers without end.
func pace() { time.Sleep(time.Millisecond) }

func (r *sourceRig) arrive(d oncepipe.Delivery[*sourceItem]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (d.Settle == nil) != r.cfg.NoSettle {
		r.faults = append(r.faults, fmt.Errorf("%q: the delivery has a Settle: %v; SourceConfig.NoSettle: %v", d.Value.text, d.Settle != nil, r.cfg.NoSettle))
	}
	r.arrived = append(r.arrived, &arrival{d.Value, d.Key, time.Now().Add(r.skipped), d.Settle})
}

// now is the time on the clock of arrivals.
func (r *sourceRig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.skipped)
}

// stop ends the receiving, if there is any, and waits for it.
func (r *sourceRig) stop() {
	run := r.run
	if run == nil {
		return
	}
	r.run = nil
	run.cancel()
	if !r.until(r.cfg.Patience, run.over) {
		r.fault("Receive goes on %v after its context has ended", r.cfg.Patience)
		return
	}
	if !errors.Is(run.err, context.Canceled) && !errors.Is(run.err, io.EOF) {
		r.fault("when its context has ended, Receive answers an error that does not wrap ctx.Err(): %v", run.err)
	}
}

// fresh returns the arrivals that the rule has not seen.
func (r *sourceRig) fresh() []*arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrived[r.seen:])
}

// receive waits until messages with these texts, and no others, have come, and
// returns them in this order.
func (r *sourceRig) receive(texts ...string) []*arrival {
	return r.receiveWithin(r.cfg.Patience+r.cfg.Hold, texts...)
}

func (r *sourceRig) receiveWithin(limit time.Duration, texts ...string) []*arrival {
	got := r.next(limit, len(texts))
	byText := map[string]*arrival{}
	for _, a := range got {
		byText[a.text] = a
	}
	list := make([]*arrival, len(texts))
	for i, text := range texts {
		if list[i] = byText[text]; list[i] == nil {
			r.fatal("%q came, want %q", textsOf(got), texts)
		}
	}
	return list
}

// next waits for n arrivals.
func (r *sourceRig) next(limit time.Duration, n int) []*arrival {
	run := r.run
	var got []*arrival
	enough := func() bool { got = r.fresh(); return len(got) >= n }
	r.until(limit, func() bool { return enough() || run.over() })
	if enough() {
		r.seen += n
		return got[:n]
	}
	if run.over() {
		r.fatal("%d messages should come, and with %q Receive ended: %v", n, textsOf(got), run.err)
	}
	r.mu.Lock()
	outage := r.outage
	r.mu.Unlock()
	r.fatal("%d messages should come, and within %v did %q; last outage: %v", n, limit, textsOf(got), outage)
	return nil
}

// finishEach waits until messages with these texts, and no others, have come, and
// settles each at once.
func (r *sourceRig) finishEach(limit time.Duration, texts []string) {
	for missing := texts; len(missing) > 0; {
		a := r.next(limit, 1)
		i := slices.Index(missing, a[0].text)
		if i < 0 {
			r.fatal("%q came, want %q", a[0].text, missing)
		}
		missing = slices.Delete(missing, i, i+1)
		r.finish(a...)
	}
}

func (r *sourceRig) receiveOne(text string) *arrival { return r.receive(text)[0] }

func textsOf(list []*arrival) []string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.text
	}
	return texts
}

// nothing checks that nothing comes, for a while.
func (r *sourceRig) nothing(when string) {
	var got []*arrival
	if r.until(r.cfg.Quiet+2*r.cfg.Hold, func() bool { got = r.fresh(); return len(got) > 0 }) {
		r.fatal("%s, %q came", when, textsOf(got))
	}
}

// left checks how many messages the queue has, where that can be seen.
func (r *sourceRig) left(want int, when string) {
	if r.env.Left == nil {
		return
	}
	var got int
	if !r.until(r.cfg.Patience, func() bool { got = r.env.Left(); return got == want }) {
		r.fatal("%s, the queue has %d messages, want %d", when, got, want)
	}
}

// tell settles a delivery. A panic is a fault, and an error.
func (r *sourceRig) tell(a *arrival, o oncepipe.Outcome, delay time.Duration) (err error) {
	defer r.recovered("Settle", &err)
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Patience)
	defer cancel()
	s := oncepipe.Settlement{Outcome: o, Delay: delay}
	if o == oncepipe.Returned || o == oncepipe.Shed || o == oncepipe.Dead {
		s.Err = errors.New("settled by a rule")
	}
	return a.settle(ctx, s)
}

// settle is tell that may not fail.
func (r *sourceRig) settle(o oncepipe.Outcome, list ...*arrival) {
	for _, a := range list {
		if err := r.tell(a, o, 0); err != nil {
			r.fatal("%q settled as %v: %v", a.text, o, err)
		}
	}
}

// finish settles deliveries as done, where there is a Settle.
func (r *sourceRig) finish(list ...*arrival) {
	if !r.cfg.NoSettle {
		r.settle(oncepipe.Done, list...)
	}
}

// finished settles what is left and checks that this was all.
func (r *sourceRig) finished(list ...*arrival) {
	r.finish(list...)
	r.nothing("when everything was settled")
	r.left(0, "when everything was settled")
}

// call is one Receive; the delivery counts as one that has come.
func (r *sourceRig) call(ctx context.Context) <-chan error {
	r.used = true
	answer := make(chan error, 1)
	src := r.source
	go func() {
		var err error
		defer func() { answer <- err }()
		defer r.recovered("Receive", &err)
		var d oncepipe.Delivery[*sourceItem]
		if d, err = src.Receive(ctx); err == nil {
			r.arrive(d)
		}
	}()
	return answer
}

// answer waits for that of a call.
func (r *sourceRig) answer(call <-chan error, when string) error {
	var err error
	if !r.until(r.cfg.Patience, func() bool {
		select {
		case err = <-call:
			return true
		default:
			return false
		}
	}) {
		r.fatal("%s, Receive goes on for %v", when, r.cfg.Patience)
	}
	return err
}

// without returns the texts that have not come yet.
func (r *sourceRig) without(texts []string, came []*arrival) []string {
	missing := map[string]bool{}
	for _, text := range texts {
		missing[text] = true
	}
	for _, a := range came {
		delete(missing, a.text)
	}
	return slices.Sorted(maps.Keys(missing))
}
