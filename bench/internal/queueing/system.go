package queueing

import "time"

// System is what the theory is about: a sender, a buffer and workers. Nothing
// guards the effect, so every copy of a key is worked on.
type System struct {
	Buffer  int // places in front of the workers, 0 or more
	Workers int // at least 1
	// Load is the rate of new keys over the capacity Workers/Service; above 0.
	Load float64
	// Service is how long the work on one copy takes: always the same, or drawn
	// from an exponential distribution with this mean.
	Service     time.Duration
	Exponential bool
	// Timeout is how long the sender waits for an ack after a delivery was taken;
	// then it sends the key again, and so on.
	Timeout time.Duration
}

// Run is a system that takes a number of keys and is empty before.
type Run struct {
	System
	Keys   int // new keys in all
	Warmup int // of them not counted, at the beginning
	Burst  int // of them there at once at the start
}

// BStar is B*, the number of places from which a copy in the last of them waits
// longer than the sender does: workers × (timeout/service − 1).
func BStar(workers int, timeout, service time.Duration) float64 {
	return float64(workers) * (float64(timeout)/float64(service) - 1)
}

// model is a System in units of the service time.
type model struct {
	buffer, places int     // places: in service and in the buffer
	workers        float64 // so it is also the rate of departures while all are busy
	load, rate     float64 // rate: of new keys
	patience       float64 // the sender's
	exponential    bool
}

func newModel(s System) model {
	w := float64(s.Workers)
	return model{
		buffer: s.Buffer, places: s.Buffer + s.Workers, workers: w,
		load: s.Load, rate: s.Load * w,
		patience:    float64(s.Timeout) / float64(s.Service),
		exponential: s.Exponential,
	}
}
