package oncetest

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// bubble runs f in a synctest bubble. The error is f's panic, or says that
// goroutines were left that nothing can wake any more; these stay for ever.
//
// synctest asks for a T, to report through and for its name. Nothing of ours is
// reported through this one, so that bubbles are there where no T is: in an Example,
// or under another test framework. It ends its goroutine when the race detector has
// found something.
func bubble(f func()) (err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		over := false
		defer func() {
			switch r := recover(); {
			case r != nil:
				err = fmt.Errorf("oncetest: %v", r)
			case !over && err == nil:
				err = errors.New("oncetest: a data race, see the detector's report")
			}
		}()
		synctest.Test(new(testing.T), func(*testing.T) { err = kept(f) })
		over = true
	}()
	<-ended
	return err
}

// kept runs f in a goroutine of its own, since a Goexit would end the bubble's T.
func kept(f func()) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = errors.New("oncetest: a goroutine was ended by runtime.Goexit, as t.FailNow does")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("oncetest: panic: %v\n%s", r, debug.Stack())
			}
		}()
		f()
		err = nil
	}()
	<-done
	return err
}
