package rapidtest_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/oncetest/rapidtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// recorder keeps what rapid reports, in place of failing the test.
type recorder struct {
	rapid.TB
	said   strings.Builder
	failed bool
}

func (r *recorder) note(args ...any) { r.failed = true; fmt.Fprintln(&r.said, args...) }

func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(args...) }
func (r *recorder) Fatal(args ...any)                 { r.note(args...) }
func (r *recorder) Logf(format string, args ...any)   { fmt.Fprintf(&r.said, format+"\n", args...) }
func (r *recorder) Log(args ...any)                   { fmt.Fprintln(&r.said, args...) }
func (r *recorder) FailNow()                          { r.failed = true }
func (r *recorder) Fail()                             { r.failed = true }
func (r *recorder) Failed() bool                      { return r.failed }

func TestRetry(t *testing.T) {
	t.Run("good", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			rapidtest.Retry(t, oncetest.RetryLaws{Policy: func() oncepipe.RetryPolicy {
				return oncepipe.RetryPolicy{MaxAttempts: 4, Backoff: func() backoff.BackOff { return backoff.NewExponentialBackOff() }}
			}})
		})
	})
	t.Run("bad", func(t *testing.T) {
		r := &recorder{TB: t}
		rapid.Check(r, func(t *rapid.T) {
			rapidtest.Retry(t, oncetest.RetryLaws{Policy: func() oncepipe.RetryPolicy {
				one := backoff.NewExponentialBackOff(backoff.WithRandomizationFactor(0), backoff.WithInitialInterval(time.Second))
				return oncepipe.RetryPolicy{MaxAttempts: 4, Backoff: func() backoff.BackOff { return one }}
			}})
		})
		const story = "attempt 1 fails; backoff 1 answers 1.5s"
		if said := r.said.String(); !r.failed || !strings.Contains(said, story) {
			t.Errorf("rapid doesn't tell the smallest story:\n%s", said)
		}
	})
}
