package main

import (
	"encoding/json"
	"fmt"
)

// row is a line of the report: what was measured, and the limit that it is held
// to, if there is one.
type row struct {
	Name  string   `json:"name"`
	Ratio float64  `json:"ratio"`
	Unit  string   `json:"unit,omitempty"`  // of what isn't a ratio
	Bound string   `json:"bound,omitempty"` // of the limit: least or most
	Limit *float64 `json:"limit"`           // null: only reported
	OK    bool     `json:"ok"`

	// What a call took, in microseconds, where it was looked at call by call.
	P50 float64 `json:"p50_us,omitempty"`
	P99 float64 `json:"p99_us,omitempty"`
}

const (
	least = "least"
	most  = "most"
)

func reported(name string, value float64, unit string) row {
	return row{Name: name, Ratio: value, Unit: unit, OK: true}
}

func atLeast(name string, ratio, limit float64) row {
	return row{Name: name, Ratio: ratio, Bound: least, Limit: &limit, OK: ratio >= limit}
}

func atMost(name string, value float64, unit string, limit float64) row {
	return row{Name: name, Ratio: value, Unit: unit, Bound: most, Limit: &limit, OK: value <= limit}
}

// heldIf drops the limit where there is none for this store.
func (r row) heldIf(held bool) row {
	if held {
		return r
	}
	return reported(r.Name, r.Ratio, r.Unit)
}

func (r row) String() string {
	said := "reported"
	if r.Limit != nil {
		said = fmt.Sprintf("at %-5s %6.2f  ok", r.Bound, *r.Limit)
		if !r.OK {
			said = fmt.Sprintf("at %-5s %6.2f  NOT ok", r.Bound, *r.Limit)
		}
	}
	if r.P50 > 0 {
		said += fmt.Sprintf(", a call p50 %.0f µs, p99 %.0f µs", r.P50, r.P99)
	}
	return fmt.Sprintf("%-98s %10.2f %-2s  %s", r.Name, r.Ratio, r.Unit, said)
}

func (r row) json() string {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // a row has nothing that JSON lacks
	}
	return string(line)
}
