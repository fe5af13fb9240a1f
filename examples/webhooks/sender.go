package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The sender is as senders of webhooks are: it has many deliveries under way at
// a time, doesn't wait long for an answer, and sends again until it has one.

const (
	senders     = 32              // deliveries under way
	maxPatience = 5 * time.Second // what -timeout grows to when a delivery is sent again and again
	firstPause  = 5 * time.Millisecond
	maxPause    = 500 * time.Millisecond

	// Its clock is fast: a second of a Retry-After header is this long.
	second = 50 * time.Millisecond

	lineHeader = "X-Line" // of the input, for messages
)

type sender struct {
	url    string
	opt    options
	dead   *deadLetters
	client *http.Client
	sent   atomic.Int64
}

func newSender(url string, o options, dead *deadLetters) *sender {
	return &sender{url: url, opt: o, dead: dead, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 2 * senders},
	}}
}

// play sends until all is acknowledged or ctx ends, and returns how many
// deliveries are not.
func (s *sender) play(ctx context.Context, all iter.Seq[delivery]) (left int64) {
	defer s.client.CloseIdleConnections()
	var open atomic.Int64
	var crew sync.WaitGroup
	queue := make(chan delivery)
	for range senders {
		crew.Go(func() {
			for d := range queue {
				if ctx.Err() != nil || !s.hand(ctx, d) {
					open.Add(1)
				}
			}
		})
	}
	for d := range all {
		queue <- d
	}
	close(queue)
	crew.Wait()
	return open.Load()
}

// hand gets d acknowledged. A share -dup is sent once more on purpose: at the
// same time, a moment later (when it may be parked for a retry), or when the
// first one is done.
func (s *sender) hand(ctx context.Context, d delivery) bool {
	rnd := random(s.opt.seed, d.key, "sender")
	if rnd.Float64() >= s.opt.dup {
		return s.deliver(ctx, d, rnd)
	}
	moment, delay := rnd.IntN(3), rand.N(40*time.Millisecond)
	var again sync.WaitGroup
	defer again.Wait()
	done := make(chan struct{})
	defer close(done)
	again.Go(func() {
		switch moment {
		case 1:
			sleep(ctx, delay)
		case 2:
			<-done
		}
		if ctx.Err() == nil {
			s.deliver(ctx, d, random(s.opt.seed, d.key, "copy"))
		}
	})
	return s.deliver(ctx, d, rnd)
}

// deliver sends d until it is acknowledged or refused for good. It waits longer
// each time, for the answer and before it sends again.
func (s *sender) deliver(ctx context.Context, d delivery, rnd *rand.Rand) bool {
	patience, pause := s.opt.timeout, firstPause
	for {
		status, retryAfter := s.post(d, patience)
		switch {
		case status >= 200 && status < 300:
			return true
		case status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
			s.dead.reject(letter{line: d.line, key: d.key, stage: "receiver", reason: "refused", err: fmt.Errorf("answer %d", status)})
			return true
		}
		wait := min(max(pause, retryAfter), maxPause)
		if !sleep(ctx, wait/2+time.Duration(rnd.Int64N(int64(wait)))) {
			return false
		}
		patience = min(max(2*patience, pause), max(maxPatience, s.opt.timeout))
		pause = min(2*pause, maxPause)
	}
}

// post sends d once. The status is 0 when there was no answer in time. Ctrl-C
// does not end it: the pipeline is draining then, and answers.
func (s *sender) post(d delivery, patience time.Duration) (status int, retryAfter time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(d.body))
	if err != nil {
		panic(err) // the URL is ours
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(lineHeader, strconv.Itoa(d.line))
	s.sent.Add(1)
	res, err := s.client.Do(req)
	if err != nil {
		return 0, 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection can be used again
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 {
		retryAfter = time.Duration(min(n, 3600)) * second
	}
	return res.StatusCode, retryAfter
}

// random returns numbers that depend on the seed and on what they are for, not
// on when they are asked for.
func random(seed uint64, parts ...string) *rand.Rand {
	h := fnv.New64a()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
