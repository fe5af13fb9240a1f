package oncetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"
)

// sourceRule is one thing that a source has to do.
type sourceRule struct {
	name  string
	check func(r *sourceRig)
	alone bool // no goroutine may be left behind it
}

// run checks the rule. why is not empty where it is not applicable.
func (rule sourceRule) run(cfg SourceConfig[*sourceItem]) (why string, err error) {
	r := &sourceRig{cfg: cfg}
	if cfg.Bubble {
		err = inBubble(func() { r.conduct(rule) })
	} else {
		r.conduct(rule)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = errors.Join(append(r.faults, err)...); err != nil {
		return "", fmt.Errorf("oncetest: source: rule %q: %w", rule.name, err)
	}
	return r.why, nil
}

// conduct checks the rule in a goroutine of its own, so that it can be ended at
// any place. The goroutines that come of it inherit its label.
func (r *sourceRig) conduct(rule sourceRule) {
	label := rand.Text()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pprof.Do(context.Background(), pprof.Labels(sourceLabel, label), func(context.Context) { r.try(rule) })
	}()
	<-ended
	if !rule.alone {
		return
	}
	var stacks string
	if !r.until(r.cfg.Patience, func() bool { stacks = labelled(label); return stacks == "" }) {
		r.fault("goroutines are left:\n%s", stacks)
	}
}

func (r *sourceRig) try(rule sourceRule) {
	defer func() {
		if v := recover(); v != nil {
			r.fault("panic: %v\n%s", v, debug.Stack())
		}
	}()
	env, err := r.cfg.New()
	if err != nil {
		r.fatal("%w", err)
	}
	r.env, r.source = env, env.Source
	defer func() {
		r.stop()
		if env.Close != nil {
			env.Close()
		}
	}()
	rule.check(r)
}

// sourceLabel is the profiler label of all goroutines of a rule.
const sourceLabel = "oncetest.source"

// labelled returns the stacks of the goroutines with a label.
func labelled(label string) string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	var left []string
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", sourceLabel, label)) {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

// until looks whether ok, until limit is over.
func (r *sourceRig) until(limit time.Duration, ok func() bool) bool {
	longest := limit / 50
	if r.cfg.Hold > 0 {
		longest = min(longest, r.cfg.Hold/20)
	}
	longest = max(longest, time.Millisecond)
	step := time.Millisecond
	for waited := time.Duration(0); !ok(); waited += step {
		if waited >= limit {
			return false
		}
		step = min(2*step, longest, limit-waited)
		r.pass(step)
	}
	return true
}

// pass lets time go by.
func (r *sourceRig) pass(d time.Duration) {
	if r.env.Advance == nil {
		time.Sleep(d)
		return
	}
	r.env.Advance(d)
	r.mu.Lock()
	r.skipped += d
	r.mu.Unlock()
	time.Sleep(time.Millisecond) // for those who have to notice
}
