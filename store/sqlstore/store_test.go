package sqlstore

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata")

// The schema is what other releases find: a change of this file is a new
// SchemaVersion.
func TestSchema_Golden(t *testing.T) {
	got, err := Schema(SQLite, "")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/sqlite.sql"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("schema differs from %s:\n%s", file, got)
	}
}

func TestStatements_AreFilledIn(t *testing.T) {
	for i, text := range texts {
		got := dialects[SQLite].render(text, "p_", "CLOCK")
		if text == "" || strings.ContainsAny(got, "{}") {
			t.Errorf("statement %d: %q", i, got)
		}
	}
}

func TestConfig_Refused(t *testing.T) {
	for _, cfg := range []Config{
		{Dialect: 99},
		{Prefix: "a b"},
		{Prefix: "1a"},
		{Prefix: "a;--"},
		{Prefix: "ä"},
		{Prefix: strings.Repeat("a", 32)},
		{Retention: -1},
		{MaxResult: -1},
		{BusyTimeout: -1},
	} {
		if _, err := Open(t.Context(), nil, cfg); err == nil {
			t.Errorf("%+v: opened", cfg)
		}
		if err := Migrate(t.Context(), nil, cfg); err == nil {
			t.Errorf("%+v: migrated", cfg)
		}
		if _, err := Schema(cfg.Dialect, cfg.Prefix); err == nil && (cfg.Dialect != SQLite || cfg.Prefix != "") {
			t.Errorf("%+v: a schema", cfg)
		}
	}
}

func TestConfig_Defaults(t *testing.T) {
	var cfg Config
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	if cfg.Prefix != "oncepipe_" || cfg.Retention != 7*24*time.Hour || cfg.MaxResult != 1<<20 || cfg.BusyTimeout != 10*time.Second {
		t.Errorf("%+v", cfg)
	}
}

// The shapes of the drivers' errors.
type (
	pgxShape  struct{ Code string }
	mattnCode int
	mattn     struct{ Code, ExtendedCode mattnCode }
	mysqlErr  struct {
		Number   uint16
		SQLState [5]byte
		Message  string
	}
	ncrucesCode uint16
	ncruces     struct{ code ncrucesCode }
	outer       struct{ *mysqlErr }
)

func (*pgxShape) Error() string              { return "pgx" }
func (e *pgxShape) SQLState() string         { return e.Code }
func (mattn) Error() string                  { return "mattn" }
func (*mysqlErr) Error() string              { return "mysql" }
func (*ncruces) Error() string               { return "ncruces" }
func (e *ncruces) ExtendedCode() ncrucesCode { return e.code }
func (outer) Error() string                  { return "outer" }

func TestR56_CodesOfTheDrivers(t *testing.T) {
	var noMySQL *mysqlErr
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{codedError(517), "517"},
		{mattn{5, 517}, "517"},
		{&mattn{5, 517}, "517"},
		{&ncruces{2067}, "2067"},
		{&pgxShape{"40001"}, "40001"},
		{&mysqlErr{Number: 1213}, "1213"},
		{fmt.Errorf("insert: %w", &pgxShape{"40P01"}), "40P01"},
		{errors.Join(io.EOF, fmt.Errorf("%w and %w", io.EOF, &mysqlErr{Number: 1205})), "1205"},
		{io.EOF, ""},
		{errors.New("database is locked (5) (SQLITE_BUSY)"), ""},
		{errors.New("ERROR: duplicate key value violates unique constraint (SQLSTATE 23505)"), ""},
		{noMySQL, ""},
		{outer{}, ""}, // an embedded error that is not there
		{&os.PathError{Err: os.ErrNotExist}, ""},
	} {
		if got := DriverCode(c.err); got != c.want {
			t.Errorf("%T %v: %q, want %q", c.err, c.err != nil, got, c.want)
		}
	}
}

func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 2, time.Millisecond: 2, time.Millisecond + 1: 3, time.Second: 1001,
	} {
		if got := ms(d); got != want {
			t.Errorf("ms(%v) = %d, want %d", d, got, want)
		}
	}
}
