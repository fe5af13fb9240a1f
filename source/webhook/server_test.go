package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

// pipes is a listener whose connections live in the test's bubble, so that a
// real server runs on fake time.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// serveBubble runs a real server for src until the test's bubble ends, and
// returns what dials it.
func serveBubble(t *testing.T, src *webhook.Source, srv *http.Server) (dial func() net.Conn) {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv.Handler = src
	srv.ErrorLog = log.New(io.Discard, "", 0)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return func() net.Conn {
		client, server := net.Pipe()
		l.conns <- server
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
}

func post(body string) string {
	return fmt.Sprintf("POST /hooks HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func read(t *testing.T, r *bufio.Reader) (code int, text string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	return resp.StatusCode, strings.TrimSpace(string(body))
}

// A server's ReadTimeout runs on after the body, and net/http takes its end for
// the sender's leaving. The hold outlasts it, and so does the connection.
func TestServerReadTimeoutDoesNotEndTheHold(t *testing.T) {
	for _, body := range []string{"body", ""} {
		synctest.Test(t, func(t *testing.T) {
			src := webhook.New(webhook.Config{})
			ctx, _ := running(t, src)
			c := serveBubble(t, src, &http.Server{ReadTimeout: time.Second})()
			r := bufio.NewReader(c)
			write(t, c, post(body))
			d := receive(t, ctx, src)
			time.Sleep(time.Hour)
			if got := src.Stats(); got.Held != 1 {
				t.Errorf("%+v, want 1 held", got)
			}
			settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
			if code, text := read(t, r); code != 200 || text != "done" {
				t.Errorf("answer %d %s", code, text)
			}

			write(t, c, post(body)) // the connection is still good
			settle(t, receive(t, ctx, src), oncepipe.Settlement{Outcome: oncepipe.Done})
			if code, text := read(t, r); code != 200 || text != "done" {
				t.Errorf("second answer %d %s", code, text)
			}
		})
	}
}

// A slow sender is answered at ReadTimeout and gives its place back. Nor does the
// rest of a body hold up the answer of one that is refused.
func TestSlowBodies(t *testing.T) {
	tests := []struct {
		cfg  webhook.Config
		text string
		code int
		at   time.Duration
	}{
		{webhook.Config{}, "body took too long", 408, 10 * time.Second},
		{webhook.Config{ReadTimeout: 3 * time.Second}, "body took too long", 408, 3 * time.Second},
		{webhook.Config{MaxHold: 2 * time.Second}, "body took too long", 408, 2 * time.Second},
		{webhook.Config{ReadTimeout: -1, MaxHold: 2 * time.Second}, "body took too long", 408, 2 * time.Second},
		{webhook.Config{Methods: []string{"PUT"}}, "method not allowed", 405, 10 * time.Second},
		{webhook.Config{MaxBody: 4}, "body is larger than 4 bytes", 413, 10 * time.Second},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			src := webhook.New(tt.cfg)
			if tt.code == 408 {
				running(t, src)
			}
			c := serveBubble(t, src, &http.Server{})()
			start := time.Now()
			write(t, c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab")
			code, text := read(t, bufio.NewReader(c))
			if code != tt.code || text != tt.text {
				t.Errorf("answer %d %s, want %d %s", code, text, tt.code, tt.text)
			}
			if took := time.Since(start); took != tt.at {
				t.Errorf("answered after %v, want %v", took, tt.at)
			}
			expectIdle(t, src)
		})
	}
}

// ReadTimeout -1 leaves the connection alone: the server's own limit holds.
func TestNegativeReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{ReadTimeout: -1})
		running(t, src)
		c := serveBubble(t, src, &http.Server{ReadTimeout: time.Minute})()
		start := time.Now()
		write(t, c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nab")
		if code, text := read(t, bufio.NewReader(c)); code != 408 {
			t.Errorf("answer %d %s, want 408", code, text)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("answered after %v, want 1m", took)
		}
	})
}

// A connection that is closed is noticed, before admission and after it.
func TestHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{AdmitWait: time.Hour})
		ctx, _ := running(t, src)
		dial := serveBubble(t, src, &http.Server{})

		c := dial()
		write(t, c, post("before"))
		synctest.Wait()
		_ = c.Close()
		synctest.Wait()
		if got := src.Stats(); got.Withdrawn != 1 || got.Pending != 0 {
			t.Errorf("%+v, want 1 withdrawn, 0 pending", got)
		}

		c = dial()
		write(t, c, post("after"))
		d := receive(t, ctx, src)
		_ = c.Close()
		synctest.Wait()
		if got := src.Stats(); got.Unseen != 1 || got.Held != 0 {
			t.Errorf("%+v, want 1 unseen, 0 held", got)
		}
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Done})
		if string(d.Value.Body) != "after" {
			t.Errorf("got %q", d.Value.Body)
		}
	})
}

