package oncepipe_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The tests of this file look at the repository itself: what depends on what,
// what the go.mod files say, what is documented.

const rootPath = "github.com/oncepipe/oncepipe"

// inCheckout skips where only the root module is there, as in the module cache.
func inCheckout(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("tools/go.mod"); err != nil {
		t.Skip("needs a checkout of the whole repository")
	}
}

// goTool runs the go command outside the workspace.
func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

// files lists the repository's files with slashes, without what git ignores
// where git can tell.
func files(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == ".bin"):
			return filepath.SkipDir
		case !d.IsDir() && name != ".git": // a file in a worktree
			list = append(list, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err == nil {
		known := map[string]bool{}
		for name := range strings.SplitSeq(string(out), "\x00") {
			known[name] = true
		}
		list = slices.DeleteFunc(list, func(name string) bool { return !known[name] })
	}
	if len(list) == 0 {
		t.Fatal("no files")
	}
	return list
}

// goMod is what the tests read of a go.mod file.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
	Exclude []any
	Tool    []any
}

func (m goMod) version(mod string) string {
	for _, r := range m.Require {
		if r.Path == mod {
			return r.Version
		}
	}
	return ""
}

func (m goMod) replaced(mod string) string {
	for _, r := range m.Replace {
		if r.Old.Path == mod && r.New.Version == "" {
			return r.New.Path
		}
	}
	return ""
}

