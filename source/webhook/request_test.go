package webhook_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

// chanBody is a body that comes when the test wants it to.
type chanBody chan []byte

func (b chanBody) Read(p []byte) (int, error) {
	chunk, ok := <-b
	if !ok {
		return 0, io.EOF
	}
	return copy(p, chunk), nil
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// The delivery is a copy: the handler's own things end with the handler.
func TestRequestIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		ctx, _ := running(t, src)
		r := httptest.NewRequest("POST", "http://example.com/hooks/acme?a=1", strings.NewReader("body"))
		r.Header["X-Two"] = []string{"1", "2"}
		r.RemoteAddr = "192.0.2.7:1234"
		now := time.Now()
		c := serve(src, r)
		d := receive(t, ctx, src)
		r.Header.Set("X-Two", "changed")
		r.URL.Path = "/changed"
		c.leave()
		synctest.Wait()

		v := d.Value
		if v.Method != "POST" || v.Host != "example.com" || v.RemoteAddr != "192.0.2.7:1234" || !v.Received.Equal(now) {
			t.Errorf("got %+v", v)
		}
		if got := v.URL.String(); got != "http://example.com/hooks/acme?a=1" {
			t.Errorf("URL %s", got)
		}
		if got := strings.Join(v.Header["X-Two"], ","); got != "1,2" {
			t.Errorf("header %q", got)
		}
		if string(v.Body) != "body" {
			t.Errorf("body %q", v.Body)
		}
	})
}

// A body that the pipeline is done with isn't kept for the sake of its answer.
func TestBodyIsNotKeptByTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		ctx, _ := running(t, src)
		c := send(src, "body")
		d := receive(t, ctx, src)
		body := weak.Make(&d.Value.Body[0])
		d.Value.Body = nil
		runtime.GC()
		if body.Value() != nil {
			t.Error("the body is still reachable")
		}
		c.expectNone(t)
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
		c.expect(t, 200, "done", "")
	})
}

func TestMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		running(t, src)
		for _, m := range []string{"GET", "HEAD", "PUT", "DELETE", "post", ""} {
			r := httptest.NewRequest("POST", "/", nil)
			r.Method = m
			c := serve(src, r)
			c.expect(t, 405, "method not allowed", "")
			if got := c.Header().Get("Allow"); got != "POST" {
				t.Errorf("Allow %q", got)
			}
		}

		methods := []string{"PUT", "PATCH"}
		src = webhook.New(webhook.Config{Methods: methods})
		methods[0] = "GET"
		r := httptest.NewRequest("GET", "/", nil)
		c := serve(src, r)
		c.expect(t, 405, "method not allowed", "")
		if got := c.Header().Get("Allow"); got != "PUT, PATCH" {
			t.Errorf("Allow %q", got)
		}
		// Not refused for its method, but for the pipeline that is missing.
		serve(src, httptest.NewRequest("PUT", "/", nil)).expect(t, 503, "pipeline is not running", "1")
	})
}

func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{MaxBody: 5, Pending: 1})
		ctx, _ := running(t, src)
		for range 3 { // Pending is 1: each gives its place back
			send(src, "123456").expect(t, 413, "body is larger than 5 bytes", "")

			unsized := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("123456")))
			serve(src, unsized).expect(t, 413, "body is larger than 5 bytes", "")

			serve(src, httptest.NewRequest("POST", "/", brokenBody{})).expect(t, 400, "can't read body", "")
		}
		for _, body := range []string{"12345", ""} {
			c := send(src, body)
			d := receive(t, ctx, src)
			if string(d.Value.Body) != body {
				t.Errorf("body %q, want %q", d.Value.Body, body)
			}
			settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
			c.expect(t, 200, "done", "")
		}
		noBody := httptest.NewRequest("POST", "/", nil)
		noBody.Body = nil
		noBody.URL = nil
		c := serve(src, noBody)
		d := receive(t, ctx, src)
		if len(d.Value.Body) != 0 || d.Value.URL == nil {
			t.Errorf("got %+v", d.Value)
		}
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
		c.expect(t, 200, "done", "")
	})
}

// A sender that leaves in the middle of its body is withdrawn.
func TestSenderLeavesWhileBodyIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{})
		running(t, src)
		body := make(chanBody)
		c := serve(src, httptest.NewRequest("POST", "/", io.MultiReader(body, brokenBody{})))
		synctest.Wait()
		c.leave()
		c.expectNone(t) // net/http ends the read, not the context
		close(body)
		c.expect(t, 503, "sender has left", "1")
		expectIdle(t, src)
		if got := src.Stats().Withdrawn; got != 1 {
			t.Errorf("Withdrawn %d, want 1", got)
		}
	})
}

func TestKeyHeader(t *testing.T) {
	const name = "Idempotency-Key"
	tests := []struct {
		optional bool
		values   []string
		key      string
		refusal  string
	}{
		{false, []string{"k"}, "k", ""},
		{false, []string{`"quoted", as it is`}, `"quoted", as it is`, ""},
		{false, []string{"k", "k"}, "k", ""},
		{false, []string{"", "k", ""}, "k", ""},
		{false, nil, "", "missing header " + name},
		{false, []string{""}, "", "missing header " + name},
		{false, []string{"k", "l"}, "", "more than one value of header " + name},
		{true, nil, "", ""},
		{true, []string{"k"}, "k", ""},
		{true, []string{"k", "l"}, "", "more than one value of header " + name},
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			src := webhook.New(webhook.Config{KeyHeader: name, KeyOptional: tt.optional, Pending: 1})
			ctx, _ := running(t, src)
			var header []string
			for _, v := range tt.values {
				header = append(header, name, v)
			}
			c := send(src, "x", header...)
			if tt.refusal != "" {
				c.expect(t, 400, tt.refusal, "")
				expectIdle(t, src)
				continue
			}
			d := receive(t, ctx, src)
			if d.Key != tt.key || d.Value.Key != tt.key {
				t.Errorf("%q: keys %q and %q, want %q", tt.values, d.Key, d.Value.Key, tt.key)
			}
			settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
			c.expect(t, 200, "done", "")
		}
	})
}

func TestKeyFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{
			KeyHeader: "Not-Looked-At",
			Pending:   1,
			Key: func(r *http.Request, body []byte) (string, error) {
				switch string(body) {
				case "bad":
					return "ignored", errors.New("no event id")
				case "panic":
					panic("key")
				case "goexit":
					runtime.Goexit()
				}
				return r.URL.Path + "#" + string(body), nil
			},
		})
		ctx, _ := running(t, src)
		for range 3 { // Pending is 1: each gives its place back
			send(src, "bad").expect(t, 400, "no event id", "")
			send(recoverer{src}, "panic").expect(t, 500, "key", "")
			c := send(src, "goexit")
			synctest.Wait()
			if !c.answered() || c.headers.Load() != 0 {
				t.Errorf("answer %d after Goexit, want none", c.Code)
			}
			expectIdle(t, src)
		}
		c := send(src, "e1")
		d := receive(t, ctx, src)
		if d.Key != "/hooks#e1" {
			t.Errorf("key %q", d.Key)
		}
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
		c.expect(t, 200, "done", "")
		expectEmpty(t, ctx, src)
	})
}

// Run compares it with the retention of the stores.
func TestR64_MaxRedelivery(t *testing.T) {
	var l oncepipe.RedeliveryLimiter = webhook.New(webhook.Config{MaxRedelivery: 72 * time.Hour})
	if got := l.MaxRedelivery(); got != 72*time.Hour {
		t.Errorf("MaxRedelivery %v", got)
	}
}
