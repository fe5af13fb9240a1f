package results

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	quoted = regexp.MustCompile(`(?s)(<!-- from ([^ :]+): ([^ ]+) -->\n)(.*?)(<!-- end -->\n)`)
	link   = regexp.MustCompile(`\]\(([^):#]+)([)#])`)
)

// Quote returns the text of a file in which every quotation is what the quoted
// document says now. A quotation stands between the lines
//
//	<!-- from FILE: PART -->
//	<!-- end -->
//
// FILE is a path from root, as file is. Links are made to lead to the same place.
func Quote(root, file string) (before, after string, err error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", "", fmt.Errorf("results: %w", err)
	}
	var failed []error
	after = quoted.ReplaceAllStringFunc(string(text), func(block string) string {
		m := quoted.FindStringSubmatch(block)
		part, err := partOf(root, m[2], m[3], path.Dir(filepath.ToSlash(file)))
		if err != nil {
			failed = append(failed, fmt.Errorf("results: %s: %w", file, err))
			return block
		}
		return m[1] + part + m[5]
	})
	if n := strings.Count(string(text), "<!-- from "); n != len(quoted.FindAllString(string(text), -1)) {
		failed = append(failed, fmt.Errorf("results: %s: a quotation is not ended, or is written in another way", file))
	}
	return string(text), after, errors.Join(failed...)
}

// partOf is a part of a document for one that is in the directory dir.
func partOf(root, file, name, dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(text), partBegin(name))
	part, _, ended := strings.Cut(rest, partEnd)
	if !ok || !ended {
		return "", fmt.Errorf("%s has no part %q", file, name)
	}
	return link.ReplaceAllStringFunc(part, func(l string) string {
		m := link.FindStringSubmatch(l)
		to, err := filepath.Rel(dir, path.Join(path.Dir(file), m[1]))
		if err != nil {
			return l
		}
		return "](" + filepath.ToSlash(to) + m[2]
	}), nil
}

// QuoteIn brings the quotations of a file up to date and tells whether that has
// changed it.
func QuoteIn(root, file string) (changed bool, err error) {
	before, after, err := Quote(root, file)
	if err != nil || before == after {
		return false, err
	}
	return true, replace(filepath.Join(root, file), []byte(after))
}
