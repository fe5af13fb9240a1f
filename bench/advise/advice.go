package main

import (
	"math"
	"sort"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/queueing"
)

// Job is what is known of the work.
type Job struct {
	Service     time.Duration // of one effect
	Exponential bool          // its time varies like an exponential one; else it is fixed
	Workers     int
	Load        float64       // rate of new keys over Workers/Service
	Timeout     time.Duration // the sender sends again when it has no ack after that
	AckLoss     float64       // share of acks that the sender doesn't hear
	Fail        float64       // share of attempts that fail before the effect
	Backoff     time.Duration // first wait after a failure; then twice that, and so on
	Redelivery  time.Duration // the sender may send a key again for that long
	Buffer      int           // to be judged; AnyBuffer: advise one
}

// AnyBuffer leaves the buffer to Advise.
const AnyBuffer = -1

// Advice is what to build, and what to expect of it.
type Advice struct {
	Buffer    int           // of the stage with the effect
	Slots     int           // of its RetryPolicy
	Guard     int           // keys in Dedup's Ring
	Span      time.Duration // for which the guard knows a key that is done, at least
	Store     Store         // what it is needed for
	Retention time.Duration // of the store, if there is one

	BStar      float64 // beyond it a key in a full buffer is sent again
	Collapse   int     // smallest buffer with a second, collapsed equilibrium; -1: none
	Safest     int     // largest buffer in which hardly a key is late; -1: none
	Full       queueing.Full
	Prediction queueing.Prediction // of a run without Dedup

	Parked     float64 // mean number of items that wait out a backoff
	Timeouts   int     // that the guard has to bridge
	Overflows  bool    // copies can be more than JoinLimit's defaults let wait
	Rate       float64 // keys done per second
	RealLoad   float64 // with the attempts that fail
	NeedsDedup bool    // there is a warning that Dedup answers

	Reasons  Reasons
	Warnings []string
}

// Store is what a store, or a transaction with the effect, is needed for.
type Store string

const (
	// StoreAlways is for a key that may come again later than the guard knows it.
	StoreAlways Store = "yes"
	// StoreForRestarts is for a job whose guard suffices within one process.
	StoreForRestarts Store = "for restarts"
)

const (
	hardlyLate = 0.001 // share of late keys that a safe buffer may have when it is full
	margin     = 0.8   // part of the timeout that counts for that
	negligible = 1e-9  // share of keys whose acks are lost so often in a row that it isn't bridged
	predicted  = 20_000
)

// Advise is pure: the same job has the same advice.
func Advise(j Job) Advice {
	s := queueing.System{
		Workers: j.Workers, Load: j.Load,
		Service: j.Service, Exponential: j.Exponential, Timeout: j.Timeout,
	}
	a := Advice{
		BStar:    queueing.BStar(j.Workers, j.Timeout, j.Service),
		Safest:   safest(s),
		Rate:     min(j.Load, 1) * float64(j.Workers) / j.Service.Seconds(),
		RealLoad: j.Load / (1 - j.Fail),
		Timeouts: timeouts(j.AckLoss),
	}
	a.Collapse = -1
	if at, ok := queueing.Collapse(s); ok {
		a.Collapse = at
	}
	if a.Buffer = j.Buffer; j.Buffer == AnyBuffer {
		a.Buffer = max(0, min(oncepipe.DefaultBuffer, a.Safest))
	}
	s.Buffer = a.Buffer
	a.Full = queueing.FullSystem(s)
	a.Prediction = queueing.Predict(queueing.Run{System: s, Keys: predicted, Warmup: predicted / 10})

	a.Parked = a.Rate * parkedFor(j).Seconds()
	a.Slots = max(oncepipe.DefaultSlots, int(math.Ceil(a.Parked+6*math.Sqrt(a.Parked)))+j.Workers)
	a.Overflows = overflows(s, j, a.Slots)
	a.Span = span(j.Timeout, a.Timeouts, a.Overflows)
	a.Guard = queueing.KeysWithin(s, a.Span)
	a.Store = StoreForRestarts
	if j.Redelivery > a.Span || a.Guard > math.MaxInt32 {
		a.Store = StoreAlways
	}
	a.Retention = j.Redelivery + max(j.Redelivery/10, j.Timeout)

	a.explain(j, queueing.KeysWithin(s, j.Redelivery))
	a.warn(j)
	return a
}

// safest is the largest buffer with which, when it is full, hardly a key comes
// near the timeout; -1: even without a buffer some do. With fixed services the
// workers may all end at the same moment, so that the buffer is emptied in steps
// of a whole service.
func safest(s queueing.System) int {
	s.Timeout = time.Duration(margin * float64(s.Timeout))
	most := int(math.Floor(queueing.BStar(s.Workers, s.Timeout, s.Service)))
	if most < 0 {
		return -1
	}
	if !s.Exponential {
		return most - most%s.Workers
	}
	return sort.Search(most+1, func(b int) bool {
		s.Buffer = b
		return queueing.FullSystem(s).Late > hardlyLate
	}) - 1
}
