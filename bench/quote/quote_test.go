package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestDocumentsQuoteWhatIsThere(t *testing.T) {
	for _, file := range quoting {
		before, after, err := results.Quote("../..", file)
		if err != nil {
			t.Error(err)
		}
		if before != after {
			t.Errorf("%s quotes what docs/results doesn't say any more: go run ./bench/quote", file)
		}
	}
}

var (
	block     = regexp.MustCompile(`(?s)<!-- from .*?<!-- end -->|` + "```.*?```")
	measured  = regexp.MustCompile(`\d ?(%|ns|µs|times|items/s)|\d\.\d+[–-]\d`)
	byDefault = regexp.MustCompile(`sends 30 % of the deliveries twice`) // a flag of the example
)

// What was measured stands in quotations, where nobody types it.
func TestDocumentsHaveNoFiguresOfTheirOwn(t *testing.T) {
	for _, file := range quoting {
		text, _, err := results.Quote("../..", file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(byDefault.ReplaceAllString(block.ReplaceAllString(text, ""), "")) {
			if measured.MatchString(line) {
				t.Errorf("%s: a figure that was typed: %s", file, line)
			}
		}
	}
}
