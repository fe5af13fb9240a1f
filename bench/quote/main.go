// Command quote brings the documents up to date that quote those in docs/results:
// README.md shows parts of them between the lines
//
//	<!-- from docs/results/NAME.md: PART -->
//	<!-- end -->
//
//	go run ./bench/quote [-root DIR] [-check]
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// quoting are the documents that quote.
var quoting = []string{"README.md"}

func main() {
	root := flag.String("root", ".", "the repository")
	check := flag.Bool("check", false, "change nothing, exit with 1 if there is something to change")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "quote: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	stale := false
	for _, file := range quoting {
		changed, err := update(*root, file, *check)
		if err != nil {
			fmt.Fprintln(os.Stderr, "quote:", err)
			os.Exit(1)
		}
		if changed {
			fmt.Println(file)
		}
		stale = stale || changed
	}
	if stale && *check {
		os.Exit(1)
	}
}

func update(root, file string, check bool) (changed bool, err error) {
	if check {
		before, after, err := results.Quote(root, file)
		return before != after, err
	}
	return results.QuoteIn(root, file)
}
