//go:build race

package queueing

// thorough: the race detector has nothing to find in a loop without goroutines,
// and makes it six times slower.
const thorough = false