func readMod(t *testing.T, file string) goMod {
	t.Helper()
	var m goMod
	if err := json.Unmarshal(goTool(t, "mod", "edit", "-json", file), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// modules reads every go.mod file, by directory.
func modules(t *testing.T) map[string]goMod {
	t.Helper()
	mods := map[string]goMod{}
	for _, file := range files(t) {
		if path.Base(file) == "go.mod" && !strings.Contains(file, "testdata/") {
			mods[path.Dir(file)] = readMod(t, file)
		}
	}
	return mods
}

// goFile is one Go file; imports are those of this repository, relative to its
// top ("." is the root package), and ext the others.
type goFile struct {
	name, dir string
	test      bool
	imports   []string
	ext       []string
}

// goFiles reads the imports of all Go files, whatever their build tags say.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var list []goFile
	for _, name := range files(t) {
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		f := goFile{name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
		for _, spec := range syntax.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			switch rel, ours := strings.CutPrefix(imp, rootPath); {
			case ours && rel == "":
				f.imports = append(f.imports, ".")
			case ours && rel[0] == '/':
				f.imports = append(f.imports, rel[1:])
			default:
				f.ext = append(f.ext, imp)
			}
		}
		list = append(list, f)
	}
	return list
}

// within says whether dir is top or below it.
func within(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

func TestHouseRootRequires(t *testing.T) {
	m := readMod(t, "go.mod")
	want := []string{
		"github.com/cenkalti/backoff/v4",
		"go.uber.org/goleak",
		"golang.org/x/sync",
		"pgregory.net/rapid",
	}
	var got []string
	for _, r := range m.Require {
		got = append(got, r.Path)
		if r.Indirect {
			t.Errorf("go.mod requires %s indirectly: no file of the root module imports it", r.Path)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("go.mod requires\n  %v\nwant exactly\n  %v", got, want)
	}
	if len(m.Replace)+len(m.Exclude)+len(m.Tool) > 0 {
		t.Error("the root go.mod has a replace, exclude or tool line")
	}
}

func TestHouseReachable(t *testing.T) {
	kit := rootPath + "/oncetest/rapidtest"
	for pkg := range strings.FieldsSeq(string(goTool(t, "list", "./..."))) {
		allowed := []string{rootPath, "golang.org/x/sync", "github.com/cenkalti/backoff/v4"}
		if within(pkg, kit) {
			allowed = append(allowed, "pgregory.net/rapid")
		}
		deps := goTool(t, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg)
		for dep := range strings.FieldsSeq(string(deps)) {
			if !slices.ContainsFunc(allowed, func(a string) bool { return within(dep, a) }) {
				t.Errorf("%s reaches %s", pkg, dep)
			}
		}
	}
}

func TestHouseArrows(t *testing.T) {
	inCheckout(t)
	// For a directory and what is below it, which directories of ours its code
	// may import beside its own; "." is the root package alone. Tests are free.
	all := []string{".", "internal", "chans", "store", "source", "oncetest"}
	arrows := map[string][]string{
		"internal":    nil,
		"chans":       nil,
		"store":       {".", "internal", "store/internal"},
		"source":      {".", "internal"},
		"oncetest":    {".", "internal"},
		"cmd":         all,
		"examples":    all,
		"bench":       all,
		"integration": all,
		"hack":        nil,
		"tools":       nil,
	}
	for _, f := range goFiles(t) {
		for _, imp := range f.ext {
			if f.test || within(f.dir, "oncetest/rapidtest") {
				continue
			}
			if within(imp, "pgregory.net/rapid") || within(imp, "go.uber.org/goleak") {
				t.Errorf("%s imports %s, which is for tests only", f.name, imp)
			}
		}
		top, rest, _ := strings.Cut(f.dir, "/")
		may, own := arrows[top], top
		switch _, ok := arrows[top]; {
		case top == ".":
			may, own = []string{"internal", "chans"}, "."
		case !ok:
			t.Errorf("%s: no arrows are known for the directory %s", f.name, top)
			continue
		case top == "store" || top == "source": // each on its own
			first, _, _ := strings.Cut(rest, "/")
			own = top + "/" + first
		}
		for _, imp := range f.imports {
			ok := imp == own || own != "." && within(imp, own) || slices.ContainsFunc(may, func(m string) bool {
				return imp == m || m != "." && within(imp, m)
			})
			if !ok && !f.test {
				t.Errorf("%s may not import %s", f.name, path.Join(rootPath, imp))
			}
		}
	}
}

func TestHouseTopLevel(t *testing.T) {
	inCheckout(t)
	for _, name := range []string{
		"go.mod", "go.sum", "pipeline.go", "dedup.go", "retry.go", "buffer.go",
		"bench", "examples", "README.md",
	} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

func TestHouseNestedModules(t *testing.T) {
	inCheckout(t)
	mods := modules(t)
	owner := func(dir string) string { // the directory of the module that dir is in
		for mods[dir].Module.Path == "" && dir != "." {
			dir = path.Dir(dir)
		}
		return dir
	}
	siblings := map[string]map[string]string{} // by module: sibling needed, because
	for dir, m := range mods {
		siblings[dir] = map[string]string{}
		if want := path.Join(rootPath, dir); m.Module.Path != want {
			t.Errorf("%s/go.mod names the module %s, want %s", dir, m.Module.Path, want)
		}
		for _, r := range m.Require {
			if within(r.Path, rootPath) {
				siblings[dir][r.Path] = "go.mod requires it"
			}
		}
	}
	for _, f := range goFiles(t) {
		for _, imp := range f.imports {
			if from, to := owner(f.dir), owner(imp); from != to {
				siblings[from][path.Join(rootPath, to)] = f.name + " imports it"
			}
		}
	}
	for dir, need := range siblings {
		for mod, why := range need {
			if v := mods[dir].version(mod); v != "v0.0.0" {
				t.Errorf("%s/go.mod requires %s %q, want v0.0.0 (%s)", dir, mod, v, why)
			}
			to := mods[dir].replaced(mod)
			relative := strings.HasPrefix(to, "./") || strings.HasPrefix(to, "../")
			if !relative || path.Join(rootPath, dir, to) != mod {
				t.Errorf("%s/go.mod replaces %s by %q, want its relative path (%s)", dir, mod, to, why)
			}
		}
	}

	var work struct {
		Go      string
		Use     []struct{ DiskPath string }
		Replace []any
	}
	if err := json.Unmarshal(goTool(t, "work", "edit", "-json", "go.work"), &work); err != nil {
		t.Fatal(err)
	}
	var used, want []string
	for _, u := range work.Use {
		used = append(used, path.Clean(u.DiskPath))
	}
	for dir := range mods {
		if dir != "tools" {
			want = append(want, dir)
		}
	}
	slices.Sort(used)
	slices.Sort(want)
	if !slices.Equal(used, want) {
		t.Errorf("go.work uses\n  %v\nthe modules are\n  %v", used, want)
	}
	if work.Go != mods["."].Go || len(work.Replace) > 0 {
		t.Errorf("go.work says go %s with %d replaces, want go %s and none", work.Go, len(work.Replace), mods["."].Go)
	}
}

func TestHouseNoLocalPaths(t *testing.T) {
	// Home directories at the start of a path, and hosts that serve modules. The
	// pattern is put together so that it isn't in this file.
	local := regexp.MustCompile(`(^|file://|[^A-Za-z0-9_.~)}/-])/(` + `home|Users|root)/[A-Za-z0-9_.]` +
		`|[A-Za-z]:\\` + `Users\\|\b(go)?(proxy|sum)\.` + `golang\.(org|com)|\bgoproxy\.` + `[a-z]+`)
	for _, name := range files(t) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if bytes.IndexByte(data, 0) >= 0 {
			continue // not text
		}
		n := 0
		for line := range bytes.Lines(data) {
			n++
			if found := local.Find(line); found != nil {
				t.Errorf("%s:%d: %q belongs to one machine", name, n, found)
			}
		}
	}
}

func TestHouseDocumented(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests []*ast.File
	var funcs, bare []string
	for _, name := range names {
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			tests = append(tests, syntax)
			continue
		}
		note := func(id *ast.Ident, docs ...*ast.CommentGroup) {
			for _, d := range docs {
				if d.Text() != "" {
					return
				}
			}
			bare = append(bare, fmt.Sprintf("%s (%s)", id.Name, name))
		}
		for _, decl := range syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					funcs = append(funcs, d.Name.Name)
					note(d.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					ts, ok := spec.(*ast.TypeSpec)
					switch {
					case !ok || !ts.Name.IsExported():
					case d.Lparen.IsValid(): // a group's comment is about the group
						note(ts.Name, ts.Doc, ts.Comment)
					default:
						note(ts.Name, d.Doc)
					}
				}
			}
		}
	}
	if len(bare) > 0 {
		t.Errorf("without a doc comment:\n  %s", strings.Join(bare, "\n  "))
	}

	shown := map[string]bool{}
	for _, ex := range doc.Examples(tests...) {
		if ex.Output != "" || ex.EmptyOutput { // else it is compiled, not run
			name, _, _ := strings.Cut(ex.Name, "_")
			shown[name] = true
		}
	}
	missing := slices.DeleteFunc(funcs, func(name string) bool { return shown[name] })
	if len(missing) > 0 {
		slices.Sort(missing)
		t.Errorf("without an Example that has an output:\n  %s", strings.Join(missing, "\n  "))
	}
}
