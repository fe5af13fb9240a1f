package webhook_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

func TestAnswerFollowsSettlement(t *testing.T) {
	boom := errors.New("password=secret")
	tests := []struct {
		s     oncepipe.Settlement
		code  int
		text  string
		retry string
	}{
		{oncepipe.Settlement{Outcome: oncepipe.Done}, 200, "done", ""},
		{oncepipe.Settlement{Outcome: oncepipe.Duplicate}, 200, "duplicate", ""},
		{oncepipe.Settlement{Outcome: oncepipe.Filtered}, 200, "filtered", ""},
		{oncepipe.Settlement{Outcome: oncepipe.Dead, Err: boom}, 202, "dead", ""},
		{oncepipe.Settlement{Outcome: oncepipe.Shed, Err: boom}, 503, "shed", "2"},
		{oncepipe.Settlement{Outcome: oncepipe.Returned, Err: boom}, 503, "returned", "2"},
		{oncepipe.Settlement{Outcome: oncepipe.Returned, Delay: time.Minute}, 503, "returned", "60"},
		{oncepipe.Settlement{Outcome: oncepipe.Returned, Delay: time.Minute + 1}, 503, "returned", "61"},
		{oncepipe.Settlement{Outcome: oncepipe.Returned, Delay: -time.Minute}, 503, "returned", "2"},
		{oncepipe.Settlement{Outcome: oncepipe.Shed, Delay: math.MaxInt64}, 503, "shed", "9223372037"},
		{oncepipe.Settlement{}, 503, "invalid", "2"},
		{oncepipe.Settlement{Outcome: 99}, 503, "invalid", "2"},
	}
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{RetryAfter: 1500 * time.Millisecond})
		ctx, _ := running(t, src)
		for _, tt := range tests {
			c := send(src, "x")
			d := receive(t, ctx, src)
			c.expectNone(t)
			settle(t, d, tt.s)
			c.expect(t, tt.code, tt.text, tt.retry)
		}
	})
}

// Retry-After has whole seconds and 0 would mean at once.
func TestRetryAfterIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", time.Hour: "3600", -time.Hour: "1",
	} {
		c := send(webhook.New(webhook.Config{RetryAfter: d}), "x")
		<-c.ended
		if got := c.Header().Get("Retry-After"); c.Code != 503 || got != want {
			t.Errorf("RetryAfter %v: %d, Retry-After %q, want %q", d, c.Code, got, want)
		}
	}
}

func TestStatusChoosesTheCode(t *testing.T) {
	tests := []struct {
		outcome oncepipe.Outcome
		code    int // what Status says
		want    int
		retry   string
	}{
		{oncepipe.Done, 204, 204, ""},
		{oncepipe.Dead, 422, 422, ""},
		{oncepipe.Shed, 200, 200, ""}, // shed for good, if the owner likes
		{oncepipe.Shed, 429, 429, "1"},
		{oncepipe.Returned, 429, 429, "1"},
		{oncepipe.Returned, 200, 503, "1"}, // nobody would have the request
		{oncepipe.Returned, 299, 503, "1"},
		{oncepipe.Done, 0, 500, ""},
		{oncepipe.Done, 100, 500, ""}, // net/http would send 200 after it
		{oncepipe.Done, 1000, 500, ""},
	}
	synctest.Test(t, func(t *testing.T) {
		code := 200
		src := webhook.New(webhook.Config{Status: func(oncepipe.Settlement) int { return code }})
		ctx, _ := running(t, src)
		for _, tt := range tests {
			code = tt.code
			c := send(src, "x")
			settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: tt.outcome})
			c.expect(t, tt.want, tt.outcome.String(), tt.retry)
		}
	})
}

// Success is never said of work that is not finished: not while the first copy
// runs, and not when it fails.
func TestR14_NoSuccessBeforeSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{KeyHeader: "Idempotency-Key"})
		ctx, _ := running(t, src)
		first := send(src, "x", "Idempotency-Key", "k")
		synctest.Wait()
		second := send(src, "x", "Idempotency-Key", "k")
		a, b := receive(t, ctx, src), receive(t, ctx, src)
		for range 24 {
			time.Sleep(time.Hour)
			first.expectNone(t)
			second.expectNone(t)
		}
		settle(t, a, oncepipe.Settlement{Outcome: oncepipe.Returned})
		second.expectNone(t)
		settle(t, b, oncepipe.Settlement{Outcome: oncepipe.Returned})
		first.expect(t, 503, "returned", "1")
		second.expect(t, 503, "returned", "1")
	})
}

