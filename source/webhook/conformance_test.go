package webhook_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/source/webhook"
)

// patientSender sends each request until it is accepted, and no longer than limit.
type patientSender struct {
	handler http.Handler
	limit   time.Duration
	ctx     context.Context
	left    atomic.Int64 // not accepted, and not given up
	wg      sync.WaitGroup
}

func (s *patientSender) send(text string) error {
	s.left.Add(1)
	s.wg.Go(func() {
		defer s.left.Add(-1)
		for began := time.Now(); time.Since(began) <= s.limit; {
			retry, accepted := s.post(text)
			if accepted {
				return
			}
			select {
			case <-time.After(retry):
			case <-s.ctx.Done():
				return
			}
		}
	})
	return nil
}

func (s *patientSender) post(text string) (retry time.Duration, accepted bool) {
	r := httptest.NewRequestWithContext(s.ctx, http.MethodPost, "/hooks", strings.NewReader(text))
	r.Header.Set("Idempotency-Key", url.QueryEscape(text))
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	if w.Code < 300 {
		return 0, true
	}
	seconds, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	return time.Duration(seconds) * time.Second, false
}

func TestConformance(t *testing.T) {
	const limit = 72 * time.Hour
	oncetest.Source(t, oncetest.SourceConfig[webhook.Request]{
		New: func() (oncetest.SourceEnv[webhook.Request], error) {
			src := webhook.New(webhook.Config{KeyHeader: "Idempotency-Key", MaxRedelivery: limit})
			ctx, leave := context.WithCancel(context.Background())
			sender := &patientSender{handler: src, limit: limit, ctx: ctx}
			return oncetest.SourceEnv[webhook.Request]{
				Source: src, Send: sender.send,
				Left:  func() int { return int(sender.left.Load()) },
				Close: func() { leave(); sender.wg.Wait() },
			}, nil
		},
		Text:  func(r webhook.Request) string { return string(r.Body) },
		Spoil: func(r webhook.Request) { clear(r.Body); clear(r.Header) },

		Bubble: true, Keyed: true, ReturnsShed: true,
		Delay: 10 * time.Second, MaxRedelivery: limit,
	})
}
