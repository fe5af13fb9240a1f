package oncetest

import (
	"strings"
	"testing"
)

func TestKillPlan_TextNamesIt(t *testing.T) {
	for _, text := range []string{"1:", "2:before@3", "2:after@1,before@12", "3+:moment@0,moment@1500"} {
		p, err := parseKillPlan(text)
		if err != nil || p.String() != text {
			t.Errorf("%s is read as %s, %v", text, p, err)
		}
	}
}

func TestKillPlan_BadTextIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                "invalid syntax",
		"0:":              "1 to 100 messages",
		"x:":              "invalid syntax",
		"1:between@2":     `no kill is called "between"`,
		"1:before@0":      "counted from 1",
		"1:before":        "invalid syntax",
		"1:after@1,":      "no kill is called",
		"2:moment@-1":     "counted from 1",
		"1:copy@3":        `no kill is called "copy"`,
		"1+2:before@1":    "invalid syntax",
		"101:before@1":    "1 to 100 messages",
		"1:before@second": "invalid syntax",
	} {
		if p, err := parseKillPlan(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %v, %v; want %q", text, p, err, want)
		}
	}
}

// Shrinking ends: what is simpler than a plan has less of something, and more
// of nothing.
func TestKillPlan_SmallerIsSmaller(t *testing.T) {
	size := func(p killPlan) int {
		n := 100*p.messages + 50*len(p.kills)
		if p.beside {
			n += 10
		}
		for _, k := range p.kills {
			n += k.At
		}
		return n
	}
	p := killPlan{3, true, []killPoint{{killBefore, 4}, {killMoment, 7}}}
	list := p.smaller()
	if len(list) != 2+1+2+3 {
		t.Errorf("%d plans are simpler than %s: %v", len(list), p, list)
	}
	for _, s := range list {
		if size(s) >= size(p) {
			t.Errorf("%s is not simpler than %s", s, p)
		}
	}
}
