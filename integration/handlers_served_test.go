package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
	"github.com/oncepipe/oncepipe/oncetest"
	"github.com/oncepipe/oncepipe/store/pgxstore"
	"github.com/oncepipe/oncepipe/store/redisstore"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

// servedLease is that of Once here, where time can't be sped up.
const servedLease = 300 * time.Millisecond

// served is what the kit checks on a server.
func served(newProgram func(w *oncetest.World) oncetest.Program[order]) oncetest.Service[order] {
	s := oncetest.Service[order]{
		Message: newOrder, New: newProgram, RealTime: true,
		Timeout: servedLease, Redelivery: servedLease + 100*time.Millisecond, Schedules: 100,
	}
	if raceEnabled {
		s.Schedules = 10
	}
	return s
}

// handlerServed is oncetest.Handler for a program on a server.
func handlerServed(t *testing.T, s oncetest.Service[order]) {
	t.Helper()
	err := checkServed(t, s)
	var f *oncetest.Failure
	if errors.As(err, &f) {
		t.Errorf("%v\nrun it again: ONCETEST_REPLAY='%s'", f, f.Replay)
	} else if err != nil {
		t.Error(err)
	}
}

// checkServed is oncetest.CheckHandler for a program on a server. A starved server can
// be longer at a rollback than a handler may go on once its time is over, which is
// half of Redelivery. So only who goes on for however long it may is to blame.
func checkServed(t *testing.T, s oncetest.Service[order]) error {
	t.Helper()
	err := oncetest.CheckHandler(s)
	var f *oncetest.Failure
	for range 5 {
		if !errors.As(err, &f) || f.Blame != oncetest.NoReturn {
			break
		}
		t.Logf("Redelivery %v, %s: %v", s.Redelivery, f.Replay, f)
		s.Redelivery *= 2
		again := s
		again.Replay = f.Replay
		if err = oncetest.CheckHandler(again); err == nil {
			err = oncetest.CheckHandler(s) // the schedules behind it were not tried
		}
	}
	return err
}

// servedTable makes the tables of a server's, and what counts in them and
// empties them.
func servedTable(t *testing.T, p place, dialect sqlstore.Dialect) (rows func(order) int, clear func()) {
	t.Helper()
	db := p.open(t, 4)
	mustExec(t, db, "CREATE TABLE effects (k VARCHAR(100))")
	mustExec(t, db, "CREATE INDEX effects_k ON effects (k)")
	if err := sqlstore.Migrate(t.Context(), db, sqlstore.Config{Dialect: dialect}); err != nil {
		t.Fatal(err)
	}
	rows = func(o order) (n int) {
		err := db.QueryRow("SELECT count(*) FROM effects WHERE k = "+placeholder(dialect), o.ID).Scan(&n)
		if err != nil && t.Context().Err() == nil { // the kit doesn't wait for the last look
			t.Error(err)
		}
		return n
	}
	clear = func() {
		mustExec(t, db, "DELETE FROM effects")
		mustExec(t, db, "DELETE FROM oncepipe_records")
	}
	return rows, clear
}

// onServer is a program on a server, whose every statement is a step.
func onServer(t *testing.T, b backend, start func(p *oncetest.Process, db *sql.DB) handle) oncetest.Service[order] {
	t.Helper()
	connectors := map[sqlstore.Dialect]func(string) (driver.Connector, error){
		sqlstore.PostgreSQL: pgxConnector, sqlstore.MySQL: mysqlConnector,
	}
	p := b.place(t)
	connect, err := connectors[b.dialect](p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	rows, clear := servedTable(t, p, b.dialect)
	return served(func(*oncetest.World) oncetest.Program[order] {
		clear()
		return oncetest.Program[order]{
			Start:   func(p *oncetest.Process) handle { return start(p, oncetest.StepDB(p, connect)) },
			Effects: rows,
		}
	})
}

// The same on servers, in real time, with fewer schedules.
func TestHandler_Served(t *testing.T) {
	forBackends(t, servedBackends(), func(t *testing.T, b backend) {
		handlerServed(t, onServer(t, b, func(p *oncetest.Process, db *sql.DB) handle {
			st, err := sqlstore.Open(p.Context(), db, sqlstore.Config{Dialect: b.dialect, BusyTimeout: servedLease / 3})
			if err != nil {
				panic(err)
			}
			return keyed(sqlstore.TxDo(st, "book", func(ctx context.Context, tx *sql.Tx, o order) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects (k) VALUES ("+placeholder(b.dialect)+")", o.ID)
				return err
			}))
		}))
	})
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		handlerServed(t, onPgx(t))
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		handlerServed(t, onRedis(t, func(p *oncetest.Process, st oncepipe.Store, pr *provider) handle {
			cfg := oncepipe.OnceConfig[order, struct{}]{AtMostOnce: true, Lease: servedLease}
			return chargeOnce(p, st, pr, cfg)
		}))
	})
}

