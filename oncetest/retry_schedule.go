package oncetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
)

// retrySchedule is a stage and what happens to its items.
type retrySchedule struct {
	workers    int
	slots      int // 0: as the policy says
	buffer     int
	partitions bool // the stage has PerPartition
	takesBack  bool // the source can be given its deliveries back
	looked     bool // somebody reads Stats all the time
	timeout    time.Duration
	cancel     time.Duration // when the context ends; 0: not before all is over
	drain      time.Duration
	items      []retryItem
}

// retryItem is what happens to an item. After its steps it succeeds.
type retryItem struct {
	gap       time.Duration // since the item before it arrived
	partition int
	steps     []retryStep
}

// retryStep is what the handler does in one attempt.
type retryStep struct {
	takes time.Duration
	does  retryOutcome
	delay time.Duration // of RetryAfter and Snooze
}

type retryOutcome uint8

const (
	succeeds retryOutcome = iota
	fails
	failsUnknown
	asksRetryAfter
	snoozes
	failsForGood
	panics
	exits
	isCut     // by its time limit
	isStopped // by the end of the drain
)

// last says that there is no attempt after it.
func (o retryOutcome) last() bool { return o == failsForGood || o == panics || o == exits }

// asks says that the backoff is asked for the wait after it.
func (o retryOutcome) asks() bool { return o == fails || o == failsUnknown || o == isCut }

// chooser answers a number from lo to hi, and is told what for.
type chooser func(what string, lo, hi int) int

func randomChoices(seed, stream uint64) chooser {
	rnd := rand.New(rand.NewPCG(seed, stream))
	return func(_ string, lo, hi int) int { return lo + rnd.IntN(hi-lo+1) }
}

// oneIn is true once in n times.
func (c chooser) oneIn(n int, what string) bool { return c(what, 0, n-1) == n-1 }

// duration is of any size from a millisecond to some minutes.
func (c chooser) duration(what string) time.Duration {
	d := time.Millisecond
	for range c(what+": magnitude", 0, 5) {
		d *= 10
	}
	return d * time.Duration(c(what+": digit", 1, 9))
}

// maybe is a duration, or none in most cases.
func (c chooser) maybe(what string) time.Duration {
	if !c.oneIn(4, what) {
		return 0
	}
	return c.duration(what)
}

// drawRetry makes a schedule that fits the limits of the policy.
func drawRetry(policy oncepipe.RetryPolicy, choose chooser) retrySchedule {
	s := retrySchedule{
		workers: choose("workers", 1, 4),
		slots:   choose("slots", 0, 6),
		buffer:  choose("buffer", 0, 4),
		timeout: choose.maybe("time limit"),
		cancel:  choose.maybe("cancel"),
	}
	s.partitions = choose.oneIn(2, "by partition")
	s.takesBack = choose.oneIn(2, "source takes back")
	s.looked = choose.oneIn(2, "looked at")
	if s.cancel > 0 && choose.oneIn(2, "short drain") {
		s.drain = choose.duration("drain")
	}
	s.items = make([]retryItem, 1+choose("items", 0, choose("most items", 0, 19)))
	for i := range s.items {
		s.items[i] = choose.item(policy)
	}
	return s
}

// mostSteps bounds what a single item costs, where the policy allows any number
// of attempts.
const mostSteps = 40

func (c chooser) item(policy oncepipe.RetryPolicy) retryItem {
	it := retryItem{gap: c.maybe("gap"), partition: c("partition", 0, 2)}
	most := 5
	if c.oneIn(4, "stubborn") {
		most = min(max(policy.MaxAttempts+1, 8), mostSteps)
	}
	it.steps = make([]retryStep, c("steps", 0, most))
	for i := range it.steps {
		it.steps[i] = c.step(policy)
	}
	return it
}

func (c chooser) step(policy oncepipe.RetryPolicy) retryStep {
	st := retryStep{does: fails}
	switch c("outcome", 0, 15) {
	case 9:
		st.does = failsUnknown
	case 10, 11:
		st.does = asksRetryAfter
	case 12, 13:
		st.does = snoozes
	case 14:
		st.does = failsForGood
	case 15:
		st.does = []retryOutcome{panics, exits, succeeds}[c("crash", 0, 2)]
	}
	st.takes = c.maybe("takes")
	if st.does != asksRetryAfter && st.does != snoozes {
		return st
	}
	st.delay = c.maybe("delay")
	if policy.MaxAge > 0 && policy.MaxAge < time.Duration(1<<62) && c.oneIn(4, "long delay") {
		st.delay = policy.MaxAge / 4 * time.Duration(c("quarters of MaxAge", 1, 6))
	}
	return st
}

