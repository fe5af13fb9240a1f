package servers_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/oncepipe/oncepipe/integration/internal/servers"
	"github.com/oncepipe/oncepipe/integration/internal/servers/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// What was committed before a kill is there after the restart, on the same
// address, and Stop leaves nothing.
func TestKillAndRestart(t *testing.T) {
	for kind, driver := range map[servers.Kind]string{servers.Postgres: "pgx", servers.MySQL: "mysql"} {
		t.Run(string(kind), func(t *testing.T) {
			s := servertest.Start(t, kind, servers.Options{})
			db := openDB(t, driver, s.DSN())
			if _, err := db.Exec("CREATE TABLE n (n INT)"); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if _, err := db.Exec("INSERT INTO n VALUES (" + strconv.Itoa(i) + ")"); err != nil {
					t.Fatal(err)
				}
				killAndRestart(t, s)
				db.SetMaxIdleConns(0) // the connections to the killed server
				var n int
				if err := db.QueryRow("SELECT count(*) FROM n").Scan(&n); err != nil {
					t.Fatal(err)
				}
				if n != i+1 {
					t.Errorf("%d rows after kill %d, want %d", n, i+1, i+1)
				}
			}
		})
	}
	t.Run("redis", func(t *testing.T) {
		s := servertest.Start(t, servers.Redis, servers.Options{Fsync: true})
		redisDo(t, s.Addr(), "INCR n", ":1")
		killAndRestart(t, s)
		redisDo(t, s.Addr(), "INCR n", ":2")
	})
}

func killAndRestart(t *testing.T, s *servers.Server) {
	t.Helper()
	addr := s.Addr()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Fatal("it answers after the kill")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Errorf("address %s after the restart, want %s", s.Addr(), addr)
	}
}

func redisDo(t *testing.T, addr, command, want string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := conn.Read(got); err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s: %q, want %q", command, got, want)
	}
}

func TestSettings(t *testing.T) {
	ask := map[servers.Kind][2]string{
		servers.Postgres: {"pgx", "SELECT setting FROM pg_settings WHERE name = 'max_connections'"},
		servers.MySQL:    {"mysql", "SELECT @@max_connections"},
	}
	for kind, q := range ask {
		t.Run(string(kind), func(t *testing.T) {
			s := servertest.Start(t, kind, servers.Options{Settings: map[string]string{"max_connections": "17"}})
			var got string
			if err := openDB(t, q[0], s.DSN()).QueryRow(q[1]).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != "17" {
				t.Errorf("max_connections = %s, want 17", got)
			}
		})
	}
}

func TestStopRemovesAll(t *testing.T) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			s := servertest.Start(t, kind, servers.Options{})
			folder := s.Folder()
			if _, err := os.Stat(folder); err != nil {
				t.Fatal(err)
			}
			if err := s.Kill(); err != nil { // the harder case
				t.Fatal(err)
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder after Stop: %v", err)
			}
		})
	}
}

// A server that can't start says why, and leaves nothing.
func TestStartFails(t *testing.T) {
	dir, err := os.MkdirTemp("", "oncepipe-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			servertest.Private(t, kind)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := servers.Start(ctx, kind, servers.Options{Dir: dir, Settings: map[string]string{"no_such": "1"}})
			if err == nil {
				t.Error(s.Stop())
				t.Fatal("it has started")
			}
			t.Log(err)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("it waited for a server that had ended")
			}
			left, err := filepath.Glob(dir + "/*")
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

func TestSkipped(t *testing.T) {
	t.Setenv(servers.SkipEnv, "redis, mysql,")
	got, err := servers.Skipped()
	if err != nil || len(got) != 2 || got[0] != servers.Redis || got[1] != servers.MySQL {
		t.Errorf("Skipped() = %v, %v", got, err)
	}
	t.Setenv(servers.SkipEnv, "maria")
	if _, err := servers.Skipped(); err == nil {
		t.Error("an unknown name is no error")
	}
}
