package oncetest

import (
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// bubble runs f in a synctest bubble. The error is f's panic, or says that
// goroutines were left that nothing can wake any more; these stay for ever.
//
// synctest asks for a T, to report through and for its name. Nothing is reported
// through this one, so that bubbles are there where no T is: in an Example, or
// under another test framework.
func bubble(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("oncetest: %v", r)
		}
	}()
	synctest.Test(new(testing.T), func(*testing.T) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("oncetest: panic: %v\n%s", r, debug.Stack())
			}
		}()
		f()
	})
	return err
}
