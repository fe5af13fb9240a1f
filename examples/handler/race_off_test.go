//go:build !race

package handler

// schedules are about as many as there are with one fault, where a database is
// in it: each takes some milliseconds.
const schedules = 120
