package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// table is shown on the terminal, and in the document.
type table struct {
	title   string
	columns []string // the first one is aligned to the left, the others to the right
	rows    [][]string
}

func (t *table) add(cells ...any) {
	line := make([]string, len(cells))
	for i, c := range cells {
		line[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, line)
}

// markdown is the table without its title, and nothing if it has no rows.
func (t table) markdown() string {
	if len(t.rows) == 0 {
		return ""
	}
	columns := make([]string, len(t.columns))
	for i, c := range t.columns {
		if columns[i] = c; i > 0 {
			columns[i] = ">" + c
		}
	}
	return results.Table(columns, t.rows)
}

func (t table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range append([][]string{t.columns}, t.rows...) {
		fmt.Fprintln(w, strings.Join(r, "\t")+"\t")
	}
	if _, err := fmt.Fprintf(out, "\n%s\n\n", t.title); err != nil {
		return err
	}
	return w.Flush()
}

// show prints all tables that have rows.
func show(out io.Writer, d data) error {
	var list []table
	for _, load := range d.Setup.Loads {
		list = append(list, d.duplicates(load), d.goodput(load), d.sojourn(load), d.windows(load))
	}
	list = append(list, d.lruAlone(), d.lruBehind(), d.crashes(), d.pushed(), d.retries(), d.hotKeys(),
		d.predictions(), d.collapses(), d.realTime())
	for _, t := range list {
		if len(t.rows) == 0 {
			continue
		}
		if err := t.print(out); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "\n%d deliveries simulated in %.1f s: %.0f a second\n", d.Items, d.Seconds, d.ItemsPerSecond)
	return err
}

// percent shows a share: 0 is nothing at all, and 0.00 % isn't.
func percent(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.0001:
		return "< 0.01 %"
	case x < 0.1:
		return fmt.Sprintf("%.2f %%", 100*x)
	case x < 0.9995:
		return fmt.Sprintf("%.1f %%", 100*x)
	case x < 1:
		return "> 99.9 %"
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// signed shows a relative error.
func signed(x float64) string { return fmt.Sprintf("%+.0f %%", 100*x) }

func millis(d time.Duration) string {
	if ms(d) < 100 {
		return fmt.Sprintf("%.1f ms", ms(d))
	}
	return fmt.Sprintf("%.0f ms", ms(d))
}

// duration shows a time that was chosen.
func duration(d time.Duration) string { return fmt.Sprintf("%g ms", ms(d)) }

// count shows a mean number per something.
func count(x float64) string { return fmt.Sprintf("%g", math.Round(10*x)/10) }

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
