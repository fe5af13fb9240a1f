// Command core measures what Oncepipe's core costs beside the same work done by
// hand, prints every ratio with its limit, and exits with 1 when one is above.
//
//	go run ./bench/core [-json] [-only SUBSTRING]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/oncepipe/oncepipe/bench/chain"
	"github.com/oncepipe/oncepipe/bench/guard"
	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/bench/parked"
)

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object a line")
	only := flag.String("only", "", "run only the groups whose name contains this: chain, guard, parked")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "core: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	groups := []struct {
		name   string
		report func() ([]ratio.Row, error)
	}{
		{"chain", chain.Report},
		{"guard", guard.Report},
		{"parked", parked.Report},
	}
	good := true
	for _, g := range groups {
		if !strings.Contains(g.name, *only) {
			continue
		}
		rows, err := g.report()
		if err != nil {
			fmt.Fprintf(os.Stderr, "core: %s: %v\n", g.name, err)
			os.Exit(1)
		}
		for _, r := range rows {
			good = good && r.OK
			show(r, *asJSON)
		}
	}
	if !good {
		os.Exit(1)
	}
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
