package oncetest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
)

// The rules about the whole: a pipeline over the source, and what is left of it.
var pipelineRules = []sourceRule{
	{name: "a pipeline conserves its items", check: conserves},
	{name: "a pipeline that drains loses nothing", check: drains},
	{name: "no goroutine is left", alone: true, check: func(r *sourceRig) {
		r.start()
		got := r.receive(r.sendSome(2)...)
		if r.cfg.NoSettle {
			return
		}
		r.settle(oncepipe.Returned, got[0])
		again := r.receiveOne(got[0].text)
		r.stop()
		r.settle(oncepipe.Done, again, got[1])
		_ = r.tell(again, oncepipe.Done, 0)
	}},
}

// sourcePipe is a pipeline with one stage over the source under test.
type sourcePipe struct {
	p     *oncepipe.Pipeline
	stop  context.CancelFunc
	ended chan error

	mu   sync.Mutex
	runs map[string]int
	done []*arrival // whose handler succeeded
}

// pipe runs items through handle, which is told the number of the run.
func (r *sourceRig) pipe(cfg oncepipe.Config, keep func(text string) bool, handle func(ctx context.Context, text string, run int) error) *sourcePipe {
	r.used = true
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.DeadLetters = func(context.Context, oncepipe.DeadLetter) error { return nil }
	s := &sourcePipe{p: oncepipe.New("conformance", cfg), ended: make(chan error, 1), runs: map[string]int{}}
	items := oncepipe.Filter(oncepipe.From(s.p, "source", r.source), func(it *sourceItem) bool {
		pace()
		return keep(it.text)
	})
	oncepipe.Sink(items, "handle", func(ctx context.Context, it *sourceItem) error {
		s.mu.Lock()
		s.runs[it.text]++
		run := s.runs[it.text]
		s.mu.Unlock()
		err := handle(ctx, it.text, run)
		if err == nil {
			s.mu.Lock()
			s.done = append(s.done, &arrival{sourceItem: it})
			s.mu.Unlock()
		}
		return err
	}, oncepipe.Workers(8), oncepipe.Retry(oncepipe.RetryPolicy{}))
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.ended <- s.p.Run(ctx) }()
	return s
}

// finishPipe ends the pipeline and checks what it says. It returns the texts that
// Run's error lists, for want of a Settle.
func (r *sourceRig) finishPipe(s *sourcePipe) (listed []string) {
	s.stop()
	var err error
	if !r.until(2*r.cfg.Patience, func() bool {
		select {
		case err = <-s.ended:
			return true
		default:
			return false
		}
	}) {
		r.fatal("Run goes on %v after its context has ended", 2*r.cfg.Patience)
	}
	var returned *oncepipe.ReturnedError
	if r.cfg.NoSettle && errors.As(err, &returned) {
		for _, it := range returned.Items {
			listed = append(listed, it.Value.(*sourceItem).text)
		}
	} else if err != nil {
		r.fatal("Run answers %w", err)
	}
	if st := s.p.Stats(); !st.Conserved() {
		r.fatal("not conserved: %+v", st)
	}
	return listed
}

var errOfRule = errors.New("failure of the rule's handler")

// conserves lets items succeed at once, and after a failure; be given up; and be
// filtered out.
func conserves(r *sourceRig) {
	const each = 3
	texts := r.sendSome(4 * each)
	group := func(text string) int { return slices.Index(texts, text) / each }
	s := r.pipe(oncepipe.Config{DrainTimeout: r.cfg.Patience},
		func(text string) bool { return group(text) != 0 },
		func(_ context.Context, text string, run int) error {
			switch {
			case group(text) == 1:
				return oncepipe.Permanent(errOfRule)
			case group(text) == 2 && run <= 2:
				return oncepipe.RetryAfter(time.Millisecond, errOfRule)
			}
			return nil
		})
	r.until(r.cfg.Patience, func() bool {
		st := s.p.Stats()
		return st.Done+st.Filtered+st.Dead >= int64(len(texts))
	})
	listed := r.finishPipe(s)
	st := s.p.Stats()
	if len(listed) > 0 || st.Done != 2*each || st.Filtered != each || st.Dead != each || st.Admitted != int64(len(texts)) {
		r.fatal("of %d messages: %d admitted, %d done, %d filtered, %d dead, %d returned", len(texts), st.Admitted, st.Done, st.Filtered, st.Dead, st.Returned)
	}
	r.start()
	r.nothing("when a pipeline had settled everything")
	r.left(0, "when a pipeline had settled everything")
}

// drains ends a pipeline that has items that are done, parked and running. What
// is not done has to come again, or to be listed.
func drains(r *sourceRig) {
	const done, parked, running = 3, 3, 2
	texts := r.sendSome(done + parked + running)
	blocked := make(chan struct{}, len(texts))
	s := r.pipe(oncepipe.Config{DrainTimeout: -1},
		func(string) bool { return true },
		func(ctx context.Context, text string, _ int) error {
			switch i := slices.Index(texts, text); {
			case i < done:
				return nil
			case i < done+parked:
				return oncepipe.RetryAfter(r.cfg.Patience/4, errOfRule)
			}
			select {
			case blocked <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		})
	ready := r.until(r.cfg.Patience, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.runs) == len(texts) && len(s.done) >= done && len(blocked) >= running
	})
	listed := r.finishPipe(s)
	if !ready {
		r.fatal("of %d messages %d were handled, and %d of %d that should succeed", len(texts), len(s.runs), len(s.done), done)
	}
	there := s.done
	for _, text := range listed {
		there = append(there, &arrival{sourceItem: &sourceItem{text: text}})
	}
	r.start()
	r.finishEach(2*r.cfg.Patience+r.cfg.Hold, r.without(texts, there))
	r.finished()
}
