package webhook_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type delivery = oncepipe.Delivery[webhook.Request]

// recorder counts what a server would complain about only in its log.
type recorder struct {
	*httptest.ResponseRecorder
	headers atomic.Int32
}

func (r *recorder) WriteHeader(code int) {
	r.headers.Add(1)
	r.ResponseRecorder.WriteHeader(code)
}

// call is a request whose handler runs.
type call struct {
	*recorder
	leave func()        // the sender hangs up
	ended chan struct{} // closed when the handler has returned
}

// send calls the handler in a goroutine of its own.
func send(src http.Handler, body string, header ...string) *call {
	r := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return serve(src, r)
}

func serve(src http.Handler, r *http.Request) *call {
	ctx, leave := context.WithCancel(r.Context())
	c := &call{
		recorder: &recorder{ResponseRecorder: httptest.NewRecorder()},
		leave:    leave,
		ended:    make(chan struct{}),
	}
	go func() {
		defer leave()
		defer close(c.ended)
		src.ServeHTTP(c, r.WithContext(ctx))
	}()
	return c
}

// answered reports whether the handler has returned.
func (c *call) answered() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// expect checks the answer of a handler that has returned by now. It is for
// bubbles.
func (c *call) expect(t *testing.T, code int, text, retryAfter string) {
	t.Helper()
	synctest.Wait()
	if !c.answered() {
		t.Fatalf("not answered; want %d %s", code, text)
	}
	if n := c.headers.Load(); n != 1 {
		t.Errorf("%d headers written, want one", n)
	}
	if c.Code != code || strings.TrimSpace(c.Body.String()) != text {
		t.Errorf("answer %d %q, want %d %q", c.Code, c.Body.String(), code, text)
	}
	if got := c.Header().Get("Retry-After"); got != retryAfter {
		t.Errorf("Retry-After %q, want %q", got, retryAfter)
	}
}

// expectNone checks that nothing was written yet. It is for bubbles.
func (c *call) expectNone(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if c.answered() || c.headers.Load() != 0 {
		t.Fatalf("answered %d, want no answer yet", c.Code)
	}
}

// running makes src take the pipeline as running and busy: its one delivery is
// settled, and no Receive is under way. The context ends with the test.
func running(t *testing.T, src *webhook.Source) (ctx context.Context, stop func()) {
	t.Helper()
	ctx, stop = context.WithCancel(context.Background())
	t.Cleanup(stop)
	first := make(chan delivery)
	go func() {
		d, _ := src.Receive(ctx)
		first <- d
	}()
	synctest.Wait()
	c := send(src, "first", "Idempotency-Key", "first")
	settle(t, <-first, oncepipe.Settlement{Outcome: oncepipe.Done})
	<-c.ended
	return ctx, stop
}

// receive takes a delivery that must be there.
func receive(t *testing.T, ctx context.Context, src *webhook.Source) delivery {
	t.Helper()
	synctest.Wait()
	d, err := src.Receive(ctx)
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return d
}

func settle(t *testing.T, d delivery, s oncepipe.Settlement) {
	t.Helper()
	if err := d.Settle(context.Background(), s); err != nil {
		t.Fatalf("Settle: %v", err)
	}
}

// expectEmpty checks that Receive has nothing to hand over. The source takes the
// end of the check for the end of the run.
func expectEmpty(t *testing.T, ctx context.Context, src *webhook.Source) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	got := make(chan delivery, 1)
	go func() {
		if d, err := src.Receive(ctx); err == nil {
			got <- d
		}
	}()
	synctest.Wait()
	select {
	case d := <-got:
		t.Errorf("Receive handed over %q, want nothing", d.Value.Body)
	default:
	}
	stop()
	synctest.Wait()
}
