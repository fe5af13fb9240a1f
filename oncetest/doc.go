// Package oncetest checks what runs more than once: that a handler, a key
// function, a store, a source and a retry policy are safe in a world that
// delivers at least once.
//
// Each part is a pair: X(t, …) for go test, and CheckX(…) error for other
// frameworks.
package oncetest