// A duplicate of completed work is acked each time, or its sender would never
// stop.
func TestR22_DuplicateIsAckedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		ctx, _ := running(t, src)
		for range 5 {
			c := send(src, "x")
			settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: oncepipe.Duplicate})
			c.expect(t, 200, "duplicate", "")
		}
	})
}

// What a sender is told while the work goes on.
func TestR24_AnswerWhileInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{MaxHold: 8 * time.Second, RetryAfter: 20 * time.Second})
		ctx, _ := running(t, src)
		c := send(src, "x")
		d := receive(t, ctx, src)
		time.Sleep(8*time.Second - 1)
		c.expectNone(t)
		time.Sleep(time.Nanosecond)
		c.expect(t, 503, "still in progress", "20")
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
	})
}

// The outcome gets through on a context that has ended.
func TestR38_SettleOnACancelledContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		ctx, stop := running(t, src)
		c := send(src, "x")
		d := receive(t, ctx, src)
		stop()
		c.expectNone(t)
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if err := d.Settle(gone, oncepipe.Settlement{Outcome: oncepipe.Done}); err != nil {
			t.Errorf("Settle: %v", err)
		}
		c.expect(t, 200, "done", "")
	})
}

// Settle called again changes nothing and isn't held up.
func TestFirstSettlementIsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		ctx, _ := running(t, src)
		c := send(src, "x")
		d := receive(t, ctx, src)
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Dead})
		for range 3 {
			settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
		}
		c.expect(t, 202, "dead", "")
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
	})
}

// gatedContext holds its handler up before each select.
type gatedContext struct {
	context.Context
	gate chan struct{}
}

func (c gatedContext) Done() <-chan struct{} {
	<-c.gate
	return c.Context.Done()
}

// A settlement that is there when the handler looks is the answer, whatever else
// has happened until then.
func TestOutcomeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{AdmitWait: time.Second, MaxHold: time.Minute})
		ctx, stop := running(t, src)
		var gates []chan struct{}
		var calls []*call
		for range 30 {
			gate := make(chan struct{})
			r := httptest.NewRequest("POST", "/", nil)
			sender, leave := context.WithCancel(r.Context())
			c := &call{recorder: &recorder{ResponseRecorder: httptest.NewRecorder()}, ended: make(chan struct{})}
			go func() {
				defer close(c.ended)
				src.ServeHTTP(c, r.WithContext(gatedContext{sender, gate}))
			}()
			settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: oncepipe.Done})
			leave()
			gates, calls = append(gates, gate), append(calls, c)
		}
		time.Sleep(time.Hour)
		stop()
		for i, c := range calls {
			close(gates[i])
			c.expect(t, 200, "done", "")
		}
		if got := src.Stats(); got.Unseen != 0 || got.Late != 0 {
			t.Errorf("%+v, want none unseen, none late", got)
		}
	})
}

// A panic in Status is the server's; nothing of the request stays behind.
func TestPanicInStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		armed := false
		src := webhook.New(webhook.Config{Status: func(oncepipe.Settlement) int {
			if armed {
				panic("status")
			}
			return 200
		}})
		ctx, _ := running(t, src)
		armed = true
		c := send(recoverer{src}, "x")
		settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: oncepipe.Done})
		c.expect(t, 500, "status", "")
		expectIdle(t, src)
	})
}

// recoverer answers 500 to a panic, as many services have it around their
// handlers.
type recoverer struct{ http.Handler }

func (h recoverer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(v.(string)))
		}
	}()
	h.Handler.ServeHTTP(w, r)
}

func expectIdle(t *testing.T, src *webhook.Source) {
	t.Helper()
	if s := src.Stats(); s.Pending != 0 || s.Held != 0 {
		t.Errorf("Pending %d, Held %d after the last answer", s.Pending, s.Held)
	}
}

// The default codes for each outcome, also of a future one: what is not known
// to be final stays with the sender.
func TestDefaultStatus(t *testing.T) {
	want := map[oncepipe.Outcome]int{
		oncepipe.Done: 200, oncepipe.Duplicate: 200, oncepipe.Filtered: 200, oncepipe.Dead: 202,
	}
	for o := range oncepipe.Outcome(20) {
		code, final := want[o]
		if !final {
			code = 503
		}
		if got := webhook.DefaultStatus(oncepipe.Settlement{Outcome: o}); got != code {
			t.Errorf("%v: %d, want %d", o, got, code)
		}
	}
}
