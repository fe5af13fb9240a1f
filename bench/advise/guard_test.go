package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// jobs are such that copies come late, for one reason or another. With the slow
// service the advised guard forgets during a run, even one for a minute.
func jobs() []Job {
	quick := Job{Service: time.Millisecond / 2, Workers: 4, Timeout: 20 * time.Millisecond, Load: 0.9}
	slow := Job{Service: 20 * time.Millisecond, Workers: 4, Timeout: 800 * time.Millisecond, Load: 0.9}
	var list []Job
	for _, exponential := range []bool{false, true} {
		for _, buffer := range []int{16, 1024, 4096} {
			for _, loss := range []float64{0.01, 0.2} {
				for _, j := range []Job{quick, slow} {
					j.Exponential, j.Buffer, j.AckLoss = exponential, buffer, loss
					list = append(list, j)
				}
			}
		}
	}
	failing := slow
	failing.Buffer, failing.AckLoss, failing.Fail, failing.Backoff = 16, 0.2, 0.2, 5*time.Second
	return append(list, failing)
}

func (j Job) filled(a Advice) sim.Cell {
	return sim.Cell{Guard: sim.Ours, Capacity: a.Guard, Buffer: a.Buffer, Keys: 20_000, Burst: a.Buffer, Seed: 1}
}

// The advised guard lets nothing through when acks are lost, whatever the buffer,
// full as it is at the start.
func TestGuardHolds(t *testing.T) {
	for _, j := range jobs() {
		t.Run(fmt.Sprintf("%+v", j), func(t *testing.T) {
			t.Parallel()
			a := Advise(j)
			if r := simulate(t, j, j.filled(a)); r.Extra != 0 || r.Lost != 0 {
				t.Errorf("%d extra effects and %d lost ones with guard %d", r.Extra, r.Lost, a.Guard)
			}
		})
	}
}

// Each part of the guard is needed: without it some key is forgotten too early.
func TestGuardIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name      string
		change    func(*Job)
		overflows bool
		less      time.Duration // of the span
	}{
		{"acks lost in a row", func(j *Job) { j.Buffer, j.AckLoss = 16, 0.2 }, false, 12 * 20 * time.Millisecond},
		{"copies that are returned", func(j *Job) { j.Buffer, j.AckLoss = 1024, 0.01 }, true, oncepipe.DefaultJoinWait},
		{"copies that are returned, far more", func(j *Job) { j.Buffer, j.AckLoss = 4096, 0.2 }, true, oncepipe.DefaultJoinWait},
		{"copies of what is in backoff", func(j *Job) { j.Buffer, j.AckLoss, j.Fail, j.Backoff = 16, 0.2, 0.2, time.Second }, true, oncepipe.DefaultJoinWait},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := Job{Service: time.Millisecond / 2, Workers: 4, Timeout: 20 * time.Millisecond, Load: 0.9}
			c.change(&j)
			a := Advise(j)
			if a.Overflows != c.overflows {
				t.Fatalf("overflows: %v", a.Overflows)
			}
			x := j.filled(a)
			x.Capacity -= int(c.less.Seconds() * float64(j.Workers) / j.Service.Seconds())
			if r := simulate(t, j, x); r.Extra == 0 {
				t.Errorf("nothing comes through with %d keys instead of %d", x.Capacity, a.Guard)
			}
		})
	}
}

// Each limit of JoinLimit counts by itself.
func TestOverflows(t *testing.T) {
	for _, c := range []struct {
		name string
		job  Job
		want bool
	}{
		{"hardly a copy", Job{Service: time.Millisecond, Workers: 2, Timeout: time.Second, Buffer: 16}, false},
		{"copies of many keys", Job{Service: time.Millisecond, Workers: 4, Timeout: 200 * time.Millisecond, Buffer: 1100}, true},
		{"of not so many", Job{Service: time.Millisecond, Workers: 4, Timeout: 200 * time.Millisecond, Buffer: 900}, false},
		{"many copies of a few", Job{Service: 100 * time.Millisecond, Workers: 1, Timeout: 100 * time.Millisecond, Buffer: 20}, true},
		{"not so many of them", Job{Service: 100 * time.Millisecond, Workers: 1, Timeout: 200 * time.Millisecond, Buffer: 20}, false},
		{"a long time", Job{Service: 10 * time.Second, Workers: 1, Timeout: 40 * time.Second, Buffer: 6}, true},
		{"a time not so long", Job{Service: 5 * time.Second, Workers: 1, Timeout: 40 * time.Second, Buffer: 6}, false},
	} {
		c.job.Load = 0.5
		if got := Advise(c.job).Overflows; got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
