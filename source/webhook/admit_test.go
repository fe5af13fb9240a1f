package webhook_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

func TestRefusedOutsideRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		send(src, "before").expect(t, 503, "pipeline is not running", "1")

		ctx, stop := running(t, src)
		stop()
		// No Receive is under way: the end of its context alone closes the source.
		send(src, "after").expect(t, 503, "pipeline is not running", "1")
		if _, err := src.Receive(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Receive: %v, want context.Canceled", err)
		}
		// At once: the body, which does not come, is not waited for.
		c := serve(src, httptest.NewRequest("POST", "/", make(chanBody)))
		c.expect(t, 503, "pipeline is not running", "1")

		ctx, _ = running(t, src)
		c = send(src, "again")
		settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: oncepipe.Done})
		c.expect(t, 200, "done", "")
		if got := src.Stats(); got.Refused != 3 || got.Admitted != 3 {
			t.Errorf("%+v, want 3 refused, 3 admitted", got)
		}
	})
}

func TestReceiveReturnsTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := src.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Receive: %v, want context.DeadlineExceeded", err)
		}
	})
}

// While the pipeline is busy, requests wait, up to Pending of them, each up to
// AdmitWait, and are handed over in the order in which they came.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{Pending: 3, AdmitWait: 5 * time.Second, RetryAfter: 7 * time.Second})
		ctx, _ := running(t, src)
		var calls []*call
		for _, body := range []string{"a", "b", "c"} {
			calls = append(calls, send(src, body))
			time.Sleep(time.Second)
		}
		if got := src.Stats(); got.Pending != 3 || got.Held != 0 {
			t.Errorf("%+v, want 3 pending, 0 held", got)
		}
		send(src, "d").expect(t, 503, "pipeline is full", "7") // at once

		a := receive(t, ctx, src)
		if string(a.Value.Body) != "a" {
			t.Errorf("got %q first, want a", a.Value.Body)
		}
		calls = append(calls, send(src, "e"))
		synctest.Wait()
		send(src, "f").expect(t, 503, "pipeline is full", "7")
		if got := src.Stats(); got.Pending != 3 || got.Held != 1 {
			t.Errorf("%+v, want 3 pending, 1 held", got)
		}

		time.Sleep(3*time.Second - 1) // b has waited 5 s
		calls[1].expectNone(t)
		time.Sleep(time.Nanosecond)
		calls[1].expect(t, 503, "pipeline is full", "7")
		calls[0].expectNone(t) // AdmitWait is nothing to one that is admitted
		if c := receive(t, ctx, src); string(c.Value.Body) != "c" {
			t.Errorf("got %q, want c", c.Value.Body)
		}
		time.Sleep(time.Hour)
		calls[3].expect(t, 503, "pipeline is full", "7")
		settle(t, a, oncepipe.Settlement{Outcome: oncepipe.Done})
		calls[0].expect(t, 200, "done", "")
		calls[2].leave()
		expectEmpty(t, ctx, src)
		expectIdle(t, src)
	})
}

func TestNegativeAdmitWaitIsTheSendersPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{AdmitWait: -1})
		ctx, _ := running(t, src)
		a := send(src, "a")
		synctest.Wait()
		b := send(src, "b")
		time.Sleep(24 * time.Hour)
		a.expectNone(t)
		a.leave()
		a.expect(t, 503, "sender has left", "1")
		settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: oncepipe.Done})
		b.expect(t, 200, "done", "")
	})
}

// A request is kept for MaxHold in all, the reading of its body and the wait for
// its admission included.
func TestMaxHoldBeforeAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{AdmitWait: time.Minute, MaxHold: 10 * time.Second})
		ctx, _ := running(t, src)
		body := make(chanBody)
		slow := serve(src, httptest.NewRequest("POST", "/", body))
		time.AfterFunc(3*time.Second, func() { close(body) })
		time.Sleep(10*time.Second - 1)
		slow.expectNone(t)
		time.Sleep(time.Nanosecond)
		slow.expect(t, 503, "pipeline is full", "1")

		a := send(src, "a")
		synctest.Wait()
		b := send(src, "b")
		time.Sleep(6 * time.Second)
		receive(t, ctx, src)
		time.Sleep(4*time.Second - 1)
		a.expectNone(t)
		b.expectNone(t)
		time.Sleep(time.Nanosecond)
		a.expect(t, 503, "still in progress", "1")
		b.expect(t, 503, "pipeline is full", "1")
		expectEmpty(t, ctx, src)
	})
}

