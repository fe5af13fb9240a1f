package oncetest_test

import (
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
)

// A backoff is made once, and all items share it: who fails later waits longer.
func ExampleCheckRetry() {
	one := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0),
	)
	policy := oncepipe.RetryPolicy{
		MaxAttempts: 5,
		Backoff:     func() backoff.BackOff { return one },
	}
	fmt.Println(oncetest.CheckRetry(oncetest.RetryLaws{
		Policy: func() oncepipe.RetryPolicy { return policy },
		Seed:   1,
	}))

	policy.Backoff = func() backoff.BackOff { return backoff.NewExponentialBackOff() }
	fmt.Println(oncetest.CheckRetry(oncetest.RetryLaws{
		Policy:      func() oncepipe.RetryPolicy { return policy },
		MinAttempts: 5,
		MaxDelay:    90 * time.Second,
	}))
	// Output:
	// a backoff for each item: items 1 and 2 have one backoff, and each changes the waits of the other
	//   (1 worker, buffer of 0)
	//   0s      item 1: attempt 1 fails; backoff 1 answers 100ms; waits 100ms
	//   0s      item 2: attempt 1 fails; backoff 1 answers 200ms
	//   Seed: 1
	// <nil>
}