// String names what differs from the plainest stage.
func (s retrySchedule) String() string {
	parts := []string{counted(s.workers, "worker")}
	if s.slots > 0 {
		parts = append(parts, counted(s.slots, "slot"))
	}
	parts = append(parts, fmt.Sprintf("buffer of %d", s.buffer))
	if s.partitions {
		parts = append(parts, "by partition")
	}
	if s.timeout > 0 {
		parts = append(parts, fmt.Sprintf("attempts of at most %v", s.timeout))
	}
	if s.cancel > 0 {
		parts = append(parts, fmt.Sprintf("drain of at most %v", s.drainTimeout()))
	}
	return strings.Join(parts, ", ")
}

func (s retrySchedule) drainTimeout() time.Duration {
	if s.drain == 0 {
		return 30 * time.Second
	}
	return s.drain
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// smaller yields schedules that are simpler than s, those that leave out most
// first.
func (s retrySchedule) smaller(yield func(retrySchedule) bool) {
	for n := len(s.items) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(s.items) && len(s.items) > 1; i += n {
			if !yield(s.without(i, n)) {
				return
			}
		}
	}
	for _, plain := range s.plainer() {
		if !yield(plain) {
			return
		}
	}
	for i, it := range s.items {
		for _, simple := range it.simpler() {
			c := s
			c.items = slices.Clone(s.items)
			c.items[i] = simple
			if !yield(c) {
				return
			}
		}
	}
}

// without leaves n items out, but not the time they took to arrive.
func (s retrySchedule) without(i, n int) retrySchedule {
	items := slices.Delete(slices.Clone(s.items), i, i+n)
	if len(items) == 0 {
		return s
	}
	s.items = items
	return s
}

// plainer lists s with one property of the stage less.
func (s retrySchedule) plainer() (list []retrySchedule) {
	change := func(differs bool, f func(*retrySchedule)) {
		if differs {
			c := s
			f(&c)
			list = append(list, c)
		}
	}
	change(s.cancel > 0, func(c *retrySchedule) { c.cancel, c.drain = 0, 0 })
	change(s.drain > 0, func(c *retrySchedule) { c.drain = 0 })
	change(s.timeout > 0, func(c *retrySchedule) { c.timeout = 0 })
	change(s.partitions, func(c *retrySchedule) { c.partitions = false })
	change(s.looked, func(c *retrySchedule) { c.looked = false })
	change(s.takesBack, func(c *retrySchedule) { c.takesBack = false })
	change(s.workers > 1, func(c *retrySchedule) { c.workers = 1 })
	change(s.workers > 2, func(c *retrySchedule) { c.workers-- })
	change(s.slots > 0, func(c *retrySchedule) { c.slots = 0 })
	change(s.slots > 1, func(c *retrySchedule) { c.slots-- })
	change(s.buffer > 0, func(c *retrySchedule) { c.buffer = 0 })
	for _, d := range shorter(s.cancel) {
		change(d > 0, func(c *retrySchedule) { c.cancel = d })
	}
	return list
}

func (it retryItem) simpler() (list []retryItem) {
	for i := range it.steps {
		c := it
		c.steps = slices.Delete(slices.Clone(it.steps), i, i+1)
		list = append(list, c)
	}
	if it.partition > 0 {
		c := it
		c.partition = 0
		list = append(list, c)
	}
	for _, d := range shorter(it.gap) {
		c := it
		c.gap = d
		list = append(list, c)
	}
	for i, st := range it.steps {
		for _, simple := range st.simpler() {
			c := it
			c.steps = slices.Clone(it.steps)
			c.steps[i] = simple
			list = append(list, c)
		}
	}
	return list
}

func (st retryStep) simpler() (list []retryStep) {
	if st.does != fails {
		list = append(list, retryStep{takes: st.takes, does: fails})
	}
	for _, d := range shorter(st.takes) {
		list = append(list, retryStep{d, st.does, st.delay})
	}
	for _, d := range shorter(st.delay) {
		list = append(list, retryStep{st.takes, st.does, d})
	}
	return list
}

// shorter lists simpler durations than d.
func shorter(d time.Duration) (list []time.Duration) {
	for _, c := range []time.Duration{0, time.Millisecond, time.Second, time.Minute, d / 10, d / 2} {
		if c < d && (c == 0 || c >= time.Millisecond) && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}
