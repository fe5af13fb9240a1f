package oncepipe

import (
	"time"
)

// Observer hears of what happens to items, beyond the fast path of an item that
// nothing happens to but its settlement. It is called in the goroutine in which
// it happens, from several at once, and has to be quick. It can't change what it
// sees; its panics are logged.
type Observer func(Event)

// Event is something that happened to an item or a stage.
type Event struct {
	Kind     EventKind
	Pipeline string
	Stage    string // for EventSettled, the source
	Key      string // for EventSettled that of the source, or else the first that KeyBy or Dedup gave before any stage
	Attempt  int
	Outcome  Outcome       // EventSettled
	Delay    time.Duration // EventRetried, EventSnoozed, EventSettled with Returned
	Reason   Reason        // EventDead, and EventDuplicate
	Err      error
}

// EventKind says what happened.
type EventKind uint8

// What can happen.
const (
	EventSettled   EventKind = iota + 1 // a delivery has its outcome
	EventFailed                         // an attempt ended with an error
	EventRetried                        // a failed item is parked for Delay
	EventSnoozed                        // an item asked to be parked for Delay
	EventDead                           // an item is given up
	EventShed                           // a buffer gave an item up
	EventDuplicate                      // Dedup met a key whose effect is committed
	EventJoined                         // Dedup met a key that is in flight
	EventTakeover                       // a joined copy runs in place of one that was lost
	EventPaused
	EventResumed
	EventDraining
)

var eventNames = [...]string{"invalid", "settled", "failed", "retried", "snoozed", "dead", "shed", "duplicate", "joined", "takeover", "paused", "resumed", "draining"}

// String returns the kind's name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "invalid"
}

func (p *Pipeline) observed() bool { return len(p.cfg.Observers) > 0 }

func (p *Pipeline) event(e Event) {
	if !p.observed() {
		return
	}
	e.Pipeline = p.name
	for _, o := range p.cfg.Observers {
		if err := isolate(func() error { o(e); return nil }); err != nil {
			p.failedObserver(e, err)
		}
	}
}

// observe tells observers in this goroutine, which one may end; the rest of them
// hear of e all the same.
func (p *Pipeline) observe(e Event, list []Observer) {
	at := 0
	defer func() {
		r := recover()
		if at == len(list) && r == nil {
			return
		}
		p.failedObserver(e, crashError(r))
		p.observe(e, list[at+1:])
	}()
	for ; at < len(list); at++ {
		list[at](e)
	}
}

func (p *Pipeline) failedObserver(e Event, err error) {
	p.log.Error("oncepipe: observer", "event", e.Kind.String(), "error", err)
}

// Stats is what a pipeline has done and is doing. The outcomes are read before
// Admitted, so that Admitted is never less than their sum; what it is more is
// InFlight.
type Stats struct {
	Pipeline string

	Admitted  int64
	Done      int64
	Duplicate int64
	Filtered  int64
	Shed      int64
	Dead      int64
	Returned  int64
	InFlight  int64

	Sources []SourceStats
	Stages  []StageStats
	Dedups  []DedupStats
	Stores  []StoreStats
}

// Conserved reports whether every admitted delivery has one outcome: true once
// Run has returned, and whenever nothing is in flight.
func (s Stats) Conserved() bool {
	return s.Admitted == s.Done+s.Duplicate+s.Filtered+s.Shed+s.Dead+s.Returned
}

// SourceStats counts the deliveries of a source.
type SourceStats struct {
	Name                                            string
	Admitted                                        int64
	Done, Duplicate, Filtered, Shed, Dead, Returned int64
}

// StageStats is what a stage has done and is doing.
type StageStats struct {
	Name string
	Kind string // stage, trystage, sink, batchstage, batchsink or transduce

	Depth, Capacity int   // of the buffer before it
	Workers, Slots  int   // as configured
	Running         int   // workers that have an item; of batches, the items
	Parked          int64 // items that wait for a retry
	Paused          bool

	// Oldest is the age of the delivery admitted first of those that run or are
	// parked here; 0 when there is none.
	Oldest time.Duration

	Runs     int64 // attempts begun
	Done     int64 // attempts that succeeded
	Failed   int64 // attempts that ended with an error
	Retried  int64 // of these, the ones that led to another attempt
	Snoozed  int64
	Dead     int64 // items given up
	Shed     int64
	Replayed int64 // successes that were a recorded result, without a run

	Batches   int64 // calls of a batch function, those for parts of a batch included
	Gathering int64 // items of the batch that is being filled, or kept by the steps of a Transduce
}

// DedupStats is what a Dedup has done and is doing.
type DedupStats struct {
	Name     string
	InFlight int // keys
	Waiting  int // joined copies that wait for the first one
	Guarded  int // keys that the guard knows

	Claiming  int // with a store: items that wait to be claimed
	Recording int // and those that are settled and not yet recorded

	Fresh      int64 // items let through
	Committed  int64 // duplicates of keys that the guard knew
	Stored     int64 // duplicates of keys that only the store knew
	Joined     int64 // copies that joined a key in flight
	Acked      int64 // of these, the ones whose first copy was done
	TookOver   int64 // of these, the ones that ran in place of the first
	Overflowed int64 // copies returned because too many waited, or for too long
	Busy       int64 // answers of the store that another process has the key, or that it waits there
	Unreached  int64 // items returned because the store couldn't be reached
	Mismatched int64
	NoKey      int64
}

// StoreStats is what a pipeline does for a store: one of Config.Stores, or of
// WithStore.
type StoreStats struct {
	Name string // its Go type

	Held        int   // claims of this pipeline that are being renewed
	Renewed     int64 // leases
	RenewErrors int64 // requests that failed
	Pruned      int64 // records
	PruneErrors int64 // requests that failed
}
