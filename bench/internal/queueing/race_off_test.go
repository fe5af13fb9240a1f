//go:build !race

package queueing

const thorough = true
