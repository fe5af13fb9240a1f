package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
)

// patient are times that leases don't outlive a restart of their database by much.
var patient = limits{Lease: time.Second, Attempt: 3 * time.Second}

const outageLimit = 2 * time.Minute

// private starts a server for a test alone, and returns it with the place on it
// that is the test's.
func (e engine) private(t testing.TB, o servers.Options) (s *servers.Server, dsn string) {
	t.Helper()
	s = servertest.Start(t, e.server, o)
	if e.server == servers.Redis {
		return s, s.DSN() + "#private"
	}
	return s, s.DSN()
}

// The database is killed while a pipeline works, and started again. The pipeline
// is not: it waits and goes on.
func TestDatabaseKilled(t *testing.T) {
	const kills, portion = 3, 100
	forEngines(t, engines[1:], func(t *testing.T, e engine) {
		t.Parallel()
		s, dsn := e.private(t, servers.Options{Fsync: true})
		l := newLedgers(t, e, dsn)
		l.afterwards = true
		c := newCrew(t, l, []*work{openWork(t, e, dsn)}, l.check.modes(), patient)
		for range kills {
			c.feed(portion)
			c.await(portion*len(c.modes)/2, outageLimit)
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			c.awaitFailures(2, portion/5, outageLimit)
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.mustLookBack(t)
		}
		c.finish(outageLimit)
		l.mustLookBack(t)
		l.print(t, fmt.Sprintf("kills=%d ", kills))
	})
}

// mustLookBack is lookBack on a server that was away: connections from before are
// of no use.
func (l *ledgers) mustLookBack(t testing.TB) {
	t.Helper()
	eventually(t, outageLimit, func() error { return l.lookBack(t.Context()) })
}

// print prints how each ledger stands, and judges it.
func (l *ledgers) print(t testing.TB, what string) {
	t.Helper()
	sums := l.summary(t)
	for _, m := range slices.Sorted(maps.Keys(sums)) {
		fmt.Printf("%s: %s: %s%s\n", t.Name(), m, what, sums[m])
		sums[m].judge(t, m)
	}
}

// Somebody takes all connections of the database, those of the pipeline too. It
// waits, and goes on when they are free.
func TestConnectionsExhausted(t *testing.T) {
	e := engines[1]
	_, dsn := e.private(t, servers.Options{Settings: map[string]string{"max_connections": "25"}})
	l := newLedgers(t, e, dsn)
	l.afterwards = true
	const name = "victim"
	c := newCrew(t, l, []*work{openWork(t, e, withParam(t, dsn, "application_name", name))}, l.check.modes(), patient)
	for range 2 {
		const portion = 100
		c.feed(portion)
		c.await(portion*len(c.modes)/2, outageLimit)
		free := hog(t, dsn, name)
		c.awaitFailures(2, portion, outageLimit)
		free()
	}
	c.finish(outageLimit)
	l.mustLookBack(t)
	l.print(t, "")
}

// hog takes the connections of a server until there is none left, and those
// of victim are ended. What it returns gives them back.
func hog(t testing.TB, dsn, victim string) (free func()) {
	t.Helper()
	ctx := t.Context()
	var taken []*pgx.Conn
	eventually(t, outageLimit, func() error {
		for {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				break // no more
			}
			taken = append(taken, conn)
		}
		if len(taken) == 0 {
			return errors.New("no connection was free")
		}
		var ended int
		const end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1"
		if err := taken[0].QueryRow(ctx, end, victim).Scan(&ended); err != nil {
			return err
		}
		if ended > 0 {
			return fmt.Errorf("%d connections were still open", ended)
		}
		return nil
	})
	return func() {
		for _, conn := range taken {
			if err := conn.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	}
}
