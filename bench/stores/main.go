// Command stores measures what the durable stores cost on this machine's disk,
// beside the same work done by hand, prints every ratio with its limit, and exits
// with 1 when one is not held.
//
//	go run ./integration/servers -fsync -- go run ./bench/stores -results docs/results
//
// The databases are those of ONCEPIPE_POSTGRES, ONCEPIPE_MYSQL and ONCEPIPE_REDIS,
// which the program around it sets, and a SQLite file. They must wait for the disk
// at each commit. One without an address is left out, and standard error and the
// document say so. Ctrl-C keeps what was measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

const usage = `usage: stores [-quick] [-results DIR] [-json] [-only SUBSTRING] [-on SUBSTRING] [-dir DIR] [-commit-delay D] [-long]

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
	{rateGroup, rates},
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
	quick := flag.Bool("quick", false, "fewer rounds, fewer records: a minute or two")
	to := flag.String("results", "", "write "+dataFile+", "+documentFile+" and a picture to this directory")
	asJSON := flag.Bool("json", false, "print one JSON object a line")
	only := flag.String("only", "", "run only the groups whose name contains this: "+groupNames())
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
	if *quick {
		s = quickScale()
	}
	s.Slower = *slower
	if *long {
		s.Sizes = longSizes
	}
	show := func(r row) { fmt.Println(r) }
	if *asJSON {
		show = func(r row) { fmt.Println(r.json()) }
	}
	backends, missing := present(*dir)
	for _, m := range missing {
		fmt.Fprintln(os.Stderr, "stores: LEFT OUT:", m)
	}
	ctx, stop := results.Context()
	code := measure(ctx, newReport(os.Args[1:], backends, missing, s), backends, *only, *on, results.Dir(*to), show)
	stop()
	os.Exit(code)
}

// measure shows what is measured, writes it also where that was cut short, and
// returns the exit code.
func measure(ctx context.Context, r report, backends []backend, only, on string, to results.Dir, show func(row)) int {
	good, err := run(ctx, backends, only, on, r.Scale, func(row row) {
		r.Rows = append(r.Rows, row)
		show(row)
	})
	r.Partial = err != nil
	if len(r.Rows) > 0 {
		err = errors.Join(err, r.write(to))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return 130
	case err != nil || !good:
		return 1
	}
	return 0
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
				r.Name = fullName(g.name, b.name, r.Name)
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

func fullName(group, store, what string) string { return group + ", " + store + ": " + what }

func groupNames() string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return strings.Join(names, ", ")
}

// present returns the backends that there are, and says which there are not.
func present(dir string) (all []backend, missing []string) {
	all = []backend{sqliteIn(dir)}
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
			missing = append(missing, fmt.Sprintf("%s, since %s is not set; "+
				"`go run ./integration/servers -fsync -- go run ./bench/stores` measures all", server.needs, server.env))
		}
	}
	for i := range all {
		all[i].disk = dir
	}
	return all, missing
}
