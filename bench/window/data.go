package main

import (
	"slices"

	"github.com/oncepipe/oncepipe/bench/internal/real"
	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// data is all that was measured, and what the theory says to it.
type data struct {
	info
	rows     map[string][]row // by the part's name
	theory   []theoryRow
	collapse []collapseRow
	real     []real.Result
}

const realFile = "window-real.csv"

func newData(about info, rows map[string][]row) data {
	d := data{info: about, rows: rows, theory: predict(rows["theory"])}
	for _, r := range rows["collapse"] {
		d.collapse = append(d.collapse, newCollapseRow(r))
	}
	return d
}

// dataFiles are what the document is made of.
func dataFiles() []string {
	list := []string{infoFile, realFile}
	for _, name := range partNames {
		list = append(list, file(name))
	}
	return list
}

// write writes the data files.
func (d data) write(dir results.Dir) error {
	for _, name := range partNames {
		var err error
		switch name {
		case "theory":
			err = results.WriteCSV(dir, file(name), d.theory)
		case "collapse":
			err = results.WriteCSV(dir, file(name), d.collapse)
		default:
			err = results.WriteCSV(dir, file(name), d.rows[name])
		}
		if err != nil {
			return err
		}
	}
	if err := results.WriteCSV(dir, realFile, d.real); err != nil {
		return err
	}
	return results.WriteJSON(dir, infoFile, d.info)
}

// read reads what write wrote.
func read(dir results.Dir) (d data, err error) {
	if d.info, err = results.ReadJSON[info](dir, infoFile); err != nil {
		return d, err
	}
	if d.theory, err = results.ReadCSV[theoryRow](dir, file("theory")); err != nil {
		return d, err
	}
	if d.collapse, err = results.ReadCSV[collapseRow](dir, file("collapse")); err != nil {
		return d, err
	}
	d.rows = map[string][]row{}
	for _, name := range partNames {
		if name == "theory" || name == "collapse" {
			continue
		}
		if d.rows[name], err = results.ReadCSV[row](dir, file(name)); err != nil {
			return d, err
		}
	}
	d.real, err = results.ReadCSV[real.Result](dir, realFile)
	return d, err
}

// pick returns the first row of a part that is as asked.
func (d data) pick(part string, is func(row) bool) (row, bool) {
	list := d.rows[part]
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	return row{}, false
}

// at returns the cell of the sweep, or of the push's part.
func (d data) at(part, guard string, buffer int, load float64) (row, bool) {
	return d.pick(part, func(r row) bool { return r.label() == guard && r.Buffer == buffer && r.Load == load })
}

// valuesOf returns the different values of a column, in their first order.
func valuesOf[R any, V comparable](rows []R, column func(R) V) (list []V) {
	for _, r := range rows {
		if v := column(r); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
