//go:build race

package claimmodel

const raceEnabled = true
