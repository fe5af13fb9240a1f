package oncetest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"
)

// killLab is where plans are carried out.
type killLab struct {
	ctx        context.Context
	open       func(w *World) program
	test       string
	command    func() *exec.Cmd
	atOnce     int
	timeout    time.Duration
	redelivery time.Duration
}

// killOutcome is what came of a plan.
type killOutcome struct {
	steps []int         // that the processes met, one after the other
	kills int           // that were carried out
	took  time.Duration // while there was a process that was ready
	fail  *Failure
}

// killExplorer looks for a plan that shows a fault.
type killExplorer struct {
	killLab
	pairs, moments int
	messages       int
	alone          bool
	seed           uint64
	tried          int
}

func (x *killExplorer) defaults() error {
	if x.command == nil && x.test == "" {
		return errors.New("oncetest: CheckKill needs a Command or the name of its Test")
	}
	if x.command == nil {
		command, err := ownCommand(x.test)
		if err != nil {
			return err
		}
		x.command = command
	}
	more := 20
	if testing.Testing() && testing.Short() {
		more = 4
	}
	x.pairs, x.moments = cmp.Or(x.pairs, more), cmp.Or(x.moments, more/2)
	x.messages = cmp.Or(x.messages, 2)
	x.atOnce = cmp.Or(x.atOnce, 1)
	x.timeout = cmp.Or(x.timeout, 10*time.Second)
	x.redelivery = cmp.Or(x.redelivery, 50*time.Millisecond)
	return nil
}

// explore begins with the plans that have the fewest kills, so that the first
// one that fails is a short one.
func (x *killExplorer) explore() error {
	none := killPlan{messages: x.messages}
	lived, err := x.try(none)
	if err != nil || lived.fail != nil {
		return x.report(none, lived, err)
	}
	rnd := rand.New(rand.NewPCG(x.seed, 0))
	pairs, err := x.everyStep(none)
	if err != nil {
		return err
	}
	rnd.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	for _, p := range pairs[:max(0, min(x.pairs, len(pairs)))] {
		if out, err := x.try(p); err != nil || out.fail != nil {
			return x.report(p, out, err)
		}
	}
	took := lived.took
	for range min(2, x.moments) { // one that was held up would have moments at which all is over
		again, err := x.try(none)
		if err != nil || again.fail != nil {
			return x.report(none, again, err)
		}
		took = min(took, again.took)
	}
	for range x.moments {
		p := killPlan{messages: x.messages, beside: !x.alone}
		for range 1 + rnd.IntN(2) {
			p = p.with(killPoint{killMoment, rnd.IntN(int(took.Microseconds()) + 1)})
		}
		if out, err := x.try(p); err != nil || out.fail != nil {
			return x.report(p, out, err)
		}
	}
	return nil
}

// everyStep kills a process before and after each of its steps, until there is
// none of that number. It lists the plans that kill the next process too.
func (x *killExplorer) everyStep(none killPlan) (pairs []killPlan, err error) {
	for n := 1; ; n++ {
		for _, when := range []string{killBefore, killAfter} {
			p := none.with(killPoint{when, n})
			out, err := x.try(p)
			if err != nil || out.fail != nil {
				return nil, x.report(p, out, err)
			}
			if out.steps[0] < n {
				return pairs, nil
			}
			if len(out.steps) < 2 {
				continue // it was the last step of all, or one that failed: there is nothing behind it
			}
			for m := 1; m <= out.steps[1]; m++ {
				pairs = append(pairs, p.with(killPoint{killBefore, m}), p.with(killPoint{killAfter, m}))
			}
		}
	}
}

// replay carries out one plan, as it is.
func (x *killExplorer) replay(p killPlan) error {
	out, err := x.try(p)
	if err != nil || out.fail == nil {
		return err
	}
	return out.fail
}

// report looks for the simplest plan that fails like p.
func (x *killExplorer) report(p killPlan, out killOutcome, err error) error {
	if err != nil {
		return err
	}
	tried, blame := x.tried, out.fail.Blame
	for budget, found := 20, true; found && blame != NoReturn && blame != Unsettled; {
		found = false
		for _, c := range p.smaller() {
			if budget == 0 {
				break
			}
			budget--
			o, err := x.try(c)
			if err == nil && o.fail != nil && o.fail.Blame == blame {
				p, out, found = c, o, true
				break
			}
		}
	}
	out.fail.Tried = tried
	return out.fail
}

func (x *killExplorer) try(p killPlan) (killOutcome, error) {
	x.tried++
	return x.carryOut(p)
}
