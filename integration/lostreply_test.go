package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/integration/internal/proxy"
	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
)

// lossy are times that are short, so that much can go wrong in little time.
var lossy = limits{Lease: time.Second, Attempt: time.Second}

// lostTimes is how often each kind of fault has to have acted on each mode.
const lostTimes = 6

// Between the pipelines and their database connections are cut on both sides of
// a commit, and requests and replies come late or never.
func TestLostReplies(t *testing.T) {
	forEngines(t, engines[1:], func(t *testing.T, e engine) {
		t.Parallel()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dsn := e.shared(t)
		l := newLedgers(t, e, dsn)
		var lines []lossyLine
		for i, m := range l.check.modes() {
			lines = append(lines, newLossyLine(t, e, dsn, l, m, seed+uint64(i)))
		}
		eventually(t, untilDeadline(t), func() error {
			var missing []error
			for _, line := range lines {
				missing = append(missing, line.lose())
			}
			return errors.Join(missing...)
		})
		for _, line := range lines {
			line.proxy.Set()
		}
		for _, line := range lines {
			line.finish(time.Minute)
			fmt.Printf("%s: %s: %+v\n", t.Name(), line.modes[0], line.proxy.Counts())
		}
		l.print(t, "")
	})
}

// untilDeadline is how long a test can wait for what a slow machine does late, and
// still tell what is missing.
func untilDeadline(t *testing.T) time.Duration {
	end, ok := t.Deadline()
	if !ok {
		return 10 * time.Minute
	}
	return max(time.Minute, time.Until(end)-time.Minute)
}

// lossyLine are pipelines of one mode, behind a proxy of their own.
type lossyLine struct {
	proxy *proxy.Proxy
	*crew
}

func newLossyLine(t *testing.T, e engine, dsn string, l *ledgers, m mode, seed uint64) lossyLine {
	t.Helper()
	p, through := servertest.Proxy(t, e.server, dsn, seed)
	works := []*work{openWork(t, e, through), openWork(t, e, through)}
	p.Set(lossyFaults(e.server)...)
	return lossyLine{p, newCrew(t, l, works, []mode{m}, lossy)}
}

// lose adds keys for as long as the proxy has not done enough.
func (l lossyLine) lose() error {
	if lostEnough(l.proxy.Counts()) {
		return nil
	}
	const portion = 20
	if l.left() < 2*portion {
		l.feed(portion)
	}
	return fmt.Errorf("%s: not enough faults: %+v, %d keys left", l.modes[0], l.proxy.Counts(), l.left())
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
				proxy.Fault{Match: match, When: when, Action: proxy.Delay, Delay: lossy.Lease / 10, Probability: 0.01},
				proxy.Fault{Match: match, When: when, Action: proxy.Delay, Delay: lossy.Lease * 3 / 2, Probability: 0.01},
				proxy.Fault{Match: match, When: when, Action: proxy.Stall, Probability: 0.006},
			)
		}
	}
	return all
}
