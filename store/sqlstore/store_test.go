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

	"github.com/oncepipe/oncepipe/store/internal/record"
)

var update = flag.Bool("update", false, "write testdata")

// The schema is what other releases find: a change of these files is a new
// SchemaVersion.
func TestSchema_Golden(t *testing.T) {
	for i := range dialects {
		d := Dialect(i)
		t.Run(d.String(), func(t *testing.T) {
			got, err := Schema(d, "")
			if err != nil {
				t.Fatal(err)
			}
			file := "testdata/" + strings.ToLower(d.String()) + ".sql"
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
		})
	}
}

func TestStatements_AreFilledIn(t *testing.T) {
	for _, d := range dialects {
		for which := range statements {
			text := d.text(which, 3)
			if text == "" {
				continue
			}
			got := d.render(text, "p_", "CLOCK")
			if strings.ContainsAny(got, "{}") || d.places == dollars && strings.Contains(got, "?") || d.places == inOrder && strings.Contains(got, "?1") {
				t.Errorf("%s, statement %d: %q", d.name, which, got)
			}
		}
	}
}

func TestStatements_Placeholders(t *testing.T) {
	const text = "(?1, ?2 + 1, ?, ?), (?1, ?2, ?, ?)"
	for form, want := range map[places]string{
		mixed:   text,
		dollars: "($1, $2 + 1, $3, $4), ($1, $2, $5, $6)",
		inOrder: "(?, ? + 1, ?, ?), (?, ?, ?, ?)",
	} {
		if got := (&dialect{places: form}).placed(text); got != want {
			t.Errorf("%d: %s, want %s", form, got, want)
		}
	}
}

func TestStatements_OfEverySize(t *testing.T) {
	for n := 1; n <= 3*largest; n++ {
		for left := n; left > 0; {
			rows, size := part(left, sizes)
			if rows < 1 || rows > left || rows != 1<<size || size >= sizes {
				t.Fatalf("part(%d) = %d, %d", left, rows, size)
			}
			left -= rows
		}
		if n > largest {
			continue
		}
		if size := sizeFor(n); size >= sizes || 1<<size < n || size > 0 && 1<<(size-1) >= n {
			t.Fatalf("sizeFor(%d) = %d", n, size)
		}
	}
}

func TestStatements_ForIDs(t *testing.T) {
	var ids []record.ID
	for n := range 300 {
		ids = append(ids, record.ID{Namespace: fmt.Sprint(n / 200), Key: fmt.Sprint(n)})
	}
	seen := map[record.ID]bool{}
	calls := 0
	err := inParts(ids, largest, func(size int, args []any) error {
		calls++
		if len(args) != 2<<size {
			t.Errorf("%d arguments for size %d", len(args), size)
		}
		for i := 0; i < len(args); i += 2 {
			seen[record.ID{Namespace: string(args[i].([]byte)), Key: string(args[i+1].([]byte))}] = true
		}
		return nil
	})
	if err != nil || calls != 3 || len(seen) != len(ids) { // 128, 128, 44
		t.Errorf("%d calls, %d ids, error %v", calls, len(seen), err)
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
