package chans

import (
	"math"
	"runtime/debug"
	"slices"
)

// Driver drives a run for code that has a source of its own, as PipeThrough does
// for channels: it puts values in and is given what comes out. It is not safe for
// concurrent use.
//
// A driver never panics with what a step panics with.
type Driver[A any] struct {
	run     *Run
	in      Sink[A]
	closed  bool
	onError func(*ItemError) error
}

// Drive begins a run of xf. What comes out goes to out, along with the origins
// of the inputs that it stems from: one, or those of the values that went into a
// group; none without origins. They are valid during the call. An error of out is
// a failure of the value that it stems from.
//
// onError takes each failure, of an input or of a group. It returns nil when it
// has dealt with it, so that it doesn't count as lost.
func Drive[A, B any](
	xf Xform[A, B], out func(v B, from []Origin) error, onError func(*ItemError) error,
) *Driver[A] {
	d := newDriver[A](onError)
	var from []Origin
	d.in = xf(d.run, Sink[B]{func(v B) error {
		from = d.run.origins(from[:0])
		return out(v, from)
	}, func() {}})
	return d
}

// drive is Drive for drivers that don't settle.
func drive[A, B any](xf Xform[A, B], out func(B) error, onError func(*ItemError) error) *Driver[A] {
	d := newDriver[A](onError)
	d.in = xf(d.run, Sink[B]{out, func() {}})
	return d
}

func newDriver[A any](onError func(*ItemError) error) *Driver[A] {
	report := func(e *ItemError) (*zone, error) { return nil, onError(e) }
	return &Driver[A]{run: &Run{&zone{&course{end: math.MaxInt}, nil, report}, 0}, onError: onError}
}

// origins adds the origins of the value that is being put to list, each once.
func (r *Run) origins(list []Origin) []Origin {
	if r.lots == nil && r.origin != nil {
		return append(list, r.origin)
	}
	r.round++
	for _, l := range r.lots {
		if l.origin != nil && l.round != r.round {
			l.round = r.round
			list = append(list, l.origin)
		}
	}
	return list
}

// Put puts v. origin, which may be nil, is told when a step keeps v. Put returns
// what onError returned if v failed: nil when it has been dealt with.
func (d *Driver[A]) Put(v A, origin Origin) error {
	d.run.begin(origin)
	d.run.tracked = d.run.tracked || origin != nil
	if d.run.remembers && origin != nil {
		d.run.current()
	}
	if err := try(d.in, v); err != nil {
		return d.onError(failure(v, err))
	}
	return nil
}

// put is Put for drivers that hear of failures by onError only.
func (d *Driver[A]) put(v A) { _ = d.Put(v, nil) }

// checkEvery is how many values are taken without a look at the context, as long
// as nobody has to wait: it would cost a tenth of a hop each time.
const checkEvery = 32

// pump puts the values of from until it ends, done, or the run is stopped or
// broken. It answers false at the end of done. There is one deferred call for all
// values: where a step panics, again is true, and pump has to be called again.
func (d *Driver[A]) pump(done <-chan struct{}, from <-chan A, broken *error) (again, live bool) {
	var v A
	defer func() {
		if r := recover(); r != nil {
			_ = d.onError(failure(v, &PanicError{r, debug.Stack()}))
			again, live = true, true
		}
	}()
	for n, course := 0, d.run.course; !course.stopped && *broken == nil; n++ {
		ready, ok := false, false
		if n%checkEvery > 0 {
			select {
			case v, ok = <-from:
				ready, live = true, true
			default:
			}
		}
		if !ready {
			v, ok, live = receive(done, from)
		}
		if !ok {
			return false, live
		}
		d.run.begin(nil)
		if err := d.in.Put(v); err != nil {
			_ = d.onError(failure(v, err))
		}
	}
	return false, true
}

// Stopped reports whether the run wants no more values. It may be so from the
// beginning.
func (d *Driver[A]) Stopped() bool { return d.run.stopped }

// Stop ends the run from outside: steps stop emitting. Close has yet to be
// called.
func (d *Driver[A]) Stop() { d.run.Stop() }

// Remembers reports whether steps of the run note what has passed them, as
// Distinct and Dedupe do.
func (d *Driver[A]) Remembers() bool { return d.run.remembers }

// Last returns what makes the steps of the run forget the value of the last Put,
// which had an origin: for drivers that learn of a failure when the value has long
// been taken. It is called as the methods are, not at the same time as one of
// them. It is nil for a run that doesn't remember.
func (d *Driver[A]) Last() (forget func()) {
	if !d.run.remembers || len(d.run.lots) == 0 {
		return nil
	}
	l := d.run.lots[0]
	return func() { l.lose(nil) }
}

// Flush makes the steps give on what they have kept, before its time. The run
// goes on.
func (d *Driver[A]) Flush() error {
	for _, flush := range slices.Backward(d.run.flushes) {
		if err := d.giveOn(flush); err != nil {
			return err
		}
	}
	return nil
}

// Close makes the steps give on what they have kept. Only the first call does.
func (d *Driver[A]) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	return d.giveOn(d.in.Close)
}

func (d *Driver[A]) giveOn(kept func()) error {
	d.run.begin(nil)
	err := func() (err error) {
		defer rescue(&err)
		kept()
		return nil
	}()
	if err != nil {
		return d.onError(&ItemError{nil, err})
	}
	return nil
}

// close is Close for drivers that hear of failures by onError only.
func (d *Driver[A]) close() { _ = d.Close() }

// failures collects what failed in a run that its first failure ends.
type failures struct {
	stop func()
	err  error
}

func (f *failures) add(e *ItemError) error {
	f.stop()
	f.err = join(f.err, e)
	return e
}
