package chans

import (
	"context"
	"errors"
)

// Rescue gives the failures inside xf to handle, which decides what becomes of
// them: it may emit something in place of the value, or nothing; with nil the
// value is dealt with, and an error is its failure. What handle emits goes on
// behind xf. What a step had given on before the failure stands.
//
// Failures of steps behind xf are not handled here. A panic of handle is a
// failure like others. What has been dealt with counts as taken for the steps before
// xf, and as failed for the steps in it.
func Rescue[A, B any](xf Xform[A, B], handle func(e *ItemError, emit func(B) error) error) Xform[A, B] {
	return func(r *Run, next Sink[B]) Sink[A] {
		s := &rescued[A, B]{next: next, handle: handle}
		s.zone = &zone{r.course, r.zone, s.report}
		s.in = xf(&Run{s.zone, r.place}, Sink[B]{s.pass, next.Close})
		return Sink[A]{s.put, s.in.Close}
	}
}

type rescued[A, B any] struct {
	zone   *zone // of the steps of xf
	in     Sink[A]
	next   Sink[B]
	handle func(*ItemError, func(B) error) error
	behind error // the failure of a step behind xf
	inside bool  // such a step is running
}

func (s *rescued[A, B]) put(v A) error {
	s.behind, s.inside = nil, false
	if err := try(s.in, v); err != nil {
		return s.decide(v, err)
	}
	return nil
}

// report takes the failure of something that a step of xf had kept.
func (s *rescued[A, B]) report(e *ItemError) (*zone, error) {
	if err := s.decide(e.Value, e.Err); err != nil {
		return s.zone.parent.report(failure(e.Value, err))
	}
	return s.zone, nil
}

// pass puts what comes out of xf, and remembers a failure of what is behind.
func (s *rescued[A, B]) pass(v B) error {
	s.inside = true
	s.behind = s.next.Put(v)
	s.inside = false
	return s.behind
}

// decide returns nil if the failure has been dealt with. What panicked while a
// step behind xf was running is that step's.
func (s *rescued[A, B]) decide(v any, err error) error {
	if s.inside || s.behind != nil && errors.Is(err, s.behind) {
		s.behind, s.inside = nil, false
		return err
	}
	return s.dealWith(failure(v, err))
}

func (s *rescued[A, B]) dealWith(e *ItemError) (err error) {
	defer rescue(&err)
	return s.handle(e, s.next.Put)
}

// RescueFunc is Rescue for a function of Pipeline: handle gets the error of a
// value, a PanicError too. What fn had emitted for that value is left out.
func RescueFunc[A, B any](
	fn func(context.Context, A, func(B)) error,
	handle func(ctx context.Context, v A, err error, emit func(B)) error,
) func(context.Context, A, func(B)) error {
	return func(ctx context.Context, v A, emit func(B)) error {
		var out []B
		err := func() (err error) {
			defer rescue(&err)
			return fn(ctx, v, func(w B) { out = append(out, w) })
		}()
		if err != nil {
			return handle(ctx, v, err, emit)
		}
		for _, w := range out {
			emit(w)
		}
		return nil
	}
}
