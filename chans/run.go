package chans

import "slices"

// Run is one use of a transducer, as one of its steps sees it.
type Run struct {
	*zone
	place int // steps behind this one have a smaller one
}

// zone is what the steps share that are in the same Rescue, or outside of all.
type zone struct {
	*course
	parent *zone // that of the steps around the Rescue; nil outside of all
	// report takes the failure of what a step had kept. It returns nil if that has
	// been dealt with, and by which Rescue, as the zone inside it.
	report func(*ItemError) (by *zone, err error)
}

// course is what all steps of a run share.
type course struct {
	stopped bool // by any step, or the driver
	end     int  // the least place that has stopped it
	places  int  // given out
	// tracked says that somebody wants to hear what becomes of kept values.
	tracked bool
	// remembers says that a step notes what has passed it.
	remembers bool
	flushes   []func() // of the steps that keep values, the last step first
	// lots are the inputs that the value which is being put stems from. They are
	// made when a step keeps it.
	lots   []*lot
	origin Origin // of the input that is being put
	round  uint64 // counts the calls of origins
}

// Origin is where an input of a run comes from. A driver that settles its inputs
// gives one with each, and is told when a step keeps a value beyond its Put.
type Origin interface {
	// Keep says that a step keeps the value, or something made of it.
	Keep()
	// Release takes one Keep back: what was kept has been given on, or is lost with
	// err.
	Release(err error)
}

// lot is an input of which a step keeps something.
type lot struct {
	origin Origin
	round  uint64 // in which its origin was listed
	marks  []mark
	losses []*zone // for each failure, who has dealt with it
}

// mark is what a step has noted about a value that was taken.
type mark struct {
	by   *zone // that of the step
	undo func()
}

// Stop ends the run: the driver takes no more values from its source, closes the
// run, and is done. The step that stops must ignore what may still be put. Steps
// behind it go on with what they have.
func (r *Run) Stop() {
	r.stopped = true
	r.end = min(r.end, r.place)
}

// Stopped reports whether this step, one behind it, or the driver has stopped the
// run, so that nobody wants what would be put next.
func (r *Run) Stopped() bool { return r.place >= r.end }

// before returns the run as the step before those that were made has it.
func (r *Run) before() *Run {
	r.places++
	return &Run{r.zone, r.places}
}

// track makes the run follow kept values, for a step that notes what has passed.
func (r *Run) track() { r.tracked, r.remembers = true, true }

// OnFlush is called by a step when it is made, if it keeps values: flush gives on
// what it has kept, before its time, and leaves it as it was at the beginning.
func (r *Run) OnFlush(flush func()) { r.flushes = append(r.flushes, flush) }

// begin starts the way of an input. Mostly there is nothing to change.
func (r *Run) begin(o Origin) {
	if r.lots != nil {
		r.lots = nil
	}
	if r.origin != nil || o != nil {
		r.origin = o
	}
}

// current are the inputs that the value which is being put stems from.
func (r *Run) current() []*lot {
	if r.lots == nil {
		r.lots = []*lot{{origin: r.origin}}
	}
	return r.lots
}

// taken is called by a step after the next one took its value. It reports whether
// the value stands as taken; undo is called if it is lost later on, as part of
// something that is kept.
func (r *Run) taken(undo func()) bool {
	for _, l := range r.lots {
		if slices.ContainsFunc(l.losses, r.loses) {
			return false
		}
	}
	for _, l := range r.lots {
		l.marks = append(l.marks, mark{r.zone, undo})
	}
	return true
}

// loses reports whether a failure that a Rescue has dealt with, or nobody, is one
// for the steps of z: it isn't for those before that Rescue.
func (z *zone) loses(dealtWith *zone) bool {
	for ; dealtWith != nil; dealtWith = dealtWith.parent {
		if dealtWith.parent == z {
			return false
		}
	}
	return true
}

// Hold is what a step keeps beyond Put. The zero value holds nothing. Steps of
// one's own that keep values use it, so that a value is done no earlier than what
// it went into.
type Hold struct {
	lots []*lot
	last **lot // the first of the lots that were added last
}

// Keep adds the value that is being put.
func (h *Hold) Keep(r *Run) {
	if !r.tracked {
		return
	}
	lots := r.current()
	if h.last == &lots[0] {
		return // another part of the same
	}
	h.last = &lots[0]
	for _, l := range lots {
		h.lots = append(h.lots, l)
		if l.origin != nil {
			l.origin.Keep()
		}
	}
}

// Release puts v, which is made of all that the hold has kept, to the next step,
// and empties the hold. If that fails, the run is told of v, and whatever went
// into it counts as lost.
func Release[T any](r *Run, h *Hold, next Sink[T], v T) {
	lots := h.lots
	h.lots, h.last = nil, nil
	outer, origin := r.lots, r.origin
	r.lots, r.origin = lots, nil
	err := ErrGoexit
	defer func() {
		r.lots, r.origin = outer, origin
		if err != nil {
			var by *zone
			by, err = r.report(failure(v, err))
			for _, l := range lots {
				l.lose(by)
			}
		}
		for _, l := range lots {
			if l.origin != nil {
				l.origin.Release(err)
			}
		}
	}()
	err = try(next, v)
}

// lose takes back what steps have noted about a lot.
func (l *lot) lose(dealtWith *zone) {
	l.losses = append(l.losses, dealtWith)
	l.marks = slices.DeleteFunc(l.marks, func(m mark) bool {
		lost := m.by.loses(dealtWith)
		if lost {
			m.undo()
		}
		return lost
	})
}

// try puts v; a panic is an error.
func try[T any](to Sink[T], v T) (err error) {
	defer rescue(&err)
	return to.Put(v)
}
