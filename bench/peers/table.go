package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func (m measured) speedTable() string {
	var rows [][]string
	for _, r := range m.rates {
		rows = append(rows, []string{
			r.Chain, r.Shape, r.workers(), perSecond(r.Second), strconv.FormatFloat(r.Nanos, 'f', 0, 64),
			number(r.Ratio), number(r.Allocs), r.Does,
		})
	}
	return results.Table([]string{
		"library", "shape", "workers a step", ">items/s", ">ns/item",
		">ratio to raw channels", ">allocations/item", "what it does",
	}, rows)
}

func (r rate) workers() string {
	if r.Workers == 0 {
		return "a goroutine for each message"
	}
	return strconv.Itoa(r.Workers)
}

// perSecond has three digits that are not 0 for rounding, and spaces between thousands.
func perSecond(x float64) string {
	unit := math.Pow10(int(math.Log10(max(1, x))) - 2)
	text := strconv.FormatFloat(math.Round(x/unit)*unit, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// number has two digits, or more where there are more before the point.
func number(x float64) string {
	switch {
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

func (m measured) faultTable() string {
	columns := []string{"written with"}
	var rows [][]string
	row := map[string]int{}
	for _, v := range m.verdicts {
		if _, ok := row[v.Peer]; !ok {
			row[v.Peer] = len(rows)
			rows = append(rows, []string{v.Peer})
		}
		i := row[v.Peer]
		rows[i] = append(rows[i], v.cell())
		if i == 0 {
			columns = append(columns, v.Fault)
		}
	}
	return results.Table(columns, rows)
}

func (v verdict) cell() string {
	switch {
	case v.Cannot != "":
		return v.Cannot
	case v.Instead != "":
		return v.Instead + " instead: " + v.counts()
	}
	return v.counts()
}

func (v verdict) counts() string {
	if v.Stuck {
		return fmt.Sprintf("**stuck** after %d", v.Messages-v.Lost)
	}
	text := fmt.Sprintf("%d / %d", v.Lost, v.Doubled)
	if v.Lost+v.Doubled > 0 {
		text = "**" + text + "**"
	}
	if v.During >= 0 {
		text = fmt.Sprintf("%d; %s", v.During, text)
	}
	if v.Open > 0 {
		text += fmt.Sprintf("; %d open", v.Open)
	}
	if v.Error != "" {
		text += "; ends with: " + v.Error
	}
	return text
}

func (m measured) faultList() string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, v := range m.verdicts {
		if !seen[v.Fault] {
			seen[v.Fault] = true
			fmt.Fprintf(&b, "- **%s** (%d messages): %s.\n", v.Fault, v.Messages, v.What)
		}
	}
	return b.String()
}

func (m measured) meansTable() string {
	var rows [][]string
	seen := map[string]bool{}
	for _, v := range m.verdicts {
		if !seen[v.Peer] {
			seen[v.Peer] = true
			rows = append(rows, []string{v.Peer, v.Means})
		}
	}
	return results.Table([]string{"written with", "means"}, rows)
}

func (m measured) versionTable() string {
	var rows [][]string
	for _, mod := range m.Modules {
		version := mod.Version
		if version == "(devel)" {
			version = "this checkout"
		}
		rows = append(rows, []string{mod.Path, version})
	}
	return results.Table([]string{"module", "version"}, rows)
}

// tables is the page without its text, for a terminal.
func (m measured) tables() string {
	text := m.speedTable() + "\n"
	if len(m.verdicts) > 0 {
		text += m.faultTable() + "\n"
	}
	return text + m.versionTable()
}
