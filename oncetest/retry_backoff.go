package oncetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/oncepipe/oncepipe"
)

// listener is a backoff that notes what another answers.
type listener struct {
	backoff.BackOff
	run    *retryRun
	number int // the same for those that have something in common
	item   int // that it was made for
	before memory
}

func (r *retryRun) listen(b backoff.BackOff) backoff.BackOff {
	if b == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &listener{BackOff: b, run: r, item: r.failed, number: len(r.instances) + 1, before: memoryOf(b)}
	for _, other := range r.instances {
		if len(l.before.common(other.before)) > 0 {
			l.number = other.number
			break
		}
	}
	r.instances = append(r.instances, l)
	if l.number == len(r.instances) && r.laws.refresh(b, l.before) {
		l.before = memoryOf(b)
	}
	return l
}

// refresh makes a backoff that all schedules share start anew, so that they can
// be run again. One that only items of one schedule share is left as it is.
func (l RetryLaws) refresh(b backoff.BackOff, has memory) bool {
	if len(has.common(l.everybodys.before)) == 0 {
		return false
	}
	b.Reset()
	return true
}

// NextBackOff passes the answer on.
func (l *listener) NextBackOff() time.Duration {
	d := l.BackOff.NextBackOff()
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	l.run.noteLocked(retryEvent{item: l.run.failed, kind: asked, delay: d, own: l})
	return d
}

// memory is what a backoff remembers: the state of each backoff that it consists of, by
// address. One that is part of two others does no harm if its state never changes.
type memory map[uintptr]string

func memoryOf(b backoff.BackOff) memory {
	m := memory{}
	m.describe(reflect.ValueOf(b))
	return m
}

var backoffType = reflect.TypeFor[backoff.BackOff]()

// describe shows what is in v itself. What it refers to is somebody else's, and
// may be in use, unless it is a backoff too.
func (m memory) describe(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || !v.Type().Implements(backoffType) {
			return ""
		}
		at := v.Pointer()
		if _, known := m[at]; !known {
			m[at] = "" // in case it refers to itself
			m[at] = m.describe(v.Elem())
		}
		return m[at]
	case reflect.Interface:
		if v.IsNil() || !v.Elem().Type().Implements(backoffType) {
			return ""
		}
		return m.describe(v.Elem())
	case reflect.Struct, reflect.Array:
		return m.describeParts(v)
	case reflect.Slice, reflect.Map, reflect.Chan:
		return fmt.Sprint(v.Pointer(), v.Len())
	case reflect.Func, reflect.UnsafePointer, reflect.Invalid:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

func (m memory) describeParts(v reflect.Value) string {
	n, part := v.Len, v.Index
	if v.Kind() == reflect.Struct {
		n, part = v.NumField, v.Field
	}
	parts := make([]string, n())
	for i := range parts {
		parts[i] = m.describe(part(i))
	}
	return strings.Join(parts, ";")
}

// common returns the addresses of the backoffs that are part of both.
func (m memory) common(other memory) (at []uintptr) {
	for p := range m {
		if _, both := other[p]; both {
			at = append(at, p)
		}
	}
	return at
}

// retryProbe says how much of a backoff is looked at.
type retryProbe struct {
	answers   int // of one that is asked for long
	instances int // that are asked a few times each
	callers   int // at once
}

// probe asks the policy's backoff directly, in a time that its waits take up.
func (l RetryLaws) probe(size retryProbe) retryFound {
	found := retryFound{}
	err := inBubble(func() {
		p := l.Policy()
		if p.Backoff == nil {
			return
		}
		if p.MaxAge == 0 {
			p.MaxAge = oncepipe.DefaultMaxAge
		}
		crash := survive(func() {
			l.probeLong(p, found, size.answers)
			for range size.instances {
				l.follow(p, found, 4)
			}
			probeCallers(p, found, size.callers)
		})
		if crash != nil {
			found.add(lawCrash, "%v", crash)
		}
	})
	if err != nil {
		found.add(lawCrash, "%v", err)
	}
	return found
}

// survive runs f in a goroutine of its own. The error is that f panicked, or
// ended the goroutine.
func survive(f func()) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the backoff calls runtime.Goexit")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("the backoff panics: %v", r)
			}
			done <- err
		}()
		f()
		err = nil
	}()
	return <-done
}