// The order of a service's end: Run's context, then Shutdown. Every admitted
// request gets its answer, and Shutdown isn't held up by those that wait.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := webhook.New(webhook.Config{AdmitWait: time.Hour})
		ctx, stop := running(t, src)
		srv := &http.Server{}
		dial := serveBubble(t, src, srv)
		in, out := dial(), dial()
		write(t, in, post("in"))
		d := receive(t, ctx, src)
		write(t, out, post("out"))
		synctest.Wait()

		stop()
		if code, text := read(t, bufio.NewReader(out)); code != 503 || text != "pipeline is not running" {
			t.Errorf("answer %d %s", code, text)
		}
		down := make(chan error, 1)
		go func() { down <- srv.Shutdown(context.Background()) }()
		time.Sleep(time.Minute)
		settle(t, d, oncepipe.Settlement{Outcome: oncepipe.Returned, Delay: 90 * time.Second})
		if code, text := read(t, bufio.NewReader(in)); code != 503 || text != "returned" {
			t.Errorf("answer %d %s", code, text)
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// loopback runs a real server and a pipeline that settles everything Done.
func loopback(t *testing.T, cfg webhook.Config, http2 bool) (srv *httptest.Server, src *webhook.Source) {
	t.Helper()
	src = webhook.New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended, started := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		first := startedContext{Context: ctx, started: started}
		for {
			d, err := src.Receive(&first)
			if err != nil {
				return
			}
			_ = d.Settle(ctx, oncepipe.Settlement{Outcome: oncepipe.Done})
		}
	}()
	srv = httptest.NewUnstartedServer(src)
	srv.EnableHTTP2 = http2
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(func() {
		stop()
		<-ended
		srv.Close()
	})
	<-started
	return srv, src
}

// startedContext tells when Receive waits on it for the first time: only then
// does the source let requests in.
type startedContext struct {
	context.Context
	started chan struct{}
	once    sync.Once
}

func (c *startedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.started) })
	return c.Context.Done()
}

// The limit of the body over real connections, sized and chunked, HTTP/1 and 2.
func TestBodyLimitOverLoopback(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			srv, src := loopback(t, webhook.Config{MaxBody: 1 << 16}, http2)
			for _, tt := range []struct{ size, code int }{
				{0, 200}, {1, 200}, {1 << 16, 200}, {1<<16 + 1, 413}, {1 << 20, 413}, {1, 200},
			} {
				for _, sized := range []bool{true, false} {
					var body io.Reader = bytes.NewReader(make([]byte, tt.size))
					if !sized {
						body = io.MultiReader(body)
					}
					resp, err := srv.Client().Post(srv.URL, "", body)
					if err != nil {
						// A server may close the connection of a body that it won't read.
						if tt.code != 413 {
							t.Errorf("%d bytes: %v", tt.size, err)
						}
						continue
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != tt.code || resp.ProtoAtLeast(2, 0) != http2 {
						t.Errorf("%d bytes, sized %v: %s %s, want %d", tt.size, sized, resp.Proto, resp.Status, tt.code)
					}
				}
			}
			expectIdle(t, src)
		})
	}
}

// Many senders at once on real connections: whoever gets 2xx was admitted and
// settled, and nothing stays behind.
func TestManySendersOverLoopback(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			srv, src := loopback(t, webhook.Config{Pending: 4}, http2)
			var ok, full atomic.Uint64
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for range 10 {
						resp, err := srv.Client().Post(srv.URL, "", strings.NewReader("x"))
						if err != nil {
							t.Errorf("post: %v", err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						switch resp.StatusCode {
						case 200:
							ok.Add(1)
						case 503:
							full.Add(1)
						default:
							t.Errorf("answer %s", resp.Status)
						}
					}
				})
			}
			wg.Wait()
			got := src.Stats()
			if got.Admitted != ok.Load() || got.Refused != full.Load() || ok.Load()+full.Load() != 160 {
				t.Errorf("%+v, but %d answers 200, %d answers 503", got, ok.Load(), full.Load())
			}
			expectIdle(t, src)
		})
	}
}
