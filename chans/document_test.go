package chans_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests of this file hold docs/core-async.md to what is there: each returns
// what is wrong with a document, and has to find it in a bad one too.

func document(t *testing.T) string {
	t.Helper()
	return readFile(t, "../docs/core-async.md")
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// faultless reports the faults of a document, and that they are found in a bad one.
func faultless(t *testing.T, faults, found []string, bad ...string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
	slices.Sort(found)
	if !slices.Equal(found, bad) {
		t.Errorf("of the bad document it says %q, want %q", found, bad)
	}
}

// section is what stands under a heading.
func section(doc, heading string) string {
	_, text, _ := strings.Cut(doc, "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// rows are the rows of the tables in a text, each a list of its cells.
func rows(text string) (list [][]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || !strings.HasSuffix(line, " |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		list = append(list, cells)
	}
	return list
}

// coded matches what is set as code.
var coded = regexp.MustCompile("`([^`]+)`")

func codes(text string) (list []string) {
	for _, m := range coded.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// userFacing are the functions and macros of core.async 1.9 for its users, and
// deprecated those that it keeps for old code.
const (
	userFacing = `chan buffer dropping-buffer sliding-buffer unblocking-buffer? promise-chan timeout
		close! put! take! offer! poll! >! <! >!! <!! alts! alts!! alt! alt!!
		go go-loop thread thread-call io-thread
		pipe pipeline pipeline-blocking pipeline-async
		mult tap untap untap-all pub sub unsub unsub-all
		mix admix unmix unmix-all toggle solo-mode
		merge split map reduce transduce into take onto-chan! onto-chan!! to-chan! to-chan!!`
	deprecated = `map< map> filter< filter> remove< remove> mapcat< mapcat> unique partition partition-by
		onto-chan to-chan`
)

// functionFaults compares the first column of the table of functions with names.
func functionFaults(text string, names []string) (faults []string) {
	times := map[string]int{}
	for _, row := range rows(text) {
		for _, name := range codes(row[0]) {
			times[name]++
		}
		if len(row) != 3 || row[1] == "" || row[2] == "" {
			faults = append(faults, "incomplete: "+row[0])
		}
	}
	for _, name := range names {
		if times[name] != 1 {
			faults = append(faults, fmt.Sprintf("%s has %d rows", name, times[name]))
		}
		delete(times, name)
	}
	for name := range times {
		faults = append(faults, name+" is not core.async's")
	}
	return faults
}

func TestDocumentHasEveryFunction(t *testing.T) {
	names := strings.Fields(userFacing + " " + deprecated)
	if len(names) != 54+13 {
		t.Errorf("%d names", len(names))
	}
	const bad = "| core.async | here | why |\n| `chan` | make | same |\n| `go`, `chan` | go | |\n| `stop!` | a | b |\n"
	faultless(t, functionFaults(section(document(t), "Every function"), names),
		functionFaults(bad, []string{"chan", "go", "mult"}),
		"chan has 2 rows", "incomplete: `go`, `chan`", "mult has 0 rows", "stop! is not core.async's")
}

// behaviourFaults compares the table of behaviours with the subtests.
func behaviourFaults(text string, last int, subtests []string) (faults []string) {
	left := map[string]bool{}
	for _, name := range subtests {
		left[name] = true
	}
	var numbers []string
	for _, row := range rows(text) {
		if row[0] == "no." {
			continue
		}
		numbers = append(numbers, row[0])
		if len(row) != 5 {
			faults = append(faults, row[0]+" has not five cells")
			continue
		}
		verdict, _, _ := strings.Cut(row[3], ":")
		named := codes(row[4])
		if known := []string{"same", "differs", "n/a"}; !slices.Contains(known, verdict) {
			faults = append(faults, row[0]+" says "+verdict)
		}
		if (verdict == "n/a") != (len(named) == 0) {
			faults = append(faults, fmt.Sprintf("%s (%s) names %d subtests", row[0], verdict, len(named)))
		}
		for _, name := range named {
			if !left[name] || !strings.HasPrefix(name, row[0]+"_") {
				faults = append(faults, row[0]+" names "+name)
			}
			delete(left, name)
		}
	}
	for name := range left {
		faults = append(faults, name+" is in no row")
	}
	var want []string
	for n := range last {
		want = append(want, fmt.Sprintf("%02d", n+1))
	}
	if want = append(want, "E"); !slices.Equal(numbers, want) {
		faults = append(faults, fmt.Sprintf("the numbers are %v", numbers))
	}
	return faults
}

func TestDocumentHasEveryBehaviour(t *testing.T) {
	var subtests []string
	for name := range behaviours() {
		subtests = append(subtests, name)
	}
	const bad = "| no. | there | here | verdict | subtests |\n" +
		"| 01 | a | b | same | `01_T_Here`, `02_T_Gone` |\n| 02 | a | b | n/a: none | |\n| 04 | a | b | better | |\n"
	faultless(t, behaviourFaults(section(document(t), "Every behaviour"), 80, subtests),
		behaviourFaults(bad, 3, []string{"01_T_Here", "03_T_Unnamed"}),
		"01 names 02_T_Gone", "03_T_Unnamed is in no row", "04 (better) names 0 subtests", "04 says better",
		"the numbers are [01 02 04]")
}

var (
	ours    = regexp.MustCompile(`\b(chans|oncepipe)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	example = regexp.MustCompile(`\bExample\w*`)
)

// nameFaults are names of ours in doc that don't exist.
func nameFaults(doc string, exists map[string]bool) (faults []string) {
	for _, name := range append(ours.FindAllString(doc, -1), example.FindAllString(doc, -1)...) {
		if !exists[name] && !slices.Contains(faults, name) {
			faults = append(faults, name)
		}
	}
	return faults
}

// exported collects the exported names of the package in a directory, and its examples.
func exported(t *testing.T, pkg, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files in ", dir, err)
	}
	names := map[string]bool{}
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range syntax.Decls {
			for _, name := range declared(decl) {
				if strings.HasSuffix(file, "_test.go") {
					names[name] = true
				} else {
					names[pkg+"."+name] = true
				}
			}
		}
	}
	return names
}

// declared are the names that a declaration makes: X of a package, X.Y of a type.
func declared(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		return []string{base(d.Recv.List[0].Type) + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			case *ast.TypeSpec:
				names = append(append(names, s.Name.Name), fields(s)...)
			}
		}
	}
	return names
}

func base(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return base(e.X)
	case *ast.IndexExpr:
		return base(e.X)
	case *ast.IndexListExpr:
		return base(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func fields(s *ast.TypeSpec) (names []string) {
	if st, ok := s.Type.(*ast.StructType); ok {
		for _, f := range st.Fields.List {
			for _, name := range f.Names {
				names = append(names, s.Name.Name+"."+name.Name)
			}
		}
	}
	return names
}

func TestDocumentNamesWhatExists(t *testing.T) {
	exists := exported(t, "chans", ".")
	maps.Copy(exists, exported(t, "oncepipe", ".."))
	faultless(t, nameFaults(document(t), exists),
		nameFaults("`chans.Pipe`, chans.Gone, chans.Promise.Get, chans.Promise.Gone, oncepipe.Retry, oncepipe.Gone, Example_gone", exists),
		"Example_gone", "chans.Gone", "chans.Promise.Gone", "oncepipe.Gone")
}

// shown is an example as the document shows it.
func shown(code, output string) string { return "```go\n" + code + "```\n\n```\n" + output + "```\n" }

// exampleFaults compares the blocks of code in doc with examples, as shown.
func exampleFaults(doc string, examples map[string]string) (faults []string) {
	blocks := strings.Count(doc, "```go\n")
	for name, text := range examples {
		if !strings.Contains(doc, text) {
			faults = append(faults, name+" is not shown as it is:\n"+text)
		}
	}
	if blocks != len(examples) {
		faults = append(faults, fmt.Sprintf("%d blocks of code for %d examples", blocks, len(examples)))
	}
	return faults
}

// idioms are the examples of the document, as it shows them.
func idioms(t *testing.T) map[string]string {
	t.Helper()
	pattern := regexp.MustCompile(`(?ms)^func (Example_\w+)\(\) \{\n(.*?)^\t// (?:Unordered output|Output):\n(.*?)^\}\n`)
	found := map[string]string{}
	for _, m := range pattern.FindAllStringSubmatch(readFile(t, "example_idioms_test.go"), -1) {
		code := strings.ReplaceAll("\n"+m[2], "\n\t", "\n")[1:]
		found[m[1]] = shown(code, strings.ReplaceAll(m[3], "\t// ", ""))
	}
	return found
}

func TestDocumentShowsTheExamples(t *testing.T) {
	examples := idioms(t)
	if n := strings.Count(readFile(t, "example_idioms_test.go"), "\nfunc Example"); n != len(examples) || n == 0 {
		t.Errorf("%d of %d examples were read", len(examples), n)
	}
	a := shown("a()\n", "1\n")
	faultless(t, exampleFaults(document(t), examples),
		exampleFaults(shown("a()\n", "2\n")+shown("b()\n", "1\n")+shown("c()\n", ""),
			map[string]string{"Example_a": a, "Example_b": shown("b()\n", "1\n")}),
		"3 blocks of code for 2 examples", "Example_a is not shown as it is:\n"+a)
}
