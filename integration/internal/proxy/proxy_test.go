package proxy_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/oncepipe/oncepipe/integration/internal/proxy"
	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
)

func TestMain(m *testing.M) {
	// It would print a line for each connection that we cut.
	if err := mysql.SetLogger(&mysql.NopLogger{}); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// client is a server seen through a proxy: writes go through it, and rows are
// counted beside it.
type client struct {
	protocol proxy.Protocol
	*proxy.Proxy
	write func(ctx context.Context, id int) error // by one commit or script
	alone func(ctx context.Context, id int) error // by one statement that commits by itself
	rows  func(t *testing.T) int
}

// begin is alone, until it is cancelled or the test has ended.
func (c client) begin(t *testing.T, id int) (ended <-chan error, cancel func()) {
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() { errs <- c.alone(ctx, id) }()
	return errs, cancel
}

// clients runs a test on each kind of server.
func clients(t *testing.T, test func(t *testing.T, c client)) {
	t.Run("postgres", func(t *testing.T) {
		dsn := servertest.PostgresSchema(t)
		p, through := servertest.Proxy(t, servers.Postgres, dsn, 1)
		test(t, sqlClient(t, proxy.Postgres, p, "pgx", dsn, through, "INSERT INTO rows_seen VALUES ($1)"))
	})
	t.Run("mysql", func(t *testing.T) {
		dsn := servertest.MySQLDatabase(t)
		p, through := servertest.Proxy(t, servers.MySQL, dsn, 1)
		test(t, sqlClient(t, proxy.MySQL, p, "mysql", dsn, through, "INSERT INTO rows_seen VALUES (?)"))
	})
	t.Run("redis", func(t *testing.T) {
		dsn, prefix := servertest.RedisPrefix(t)
		p, through := servertest.Proxy(t, servers.Redis, dsn, 1)
		test(t, redisClient(t, p, dsn, through, prefix+"rows"))
	})
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func sqlClient(t *testing.T, protocol proxy.Protocol, p *proxy.Proxy, driver, dsn, through, insert string) client {
	t.Helper()
	beside, db := openDB(t, driver, dsn), openDB(t, driver, through)
	if _, err := beside.Exec("CREATE TABLE rows_seen (id INT)"); err != nil {
		t.Fatal(err)
	}
	return client{
		protocol: protocol, Proxy: p,
		write: func(ctx context.Context, id int) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, insert, id); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
		alone: func(ctx context.Context, id int) error {
			_, err := db.ExecContext(ctx, insert, id)
			return err
		},
		rows: func(t *testing.T) int {
			t.Helper()
			var n int
			if err := beside.QueryRow("SELECT count(DISTINCT id) FROM rows_seen").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

func redisClient(t *testing.T, p *proxy.Proxy, dsn, through, key string) client {
	t.Helper()
	var mu sync.Mutex
	var conns []net.Conn
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
		}
		return c, err
	}
	open := func(dsn string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *redis.Client {
		o, err := redis.ParseURL(dsn)
		if err != nil {
			t.Fatal(err)
		}
		o.Dialer = dial
		o.ReadTimeout = time.Minute // what a test delays isn't given up, however slow the machine
		o.MaxRetries = -1
		o.ContextTimeoutEnabled = true
		r := redis.NewClient(o)
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	beside, r := open(dsn, nil), open(through, dial)
	script := redis.NewScript("return redis.call('SADD', KEYS[1], ARGV[1])")
	if err := script.Load(t.Context(), beside).Err(); err != nil {
		t.Fatal(err)
	}
	// This client heeds the deadline of a context, but not that it is cancelled.
	hangUp := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	}
	write := func(ctx context.Context, id int) error {
		defer context.AfterFunc(ctx, hangUp)()
		err := script.EvalSha(ctx, r, []string{key}, id).Err()
		if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
			err = ctx.Err()
		}
		return err
	}
	return client{
		protocol: proxy.Redis, Proxy: p, write: write, alone: write,
		rows: func(t *testing.T) int {
			t.Helper()
			n, err := beside.SCard(context.Background(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		},
	}
}

// Cut before a commit the server knows nothing of it; cut after, it has all of
// it. The client sees an error both times.
func TestCut(t *testing.T) {
	clients(t, func(t *testing.T, c client) {
		if err := c.write(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		steps := []struct {
			name  string
			write func(context.Context, int) error
			fault proxy.Fault
			adds  int
		}{
			{"commit before", c.write, proxy.Fault{Match: c.protocol.Commit, When: proxy.Before, Times: 1}, 0},
			{"commit after", c.write, proxy.Fault{Match: c.protocol.Commit, When: proxy.After, Times: 1}, 1},
			{"statement before", c.alone, proxy.Fault{Match: c.protocol.Statement, When: proxy.Before, Times: 1}, 0},
			{"statement after", c.alone, proxy.Fault{Match: c.protocol.Statement, When: proxy.After, Times: 1}, 1},
		}
		want := 1
		for i, s := range steps {
			c.Set(s.fault)
			if err := s.write(t.Context(), 1+i); err == nil {
				t.Errorf("%s: the client sees no error", s.name)
			}
			want += s.adds
			if got := c.rows(t); got != want {
				t.Errorf("%s: %d rows, want %d", s.name, got, want)
			}
			if err := s.write(t.Context(), 100+i); err != nil { // Times is used up
				t.Errorf("%s: the next write: %v", s.name, err)
			}
			want++
		}
		if n := c.Counts(); n.Before.Cut != 2 || n.After.Cut != 2 || n.Before.Total()+n.After.Total() != 4 {
			t.Errorf("counts: %+v", n)
		}
	})
}

// A request that is late arrives even when its client has given up.
func TestDelay(t *testing.T) {
	clients(t, func(t *testing.T, c client) {
		const late = 300 * time.Millisecond
		for i, when := range []proxy.When{proxy.Before, proxy.After} {
			c.Set(proxy.Fault{Match: c.protocol.Statement, When: when, Action: proxy.Delay, Delay: late, Times: 1})
			began := time.Now()
			if err := c.alone(t.Context(), i); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d < late {
				t.Errorf("it took %v, want %v", d, late)
			}
		}
		// So long that a busy machine, too, gives up before it is over.
		c.Set(proxy.Fault{Match: c.protocol.Statement, When: proxy.Before, Action: proxy.Delay, Delay: 10 * late, Times: 1})
		ended, cancel := c.begin(t, 2)
		eventually(t, func() bool { return c.Counts().Before.Delay == 2 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the client that didn't wait: %v", err)
		}
		eventually(t, func() bool { return c.rows(t) == 3 })
	})
}

// A stalled connection is over for the client only when it gives up.
func TestStall(t *testing.T) {
	clients(t, func(t *testing.T, c client) {
		if err := c.write(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for i, when := range []proxy.When{proxy.Before, proxy.After} {
			c.Set(proxy.Fault{Match: c.protocol.Statement, When: when, Action: proxy.Stall, Times: 1})
			ended, cancel := c.begin(t, 1+i)
			eventually(t, func() bool { return c.Counts().Before.Stall == 1 && c.Counts().After.Stall == i })
			wantRows := func() {
				if got, want := c.rows(t), 1+i; got != want {
					t.Errorf("%d rows, want %d", got, want)
				}
			}
			wantRows()
			select {
			case err := <-ended:
				t.Fatalf("the client, which has not given up: %v", err)
			default:
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the client: %v", err)
			}
			wantRows()
		}
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it doesn't happen")
		}
	}
}

// Under random faults on many connections the counts add up: what the client was
// told is there, and only a lost reply can add to it.
func TestRandom(t *testing.T) {
	clients(t, func(t *testing.T, c client) {
		c.Set(
			proxy.Fault{Match: c.protocol.Commit, When: proxy.Before, Probability: 0.2},
			proxy.Fault{Match: c.protocol.Commit, When: proxy.After, Probability: 0.2},
			proxy.Fault{Match: c.protocol.Commit, Action: proxy.Delay, Delay: time.Millisecond, Probability: 0.2},
		)
		const workers, each = 8, 25
		var told [workers]int
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					if c.write(t.Context(), w*each+i) == nil {
						told[w]++
					}
				}
			})
		}
		wg.Wait()
		sum := 0
		for _, n := range told {
			sum += n
		}
		n := c.Counts()
		if n.Before.Cut == 0 || n.After.Cut == 0 || n.Before.Delay == 0 {
			t.Errorf("a fault never happened: %+v", n)
		}
		if sum+n.Before.Cut+n.After.Cut != workers*each {
			t.Errorf("%d writes told as done, %+v, of %d", sum, n, workers*each)
		}
		if got := c.rows(t); got != sum+n.After.Cut {
			t.Errorf("%d rows, want %d told as done and %d with a lost reply", got, sum, n.After.Cut)
		}
	})
}

// Several statements in one request have one reply, which has arrived when the
// last one is done.
func TestSeveralResults(t *testing.T) {
	dsn := servertest.MySQLDatabase(t)
	beside := openDB(t, "mysql", dsn)
	if _, err := beside.Exec("CREATE TABLE n (n INT)"); err != nil {
		t.Fatal(err)
	}
	p, through := servertest.Proxy(t, servers.MySQL, dsn+"?multiStatements=true", 1)
	db := openDB(t, "mysql", through)
	const all = "BEGIN; INSERT INTO n VALUES (1); SELECT n FROM n; SELECT sleep(0.05); INSERT INTO n VALUES (2) RETURNING n; COMMIT"
	for want := 2; want <= 6; want += 2 {
		p.Set(proxy.Fault{Match: proxy.MySQL.Commit, When: proxy.After, Times: 1})
		if _, err := db.Exec(all); err == nil {
			t.Error("the client sees no error")
		}
		var got int
		if err := beside.QueryRow("SELECT count(*) FROM n").Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%d rows when the reply is lost, want %d", got, want)
		}
	}
	if n := p.Counts().After.Cut; n != 3 {
		t.Errorf("%d cuts, want 3", n)
	}
}

// Close ends what is stalled.
func TestCloseWhileStalled(t *testing.T) {
	clients(t, func(t *testing.T, c client) {
		c.Set(proxy.Fault{Match: c.protocol.Commit, When: proxy.After, Action: proxy.Stall})
		failed := make(chan error)
		go func() { failed <- c.write(t.Context(), 1) }()
		eventually(t, func() bool { return c.Counts().After.Stall == 1 })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; err == nil {
			t.Error("the client sees no error")
		}
	})
}

// Results, large values and prepared statements pass unchanged.
func TestPasses(t *testing.T) {
	for kind, q := range map[servers.Kind][2]string{
		servers.Postgres: {"pgx", "SELECT repeat('x', $1) FROM generate_series(1, 3)"},
		servers.MySQL:    {"mysql", "SELECT repeat('x', ?) UNION ALL SELECT 'y' UNION ALL SELECT ''"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			var dsn string
			if kind == servers.Postgres {
				dsn = servertest.Postgres(t)
			} else {
				dsn = servertest.MySQL(t)
			}
			_, through := servertest.Proxy(t, kind, dsn, 1)
			direct, db := openDB(t, q[0], dsn), openDB(t, q[0], through)
			for _, size := range []int{0, 1, 300, 70_000, 1_000_000} {
				if want, got := lengths(t, direct, q[1], size), lengths(t, db, q[1], size); got != want {
					t.Errorf("%d bytes: %s through the proxy, %s without", size, got, want)
				}
			}
		})
	}
}

func lengths(t *testing.T, db *sql.DB, query string, size int) string {
	t.Helper()
	rows, err := db.Query(query, size)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []int
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		list = append(list, len(s))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(list)
}