// Whatever waits when the run ends is answered at once, with a Receive under
// way or not, and is never handed over later.
func TestP31_StopAnswersWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{AdmitWait: time.Hour})
		ctx, stop := running(t, src)
		in := send(src, "in")
		d := receive(t, ctx, src)
		var calls []*call
		for range 20 {
			calls = append(calls, send(src, "x"))
		}
		synctest.Wait()
		stop()
		for _, c := range calls {
			c.expect(t, 503, "pipeline is not running", "1")
		}
		in.expectNone(t) // admitted: the drain works it off
		ctx, _ = running(t, src)
		expectEmpty(t, ctx, src)
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
		in.expect(t, 200, "done", "")
	})
}

// A run that ends and a new one that begins while a body is read: the request
// belongs to the new one.
func TestRunChangesWhileBodyIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		_, stop := running(t, src)
		body := make(chanBody)
		c := serve(src, httptest.NewRequest("POST", "/", body))
		synctest.Wait()
		if got := src.Stats().Pending; got != 1 {
			t.Errorf("Pending %d while a body is read, want 1", got)
		}
		stop()
		ctx, _ := running(t, src)
		close(body)
		settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: oncepipe.Done})
		c.expect(t, 200, "done", "")

		body = make(chanBody)
		c = serve(src, httptest.NewRequest("POST", "/", body))
		synctest.Wait()
		ctx2, stop2 := running(t, src)
		stop2()
		close(body)
		c.expect(t, 503, "pipeline is not running", "1")
		expectEmpty(t, ctx2, src)
	})
}

// A sender that leaves before its admission is withdrawn; nobody sees it.
func TestSenderLeavesBeforeAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{Pending: 1})
		ctx, _ := running(t, src)
		for range 10 { // more than Pending: each gives its place back
			c := send(src, "x")
			synctest.Wait()
			c.leave()
			c.expect(t, 503, "sender has left", "1")
		}
		expectEmpty(t, ctx, src)
		expectIdle(t, src)
		if got := src.Stats(); got.Withdrawn != 10 || got.Admitted != 1 {
			t.Errorf("%+v, want 10 withdrawn, 1 admitted", got)
		}
	})
}

// Between the sender's leaving and its handler's noticing it, Receive passes
// the request over.
func TestReceiveSkipsSendersThatHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			src := webhook.New(webhook.Config{})
			ctx, _ := running(t, src)
			a := send(src, "a")
			synctest.Wait()
			b := send(src, "b")
			synctest.Wait()
			a.leave()
			d, err := src.Receive(ctx) // at once: no Wait in between
			if err != nil || string(d.Value.Body) != "b" {
				t.Fatalf("got %q, %v; want b", d.Value.Body, err)
			}
			settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
			a.expect(t, 503, "sender has left", "1")
			b.expect(t, 200, "done", "")
		}
	})
}

// After admission the work does not depend on the sender, and its settlement
// has somewhere to go.
func TestSenderLeavesAfterAdmission(t *testing.T) {
	for o := oncepipe.Filtered; o <= oncepipe.Returned; o++ {
		synctest.Test(t, func(t *testing.T) {
			src := webhook.New(webhook.Config{})
			ctx, _ := running(t, src)
			c := send(src, "x")
			d := receive(t, ctx, src)
			c.leave()
			// 503, since a context that ended doesn't prove that nobody reads.
			c.expect(t, 503, "sender has left", "1")
			expectIdle(t, src)
			if string(d.Value.Body) != "x" || d.Value.Header == nil {
				t.Errorf("the delivery lost its value: %+v", d.Value)
			}
			time.Sleep(time.Hour)
			settle(t, d, oncepipe.Settlement{Outcome: o})
			if got := src.Stats(); got.Unseen != 1 || got.Withdrawn != 0 {
				t.Errorf("%+v, want 1 unseen, 0 withdrawn", got)
			}
		})
	}
}

// With MaxHold the sender comes again while the first copy runs; each copy is a
// delivery of its own and gets its own answer.
func TestLateSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{KeyHeader: "Idempotency-Key", MaxHold: 10 * time.Second})
		ctx, _ := running(t, src)
		first := send(src, "x", "Idempotency-Key", "k")
		a := receive(t, ctx, src)
		time.Sleep(11 * time.Second)
		first.expect(t, 503, "still in progress", "1")
		expectIdle(t, src)

		second := send(src, "x", "Idempotency-Key", "k")
		b := receive(t, ctx, src)
		if a.Key != "k" || b.Key != "k" {
			t.Errorf("keys %q and %q, want k", a.Key, b.Key)
		}
		settle(t, a, oncepipe.Settlement{Outcome: oncepipe.Done})
		second.expectNone(t)
		settle(t, b, oncepipe.Settlement{Outcome: oncepipe.Duplicate})
		second.expect(t, 200, "duplicate", "")
		if got := src.Stats(); got.Late != 1 || got.Admitted != 3 {
			t.Errorf("%+v, want 1 late, 3 admitted", got)
		}
	})
}
