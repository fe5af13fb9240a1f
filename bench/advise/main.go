// Command advise says which buffer, slots, guard and retention a job needs, whether
// it needs a store, and why, and warns where duplicates can bring it down. It measures nothing: the
// answer comes from the theory in bench/internal/queueing.
//
//	go run ./bench/advise -service 0.5ms -workers 4 -timeout 20ms -load 0.9
//
// With -buffer it judges that one. Exit code 0, also with warnings; 2 for flags
// that make no sense.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, diag io.Writer) int {
	j := Job{}
	f := flag.NewFlagSet("advise", flag.ContinueOnError)
	f.SetOutput(diag)
	f.DurationVar(&j.Service, "service", 0, "`time` that an effect takes; needed")
	f.BoolVar(&j.Exponential, "exponential", false, "this time varies, like an exponential one with that mean; else it is fixed")
	f.IntVar(&j.Workers, "workers", 1, "effects at the same time")
	f.DurationVar(&j.Timeout, "timeout", 0, "`time` after which the sender sends again when it has no ack; needed")
	f.Float64Var(&j.Load, "load", 0.8, "new keys over what the workers can do")
	f.Float64Var(&j.AckLoss, "ack-loss", 0, "share of acks that the sender does not hear")
	f.Float64Var(&j.Fail, "fail", 0, "share of attempts that fail")
	f.DurationVar(&j.Backoff, "backoff", 100*time.Millisecond, "first `time` that a failed item waits; then twice that, and so on, up to 30s")
	f.DurationVar(&j.Redelivery, "redelivery", 24*time.Hour, "`time` for which the sender may send a key again")
	f.IntVar(&j.Buffer, "buffer", AnyBuffer, "`places` to be judged; -1: advise a number")
	asJSON := f.Bool("json", false, "print one JSON object")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if err := j.check(f.Args()); err != nil {
		fmt.Fprintln(diag, "advise:", err)
		f.Usage()
		return 2
	}
	if err := show(out, j, Advise(j), *asJSON); err != nil {
		fmt.Fprintln(diag, "advise:", err)
		return 1
	}
	return 0
}

// The largest numbers that an answer is given for.
const (
	mostWorkers = 10_000
	mostPlaces  = 1 << 20
	mostRatio   = 100_000 // of timeout to service
)

func (j Job) check(rest []string) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	share := func(name string, v float64) { must(v >= 0 && v < 1, "-%s must be from 0 to below 1", name) }
	must(len(rest) == 0, "takes flags only, not %q", rest)
	must(j.Service > 0, "-service must be positive")
	must(j.Timeout > 0 && j.Timeout/mostRatio <= j.Service, "-timeout must be positive and at most %d services", mostRatio)
	must(j.Workers > 0 && j.Workers <= mostWorkers, "-workers must be from 1 to %d", mostWorkers)
	must(j.Load > 0 && j.Load <= 100, "-load must be above 0, and at most 100")
	share("ack-loss", j.AckLoss)
	share("fail", j.Fail)
	must(j.Backoff >= 0, "-backoff must not be negative")
	must(j.Redelivery >= 0, "-redelivery must not be negative")
	must(j.Buffer >= AnyBuffer && j.Buffer <= mostPlaces, "-buffer must be from 0 to %d, or -1", mostPlaces)
	return errors.Join(errs...)
}

// answer is the JSON object.
type answer struct {
	Buffer       int      `json:"buffer"`
	Slots        int      `json:"slots"`
	Guard        int      `json:"guard"`
	GuardSpan    string   `json:"guard_span"`
	Retention    string   `json:"retention"`
	Store        Store    `json:"store"` // "yes", or "for restarts" alone
	BStar        float64  `json:"b_star"`
	Collapse     int      `json:"collapse"` // -1: none
	Late         float64  `json:"late"`     // without Dedup, as the following
	Extra        float64  `json:"extra"`
	Goodput      float64  `json:"goodput"`
	FullSojourn  string   `json:"full_sojourn"`
	WhyBuffer    string   `json:"why_buffer"`
	WhySlots     string   `json:"why_slots"`
	WhyGuard     string   `json:"why_guard"`
	WhyRetention string   `json:"why_retention"`
	WhyStore     string   `json:"why_store"`
	Warnings     []string `json:"warnings"`
}

func show(out io.Writer, j Job, a Advice, asJSON bool) error {
	p := a.Prediction
	if asJSON {
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		return e.Encode(answer{
			Buffer: a.Buffer, Slots: a.Slots, Guard: a.Guard, GuardSpan: a.Span.String(), Retention: a.Retention.String(),
			Store: a.Store, BStar: a.BStar, Collapse: a.Collapse,
			Late: p.P, Extra: p.Extra, Goodput: p.Goodput, FullSojourn: a.Full.Sojourn.String(),
			WhyBuffer: a.Reasons.Buffer, WhySlots: a.Reasons.Slots,
			WhyGuard: a.Reasons.Guard, WhyRetention: a.Reasons.Retention, WhyStore: a.Reasons.Store,
			Warnings: append([]string{}, a.Warnings...),
		})
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any, code, why string) {
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\n", name, value, code, why)
	}
	row("buffer", a.Buffer, fmt.Sprintf("Buffer(Fixed(%d))", a.Buffer), a.Reasons.Buffer)
	row("slots", a.Slots, fmt.Sprintf("Retry(RetryPolicy{Slots: %d})", a.Slots), a.Reasons.Slots)
	row("guard", a.Guard, fmt.Sprintf("WithGuard(Ring(%d))", a.Guard), a.Reasons.Guard)
	row("retention", a.Retention, "Config.Retention of the store", a.Reasons.Retention)
	row("store", a.Store, "Tx, or Once with a store", a.Reasons.Store)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the advice: %w", err)
	}
	text := fmt.Sprintf("\nWithout Dedup, at load %.3g: %.2g %% of the keys late, %.2g extra effects for each key, goodput %.2g.\n",
		j.Load, 100*p.P, p.Extra, p.Goodput)
	for _, v := range a.Warnings {
		text += "\nWARNING: " + v + "\n"
	}
	if a.NeedsDedup {
		text += fmt.Sprintf("\nDedup before the buffer, with that guard, keeps the effect single: with this buffer, in this process, "+
			"and for a key that comes again no later than %v after it was done. For what is beyond that see store.\n", a.Span)
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("print the advice: %w", err)
	}
	return nil
}
