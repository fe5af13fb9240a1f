package main

import (
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// dataFile has the report; everything else is made of it.
const dataFile = "stores.json"

// report is what a run has measured.
type report struct {
	results.Run
	Stores  []string `json:"stores"`
	Missing []string `json:"missing"` // stores, and why
	Scale   scale    `json:"scale"`
	Rows    []row    `json:"rows"`
}

// newReport is the report of a run with these arguments, that has measured
// nothing yet.
func newReport(args []string, backends []backend, missing []string, s scale) report {
	command := strings.Join(append([]string{"go run ./integration/servers -fsync -- go run ./bench/stores"}, args...), " ")
	r := report{Run: results.NewRun(command), Missing: missing, Scale: s}
	for _, b := range backends {
		r.Stores = append(r.Stores, b.name)
	}
	return r
}

// write writes the report, and what is made of it.
func (r report) write(to results.Dir) error {
	if to == "" {
		return nil
	}
	if err := results.WriteJSON(to, dataFile, r); err != nil {
		return err
	}
	return render(to)
}

// find returns what was measured of a store, if it was.
func (r report) find(group, store, what string) (row, bool) {
	for _, row := range r.Rows {
		if row.Name == fullName(group, store, what) {
			return row, true
		}
	}
	return row{}, false
}

// of returns a line for each thing that a group has measured on any store.
func (r report) of(group string) (lines []line) {
	seen := map[string]bool{}
	for _, row := range r.Rows {
		where, what, _ := strings.Cut(row.Name, ": ")
		if strings.HasPrefix(where, group+", ") && !seen[what] {
			seen[what] = true
			lines = append(lines, line{group, what, what})
		}
	}
	return lines
}