// probeLong follows an item that fails until it is given up.
func (l RetryLaws) probeLong(p oncepipe.RetryPolicy, found retryFound, answers int) {
	waits, why := l.follow(p, found, answers)
	switch attempts := waits + 1; {
	case why == "":
		if p.MaxAttempts == 0 && p.MaxAge < 0 && !l.Endless {
			found.add(lawEnd, "MaxAttempts is 0, MaxAge is negative, and the backoff didn't stop in %d answers: nothing ever gives an item up", waits)
		}
	case attempts < l.MinAttempts:
		found.add(lawMinAttempts, "an item that always fails has %s: then %s; %d are promised", counted(attempts, "attempt"), why, l.MinAttempts)
	}
}

// follow asks a backoff at most n times, as a stage would for an item that fails
// at once. It returns the number of waits, and why there is no further one.
func (l RetryLaws) follow(p oncepipe.RetryPolicy, found retryFound, n int) (waits int, why string) {
	b := p.Backoff()
	l.refresh(b, memoryOf(b))
	begun := time.Now()
	for ; waits < n; waits++ {
		if p.MaxAttempts > 0 && waits == p.MaxAttempts-1 {
			return waits, "MaxAttempts is reached"
		}
		d := b.NextBackOff()
		if what := l.outOfBounds(p, d); what != "" {
			found.add(lawBounds, "answer %d of a fresh backoff is %s", waits+1, what)
		}
		switch {
		case d < 0:
			return waits, "the backoff stops"
		case p.MaxAge > 0 && capped(p, d) > p.MaxAge-time.Since(begun):
			return waits, fmt.Sprintf("MaxAge (%v) is reached", p.MaxAge)
		}
		time.Sleep(min(capped(p, d), l.MaxDelay))
	}
	return waits, ""
}

func capped(p oncepipe.RetryPolicy, d time.Duration) time.Duration {
	if p.MaxDelay > 0 {
		return min(d, p.MaxDelay)
	}
	return d
}

// outOfBounds says what is wrong with an answer of the backoff, if something is.
func (l RetryLaws) outOfBounds(p oncepipe.RetryPolicy, d time.Duration) string {
	switch wait := capped(p, d); {
	case d == backoff.Stop:
		return ""
	case d < 0:
		return fmt.Sprintf("%v: negative, and not Stop", d)
	case wait > l.MaxDelay:
		return fmt.Sprintf("%v: more than the cap of %v", wait, l.MaxDelay)
	case wait < l.MinDelay:
		return fmt.Sprintf("%v: less than the promised %v", wait, l.MinDelay)
	}
	return ""
}

// probeCallers calls Backoff as a stage with several workers does. What it finds
// is found by the race detector. A backoff that items share is another fault.
func probeCallers(p oncepipe.RetryPolicy, found retryFound, callers int) {
	var made []backoff.BackOff
	for range 2 * callers {
		b := p.Backoff()
		for _, other := range made {
			if len(memoryOf(b).common(memoryOf(other))) > 0 {
				return
			}
		}
		made = append(made, b)
	}
	var all sync.WaitGroup
	crashes := make(chan error, callers)
	for range callers {
		all.Go(func() {
			crashes <- survive(func() {
				for range 10 {
					b := p.Backoff()
					b.NextBackOff()
					b.NextBackOff()
				}
			})
		})
	}
	all.Wait()
	for range callers {
		if crash := <-crashes; crash != nil {
			found.add(lawCrash, "%v, when it is called from several goroutines", crash)
		}
	}
}
