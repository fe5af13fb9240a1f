package webhook_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

// piped runs a pipeline of one stage, with retries, behind src. stop ends Run's
// context, ended waits for Run and checks that nothing was left.
func piped(t *testing.T, src *webhook.Source, handle func(context.Context, webhook.Request) error) (stop, ended func()) {
	t.Helper()
	p := oncepipe.New("orders", oncepipe.Config{
		DrainTimeout: time.Minute,
		DeadLetters:  func(context.Context, oncepipe.DeadLetter) error { return nil },
	})
	hooks := oncepipe.From(p, "hooks", src)
	fresh := oncepipe.Dedup(hooks, "dedup", func(r webhook.Request) string { return r.Key })
	oncepipe.Sink(fresh, "charge", handle,
		oncepipe.Buffer(oncepipe.Fixed(1)), oncepipe.Retry(oncepipe.RetryPolicy{}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	synctest.Wait()
	return stop, func() {
		t.Helper()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		expectIdle(t, src)
	}
}

func keyed(src *webhook.Source, key string) *call { return send(src, key, "Idempotency-Key", key) }

// The same request, sent again while the first copy waits for its retry, when
// its sender has left, and when it is done, is handled once, and every copy is
// told the truth.
func TestPipelineHandlesCopiesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{KeyHeader: "Idempotency-Key", MaxHold: time.Hour})
		var runs atomic.Int32
		_, ended := piped(t, src, func(context.Context, webhook.Request) error {
			if runs.Add(1) == 1 {
				return oncepipe.RetryAfter(10*time.Second, errors.New("not yet"))
			}
			return nil
		})
		first := keyed(src, "k")
		first.expectNone(t)
		first.leave()
		first.expect(t, 503, "sender has left", "1")

		second := keyed(src, "k") // while the first one is parked
		time.Sleep(10*time.Second - 1)
		second.expectNone(t)
		time.Sleep(time.Nanosecond)
		second.expect(t, 200, "duplicate", "")
		keyed(src, "k").expect(t, 200, "duplicate", "")
		if got := runs.Load(); got != 2 {
			t.Errorf("%d runs, want 2: one that failed, one that did it", got)
		}
		ended()
	})
}

// A busy pipeline holds a bounded number of requests and refuses the others
// after AdmitWait; what it can't finish is given back at the end.
func TestPipelineBackPressureAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{KeyHeader: "Idempotency-Key", Pending: 2, AdmitWait: 5 * time.Second})
		gate := make(chan struct{})
		stop, ended := piped(t, src, func(_ context.Context, r webhook.Request) error {
			switch r.Key {
			case "bad":
				return oncepipe.Permanent(errors.New("no such customer"))
			case "parked":
				return oncepipe.RetryAfter(time.Hour, errors.New("bank is closed"))
			}
			<-gate
			return nil
		})
		keyed(src, "bad").expect(t, 202, "dead", "")
		parked := keyed(src, "parked")
		parked.expectNone(t)

		var calls []*call
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			calls = append(calls, keyed(src, key))
			synctest.Wait()
		}
		admitted := int(src.Stats().Admitted) - 2
		if pending := src.Stats().Pending; pending != 2 || admitted+pending != len(calls) {
			t.Fatalf("%+v, want all but two admitted", src.Stats())
		}
		keyed(src, "f").expect(t, 503, "pipeline is full", "1")
		time.Sleep(5 * time.Second)
		for _, c := range calls[admitted:] {
			c.expect(t, 503, "pipeline is full", "1")
		}

		waiting := keyed(src, "g")
		waiting.expectNone(t)
		stop()
		waiting.expect(t, 503, "pipeline is not running", "1")
		synctest.Wait()
		if parked.Code != 503 || parked.Body.String() != "returned\n" || parked.Header().Get("Retry-After") == "" {
			t.Errorf("answer %d %q, want 503 returned with Retry-After", parked.Code, parked.Body)
		}
		for _, c := range calls[:admitted] {
			c.expectNone(t)
		}
		close(gate)
		for _, c := range calls[:admitted] {
			c.expect(t, 200, "done", "")
		}
		ended()
		keyed(src, "late").expect(t, 503, "pipeline is not running", "1")
	})
}
