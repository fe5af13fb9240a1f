// Package bubble runs code in fake time where there is no test.
package bubble

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// Run runs f in a synctest bubble. The error is f's, or its panic, or says that f
// ended its goroutine, or that goroutines were left that nothing can wake any more;
// these stay for ever.
//
// synctest asks for a T, to report through and for its name. Nothing of ours is
// reported through this one, so that bubbles are there where no T is: in an Example,
// in a program, or under another test framework. It ends its goroutine when the race
// detector has found something.
func Run(f func() error) (err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		over := false
		defer func() {
			switch r := recover(); {
			case r != nil:
				err = fmt.Errorf("%v", r)
			case !over && err == nil:
				err = errors.New("a data race, see the detector's report")
			}
		}()
		synctest.Test(new(testing.T), func(*testing.T) { err = kept(f) })
		over = true
	}()
	<-ended
	return err
}

// kept runs f in a goroutine of its own, since a Goexit would end the bubble's T.
func kept(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = errors.New("a goroutine was ended by runtime.Goexit, as t.FailNow does")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		err = f()
	}()
	<-done
	return err
}
