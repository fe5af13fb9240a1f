package storetest_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oncepipe/oncepipe/oncetest/internal/storetest"
)

var (
	docRule   = regexp.MustCompile(`(?m)^- \*\*(S[0-9]+\.[0-9]+ [^*]+)\*\*`)
	docNumber = regexp.MustCompile(`\bS[0-9]+\.[0-9]+\b`)
)

// documented returns the rules of a document, and what is wrong with where it
// names them.
func documented(doc string) (rules, wrong []string) {
	for _, part := range strings.Split(doc, "\n## ")[1:] {
		section, _, _ := strings.Cut(part, " ")
		for _, m := range docRule.FindAllStringSubmatch(part, -1) {
			rules = append(rules, m[1])
			if !strings.HasPrefix(m[1], section+".") {
				wrong = append(wrong, m[1]+" stands in "+section)
			}
		}
	}
	for _, n := range docNumber.FindAllString(doc, -1) {
		if !slices.ContainsFunc(rules, func(r string) bool { return strings.HasPrefix(r, n+" ") }) {
			wrong = append(wrong, n+" is no rule")
		}
	}
	return rules, wrong
}

// The document has every rule of the suite, in its order, under its number and its
// name, and no other.
func TestContractDocument(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/store-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, wrong := documented(string(doc))
	for _, w := range wrong {
		t.Errorf("docs/store-contract.md: %s", w)
	}
	var want []string
	for _, r := range storetest.Rules() {
		want = append(want, r.String())
	}
	for _, r := range want {
		if !slices.Contains(rules, r) {
			t.Errorf("docs/store-contract.md lacks %q", r)
		}
	}
	for _, r := range rules {
		if !slices.Contains(want, r) {
			t.Errorf("docs/store-contract.md has %q, and the suite has not", r)
		}
	}
	if !t.Failed() && !slices.Equal(rules, want) {
		t.Errorf("docs/store-contract.md has the rules in another order, or one twice:\n%s", strings.Join(rules, "\n"))
	}
}

func TestContractDocument_FaultsAreFound(t *testing.T) {
	const doc = `
See S1.2, S1.7 and S3.1.

## S1 One

- **S1.1 first rule**: why
- **S1.2 second
  line**

## S2 Two

- **S1.3 elsewhere**
- S2.1 not marked
- **S2.2 last**
`
	rules, wrong := documented(doc)
	if want := []string{"S1.1 first rule", "S1.2 second\n  line", "S1.3 elsewhere", "S2.2 last"}; !slices.Equal(rules, want) {
		t.Errorf("rules %q, want %q", rules, want)
	}
	if want := []string{"S1.3 elsewhere stands in S2", "S1.7 is no rule", "S3.1 is no rule", "S2.1 is no rule"}; !slices.Equal(wrong, want) {
		t.Errorf("wrong %q, want %q", wrong, want)
	}
}

// A number is one rule's, and bears its section.
func TestRules_Numbers(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range storetest.Rules() {
		if seen[r.Number] || docNumber.FindString(r.Number) != r.Number {
			t.Errorf("%q is no number of its own", r)
		}
		seen[r.Number] = true
	}
	if len(seen) < 70 {
		t.Errorf("only %d rules", len(seen))
	}
}
