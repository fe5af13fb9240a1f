package oncetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// valueRules are about the values of the fields that are the identity.
var valueRules = []string{"identity", "delimiter", "empty part", "big numbers", "truncated", "case", "spaces", "unicode"}

// delimiters are what people join with. "" is for those who join with nothing.
var delimiters = []string{"", "|", ":", "/", ",", "-", "_", "#", " ", ".", ";", "&", "=", "+", "%", "\x00", "\x1f", "\n", "\t", "::", "--", "||", ", "}

// longText is longer than what keys are cut to.
var longText = strings.Repeat("x", 1024)

// oneField are the values of one field that must make different keys.
var oneField = []struct {
	rule   string
	values []string
}{
	{"identity", []string{"a", "b"}},
	{"big numbers", []string{"9007199254740992", "9007199254740993", "18446744073709551616", "18446744073709551617"}},
	{"truncated", []string{longText, longText + "a", longText + "b", "a" + longText, "b" + longText, longText + longText}},
	{"case", []string{"ab", "Ab", "aB", "AB", "K", "\u212a"}}, // the last folds to k too
	{"spaces", []string{"a a", "a  a", "a a ", " a a", "aa", "a\ta"}},
	{"unicode", []string{"é", "e\u0301", "è", "e", "日", "本", "😀", "😁"}},
}

// valueCases makes messages whose fields have the values that keys are known to
// confuse.
func valueCases[M any](c *keyChecks[M], t keyTemplate[M]) []keyCase[M] {
	var list []keyCase[M]
	add := func(rule string, rows [][]string) {
		k := keyCase[M]{rule: rule}
		seen := map[string]bool{}
		for _, row := range rows {
			if id := strings.Join(row, "\xff"); !seen[id] { // a byte that is in no text
				seen[id] = true
				k.messages = append(k.messages, t.message(row))
			}
		}
		list = append(list, k)
	}
	n := len(t.fields)
	for k := range n {
		for _, one := range oneField {
			rows := make([][]string, len(one.values))
			for i, v := range one.values {
				rows[i] = valueRow(n, k, v)
			}
			add(one.rule, rows)
		}
	}
	add("empty part", emptyRows(n))
	all := delimiters
	marked := t.message(tokens(n))
	for _, d := range between(c.ask(marked, marked.build()).a.key, tokens(n)) {
		if !slices.Contains(all, d) && utf8.ValidString(d) { // JSON has no other texts
			all = append(slices.Clip(all), d)
		}
	}
	for _, d := range all {
		add("delimiter", delimiterRows(n, d))
	}
	for k := range n { // one who replaces delimiters
		var rows [][]string
		for _, d := range all {
			if d == " " || !isSpace(d) { // white space has a rule of its own
				rows = append(rows, valueRow(n, k, "a"+d+"a"))
			}
		}
		add("delimiter", rows)
	}
	return list
}

// valueRow is n values "a", the kth and those after it replaced.
func valueRow(n, k int, values ...string) []string {
	r := slices.Repeat([]string{"a"}, n)
	copy(r[k:], values)
	return r
}

func emptyRows(n int) [][]string {
	rows := [][]string{valueRow(n, 0)}
	for k := range n {
		rows = append(rows, valueRow(n, k, ""))
	}
	return rows
}

// delimiterRows are lists of values that are one text when they are joined with
// d, in whatever order: all are equal but one, which has d in it. Others are one
// text for a function that escapes d, and not its escape character.
func delimiterRows(n int, d string) [][]string {
	var rows [][]string
	for k := range n {
		rows = append(rows, valueRow(n, k, "a"+d+"a"))
	}
	for k := range n {
		rows = append(rows,
			valueRow(n, k, "a"+percent(d)+"a"),
			valueRow(n, k, "a"+d+`a\`))
		if !isSpace(d) {
			rows = append(rows, valueRow(n, k, "a"+d), valueRow(n, k, d+"a"))
		}
		if k+1 < n {
			rows = append(rows, valueRow(n, k, `a\`, "a"+d+"a"))
		}
	}
	return rows
}

func isSpace(d string) bool { return d != "" && strings.TrimSpace(d) == "" }

func percent(d string) string {
	var b strings.Builder
	for _, c := range []byte(d) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// tokens are values that can be found again in a key that holds them.
func tokens(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "q" + strconv.Itoa(i) + "q"
	}
	return list
}

// between returns what stands between the tokens in a key.
func between(key string, tokens []string) []string {
	type place struct{ from, to int }
	var at []place
	for _, t := range tokens {
		if i := strings.Index(key, t); i >= 0 {
			at = append(at, place{i, i + len(t)})
		}
	}
	slices.SortFunc(at, func(a, b place) int { return a.from - b.from })
	var list []string
	for i := 1; i < len(at); i++ {
		if at[i-1].to <= at[i].from { // a token may share its q with the next
			list = append(list, key[at[i-1].to:at[i].from])
		}
	}
	return list
}
