// Command core measures what Oncepipe's core costs beside the same work done by
// hand, prints every ratio with its limit, and exits with 1 when one is above.
//
//	go run ./bench/core [-json] [-only SUBSTRING] [-results DIR]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/oncepipe/oncepipe/bench/chain"
	"github.com/oncepipe/oncepipe/bench/guard"
	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/internal/results"
	"github.com/oncepipe/oncepipe/bench/parked"
)

const interrupted = 130

// group is a part of the report.
type group struct {
	name   string
	report func() ([]ratio.Row, error)
}

var groups = []group{
	{"chain", chain.Report},
	{"guard", guard.Report},
	{"parked", parked.Report},
}

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object a line")
	only := flag.String("only", "", "run only the groups whose name contains this: chain, guard, parked")
	dir := flag.String("results", "", "where core.json and core.md are written")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "core: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := results.Context()
	code, err := run(ctx, *only, results.Dir(*dir), func(r ratio.Row) { show(r, *asJSON) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "core:", err)
	}
	os.Exit(code)
}

// run shows the rows of the groups whose name contains only, writes them to dir,
// and returns the exit code.
func run(ctx context.Context, only string, dir results.Dir, show func(ratio.Row)) (code int, err error) {
	command := "go run ./bench/core"
	if only != "" {
		command += " -only " + only
	}
	m := measured{Run: results.NewRun(command + " -results docs/results")}
	for _, g := range groups {
		if !strings.Contains(g.name, only) {
			continue
		}
		if ctx.Err() != nil {
			m.Partial, code = true, interrupted
			break
		}
		rows, err := g.report()
		if err != nil {
			return 1, fmt.Errorf("%s: %w", g.name, err)
		}
		m.Rows = append(m.Rows, rows...)
		for _, r := range rows {
			show(r)
			if !r.OK {
				code = 1
			}
		}
	}
	if dir == "" {
		return code, nil
	}
	if err := results.WriteJSON(dir, "core.json", m); err != nil {
		return 1, err
	}
	if err := render(dir); err != nil {
		return 1, err
	}
	return code, nil
}

func show(r ratio.Row, asJSON bool) {
	if asJSON {
		line, err := json.Marshal(r)
		if err != nil {
			panic(err) // a Row has nothing that JSON lacks
		}
		fmt.Println(string(line))
		return
	}
	ok := "ok"
	if !r.OK {
		ok = "ABOVE"
	}
	fmt.Printf("%-28s %8.3f  limit %6.3f  %s\n", r.Name, r.Ratio, r.Limit, ok)
}