// Without AtMostOnce a provider that takes no keys is called again.
func TestHandler_ServedOnceWithoutKeys(t *testing.T) {
	t.Parallel()
	s := onRedis(t, func(p *oncetest.Process, st oncepipe.Store, pr *provider) handle {
		return chargeOnce(p, st, pr, oncepipe.OnceConfig[order, struct{}]{Lease: servedLease})
	})
	s.Replay = "1:fail-after@2"
	if f := failure(t, checkServed(t, s)); f.Blame != oncetest.Twice {
		t.Errorf("want %q of\n%v", oncetest.Twice, f)
	}
}

// A select in the transaction of the insert holds at SERIALIZABLE only.
func TestHandler_ServedSelectThenInsert(t *testing.T) {
	for level, want := range map[sql.IsolationLevel]oncetest.Blame{
		sql.LevelReadCommitted: oncetest.Twice, sql.LevelSerializable: "",
	} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, backends[1], func(p *oncetest.Process, db *sql.DB) handle {
				warm(p.Context(), db)
				return func(ctx context.Context, o order) error { return selectAndInsertAt(ctx, db, level, o) }
			})
			s.Replay = "1:copy@3" // between select and insert
			for range 20 {        // on a busy machine the copy may come too late
				err := checkServed(t, s)
				switch {
				case err == nil && want == "":
					return
				case err != nil:
					if f := failure(t, err); f.Blame != want {
						t.Errorf("want %q of\n%v", want, f)
					}
					return
				}
			}
			t.Error("not blamed")
		})
	}
}

// warm opens two connections, which takes longer than what is done on them: a run
// that is at it does not come to its first step while another one is held.
func warm(ctx context.Context, db *sql.DB) {
	var conns [2]*sql.Conn
	for i := range conns {
		c, err := db.Conn(ctx)
		if err != nil {
			panic(err)
		}
		conns[i] = c
	}
	for _, c := range conns {
		if err := c.Close(); err != nil {
			panic(err)
		}
	}
}

func selectAndInsertAt(ctx context.Context, db *sql.DB, level sql.IsolationLevel, o order) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it may be over
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM effects WHERE k = $1", o.ID).Scan(&n); err != nil || n > 0 {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (k) VALUES ($1)", o.ID); err != nil {
		return err
	}
	return tx.Commit()
}

// onPgx is pgxstore.TxDo. Its transactions are inside of it: the whole of one is a
// step, and the effect is one within.
func onPgx(t *testing.T) oncetest.Service[order] {
	t.Helper()
	b := backends[1]
	at := b.place(t)
	rows, clear := servedTable(t, at, b.dialect)
	return served(func(*oncetest.World) oncetest.Program[order] {
		clear()
		return oncetest.Program[order]{
			Start: func(p *oncetest.Process) handle {
				pool, err := pgxpool.New(p.Context(), at.dsn)
				if err != nil {
					panic(err)
				}
				p.Cleanup(pool.Close)
				st, err := pgxstore.Open(p.Context(), pool, pgxstore.Config{})
				if err != nil {
					panic(err)
				}
				do := pgxstore.TxDo(st, "book", func(ctx context.Context, tx pgx.Tx, o order) error {
					return p.Step(ctx, "insert effects", func() error {
						_, err := tx.Exec(ctx, "INSERT INTO effects (k) VALUES ($1)", o.ID)
						return err
					})
				})
				return keyed(func(ctx context.Context, o order) error {
					return p.Step(ctx, "transaction", func() error { return do(ctx, o) })
				})
			},
			Effects: rows,
		}
	})
}

// onRedis is a program with a store in Redis, each call of which is a step.
func onRedis(t *testing.T, start func(p *oncetest.Process, st oncepipe.Store, pr *provider) handle) oncetest.Service[order] {
	t.Helper()
	dsn, prefix := servertest.RedisPrefix(t)
	opts, err := redis.ParseURL(dsn)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	var worlds atomic.Int64
	return served(func(w *oncetest.World) oncetest.Program[order] {
		cfg := redisstore.Config{Prefix: fmt.Sprint(prefix, worlds.Add(1), ":")}
		program := atProvider(func(p *oncetest.Process, pr *provider) handle {
			st, err := redisstore.Open(p.Context(), client, cfg)
			if err != nil {
				panic(err)
			}
			return start(p, p.Store(st), pr)
		})
		return program(w, nil)
	})
}
