//go:build race

package handler

// schedules are fewer: SQLite in Go is slow with the race detector.
const schedules = 40
