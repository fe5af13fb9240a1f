package sqlstore

import (
	"reflect"
	"strconv"
)

// DriverCode returns the code that the database gave err, or "" when it is not
// the database's: an SQLSTATE, MySQL's number, or SQLite's result code, extended
// where the driver has it. It knows modernc.org/sqlite, mattn/go-sqlite3,
// ncruces/go-sqlite3, jackc/pgx, lib/pq and go-sql-driver/mysql by the shape of
// their errors. Texts decide nothing: they depend on language and release.
func DriverCode(err error) string {
	for err != nil {
		if code := codeOf(err); code != "" {
			return code
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if code := DriverCode(inner); code != "" {
					return code
				}
			}
			return ""
		default:
			return ""
		}
	}
	return ""
}

// codeOf looks at one error, not at those that it wraps.
func codeOf(err error) string {
	switch e := err.(type) {
	case interface{ SQLState() string }: // pgx, lib/pq
		return e.SQLState()
	case interface{ Code() int }: // modernc
		return strconv.Itoa(e.Code())
	}
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return ""
	}
	if m := v.MethodByName("ExtendedCode"); m.IsValid() { // ncruces
		if t := m.Type(); t.NumIn() == 0 && t.NumOut() == 1 {
			return integer(m.Call(nil)[0])
		}
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return ""
	}
	for _, name := range []string{"ExtendedCode", "Number"} { // mattn; go-sql-driver
		if f, ok := v.Type().FieldByName(name); ok && len(f.Index) == 1 {
			return integer(v.FieldByIndex(f.Index))
		}
	}
	return ""
}

// integer formats v, or returns "" when it is no integer.
func integer(v reflect.Value) string {
	switch {
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	}
	return ""
}
