package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

// letter is a dead letter, or a line that didn't come as far as that.
type letter struct {
	line   int
	key    string
	stage  string
	reason string
	err    error
	input  bool // the input is to blame, not the handler
}

// deadLetters keeps one letter for each key, or line where there is no key.
type deadLetters struct {
	mu      sync.Mutex
	letters map[string]letter
}

func newDeadLetters() *deadLetters { return &deadLetters{letters: map[string]letter{}} }

// write is the pipeline's Config.DeadLetters.
func (d *deadLetters) write(_ context.Context, l oncepipe.DeadLetter) error {
	to := letter{key: l.Key, stage: l.Stage, reason: string(l.Reason), err: l.Err}
	switch v := l.Value.(type) {
	case webhook.Request: // decode had an error for it
		to.line, to.input = lineOf(v), true
	case event:
		to.line, to.input = v.line, l.Reason == oncepipe.ReasonNoKey
		if to.input {
			to.err = errors.New("its id is missing")
		}
	}
	d.put(to)
	return nil
}

// reject lists what never came into the pipeline.
func (d *deadLetters) reject(letters ...letter) {
	for _, l := range letters {
		l.input = true
		d.put(l)
	}
}

func (d *deadLetters) put(l letter) {
	id := "key " + l.key
	if l.input {
		id = fmt.Sprint("line ", l.line)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.letters[id] = l
}

func (d *deadLetters) all() []letter {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []letter
	for _, l := range d.letters {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b letter) int { return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.key, b.key)) })
	return out
}

// rejected is how many lines were.
func (d *deadLetters) rejected() (n int) {
	for _, l := range d.all() {
		if l.input {
			n++
		}
	}
	return n
}

func (d *deadLetters) list(w io.Writer) {
	const most = 50
	all := d.all()
	for i, l := range all {
		if i == most {
			fmt.Fprintf(w, "and %d more dead letters\n", len(all)-most)
			break
		}
		fmt.Fprintf(w, "dead letter: line %d", l.line)
		if l.key != "" {
			fmt.Fprintf(w, ", key %q", l.key)
		}
		fmt.Fprintf(w, ": %v (%s, %s)\n", l.err, l.stage, l.reason)
	}
}

// progress is a line on stderr: one that changes on a terminal, else a new one
// each second and one at the end.
type progress struct {
	quit, ended chan struct{}
}

func showProgress(w io.Writer, p *oncepipe.Pipeline, books *ledger) *progress {
	g := &progress{quit: make(chan struct{}), ended: make(chan struct{})}
	every, before, after := time.Second, "", "\n"
	if isTerminal(w) {
		every, before, after = 100*time.Millisecond, "\r", "\x1b[K"
	}
	begun, last := time.Now(), books.booked.Load()
	at := begun
	line := func() {
		s, now, booked := p.Stats(), time.Now(), books.booked.Load()
		rate := float64(booked-last) / now.Sub(at).Seconds()
		last, at = booked, now
		duplicates, parked := int64(0), int64(0)
		for _, d := range s.Dedups {
			duplicates += d.Committed + d.Joined
		}
		for _, st := range s.Stages {
			duplicates += st.Replayed
			parked += st.Parked
		}
		fmt.Fprintf(w, "%s%5.1fs  %d booked, %.0f/s  in flight %d  parked %d  duplicates %d%s",
			before, now.Sub(begun).Seconds(), booked, rate, s.InFlight, parked, duplicates, after)
	}
	go func() {
		defer close(g.ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				line()
			case <-g.quit:
				line()
				if before != "" {
					fmt.Fprintln(w)
				}
				return
			}
		}
	}()
	return g
}

