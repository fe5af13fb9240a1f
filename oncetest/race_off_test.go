//go:build !race

package oncetest_test

const raceEnabled = false
