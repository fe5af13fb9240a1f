package webhook

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Source is an http.Handler whose requests are the deliveries of an
// oncepipe.Source. Make it with New; its methods are safe for concurrent use,
// but for Receive.
type Source struct {
	cfg Config

	// wake tells Receive that the queue has something. One place is enough for a
	// single receiver, which looks at the queue again before it waits.
	wake chan struct{}

	mu     sync.Mutex
	run    context.Context // of the last Receive: its end is the end of that Run, also while no call is under way
	queue  list.List       // of *ticket: read, not admitted, oldest first
	places int             // of Config.Pending that are taken: those in queue and those whose body is being read
	waits  int             // handlers that wait for admission or for the outcome

	admitted, refused, withdrawn, late, unseen atomic.Uint64
}

var (
	_ http.Handler               = (*Source)(nil)
	_ oncepipe.Source[Request]   = (*Source)(nil)
	_ oncepipe.RedeliveryLimiter = (*Source)(nil)
)

// New returns a Source that answers 503 until a pipeline receives from it.
func New(cfg Config) *Source {
	return &Source{cfg: cfg.withDefaults(), wake: make(chan struct{}, 1)}
}

// ticket is a request on its way from its handler to Receive and, by the
// outcome, back.
type ticket struct {
	value   Request
	sender  context.Context // ends when the sender leaves
	outcome outcome

	// fate goes from open to admitted (by Receive) or to withdrawn (by the
	// handler), whichever comes first, and stays.
	fate atomic.Uint32

	// Guarded by Source.mu.
	placed bool          // has one of the places
	waits  bool          // counts in Source.waits
	elem   *list.Element // its entry in the queue, nil outside of it
}

const (
	open uint32 = iota
	admitted
	withdrawn
)

// admit reports whether the request now belongs to the pipeline. A sender that
// has left by now is passed over, even if its handler was not yet told.
func (t *ticket) admit() bool {
	return t.sender.Err() == nil && t.fate.CompareAndSwap(open, admitted)
}

// withdraw reports whether the request is now certain never to be admitted.
func (t *ticket) withdraw() bool { return t.fate.CompareAndSwap(open, withdrawn) }

// delivery is called by the goroutine that admitted t.
func (t *ticket) delivery() oncepipe.Delivery[Request] {
	d := oncepipe.Delivery[Request]{Value: t.value, Key: t.value.Key, Settle: t.outcome.settle}
	t.value = Request{} // the handler may wait for longer than the pipeline needs the body
	return d
}

// outcome carries a settlement to the handler. It has one place, and it is all
// that a delivery keeps of its request: the pipeline may work on for hours after
// the connection is gone.
type outcome chan oncepipe.Settlement

// settle is the Settle of a delivery. It takes everything, since a handler that
// is gone has not answered 2xx: the sender still has the request.
func (o outcome) settle(_ context.Context, s oncepipe.Settlement) error {
	select {
	case o <- s:
	default: // settled before: the first one is the answer
	}
	return nil
}

// Receive hands over the request that has waited longest. It blocks until there
// is one, and returns ctx.Err() when ctx has ended. It is called by one
// goroutine, with one ctx as long as it should be taken as one Run: while ctx
// lives, requests are let in, between two calls as well; when it ends, those that
// wait are answered 503 at once.
func (s *Source) Receive(ctx context.Context) (oncepipe.Delivery[Request], error) {
	for {
		if err := ctx.Err(); err != nil {
			return oncepipe.Delivery[Request]{}, err
		}
		t := s.next(ctx)
		if t == nil {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		if t.admit() {
			s.admitted.Add(1)
			return t.delivery(), nil
		}
	}
}

// MaxRedelivery returns Config.MaxRedelivery.
func (s *Source) MaxRedelivery() time.Duration { return s.cfg.MaxRedelivery }

// Stats are counts of a Source, since New where nothing else is said. A request
// that was refused for what it is (400, 405, 408, 413) is in none of them.
type Stats struct {
	Running   bool   // now: a pipeline receives; a readiness probe may want to know
	Pending   int    // now: being read, or waiting for Receive
	Held      int    // now: admitted, and the sender waits for the outcome
	Admitted  uint64 // handed over by Receive
	Refused   uint64 // answered 503 before admission: full or not running
	Withdrawn uint64 // left by their senders before admission
	Late      uint64 // admitted, and answered 503 by MaxHold
	Unseen    uint64 // admitted, and left by their senders before the outcome
}

// Stats returns the counts of this moment. The counters are read one after the
// other, so they need not fit each other to the last request.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	run := s.run
	pending := s.places
	held := s.waits - s.queue.Len()
	s.mu.Unlock()
	return Stats{
		Running:   run != nil && run.Err() == nil,
		Pending:   pending,
		Held:      held,
		Admitted:  s.admitted.Load(),
		Refused:   s.refused.Load(),
		Withdrawn: s.withdrawn.Load(),
		Late:      s.late.Load(),
		Unseen:    s.unseen.Load(),
	}
}

// enter takes a place for a new request. When there is none it returns nil and
// what to tell the sender.
func (s *Source) enter(sender context.Context) (t *ticket, refusal string) {
	s.mu.Lock()
	run := s.run
	s.mu.Unlock()
	if run == nil || run.Err() != nil {
		return nil, textNotRunning
	}
	// If the Run ends from here on, the handler is told while it waits.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places >= s.cfg.Pending {
		return nil, textFull
	}
	s.places++
	return &ticket{sender: sender, outcome: make(outcome, 1), placed: true}, ""
}

// push queues t and returns the context whose end is the end of the Run that it
// waits for.
func (s *Source) push(t *ticket) context.Context {
	s.mu.Lock()
	t.elem = s.queue.PushBack(t)
	t.waits = true
	s.waits++
	run := s.run
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return run
}

// next notes that the Run of ctx receives and takes the oldest request off the
// queue, nil if there is none.
func (s *Source) next(ctx context.Context) *ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = ctx
	front := s.queue.Front()
	if front == nil {
		return nil
	}
	t := front.Value.(*ticket)
	s.vacate(t)
	return t
}

// leave ends t's stay. Its place is given back unless Receive took it before.
func (s *Source) leave(t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate(t)
	if t.waits {
		t.waits = false
		s.waits--
	}
}

// vacate takes t off the queue and gives its place back. It is called with s.mu
// held.
func (s *Source) vacate(t *ticket) {
	if t.elem != nil {
		s.queue.Remove(t.elem)
		t.elem = nil
	}
	if t.placed {
		t.placed = false
		s.places--
	}
}
