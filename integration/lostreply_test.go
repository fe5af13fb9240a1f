package integration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/integration/internal/proxy"
	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
)

// lossy are times that are short, so that much can go wrong in little time.
var lossy = limits{Lease: 600 * time.Millisecond, Attempt: time.Second}

// lostTimes is how often each kind of fault has to have acted on each mode.
const lostTimes = 6

// Between the pipelines and their database connections are cut on both sides of
// a commit, and requests and replies come late or never.
func TestLostReplies(t *testing.T) {
	forEngines(t, engines[1:], func(t *testing.T, e engine) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dsn := e.shared(t)
		l := newLedgers(t, e, dsn)
		t.Run("modes", func(t *testing.T) {
			for i, m := range l.check.modes() {
				t.Run(string(m), func(t *testing.T) {
					t.Parallel()
					loseReplies(t, e, dsn, l, m, seed+uint64(i))
				})
			}
		})
		l.print(t, "")
	})
}

// loseReplies works off keys of one mode, through a proxy of its own.
func loseReplies(t *testing.T, e engine, dsn string, l *ledgers, m mode, seed uint64) {
	p, through := servertest.Proxy(t, e.server, dsn, seed)
	works := []*work{openWork(t, e, through), openWork(t, e, through)}
	p.Set(lossyFaults(e.server)...)
	c := newCrew(t, l, works, []mode{m}, lossy)
	for began := time.Now(); !lostEnough(p.Counts()); {
		c.feed(20)
		c.await(30, time.Minute)
		if time.Since(began) > time.Minute {
			t.Fatalf("not enough faults: %+v", p.Counts())
		}
	}
	p.Set()
	c.finish(time.Minute)
	fmt.Printf("%s: faults %+v\n", t.Name(), p.Counts())
}

func lostEnough(c proxy.Counts) bool {
	for _, side := range []proxy.Actions{c.Before, c.After} {
		if min(side.Cut, side.Delay) < lostTimes || side.Stall < 1 {
			return false
		}
	}
	return true
}

// lossyFaults are what a bad network does to commits and, less often, to other
// statements. What is delayed arrives when its sender has given up.
func lossyFaults(kind servers.Kind) []proxy.Fault {
	protocol := map[servers.Kind]proxy.Protocol{
		servers.Postgres: proxy.Postgres, servers.MySQL: proxy.MySQL, servers.Redis: proxy.Redis,
	}[kind]
	var all []proxy.Fault
	for _, match := range []func([]byte) bool{protocol.Commit, protocol.Statement} {
		for _, when := range []proxy.When{proxy.Before, proxy.After} {
			all = append(
				all,
				proxy.Fault{Match: match, When: when, Action: proxy.Cut, Probability: 0.02},
				proxy.Fault{Match: match, When: when, Action: proxy.Delay, Delay: lossy.Lease / 2, Probability: 0.01},
				proxy.Fault{Match: match, When: when, Action: proxy.Delay, Delay: 2 * lossy.Lease, Probability: 0.01},
				proxy.Fault{Match: match, When: when, Action: proxy.Stall, Probability: 0.003},
			)
		}
	}
	return all
}