func (g *progress) stop() {
	close(g.quit)
	<-g.ended
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// report is what -json prints.
type report struct {
	Sent         int64            `json:"sent"`          // requests
	Keys         int              `json:"keys"`          // distinct ones of this input
	Runs         int64            `json:"runs"`          // of the handler
	Retries      int64            `json:"retries"`       // of the handler and the sink
	Duplicates   int64            `json:"duplicates"`    // that had no effect: the sum of the next
	DuplicatesBy map[string]int64 `json:"duplicates_by"` // see examine
	Joined       int64            `json:"joined"`        // copies that met their key under way
	Dead         int              `json:"dead"`          // keys and lines given up
	Effects      int              `json:"effects"`
	Most         int              `json:"max_effects_per_key"`
	Missing      int              `json:"missing"` // keys with neither effect nor dead letter
	Conserved    bool             `json:"conserved"`
	Seconds      float64          `json:"seconds"`

	stats oncepipe.Stats
}

// examine reads the counters and, for what was promised, the database.
func examine(s oncepipe.Stats, books *ledger, in *input, dead *deadLetters) (report, error) {
	// The context of the run may be over.
	found, err := books.count(context.Background(), in)
	if err != nil {
		return report{}, err
	}
	r := report{
		Keys: in.keyCount(), Effects: found.effects, Most: found.most,
		Dead: len(dead.all()), Conserved: s.Conserved(), stats: s,
	}
	givenUp := map[string]bool{}
	for _, l := range dead.all() {
		if !l.input {
			givenUp[l.key] = true
		}
	}
	for _, key := range found.without {
		if !givenUp[key] {
			r.Missing++
		}
	}
	by := map[string]int64{"committed": 0, "joined": 0, "store": 0}
	for _, d := range s.Dedups {
		by["committed"] += d.Committed // booked by this process, and dedup knew it
		by["joined"] += d.Acked        // another copy was under way and did it
		r.Joined += d.Joined
	}
	for _, st := range s.Stages {
		by["store"] += st.Replayed // booked by an earlier process, as the database knew
		r.Retries += st.Retried
		if st.Name == "handle" {
			r.Runs = st.Runs
		}
	}
	r.DuplicatesBy = by
	r.Duplicates = by["committed"] + by["joined"] + by["store"]
	return r, nil
}

// broken says which promise is.
func (r report) broken(o options, dead *deadLetters) error {
	var errs []error
	if n := dead.rejected(); n > 0 {
		errs = append(errs, fmt.Errorf("%d lines of the input were rejected", n))
	}
	if o.unguarded {
		return errors.Join(errs...) // it promises nothing
	}
	if r.Most > 1 {
		errs = append(errs, fmt.Errorf("a key has %d effects", r.Most))
	}
	if r.Missing > 0 {
		errs = append(errs, fmt.Errorf("%d keys have neither an effect nor a dead letter", r.Missing))
	}
	if !r.Conserved {
		errs = append(errs, errors.New("deliveries that were admitted have no outcome, or two"))
	}
	return errors.Join(errs...)
}

func (r report) print(w io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(w).Encode(r)
	}
	var err error
	row := func(name string, value any, format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%-22s%8v%s\n", name, value, fmt.Sprintf(format, args...))
		}
	}
	row("sent", r.Sent, "  requests, in %.1f s", r.Seconds)
	row("distinct keys", r.Keys, "")
	row("handler runs", r.Runs, "")
	row("retries", r.Retries, "")
	row("duplicates", r.Duplicates, "  committed %d, joined %d, store %d (settled as done)",
		r.DuplicatesBy["committed"], r.DuplicatesBy["joined"], r.DuplicatesBy["store"])
	row("joined", r.Joined, "")
	row("dead", r.Dead, "")
	row("effects", r.Effects, "")
	row("most effects per key", r.Most, "")
	aside := ""
	if r.Dead > 0 {
		aside = "  dead letters aside"
	}
	row("keys without effect", r.Missing, "%s", aside)
	s := r.stats
	conserved, sign := "yes", "="
	if !r.Conserved {
		conserved, sign = "NO", "≠"
	}
	row("conserved", conserved, "  admitted %d %s done %d + duplicate %d + filtered %d + shed %d + dead %d + returned %d",
		s.Admitted, sign, s.Done, s.Duplicate, s.Filtered, s.Shed, s.Dead, s.Returned)
	return err
}
