// Command stores measures what the durable stores cost on this machine's disk,
// beside the same work done by hand, prints every ratio with its limit, and exits
// with 1 when one is not held.
//
//	go run ./integration/servers -fsync -- go run ./bench/stores
//
// The databases are those of ONCEPIPE_POSTGRES, ONCEPIPE_MYSQL and ONCEPIPE_REDIS,
// which the program around it sets, and a SQLite file. They must wait for the disk
// at each commit. One without an address is left out, and standard error says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: stores [-json] [-only SUBSTRING] [-on SUBSTRING] [-dir DIR] [-commit-delay D] [-long]

Compares the stores with the same work done by hand. With servers:

	go run ./integration/servers -fsync -- go run ./bench/stores

`

// group is a part of the report, for each store that it is about.
type group struct {
	name   string
	report func(context.Context, backend, scale) ([]row, error)
}

var groups = []group{
	{"disk", disk},
	{"price", price},
	{"batch", batches},
	{"gather", gathering},
	{"prune", pruning},
	{"guard", guarded},
	{"duplicate", duplicates},
	{"size", growth},
}

func main() {
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	asJSON := flag.Bool("json", false, "print one JSON object a line")
	only := flag.String("only", "", "run only the groups whose name contains this: disk, price, batch, gather, prune, guard, duplicate, size")
	on := flag.String("on", "", "run only on the stores whose name contains this")
	dir := flag.String("dir", os.TempDir(), "where the SQLite files are made; one in memory leaves what the processor does")
	slower := flag.Duration("commit-delay", time.Millisecond, "what a commit takes longer where a slower disk is simulated")
	long := flag.Bool("long", false, "fill tables with up to ten million rows, too; takes an hour or more")
	flag.Parse()
	if flag.NArg() > 0 || *slower <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	s := fullScale()
	s.slower = *slower
	if *long {
		s.sizes = longSizes
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	show := func(r row) { fmt.Println(r) }
	if *asJSON {
		show = func(r row) { fmt.Println(r.json()) }
	}
	good, err := run(ctx, present(*dir, os.Stderr), *only, *on, s, show)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
	}
	if err != nil || !good {
		stop()
		os.Exit(1)
	}
}

// run shows the rows of all groups whose name contains only, on the backends
// whose name contains on, and tells whether all limits are held.
func run(ctx context.Context, backends []backend, only, on string, s scale, show func(row)) (good bool, err error) {
	good = true
	shown := 0
	for _, g := range groups {
		if !strings.Contains(g.name, only) {
			continue
		}
		for _, b := range backends {
			if !strings.Contains(strings.ToLower(b.name), strings.ToLower(on)) {
				continue
			}
			rows, err := g.report(ctx, b, s)
			if err != nil {
				return false, fmt.Errorf("%s on %s: %w", g.name, b.name, err)
			}
			for _, r := range rows {
				r.Name = g.name + ", " + b.name + ": " + r.Name
				good = good && r.OK
				show(r)
				shown++
			}
		}
	}
	if shown == 0 {
		return false, errors.New("nothing is measured by these flags")
	}
	return good, nil
}

// present returns the backends that there are, and warns of those that there
// are not.
func present(dir string, warn io.Writer) []backend {
	all := []backend{sqliteIn(dir)}
	for _, server := range []struct {
		env   string
		needs string
		make  func(dsn string) []backend
	}{
		{"ONCEPIPE_POSTGRES", "PostgreSQL", func(dsn string) []backend { return []backend{pgxOn(dsn), postgresOn(dsn)} }},
		{"ONCEPIPE_MYSQL", "MariaDB", func(dsn string) []backend { return []backend{mysqlOn(dsn)} }},
		{"ONCEPIPE_REDIS", "Redis", func(dsn string) []backend { return []backend{redisOn(dsn)} }},
	} {
		if dsn := os.Getenv(server.env); dsn != "" {
			all = append(all, server.make(dsn)...)
		} else {
			fmt.Fprintf(warn, "stores: LEFT OUT: %s, since %s is not set; "+
				"go run ./integration/servers -fsync -- go run ./bench/stores measures all\n", server.needs, server.env)
		}
	}
	return all
}
