package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// ServeHTTP reads the request, waits until Receive has handed it over and the
// pipeline has settled it, and answers. It never hangs: it ends when the
// outcome is there, when the sender leaves, when Config.MaxHold is over or, before
// admission, when Config.AdmitWait is over or the pipeline stops receiving.
//
// A panic in Config.Key or Config.Status is the server's to handle, as in any
// handler.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r).write(w)
}

// serve returns the one answer to r. It always returns one: a handler that
// writes nothing is answered 200 by net/http, and a context that ended doesn't
// prove that nobody reads the answer.
func (s *Source) serve(w http.ResponseWriter, r *http.Request) answer {
	received := time.Now()
	// First of all, since the server reads the rest of the body of a request that is
	// refused. For the same reason it is taken away only from one that was read.
	unlimit := s.limitReading(w, received)
	if !slices.Contains(s.cfg.Methods, r.Method) {
		return answer{code: http.StatusMethodNotAllowed, text: "method not allowed", allow: s.cfg.allow()}
	}
	if r.ContentLength > s.cfg.MaxBody {
		return s.tooLarge()
	}

	// The place comes before the body, or a burst of senders could fill the memory
	// with bodies that nobody has room for.
	t, refusal := s.enter(r.Context())
	if t == nil {
		return s.refuse(refusal)
	}
	// Deferred for the panics of Config.Key too.
	defer s.leave(t)

	body, err := s.read(w, r)
	if err != nil {
		return s.unreadable(r, err)
	}
	// From here on the server reads to see the sender leave, however long that
	// takes.
	unlimit()
	key, refusal := s.cfg.key(r, body)
	if refusal != "" {
		return answer{code: http.StatusBadRequest, text: refusal}
	}
	t.value = request(r, body, key, received)
	return s.await(t, s.push(t), received)
}

// read reads the body, within the limit of size and until the read deadline.
func (s *Source) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
}

// limitReading sets the connection's read deadline and returns what takes it
// away again. A ResponseWriter that has none leaves the server's own limits.
func (s *Source) limitReading(w http.ResponseWriter, received time.Time) (unlimit func()) {
	limit := s.cfg.ReadTimeout
	if hold := s.cfg.MaxHold; hold > 0 && (limit < 0 || hold < limit) {
		limit = hold
	}
	if limit < 0 {
		return func() {}
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(received.Add(limit)) != nil {
		return func() {}
	}
	return func() { _ = rc.SetReadDeadline(time.Time{}) }
}

// unreadable answers a request whose body could not be read.
func (s *Source) unreadable(r *http.Request, err error) answer {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return s.tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return answer{code: http.StatusRequestTimeout, text: "body took too long"}
	case r.Context().Err() != nil:
		s.withdrawn.Add(1)
		return s.later(0, textLeft)
	}
	return answer{code: http.StatusBadRequest, text: "can't read body"}
}

// await waits for what comes first. An outcome that is there wins over
// everything else that happened at the same time.
func (s *Source) await(t *ticket, run context.Context, received time.Time) answer {
	stopped := run.Done()
	admitLimit, stopAdmit := after(s.cfg.AdmitWait)
	defer stopAdmit()
	holdLimit, stopHold := after(s.holdLeft(received))
	defer stopHold()
	for {
		select {
		case st := <-t.outcome:
			return s.settled(st)

		case <-stopped:
			if t.withdraw() {
				return s.refuse(textNotRunning)
			}
			stopped = nil // admitted: what the drain makes of it is its outcome

		case <-admitLimit:
			if t.withdraw() {
				return s.refuse(textFull)
			}
			admitLimit = nil

		case <-holdLimit:
			if t.withdraw() {
				return s.refuse(textFull)
			}
			return s.unsettled(t, &s.late, textInProgress)

		case <-t.sender.Done():
			if t.withdraw() {
				s.withdrawn.Add(1)
				return s.later(0, textLeft)
			}
			return s.unsettled(t, &s.unseen, textLeft)
		}
	}
}

// unsettled answers a sender whose request was admitted and who can't wait for
// the outcome, unless it came at this moment.
func (s *Source) unsettled(t *ticket, count *atomic.Uint64, text string) answer {
	select {
	case st := <-t.outcome:
		return s.settled(st)
	default:
		count.Add(1)
		return s.later(0, text)
	}
}

// holdLeft is how much of MaxHold is left, negative when there is no limit.
func (s *Source) holdLeft(received time.Time) time.Duration {
	if s.cfg.MaxHold <= 0 {
		return -1
	}
	return max(0, s.cfg.MaxHold-time.Since(received))
}

// after is a timer that a negative d never lets go off.
func after(d time.Duration) (<-chan time.Time, func() bool) {
	if d < 0 {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(d)
	return t.C, t.Stop
}
