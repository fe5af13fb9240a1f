package results

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// WriteCSV writes rows, whose fields with a tag `csv:"name"` are the columns, in
// their order. They are strings, bools, numbers or durations; those are written
// exactly, so that equal rows are equal bytes. Structs that are embedded count as
// their fields.
func WriteCSV[T any](d Dir, name string, rows []T) error {
	columns := columnsOf(reflect.TypeFor[T](), nil)
	var data bytes.Buffer
	w := csv.NewWriter(&data)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.name
	}
	if err := w.Write(line); err != nil {
		return fmt.Errorf("results: %s: %w", name, err)
	}
	for _, r := range rows {
		for i, c := range columns {
			line[i] = format(reflect.ValueOf(r).FieldByIndex(c.index))
		}
		if err := w.Write(line); err != nil {
			return fmt.Errorf("results: %s: %w", name, err)
		}
	}
	w.Flush()
	return d.Write(name, data.Bytes())
}

// ReadCSV reads what WriteCSV wrote of the same type.
func ReadCSV[T any](d Dir, name string) ([]T, error) {
	data, err := d.Read(name)
	if err != nil {
		return nil, err
	}
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("results: %s: %w", name, err)
	}
	columns := columnsOf(reflect.TypeFor[T](), nil)
	if len(lines) == 0 || len(lines[0]) != len(columns) {
		return nil, fmt.Errorf("results: %s: not the columns of %v", name, reflect.TypeFor[T]())
	}
	rows := make([]T, len(lines)-1)
	for i, c := range columns {
		if lines[0][i] != c.name {
			return nil, fmt.Errorf("results: %s: column %q in place of %q", name, lines[0][i], c.name)
		}
		for n := range rows {
			if err := parse(reflect.ValueOf(&rows[n]).Elem().FieldByIndex(c.index), lines[n+1][i]); err != nil {
				return nil, fmt.Errorf("results: %s: line %d, %s: %w", name, n+2, c.name, err)
			}
		}
	}
	return rows, nil
}

type column struct {
	name  string
	index []int
}

func columnsOf(t reflect.Type, index []int) (list []column) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(index[:len(index):len(index)], i)
		if name, ok := f.Tag.Lookup("csv"); ok {
			list = append(list, column{name, at})
		} else if f.Anonymous {
			list = append(list, columnsOf(f.Type, at)...)
		}
	}
	return list
}

func format(v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10)
	}
	panic("results: a CSV has no columns of " + v.Type().String())
}

func parse(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return err
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		v.SetFloat(f)
		return err
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Type() == reflect.TypeFor[time.Duration]() {
			d, err := time.ParseDuration(text)
			v.SetInt(int64(d))
			return err
		}
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
		return err
	}
	panic("results: a CSV has no columns of " + v.Type().String())
}
