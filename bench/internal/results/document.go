package results

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Table is a table of a document. A column whose name begins with ">" is aligned
// to the right.
func Table(columns []string, rows [][]string) string {
	var b strings.Builder
	rule := ""
	for _, c := range columns {
		name, right := strings.CutPrefix(c, ">")
		b.WriteString("| " + name + " ")
		if right {
			rule += "|--:"
		} else {
			rule += "|---"
		}
	}
	b.WriteString("|\n" + rule + "|\n")
	for _, r := range rows {
		b.WriteString("| " + strings.Join(r, " | ") + " |\n")
	}
	return b.String()
}

// Part is a piece of a document that another one may quote.
func Part(name, text string) string {
	return partBegin(name) + strings.TrimSpace(text) + "\n" + partEnd
}

const partEnd = "<!-- end -->\n"

func partBegin(name string) string { return fmt.Sprintf("<!-- part: %s -->\n", name) }

// stem is what the files of one program begin with.
func stem(name string) string { return name[:strings.IndexAny(name+".", ".-")] }

// checkLeft fails for files of a program in dir that it didn't make again.
func checkLeft(t *testing.T, dir, again Dir, program string) {
	t.Helper()
	there, err := os.ReadDir(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if stem(f.Name()) != program {
			continue
		}
		if _, err := again.Read(f.Name()); err != nil {
			t.Errorf("%s is in %s, and the program doesn't write it (any more)", f.Name(), dir)
		}
	}
}

// CheckDocument makes the documents and pictures in dir again, of the data files
// alone, and fails where they differ from those that are there, or where others
// are there that begin as data[0] does, up to a dot or a hyphen.
func CheckDocument(t *testing.T, dir Dir, data []string, render func(Dir) error) {
	t.Helper()
	again := Dir(t.TempDir())
	for _, name := range data {
		file, err := dir.Read(name)
		if err == nil {
			err = again.Write(name, file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := render(again); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadDir(string(again))
	if err != nil {
		t.Fatal(err)
	}
	if len(made) == len(data) {
		t.Error("nothing was made of the data")
	}
	checkLeft(t, dir, again, stem(data[0]))
	for _, f := range made {
		want, err := again.Read(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		got, err := dir.Read(f.Name())
		if err != nil {
			t.Errorf("%v; the program writes it", err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its data say; the program writes it, nobody else", filepath.Join(string(dir), f.Name()))
		}
	}
}
