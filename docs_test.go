package oncepipe_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests of this file hold the documents to what is there: the tests they
// name, the files they point to, the code they show.

// testName finds names of tests in a text. TestI4_… in CONTRIBUTING.md is a
// pattern, not a name.
var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*`)

// unknownTests returns the tests that doc names and that don't exist.
func unknownTests(doc string, exists map[string]bool) []string {
	var missing []string
	for _, name := range testName.FindAllString(doc, -1) {
		if !exists[name] && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// testFuncs returns the names of all tests, fuzz tests and benchmarks of the tree.
func testFuncs(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	for _, name := range files(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range syntax.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.FindString(f.Name.Name) == f.Name.Name {
				exists[f.Name.Name] = true
			}
		}
	}
	return exists
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDocsNameTestsThatExist(t *testing.T) {
	inCheckout(t)
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := testFuncs(t)
	named := 0
	for _, name := range append(docs, "README.md") {
		doc := readDoc(t, name)
		named += len(testName.FindAllString(doc, -1))
		for _, missing := range unknownTests(doc, exists) {
			t.Errorf("%s names %s, which is in no _test.go file", name, missing)
		}
	}
	if named == 0 {
		t.Error("no document names a test: the pattern finds nothing")
	}
}

func TestDocsUnknownTestIsFound(t *testing.T) {
	exists := testFuncs(t)
	doc := "shown by `" + t.Name() + "` and `" + "Test" + "DocsNobodyWroteThis`, `" + "TestDocs" + "UnknownTest`"
	want := []string{"Test" + "DocsNobodyWroteThis", "TestDocs" + "UnknownTest"}
	if got := unknownTests(doc, exists); !slices.Equal(got, want) {
		t.Errorf("unknown tests are %q, want %q", got, want)
	}
}

// A number in a test's name is that of a report.
func TestDocsListReports(t *testing.T) {
	inCheckout(t)
	reports := readDoc(t, "docs/reports.md")
	number := regexp.MustCompile(`[RP][0-9]{2}_`)
	found := 0
	for name := range testFuncs(t) {
		for _, n := range number.FindAllString(name, -1) {
			found++
			if !strings.Contains(reports, "\n| "+n[:3]+" |") {
				t.Errorf("%s bears a number that docs/reports.md doesn't list", name)
			}
		}
	}
	if found == 0 {
		t.Error("no test bears a number: the pattern finds nothing")
	}
}

var (
	reportNumber = regexp.MustCompile(`[RP][0-9]{2}`)
	reportRow    = regexp.MustCompile(`(?m)^\| ([RP][0-9]{2}) \| [^|]+ \| .+ \|$`)
	shownRow     = regexp.MustCompile(`(?m)^\| ([RP][0-9]{2}[RP0-9 ]*) \| .+ \| ?(.*) ?\|$`)
)

// byDesign are the reports that no test can show.
var byDesign = []string{"P56"}

// unshown compares the reports that doc lists with those that its last table shows,
// and returns what is missing there. rules are the numbers of the store contract.
func unshown(doc string, exists map[string]bool, rules []string) (missing []string) {
	lists, table, _ := strings.Cut(doc, "\n## What happens here instead\n")
	shownBy := map[string]string{}
	for _, row := range shownRow.FindAllStringSubmatch(table, -1) {
		for _, n := range reportNumber.FindAllString(row[1], -1) {
			shownBy[n] = row[2]
		}
	}
	for _, row := range reportRow.FindAllStringSubmatch(lists, -1) {
		n := row[1]
		cell, ok := shownBy[n]
		shown := slices.Contains(byDesign, n) || slices.Contains(rules, n) && strings.Contains(cell, "`TestContract/"+n+"`")
		for _, name := range testName.FindAllString(cell, -1) {
			shown = shown || exists[name] && strings.Contains(name, n+"_")
		}
		if !ok || !shown {
			missing = append(missing, n)
		}
	}
	for name := range exists {
		for _, n := range reportNumber.FindAllString(name, -1) {
			if strings.Contains(name, n+"_") && !strings.Contains(shownBy[n], "`"+name+"`") {
				missing = append(missing, n+" "+name)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// contractRules returns the numbers that rules of the store contract bear.
func contractRules(t *testing.T) (numbers []string) {
	t.Helper()
	rule := regexp.MustCompile(`", "([RP][0-9]{2}) [^"]+", func\(`)
	names, err := filepath.Glob("oncetest/internal/storetest/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, m := range rule.FindAllStringSubmatch(readDoc(t, name), -1) {
			numbers = append(numbers, m[1])
		}
	}
	return numbers
}

// Every report is shown by a test that bears its number, and every such test is named.
func TestDocsShowEveryReport(t *testing.T) {
	inCheckout(t)
	rules := contractRules(t)
	if len(rules) == 0 {
		t.Error("no rule bears a number: the pattern finds nothing")
	}
	for _, what := range unshown(readDoc(t, "docs/reports.md"), testFuncs(t), rules) {
		t.Errorf("the last table of docs/reports.md doesn't show %s", what)
	}
}

func TestDocsUnshownReportIsFound(t *testing.T) {
	const doc = `
| R01 | somewhere | fault |
| R02 | somewhere | fault |
| R03 | somewhere | fault |
| R04 | somewhere | fault |
| P56 | somewhere | fault |

## What happens here instead

| R01 R03 | no fault | ` + "`Test" + "R01_Here`, `Test" + "Contract/R01`, `Test" + "R03_Gone`" + ` |
| R02 | no fault | ` + "`Test" + "Contract/R02`" + ` |
| P56 | by design | |
`
	exists := map[string]bool{"Test" + "R01_Here": true, "Test" + "R02_NotNamed": true}
	got := unshown(doc, exists, []string{"R02"})
	if want := []string{"R02 Test" + "R02_NotNamed", "R03", "R04"}; !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
}

func TestDocsLinksLead(t *testing.T) {
	inCheckout(t)
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`) // without scheme: a file of ours
	code := regexp.MustCompile("(?ms)^```.*?^```$")          // where a[T](b) is a call
	found := 0
	for _, name := range files(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(readDoc(t, name), ""), -1) {
			found++
			if _, err := os.Stat(path.Join(path.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no document has a link: the pattern finds nothing")
	}
}

// The code in README.md is the body of examples, which run with the tests.
func TestDocsReadmeShowsTheExamples(t *testing.T) {
	inCheckout(t)
	readme := readDoc(t, "README.md")
	for file, example := range map[string]string{"example_test.go": "Example", "example_queue_test.go": "Example_queue"} {
		readmeShows(t, readme, file, example)
	}
}

func readmeShows(t *testing.T, readme, file, example string) {
	t.Helper()
	_, body, ok := strings.Cut(readDoc(t, file), "\nfunc "+example+"() {\n")
	if !ok {
		t.Fatalf("%s has no %s", file, example)
	}
	body, output, ok := strings.Cut(body, "\t// Output:\n")
	if !ok {
		t.Fatalf("%s has no output", example)
	}
	output, _, _ = strings.Cut(output, "}\n")
	if code := strings.ReplaceAll("\n"+body, "\n\t", "\n"); !strings.Contains(readme, "```go"+code+"```") {
		t.Errorf("README.md doesn't show %s as it is:\n%s", example, code)
	}
	if out := strings.ReplaceAll(output, "\t// ", ""); !strings.Contains(readme, "```\n"+out+"```") {
		t.Errorf("README.md doesn't show the output of %s as it is:\n%s", example, out)
	}
}
