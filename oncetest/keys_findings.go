package oncetest

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// keyAnswer is what a call of the function came to.
type keyAnswer struct {
	key  string
	died string // of a panic or Goexit; key is empty
}

func (a keyAnswer) String() string {
	if a.died != "" {
		return printable(shorten(a.died, shownMessage))
	}
	return strconv.Quote(shorten(a.key, shownMessage))
}

// keyAsked is a message and the answer for it.
type keyAsked[M any] struct {
	c  *keyChecks[M]
	by keyMessage[M]
	m  M
	a  keyAnswer
}

func (q keyAsked[M]) String() string {
	return fmt.Sprintf("%v for %s: %s", q.a, q.by.name(), printable(shorten(q.c.show(q.m), shownMessage)))
}

// keyFindings is what is wrong by one rule: the first is shown, the others are
// counted.
type keyFindings struct {
	rule    string // that first is about
	first   error
	more    int
	checked int    // messages that could be judged
	why     string // others could not
}

// add takes what only the first is shown of.
func (f *keyFindings) add(rule, what string, shown ...fmt.Stringer) {
	if f.first != nil {
		f.more++
		return
	}
	for _, s := range shown {
		what += "\n\t" + s.String()
	}
	f.rule = rule
	f.first = fmt.Errorf("%s: %s", rule, what)
}

// join adds what another goroutine found.
func (f *keyFindings) join(other keyFindings) {
	switch {
	case other.first == nil:
		return
	case f.first == nil:
		f.rule, f.first = other.rule, other.first
	default:
		f.more++
	}
	f.more += other.more
}

func (f *keyFindings) err() error {
	if f.more == 0 {
		return f.first
	}
	return fmt.Errorf("%w\n\tand %d more", f.first, f.more)
}

// What a failure shows of a message or key, and of a value in its name, in bytes.
const (
	shownMessage = 150
	shownValue   = 30
)

// shorten keeps both ends, since long values mostly differ at one.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	tail := most / 3
	return fmt.Sprintf("%s… (%d bytes) …%s", s[:most-tail], len(s), s[len(s)-tail:])
}

// printable escapes what can't be seen.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
