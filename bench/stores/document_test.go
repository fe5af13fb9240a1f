package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

func TestDocument(t *testing.T) {
	results.CheckDocument(t, "../../docs/results", []string{dataFile}, render)
}

// made is what a run of two stores could have measured; the other one has no
// transactions, and a third is missing.
func made() report {
	r := newReport([]string{"-quick"}, []backend{{name: "SQLite"}, {name: "Redis"}}, []string{"MariaDB, since it isn't there"}, tiny)
	limit := 0.75
	r.Rows = []row{
		{Name: fullName("price", "SQLite", txOverBare(0)), Ratio: 0.5, Bound: least, Limit: &limit},
		{Name: fullName("price", "SQLite", bareTransaction), Ratio: 314.2, Unit: "µs", OK: true},
		atMost(fullName("prune", "SQLite", pruneLongest), 12, "ms", 50),
		reported(fullName("prune", "Redis", pruneLongest), 51, "ms"),
		{Name: fullName("duplicate", "Redis", "keys in a batch"), Ratio: 12345, OK: true},
	}
	for _, store := range r.Stores {
		r.Rows = append(r.Rows, row{Name: fullName(rateGroup, store, aSync), Ratio: 5000, Unit: perSecond, OK: true, P50: 190, P99: 400})
		for _, size := range append([]int{1}, r.Scale.Together...) {
			for _, what := range []string{aClaim, aCompletion} {
				r.Rows = append(r.Rows, row{
					Name: fullName(rateGroup, store, inCalls(what, size)), Ratio: 1000 * float64(size), Unit: perSecond, OK: true, P50: 990, P99: 1500,
				})
			}
		}
	}
	return r
}

func TestDocument_SaysWhatIsInTheData(t *testing.T) {
	dir := results.Dir(t.TempDir())
	if err := made().write(dir); err != nil {
		t.Fatal(err)
	}
	results.CheckDocument(t, dir, []string{dataFile}, render)
	text, err := dir.Read(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**Left out:** MariaDB, since it isn't there.",
		"by hand, 0.31 ms on SQLite.",
		"| `Tx` one by one : the same transaction without a record | **0.50** | – | at least 0.75 |",
		"| claims beside one pruning of 1 100 records, the longest | 12.0 ms | (51.0 ms) | at most 50 ms |\n\nA figure in **bold**",
		"### price\n\n| what | SQLite | limit |\n|---|--:|--:|\n| Tx one by one, rate over bare | **0.50** | at least 0.75 |",
		"| claim, 8 at a time | 8 000 | 8 000 |",
		"| claim, one by one | 990, 1 500 | 990, 1 500 |",
		"| claim, 4 at a time | 4 000 | 990 | 1 500 |",
		"| what | per second | a call, p50 µs | p99 µs |\n|---|--:|--:|--:|\n| write and fsync of 4 kB | 5 000 | 190 | 400 |",
		"### duplicate\n\n| what | Redis |\n|---|--:|\n| keys in a batch | 12 345 |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document doesn't say %q:\n%s", want, text)
		}
	}
}

func TestMeasure_KeepsWhatWasMeasuredBeforeItWasStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	second := sqliteIn(t.TempDir())
	second.name = "second"
	code, text := measured(ctx, t, "price", sqliteIn(t.TempDir()), second, stop)
	if code != 130 || !strings.Contains(text, "cut short") || !strings.Contains(text, "ms on SQLite.") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}

func TestMeasure_SaysWhatFailed(t *testing.T) {
	gone := backend{name: "gone", dir: filepath.Join(t.TempDir(), "no", "such", "directory")}
	code, text := measured(t.Context(), t, "disk", sqliteIn(t.TempDir()), gone, func() {})
	if code != 1 || !strings.Contains(text, "cut short") || !strings.Contains(text, aSync) {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}

// measured measures a group on two stores, and calls seen with each row. It returns
// the exit code and the document.
func measured(ctx context.Context, t *testing.T, group string, one, other backend, seen func()) (code int, document string) {
	t.Helper()
	dir := results.Dir(t.TempDir())
	backends := []backend{one, other}
	code = measure(ctx, newReport(nil, backends, nil, tiny), backends, group, "", dir, func(row) { seen() })
	results.CheckDocument(t, dir, []string{dataFile}, render)
	text, err := dir.Read(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

func TestDocument_SaysInEachPartThatTheRunWasCutShort(t *testing.T) {
	r := made()
	if n := strings.Count(r.document(), "cut short"); n != 0 {
		t.Errorf("%d times in a whole document", n)
	}
	r.Partial = true
	if n := strings.Count(r.document(), "-->\n**It was cut short"); n != 2 {
		t.Errorf("in %d of 2 parts", n)
	}
}

// A tail of few claims is the longest one, whose limit it then has.
func TestTails(t *testing.T) {
	took := make([]time.Duration, 1000)
	for i := range took {
		took[i] = time.Millisecond
	}
	took[7] = time.Second
	r := report{Stores: []string{"a"}}
	for _, c := range []struct {
		took  []time.Duration
		lines int
		held  bool
	}{{took, 1, false}, {append(took, time.Millisecond), 2, true}} {
		r.Rows = tails(c.took, true)
		held := true
		for i, row := range r.Rows {
			held = held && row.OK
			r.Rows[i].Name = fullName("prune", "a", row.Name)
		}
		if got := len(r.pruning()); got != c.lines || len(r.Rows) != c.lines || held != c.held {
			t.Errorf("of %d claims: %v in %d lines, want %d; held: %v", len(c.took), r.Rows, got, c.lines, held)
		}
	}
}

func TestInTurn(t *testing.T) {
	r := made()
	if rate, ok := r.inTurn("Redis", 8, []string{aClaim, aCompletion}); !ok || rate < 3999 || rate > 4001 {
		t.Errorf("claim and completion at 8000 a second each are %v, %v", rate, ok)
	}
	if rate, ok := r.inTurn("Redis", 8, []string{aClaim, anEffect}); ok {
		t.Errorf("what was not measured is %v a second", rate)
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.004: "0.00", 0.996: "1.00", 9.99: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 1234.5: "1 234", 1e7: "10 000 000",
	} {
		if got := figure(v); got != want {
			t.Errorf("%v is shown as %q, want %q", v, got, want)
		}
	}
}

func TestMeter(t *testing.T) {
	m := meter{name: "a", items: 2, rounds: [][]time.Duration{
		{time.Hour, time.Hour}, // the first one doesn't count
		{2 * time.Millisecond, 4 * time.Millisecond},
		{6 * time.Millisecond, 6 * time.Millisecond},
		{time.Millisecond, time.Millisecond},
	}}
	// Items take 1.5, 3 and 0.5 ms in the rounds.
	got := m.row()
	if want := float64(time.Second) / float64(1500*time.Microsecond); got.Ratio != want {
		t.Errorf("rate %v, want %v", got.Ratio, want)
	}
	if got.P50 != 4000 || got.P99 != 6000 {
		t.Errorf("p50 %v, p99 %v", got.P50, got.P99)
	}
}
