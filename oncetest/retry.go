package oncetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// RetryLaws is a retry policy and what is promised of it. Retry and CheckRetry
// hold a stage that uses the policy to the laws of retrying: no attempt before
// its wait is over, none beyond MaxAttempts or MaxAge, none after a permanent
// error, RetryAfter honoured, a backoff for each item, waits within their
// bounds, nobody held up by a slow item, order within partitions, slots as the
// bound of what is inside, nothing lost to a cancel.
//
// All but Policy may be left out.
type RetryLaws struct {
	// Policy makes the policy. It is called once for each schedule, inside its
	// bubble, where time is not real. What it returns belongs to that schedule; what it shares
	// with others is the fault of whoever wrote it.
	Policy func() oncepipe.RetryPolicy

	// Limiter makes the stage's limiter, where it has one, as Policy does.
	Limiter func() oncepipe.Limiter

	// MinDelay is what Backoff never answers less than, but for Stop. 0: it may
	// answer that there is no wait.
	MinDelay time.Duration

	// MaxDelay is what no wait by Backoff is longer than, once the policy's own MaxDelay
	// has cut it. 0: an hour.
	MaxDelay time.Duration

	// MinAttempts is how many attempts an item has that fails for so long, and
	// takes no time to do it. 0: nothing is promised.
	MinAttempts int

	// Budget limits the attempts of all items together. The zero value doesn't.
	Budget RetryBudget

	// Endless allows a policy that never gives an item up.
	Endless bool

	// Schedules is how many are tried. 0: 1000.
	Schedules int

	// Seed is that of the schedules: a failure names it. 0: another one each time.
	Seed uint64

	everybodys listener // one of the policy's backoffs, which others can be again
}

// RetryBudget is how often something may happen in any stretch of time as long
// as Per. Attempts counts all, Retries those of items that were run before.
// 0: no limit.
type RetryBudget struct {
	Attempts int
	Retries  int
	Per      time.Duration
}

// Defaults of RetryLaws.
const (
	defaultRetrySchedules = 1000
	defaultRetryMaxDelay  = time.Hour
)

// Retry checks a retry policy, each law in a subtest of its own. A law that is
// broken is reported with the smallest schedule that was found to break it, as a
// story, and with the seed to run it again.
//
// It must not be called inside a synctest bubble. To see data races of the
// backoff, which is called from several goroutines, run the test with -race.
func Retry(t *testing.T, laws RetryLaws) {
	t.Helper()
	found, err := laws.check()
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range retryLaws {
		t.Run(string(law), func(t *testing.T) {
			t.Helper()
			if fault, broken := found[law]; broken {
				t.Error(fault)
			}
		})
	}
}

// CheckRetry is Retry where no test is. The error joins what Retry reports, each
// law's by its name; nil when every law is kept.
func CheckRetry(laws RetryLaws) error {
	found, err := laws.check()
	errs := []error{err}
	for _, law := range retryLaws {
		if fault, broken := found[law]; broken {
			errs = append(errs, fmt.Errorf("%s: %w", law, fault))
		}
	}
	return errors.Join(errs...)
}

// Try checks one schedule, and the policy by itself, for those who have their own source of
// choices: choose answers a number from lo to hi, and smaller ones make
// simpler schedules. The error is as that of CheckRetry, but nothing is made
// smaller. Schedules and Seed are not looked at.
func (l RetryLaws) Try(choose func(what string, lo, hi int) int) error {
	l, shape, err := l.ready()
	if err != nil {
		return err
	}
	found := l.probe(retryProbe{answers: 200, instances: 5, callers: 2})
	s := drawRetry(shape, choose)
	for law, fault := range l.run(s).faults {
		found.add(law, "%s", fault.tell())
	}
	var errs []error
	for _, law := range retryLaws {
		if fault, broken := found[law]; broken {
			errs = append(errs, fmt.Errorf("%s: %w", law, fault))
		}
	}
	return errors.Join(errs...)
}

// ready fills in the defaults and looks at a policy.
func (l RetryLaws) ready() (RetryLaws, oncepipe.RetryPolicy, error) {
	var shape oncepipe.RetryPolicy
	if l.Policy == nil {
		return l, shape, errors.New("oncetest: RetryLaws without a Policy")
	}
	if l.MaxDelay == 0 {
		l.MaxDelay = defaultRetryMaxDelay
	}
	if l.Schedules == 0 {
		l.Schedules = defaultRetrySchedules
	}
	if l.Seed == 0 {
		l.Seed = rand.Uint64()
	}
	err := inBubble(func() {
		if l.Limiter != nil {
			l.Limiter()
		}
		if shape = l.Policy(); shape.Backoff != nil {
			_ = survive(func() { // the probe tells of a crash
				b := shape.Backoff()
				l.everybodys = listener{BackOff: b, before: memoryOf(b)}
			})
		}
	})
	if err != nil {
		return l, shape, fmt.Errorf("oncetest: making the policy or the limiter: %w", err)
	}
	if shape.MaxAge == 0 {
		shape.MaxAge = oncepipe.DefaultMaxAge
	}
	return l, shape, nil
}

// check tries the policy by itself and all schedules.
func (l RetryLaws) check() (retryFound, error) {
	l, shape, err := l.ready()
	if err != nil {
		return nil, err
	}
	found := l.probe(retryProbe{answers: 1000, instances: 200, callers: 4})
	for i := range l.Schedules {
		r := l.run(drawRetry(shape, randomChoices(l.Seed, uint64(i))))
		if r.refused != nil {
			return nil, r.refused
		}
		for law := range r.faults {
			if _, known := found[law]; !known {
				found.add(law, "%s  Seed: %d", l.shrink(r, law).faults[law].tell(), l.Seed)
			}
		}
		if r.stuck {
			break // its goroutines stay: no more of these
		}
	}
	return found, nil
}

// retryFound has the first fault found of each law that is broken.
type retryFound map[retryLaw]error

func (f retryFound) add(law retryLaw, format string, args ...any) {
	if _, known := f[law]; !known {
		f[law] = errors.New(strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
	}
}

// retryLaw is the name of a law.
type retryLaw string

const (
	lawDelay       retryLaw = "not before its delay"
	lawOwnWaits    retryLaw = "waits are those of its own backoff"
	lawInstance    retryLaw = "a backoff for each item"
	lawBounds      retryLaw = "delays are not negative and capped"
	lawStop        retryLaw = "stop is the end"
	lawCrash       retryLaw = "backoff does not panic"
	lawMinAttempts retryLaw = "not given up early"
	lawEnd         retryLaw = "given up at last"
	lawMaxAttempts retryLaw = "MaxAttempts"
	lawMaxAge      retryLaw = "MaxAge"
	lawPermanent   retryLaw = "permanent once"
	lawRetryAfter  retryLaw = "RetryAfter"
	lawSnooze      retryLaw = "snooze is no attempt"
	lawSlow        retryLaw = "a slow item does not delay others"
	lawPartition   retryLaw = "partition order"
	lawBudget      retryLaw = "budget"
	lawSlots       retryLaw = "slots bound what is inside"
	lawNotLost     retryLaw = "cancel loses nothing"
)

var retryLaws = []retryLaw{
	lawDelay, lawOwnWaits, lawInstance, lawBounds, lawStop, lawCrash, lawMinAttempts, lawEnd, lawMaxAttempts, lawMaxAge,
	lawPermanent, lawRetryAfter, lawSnooze, lawSlow, lawPartition, lawBudget, lawSlots, lawNotLost,
}
