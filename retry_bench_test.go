package oncepipe

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkParked parks a million items, due within a second, in a lane and in
// timers of their own, and reports how late they are served and what the lane's
// index needs for each.
func BenchmarkParked(b *testing.B) {
	const items = 1_000_000
	delays := make([]time.Duration, items)
	for i := range delays {
		delays[i] = time.Second + time.Duration(rand.Int64N(int64(time.Second)))
	}
	report := func(b *testing.B, late []time.Duration) {
		slices.Sort(late)
		b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms-late")
		b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms-late")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("lane", func(b *testing.B) {
		for range b.N {
			l := newLane[int]()
			l.start()
			t := &ticket{scope: &scope{}}
			due := make([]time.Time, items)
			start := time.Now()
			for i := range delays {
				due[i] = time.Now().Add(delays[i])
				if !l.park(job[int]{item: item[int]{i, t}}, delays[i]) {
					b.Fatal("not parked")
				}
			}
			b.ReportMetric(float64(time.Since(start).Nanoseconds())/items, "ns/park")
			b.ReportMetric(float64(l.index.Bytes())/items, "index-B/item")
			late := make([]time.Duration, 0, items)
			for len(late) < items {
				<-l.ready
				if j, ok := l.take(); ok {
					late = append(late, time.Since(due[j.v]))
				}
			}
			report(b, late)
		}
	})
	b.Run("AfterFunc", func(b *testing.B) {
		for range b.N {
			late := make([]time.Duration, items)
			done := make(chan struct{}, items)
			start := time.Now()
			for i, d := range delays {
				due := time.Now().Add(d)
				time.AfterFunc(d, func() {
					late[i] = time.Since(due)
					done <- struct{}{}
				})
			}
			b.ReportMetric(float64(time.Since(start).Nanoseconds())/items, "ns/park")
			for range items {
				<-done
			}
			report(b, late)
		}
	})
}
