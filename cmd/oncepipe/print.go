package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oncepipe/oncepipe"
)

const (
	cutInTable  = 60
	cutInRecord = 2000
	rowsAligned = 100
)

// printer writes for people, or for programs.
type printer struct {
	w    io.Writer
	json bool
}

func (p printer) object(v any) error {
	enc := json.NewEncoder(p.w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// say prints object for programs and the text for people.
func (p printer) say(object any, format string, args ...any) error {
	if p.json {
		return p.object(object)
	}
	_, err := fmt.Fprintf(p.w, format+"\n", args...)
	return err
}

// printable returns s as a terminal may get it.
func printable(s string) string {
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	if !utf8.ValidString(s) || strings.ContainsFunc(s, bad) {
		return strconv.Quote(s)
	}
	return s
}

// cut is printable for the first n characters.
func cut(s string, n int) string {
	i := 0
	for at := range s {
		if i == n {
			return printable(s[:at]) + "…"
		}
		i++
	}
	return printable(s)
}

func seconds(d time.Duration) time.Duration { return d.Round(time.Second) }

// recordObject is a record as programs get it.
type recordObject struct {
	Namespace   string   `json:"namespace"`
	Key         string   `json:"key"`
	State       string   `json:"state"`
	Fence       uint64   `json:"fence"`
	Attempt     int      `json:"attempt"`
	Takeovers   int      `json:"takeovers"`
	Owner       string   `json:"owner,omitempty"`
	Fingerprint string   `json:"fingerprint,omitempty"`
	Lease       *float64 `json:"lease_seconds,omitempty"`
	Wait        *float64 `json:"wait_seconds,omitempty"`
	Retention   *float64 `json:"retention_seconds,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	Payload     *string  `json:"payload,omitempty"`
	Payload64   []byte   `json:"payload_base64,omitempty"`
	Result      *string  `json:"result,omitempty"`
	Result64    []byte   `json:"result_base64,omitempty"`
}

func objectOf(r oncepipe.Record) recordObject {
	o := recordObject{
		Namespace: r.Namespace, Key: r.Key, State: r.State.String(),
		Fence: r.Fence, Attempt: r.Attempt, Takeovers: r.Takeovers,
		Owner: r.Owner, Fingerprint: r.Fingerprint, Reason: r.Reason,
	}
	if len(r.Payload) > 0 {
		o.Payload, o.Payload64 = asText(r.Payload)
	}
	if r.HasResult {
		o.Result, o.Result64 = asText(r.Result)
	}
	in := func(d time.Duration) *float64 { s := d.Seconds(); return &s }
	switch r.State {
	case oncepipe.StateClaimed:
		o.Lease = in(r.Lease)
	case oncepipe.StateWaiting:
		o.Wait, o.Retention = in(r.Wait), in(r.Retention)
	case oncepipe.StateCompleted, oncepipe.StateFailed:
		o.Retention = in(r.Retention)
	}
	return o
}

// asText returns data as a string where it is one, and else as it is.
func asText(data []byte) (*string, []byte) {
	if !utf8.Valid(data) {
		return nil, data
	}
	s := string(data)
	return &s, nil
}

func (p printer) records(recs []oncepipe.Record) error {
	for i, r := range recs {
		if p.json {
			if err := p.object(objectOf(r)); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(p.w)
		}
		if err := p.record(r); err != nil {
			return err
		}
	}
	return nil
}

func (p printer) record(r oncepipe.Record) error {
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	line := func(name, text string) { fmt.Fprintf(tw, "%s\t%s\n", name, text) }
	line("namespace", printable(r.Namespace))
	line("key", printable(r.Key))
	line("state", r.State.String())
	line("attempts", strconv.Itoa(r.Attempt))
	line("takeovers", strconv.Itoa(r.Takeovers))
	line("fence", strconv.FormatUint(r.Fence, 10))
	if r.Owner != "" {
		line("owner", printable(r.Owner))
	}
	if r.Fingerprint != "" {
		line("fingerprint", printable(r.Fingerprint))
	}
	switch {
	case live(r):
		line("lease", seconds(r.Lease).String())
	case r.State == oncepipe.StateClaimed:
		line("lease", "over")
	case r.State == oncepipe.StateWaiting && r.Wait > 0:
		line("due in", seconds(r.Wait).String())
	case r.State == oncepipe.StateWaiting:
		line("due", "now")
	}
	if r.State != oncepipe.StateClaimed && r.State != oncepipe.StateUnknown {
		line("kept for", seconds(r.Retention).String())
	}
	if r.Reason != "" {
		line("reason", cut(r.Reason, cutInRecord))
	}
	if len(r.Payload) > 0 {
		line("payload", cut(string(r.Payload), cutInRecord))
	}
	if r.HasResult {
		line("result", cut(string(r.Result), cutInRecord))
	}
	return tw.Flush()
}

// list is a table of records, aligned a page at a time.
type list struct {
	p  printer
	tw *tabwriter.Writer
	n  int
}

func (p printer) list() *list {
	return &list{p: p, tw: tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)}
}

func (l *list) add(r oncepipe.Record) error {
	if l.p.json {
		return l.p.object(objectOf(r))
	}
	if l.n == 0 {
		fmt.Fprintln(l.tw, "STATE\tNAMESPACE\tKEY\tATTEMPTS\tREASON\tPAYLOAD")
	}
	l.n++
	fmt.Fprintf(l.tw, "%v\t%s\t%s\t%d\t%s\t%s\n", r.State, printable(r.Namespace), printable(r.Key), r.Attempt,
		cut(r.Reason, cutInTable), cut(string(r.Payload), cutInTable))
	if l.n%rowsAligned == 0 {
		return l.tw.Flush()
	}
	return nil
}

func (l *list) end() error { return l.tw.Flush() }

type idObject struct {
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
}

func (p printer) forgotten(id oncepipe.RecordID) error {
	return p.say(struct {
		idObject
		Forgotten bool `json:"forgotten"`
	}{idObject{id.Namespace, id.Key}, true}, "forgotten: %s of %s", printable(id.Key), printable(id.Namespace))
}

func (p printer) resolved(id oncepipe.RecordID, to oncepipe.State) error {
	return p.say(struct {
		idObject
		State string `json:"state"`
	}{idObject{id.Namespace, id.Key}, to.String()}, "%s: %s of %s", to, printable(id.Key), printable(id.Namespace))
}

func (p printer) redriven(n, left int) error {
	text := fmt.Sprintf("%d redriven", n)
	if left > 0 {
		text += fmt.Sprintf(", %d left for want of a payload", left)
	}
	return p.say(struct {
		Redriven int `json:"redriven"`
		Left     int `json:"left"`
	}{n, left}, "%s", text)
}

func (p printer) pruned(n int) error {
	return p.say(map[string]int{"pruned": n}, "%d pruned", n)
}

func (p printer) migrated() error {
	return p.say(map[string]bool{"migrated": true}, "the tables are there")
}

func (p printer) schema(text string) error {
	return p.say(map[string]string{"schema": text}, "%s", strings.TrimSuffix(text, "\n"))
}

func (p printer) stats(n map[oncepipe.State]int) error {
	states := []oncepipe.State{
		oncepipe.StateClaimed, oncepipe.StateWaiting, oncepipe.StateCompleted, oncepipe.StateFailed, oncepipe.StateUnknown,
	}
	if p.json {
		all := map[string]int{}
		for _, s := range states {
			all[s.String()] = n[s]
		}
		return p.object(all)
	}
	for _, s := range states {
		if _, err := fmt.Fprintf(p.w, "%-9v  %8d\n", s, n[s]); err != nil {
			return err
		}
	}
	return nil
}
