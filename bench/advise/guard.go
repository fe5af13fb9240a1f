package main

import (
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/queueing"
)

// timeouts is how often in a row acks of one key may get lost. A Ring counts from
// when a key was done, whatever was looked up since.
func timeouts(loss float64) int {
	n := 1
	for p := loss; p > negligible; p *= loss {
		n++
	}
	return n
}

// span is how long after its end a key may come again: as often in a row as acks
// are lost; and a copy that Dedup has returned just before that end comes first
// when JoinLimit's wait is over.
func span(timeout time.Duration, timeouts int, overflows bool) time.Duration {
	first := timeout
	if overflows {
		first = max(timeout, oncepipe.DefaultJoinWait)
	}
	return first + time.Duration(timeouts-1)*timeout
}

// overflows tells whether more copies can wait for the first one than JoinLimit's
// defaults let wait, or for longer, when s is full and a key fails as often in a
// row as it may.
func overflows(s queueing.System, j Job, slots int) bool {
	keys, once := s.Buffer+s.Workers+1, queueing.Longest(s)
	if j.Fail > 0 {
		keys += slots
	}
	stay, wait := once, j.Backoff
	for p := j.Fail; p > negligible && stay <= oncepipe.DefaultJoinWait; p *= j.Fail {
		stay += wait + once
		wait = nextBackoff(wait, j)
	}
	perKey, total := queueing.MostCopies(s, keys, stay)
	return stay > oncepipe.DefaultJoinWait || perKey > oncepipe.DefaultJoinPerKey || total > oncepipe.DefaultJoinTotal
}

// parkedFor is how long a key waits out backoffs in all, on average.
func parkedFor(j Job) time.Duration {
	sum, wait := 0.0, j.Backoff
	for p := j.Fail; p > negligible; p *= j.Fail {
		sum += p * float64(wait)
		wait = nextBackoff(wait, j)
	}
	return time.Duration(sum)
}

// longest is where the backoff of oncepipe's default policy stops growing.
const longest = 30 * time.Second

func nextBackoff(wait time.Duration, j Job) time.Duration {
	return min(2*wait, max(longest, j.Backoff))
}
