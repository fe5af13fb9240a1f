package webhook

import (
	"net/http"
	"strconv"
	"time"

	"github.com/oncepipe/oncepipe"
)

// What a 503 says. The texts are for people; senders look at the code.
const (
	textFull       = "pipeline is full"
	textNotRunning = "pipeline is not running"
	textInProgress = "still in progress"
	textLeft       = "sender has left"
)

// answer is what a handler writes, once.
type answer struct {
	code  int
	text  string
	retry time.Duration // Retry-After, if positive
	allow string        // Allow, if not empty
}

// write writes a. Whether it reaches the sender is not known to anyone; if it
// doesn't, the sender sends the request again.
func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.allow != "" {
		h.Set("Allow", a.allow)
	}
	if a.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(a.retry), 10))
	}
	w.WriteHeader(a.code)
	_, _ = w.Write([]byte(a.text + "\n"))
}

// seconds rounds up: a sender that comes too early is refused again.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return max(n, 1)
}

// DefaultStatus is the default of Config.Status: 200 for Done, Duplicate and
// Filtered; 202 for Dead, whose dead letter was written, so that sending it
// again is of no use; 503 for Shed, Returned and anything else.
func DefaultStatus(s oncepipe.Settlement) int {
	switch s.Outcome {
	case oncepipe.Done, oncepipe.Duplicate, oncepipe.Filtered:
		return http.StatusOK
	case oncepipe.Dead:
		return http.StatusAccepted
	}
	return http.StatusServiceUnavailable
}

// settled answers with the outcome. Its error stays here: it is about the
// inside of the service.
func (s *Source) settled(st oncepipe.Settlement) answer {
	code := s.cfg.Status(st)
	switch {
	case code < 200 || code > 599:
		code = http.StatusInternalServerError
	case code < 300 && st.Outcome == oncepipe.Returned:
		code = http.StatusServiceUnavailable
	}
	a := answer{code: code, text: st.Outcome.String()}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		a.retry = max(st.Delay, s.cfg.RetryAfter)
	}
	return a
}

// refuse answers a request for which there is no room, or no pipeline.
func (s *Source) refuse(text string) answer {
	s.refused.Add(1)
	return s.later(0, text)
}

// later answers that the sender still has the request.
func (s *Source) later(delay time.Duration, text string) answer {
	return answer{code: http.StatusServiceUnavailable, text: text, retry: max(delay, s.cfg.RetryAfter)}
}

func (s *Source) tooLarge() answer {
	return answer{
		code: http.StatusRequestEntityTooLarge,
		text: "body is larger than " + strconv.FormatInt(s.cfg.MaxBody, 10) + " bytes",
	}
}
