package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// plural is a number with its noun: "1 worker", "4 workers".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// counted is a mean number with its noun.
func counted(x float64, noun string) string {
	if count(x) == "1" {
		return "1 " + noun
	}
	return count(x) + " " + noun + "s"
}

// none is a number in words where there is nothing.
func none(x float64) string {
	if x == 0 {
		return "none"
	}
	return count(x)
}

// sentences joins those that are there.
func sentences(list ...string) string {
	var there []string
	for _, s := range list {
		if s != "" {
			there = append(there, s)
		}
	}
	return strings.Join(there, " ")
}

// together are spaces at which no line ends; \x00 stands for one.
var together = strings.NewReplacer(" %", "\x00%", " = ", "\x00=\x00", "< ", "<\x00", " ms", "\x00ms")

// indented is an item below another one.
func indented(item string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(item, "\n"), "\n", "\n  ") + "\n"
}

// bullet is an item of a list, in lines of at most 155 characters.
func bullet(text string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(together.Replace(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			b.WriteString("- ")
			length = 2
		case length+1+n > 155:
			b.WriteString("\n  ")
			length = 2
		default:
			b.WriteString(" ")
			length++
		}
		b.WriteString(word)
		length += n
	}
	return strings.ReplaceAll(b.String(), "\x00", " ") + "\n"
}
