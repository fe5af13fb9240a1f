// Package rapidtest has the checks of package oncetest as properties for
// pgregory.net/rapid, for those who use it: rapid makes the choices, says which, and makes what
// fails smaller.
package rapidtest

import "pgregory.net/rapid"

// draw lets rapid choose.
func draw(t *rapid.T) func(what string, lo, hi int) int {
	return func(what string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, what) }
}
