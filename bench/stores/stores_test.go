package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var tiny = scale{
	Rounds: 1, Single: 4, Batch: 8, Batches: 2, Together: []int{4, 8}, Slower: time.Microsecond,
	Callers: 4, PerCaller: 2, Overdue: 1100, Before: 2, Copies: 200, Stored: 100,
	Sizes: []int{40, 80}, Samples: 2,
}

// Everything that needs no server, small: only that it runs and what it counts.
func TestStores(t *testing.T) {
	t.Setenv("ONCEPIPE_POSTGRES", "")
	t.Setenv("ONCEPIPE_MYSQL", "")
	t.Setenv("ONCEPIPE_REDIS", "")
	backends, missing := present(t.TempDir())
	for i, name := range []string{"PostgreSQL", "MariaDB", "Redis"} {
		if len(missing) != 3 || !strings.HasPrefix(missing[i], name) {
			t.Errorf("not a word of %s in %q", name, missing)
		}
	}
	var rows []row
	_, err := run(t.Context(), backends, "", "", tiny, func(r row) { rows = append(rows, r) })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		group, _, _ := strings.Cut(r.Name, ", ")
		seen[group] = true
		if strings.Contains(r.Name, "calls of the store") && !r.OK {
			t.Error(r)
		}
		if r.Limit == nil && r.Ratio <= 0 {
			t.Errorf("nothing measured: %v", r)
		}
		if group == rateGroup && (r.P50 <= 0 || r.P99 < r.P50) {
			t.Errorf("a call takes p50 %v, p99 %v: %v", r.P50, r.P99, r)
		}
	}
	checkDocumented(t, rows)
	for _, g := range groups {
		if needsServer := g.name == "duplicate"; seen[g.name] == needsServer {
			t.Errorf("group %s has rows: %v", g.name, seen[g.name])
		}
	}
}

// checkDocumented fails where the document looks for something under another name
// than it was measured.
func checkDocumented(t *testing.T, rows []row) {
	t.Helper()
	r := newReport(nil, []backend{sqliteIn("")}, nil, tiny)
	r.Rows = rows
	for l := range strings.Lines(r.short() + r.rates()) {
		if cells := strings.Split(l, " | "); len(cells) > 1 && strings.HasPrefix(cells[1], nothing) {
			t.Errorf("not measured: %s", l)
		}
	}
	if svg, err := r.picture(); err != nil || !strings.Contains(string(svg), "SQLite") {
		t.Errorf("nothing of the store in the picture: %v", err)
	}
}

func TestRunSaysWhenNothingIsMeasured(t *testing.T) {
	if _, err := run(t.Context(), nil, "", "", tiny, func(row) {}); err == nil {
		t.Error("no error")
	}
}

func TestRows(t *testing.T) {
	for _, c := range []struct {
		r    row
		ok   bool
		said string
	}{
		{atLeast("a", 0.75, 0.75), true, "at least   0.75  ok"},
		{atLeast("a", 0.74, 0.75), false, "at least   0.75  NOT ok"},
		{atMost("a", 50, "ms", 50), true, "at most   50.00  ok"},
		{atMost("a", 51, "ms", 50), false, "at most   50.00  NOT ok"},
		{atMost("a", 51, "ms", 50).heldIf(true), false, "at most   50.00  NOT ok"},
		{atMost("a", 51, "ms", 50).heldIf(false), true, "reported"},
	} {
		if c.r.OK != c.ok || !strings.HasSuffix(c.r.String(), c.said) {
			t.Errorf("%q, want …%s", c.r, c.said)
		}
		var back map[string]any
		if err := json.Unmarshal([]byte(c.r.json()), &back); err != nil {
			t.Fatal(err)
		}
		if limit, there := back["limit"]; back["ok"] != c.ok || !there || (limit == nil) != (c.said == "reported") {
			t.Errorf("JSON %v of %q", back, c.r)
		}
	}
}

func TestKeys(t *testing.T) {
	const n = 10_000
	ordered := (&keys{}).take(n)
	if !slices.IsSorted(ordered) || len(slices.Compact(slices.Clone(ordered))) != n {
		t.Error("ordered keys are not in order, or not distinct")
	}
	if want := "00000000-0000-00ff-0000-000000000000"; ordered[254] != want {
		t.Errorf("key 255 is %s, want %s", ordered[254], want)
	}
	random := (&keys{random: true}).take(n)
	rising := 0
	for i := range random[1:] {
		if random[i] < random[i+1] {
			rising++
		}
	}
	if rising < n*4/10 || rising > n*6/10 {
		t.Errorf("%d of %d random keys rise", rising, n)
	}
	slices.Sort(random)
	if len(slices.Compact(random)) != n {
		t.Error("random keys are not distinct")
	}
}

func TestQuantile(t *testing.T) {
	var of []time.Duration
	for i := range 1000 {
		of = append(of, time.Duration(1000-i))
	}
	for part, want := range map[float64]time.Duration{0: 1, 0.5: 501, 0.999: 1000, 1: 1000} {
		if got := quantile(of, part); got != want {
			t.Errorf("quantile %v is %d, want %d", part, got, want)
		}
	}
	if fmt.Sprint(median([]time.Duration{3, 1, 2})) != "2ns" {
		t.Error("median")
	}
}

// What one transaction or batch costs, for profiles: go test -bench . -cpuprofile x.prof.
func BenchmarkSQLite(b *testing.B) {
	const batch = 64
	p, err := sqliteIn(b.TempDir()).open(b.Context(), options{sizes: []int{batch}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := p.close(); err != nil {
			b.Error(err)
		}
	}()
	k := &keys{}
	for _, c := range []struct {
		name string
		do   func(context.Context, []string) error
		keys int
	}{
		{"Tx", single(p.tx), 1},
		{"Tx by hand", single(p.bareTx), 1},
		{"TxBatch", p.many, batch},
		{"TxBatch by hand", p.bareMany, batch},
		{"claims", completed(p.store), batch},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.do(b.Context(), k.take(c.keys)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.keys), "ns/key")
		})
	}
}

func single(do func(context.Context, string) error) func(context.Context, []string) error {
	return func(ctx context.Context, keys []string) error { return do(ctx, keys[0]) }
}
