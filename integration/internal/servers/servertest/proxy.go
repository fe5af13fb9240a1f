package servertest

import (
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/oncepipe/oncepipe/integration/internal/proxy"
	"github.com/oncepipe/oncepipe/integration/internal/servers"
)

// Proxy puts a proxy before the server of a DSN, until the test's end, and
// returns it with the DSN that leads through it. seed is for faults with a
// probability. The test fails where the proxy can't follow a connection.
func Proxy(t testing.TB, kind servers.Kind, dsn string, seed uint64) (*proxy.Proxy, string) {
	t.Helper()
	start := func(protocol proxy.Protocol, target string) *proxy.Proxy {
		p, err := proxy.New(protocol, target, seed)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	if kind == servers.MySQL {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		p := start(proxy.MySQL, cfg.Addr)
		cfg.Addr = p.Addr()
		return p, cfg.FormatDSN()
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	protocol := proxy.Postgres
	if kind == servers.Redis {
		protocol = proxy.Redis
	}
	p := start(protocol, u.Host)
	u.Host = p.Addr()
	return p, u.String()
}
