package handler

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const document = "../../docs/testing-your-handler.md"

// The document's blocks stand behind marks that say where they are from:
//
//	<!-- code: Plain, Example_plain -->
//	<!-- output: Example_plain -->
//
// With UPDATE=1 in the environment they are written anew.
var (
	marked = regexp.MustCompile("(?s)<!-- (code|output): ([^>]*) -->\n```(?:go)?\n.*?```\n")
	fence  = regexp.MustCompile("(?m)^```(go)?\n(?s:.*?)^```$")
)

func TestDocumentShowsTheCode(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	decls, text := declarations(t), string(data)
	want := marked.ReplaceAllStringFunc(text, func(block string) string {
		m := marked.FindStringSubmatch(block)
		shown, err := show(decls, m[1], strings.Split(m[2], ", "))
		if err != nil {
			t.Error(err)
			return block
		}
		return shown
	})
	if text == want {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("%s differs from the code; UPDATE=1 go test writes it anew", document)
	}
	if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDocumentHasEachExample(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if blocks, marks := len(fence.FindAllString(text, -1)), len(marked.FindAllString(text, -1)); blocks != marks || marks == 0 {
		t.Errorf("%d blocks of code or output, and %d of them marked", blocks, marks)
	}
	var code, output []string
	for _, m := range marked.FindAllStringSubmatch(text, -1) {
		names := strings.Split(m[2], ", ")
		if m[1] == "code" {
			code = append(code, names...)
		} else {
			output = append(output, names...)
		}
	}
	for name := range declarations(t) {
		if !strings.HasPrefix(name, "Example") {
			continue
		}
		if !slices.Contains(code, name) || !slices.Contains(output, name) {
			t.Errorf("%s doesn't show %s and its output", document, name)
		}
	}
}

// The first test that a newcomer writes has to be a short one.
func TestDocumentBeginsShort(t *testing.T) {
	code, _, _ := strings.Cut(declarations(t)["Example_plain"], "\t// Output:\n")
	if n := strings.Count(code, "\n") + 1; n >= 20 {
		t.Errorf("the first test has %d lines", n)
	}
}

// show makes a block with its mark.
func show(decls map[string]string, kind string, names []string) (string, error) {
	var parts []string
	for _, name := range names {
		decl, ok := decls[name]
		if !ok {
			return "", fmt.Errorf("no declaration is called %q", name)
		}
		code, output, isExample := strings.Cut(decl, "\t// Output:\n")
		switch {
		case kind == "output":
			output = strings.TrimSuffix(output, "\n}")
			parts = append(parts, strings.ReplaceAll(strings.TrimPrefix(output, "\t// "), "\n\t// ", "\n"))
		case isExample:
			parts = append(parts, code+"}")
		default:
			parts = append(parts, decl)
		}
	}
	open := "```"
	if kind == "code" {
		open += "go"
	}
	mark := fmt.Sprintf("<!-- %s: %s -->", kind, strings.Join(names, ", "))
	return mark + "\n" + open + "\n" + strings.Join(parts, "\n\n") + "\n```\n", nil
}

// declarations returns the text of this directory's functions, types and methods
// with their comments, by name.
func declarations(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	decls := map[string]string{}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range syntax.Decls {
			begin := decl.Pos()
			if doc := comment(decl); doc != nil {
				begin = doc.Pos()
			}
			decls[nameOfDecl(decl)] = string(src[fset.Position(begin).Offset:fset.Position(decl.End()).Offset])
		}
	}
	return decls
}

func comment(decl ast.Decl) *ast.CommentGroup {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return d.Doc
	case *ast.GenDecl:
		return d.Doc
	}
	return nil
}

// nameOfDecl is "F", or "T.M" for a method.
func nameOfDecl(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		recv := d.Recv.List[0].Type
		if star, ok := recv.(*ast.StarExpr); ok {
			recv = star.X
		}
		return fmt.Sprint(recv, ".", d.Name.Name)
	case *ast.GenDecl:
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return s.Name.Name
		case *ast.ValueSpec:
			return s.Names[0].Name
		}
	}
	return ""
}
