package sim

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// bubble runs f in fake time. The error is f's, or its panic, or says that
// goroutines were left that nothing can wake any more.
//
// synctest asks for a T, to report through. Nothing of ours is reported through
// this one, so that a cell can be run by a program.
func bubble(f func() error) (err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		over := false
		defer func() {
			switch r := recover(); {
			case r != nil:
				err = fmt.Errorf("sim: %v", r)
			case !over && err == nil:
				err = errors.New("sim: a data race, see the detector's report")
			}
		}()
		synctest.Test(new(testing.T), func(*testing.T) { err = kept(f) })
		over = true
	}()
	<-ended
	return err
}

// kept turns a panic of f into an error.
func kept(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("sim: panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}
